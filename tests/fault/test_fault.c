/* Every call that can fail, failing: in each scenario, each function, in each way that it may, the
 * first, second, ... N-th call of it, once and from there on, until no call is left to fail.
 *
 * After each: an error that says what happened, with the errno that was injected; nothing leaked,
 * no descriptor or temporary file left; and a run without faults works. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenarios.h"

/* The ways to fail. EINTR is not persistent anywhere: who tries again would do so for ever. */
static const struct way {
    enum fault_function function;
    int errors[8];
} ways[] = {
    {FAULT_malloc, {ENOMEM}},
    {FAULT_calloc, {ENOMEM}},
    {FAULT_realloc, {ENOMEM}},
    {FAULT_aligned_alloc, {ENOMEM}},
    {FAULT_strdup, {ENOMEM}},
    {FAULT_open, {EIO, ENOMEM, EMFILE, ENOSPC, EDQUOT, EINTR}},
    {FAULT_openat, {EIO, ENOSPC, EDQUOT, EINTR}},
    {FAULT_openat2, {EIO, ENOMEM, EMFILE, EINTR, ENOSYS}},
    {FAULT_fdopendir, {EIO, ENOMEM}},
    {FAULT_readdir, {EIO}},
    {FAULT_mkdir, {EIO, ENOSPC, EDQUOT, EINTR}},
    {FAULT_read, {EIO, EINTR, FAULT_SHORT}},
    {FAULT_pread, {EIO, EINTR, FAULT_SHORT}},
    {FAULT_write, {EIO, ENOSPC, EDQUOT, EINTR, FAULT_SHORT}},
    {FAULT_pwrite, {EIO, ENOSPC, EDQUOT, EINTR, FAULT_SHORT}},
    {FAULT_sync_file_range, {EIO, ENOSPC, EINTR, ENOSYS}},
    {FAULT_fsync, {EIO, ENOSPC, EDQUOT, EINTR}},
    {FAULT_fdatasync, {EIO, ENOSPC, EDQUOT, EINTR}},
    {FAULT_close, {EIO, ENOSPC, EDQUOT, EINTR}},
    {FAULT_mmap, {ENOMEM, ENODEV}},
    {FAULT_fstat, {EIO}},
    {FAULT_fstatat, {EIO}},
    {FAULT_stat, {EIO}},
    {FAULT_linkat, {EIO, ENOSPC, EDQUOT, EINTR, EPERM}},
    {FAULT_renameat, {EIO}},
    {FAULT_renameat2, {EIO}},
    {FAULT_unlink, {EIO}},
    {FAULT_unlinkat, {EIO, EINTR}},
    {FAULT_getrandom, {EIO}},
    {FAULT_pthread_create, {EAGAIN}},
};

static int count_entries(const char *path)
{
    int count = 0;
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

static const char *text_of(int error)
{
    return error == FAULT_SHORT ? "a short count" : strerrorname_np(error);
}

static bool is_tolerated(const struct scenario *scenario, enum fault_function function)
{
    for (const int *f = scenario->tolerated; *f >= 0; f++) {
        if (*f == (int)function)
            return true;
    }
    return false;
}

/* What must work in spite of the fault. */
static bool must_succeed(const struct fault_plan *plan)
{
    return plan->error == EINTR || plan->error == FAULT_SHORT ||
           (plan->function == FAULT_linkat && plan->error == EPERM) || /* then it renames */
           (plan->function == FAULT_sync_file_range && plan->error == ENOSYS) ||
           (plan->function == FAULT_openat2 && plan->error == ENOSYS); /* then it walks */
}

static const char *judge(const struct scenario *scenario, const struct fault_plan *plan,
                         enum ydl_status status, const struct ydl_error *err)
{
    if (must_succeed(plan))
        return status == YDL_OK ? NULL : "it should have succeeded";
    if (status == YDL_OK)
        return is_tolerated(scenario, plan->function) ? NULL : "it should have failed";
    if (err->status != status || err->text[0] == '\0')
        return "it failed without a word";
    if (status == YDL_NO_MEMORY)
        return plan->error == ENOMEM ? NULL : "memory was not what was missing";
    if (status != YDL_OS || err->sys_errno != plan->error)
        return "the error is another one";
    return NULL;
}

static int clean_fds;
static int clean_threads;
static long runs;

static void run_clean(const struct scenario *scenario)
{
    struct ydl_error err = {0};
    assert_status(YDL_OK, scenario->run(NULL, &err), &err);
}

/* False once the function is not called that often. */
/* The kernel takes its time to forget a thread that was joined. */
static bool threads_are_gone(void)
{
    for (int i = 0; i < 1000; i++) {
        if (count_entries("/proc/self/task") == clean_threads)
            return true;
        usleep(1000);
    }
    return false;
}

static bool run_plan(const struct scenario *scenario, const struct fault_plan *plan)
{
    struct ydl_error err = {0};
    enum ydl_status status = scenario->run(plan, &err);
    bool hit = fault_was_hit();
    long leaked = fault_leaked();
    const char *wrong = NULL;
    if (hit)
        wrong = judge(scenario, plan, status, &err);
    else if (status != YDL_OK)
        wrong = "it failed without a fault";
    if (!wrong && leaked != 0)
        wrong = "memory leaked";
    if (!wrong && count_entries("/proc/self/fd") != clean_fds)
        wrong = "a descriptor leaked";
    if (!wrong && !threads_are_gone())
        wrong = "a thread is left";
    if (wrong)
        fail_msg("%s, with %s failing with %s the %u. time%s: %s (%s: %s)", scenario->name,
                 fault_name(plan->function), text_of(plan->error), plan->nth,
                 plan->persistent ? " and from then on" : "", wrong, ydl_status_text(status),
                 err.text);
    runs++;
    if (hit)
        run_clean(scenario);
    return hit;
}

static void run_way(const struct scenario *scenario, const struct way *way)
{
    struct ydl_error err = {0};
    (void)!scenario->run(NULL, &err);
    if (fault_calls(way->function) == 0)
        return;
    for (const int *error = way->errors; *error != 0; error++) {
        for (int persistent = 0; persistent < (*error == EINTR ? 1 : 2); persistent++) {
            struct fault_plan plan = {way->function, *error, 0, persistent};
            do {
                plan.nth++;
            } while (run_plan(scenario, &plan) &&
                     (scenario->max_nth == 0 || plan.nth < scenario->max_nth));
        }
    }
}

static void test_scenario(void **state)
{
    const struct scenario *scenario = *state;
    long before = runs;
    run_clean(scenario); /* the first map stays in the table, and the like */
    clean_fds = count_entries("/proc/self/fd");
    clean_threads = count_entries("/proc/self/task");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        run_way(scenario, &ways[i]);
    print_message("%s: %ld faults\n", scenario->name, runs - before);
    assert_true(runs > before);
}

/* The list of fault.mk is the one of fault.h: every wrapped function is called by some scenario. */
static void test_all_functions_are_called(void **state)
{
    (void)state;
    unsigned calls[FAULT_FUNCTION_COUNT] = {0};
    for (int i = 0; i < fault_scenario_count; i++) {
        run_clean(&fault_scenarios[i]);
        for (int f = 0; f < FAULT_FUNCTION_COUNT; f++)
            calls[f] += fault_calls((enum fault_function)f);
    }
    for (int f = 0; f < FAULT_FUNCTION_COUNT; f++) {
        /* These are reached after other faults only. */
        if (f == FAULT_fstatat || f == FAULT_renameat || f == FAULT_renameat2 || f == FAULT_unlink)
            continue;
        if (calls[f] == 0)
            fail_msg("no scenario calls %s", fault_name((enum fault_function)f));
    }
}

static int setup(void **state)
{
    (void)state;
    fault_scenarios_setup();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fault_scenarios_teardown();
    print_message("%ld faults injected\n", runs);
    return 0;
}

int main(void)
{
    /* The same calls, and no disk that waits for each fsync. */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    struct CMUnitTest tests[32] = {cmocka_unit_test(test_all_functions_are_called)};
    for (int i = 0; i < fault_scenario_count; i++)
        tests[i + 1] = (struct CMUnitTest){.name = fault_scenarios[i].name,
                                           .test_func = test_scenario,
                                           .initial_state = (void *)(uintptr_t)&fault_scenarios[i]};
    return _cmocka_run_group_tests("tests", tests, (size_t)fault_scenario_count + 1, setup,
                                   teardown);
}
