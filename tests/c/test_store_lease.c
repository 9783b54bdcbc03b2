/* The lease between objects, threads and processes: one holder at a time, and nobody waits for the
 * dead. TTLs are short where a test waits for one to pass and long where it must not. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "store/lease.h"
#include "store/lease_record.h"

enum {
    LONG_TTL_MS = 60 * 1000,
    SHORT_TTL_MS = 200,
    PATIENCE_MS = 10 * 1000, /* after which a test fails rather than waits */
};

static int make_dir(void **state)
{
    *state = test_make_dir();
    return 0;
}

static int remove_dir(void **state)
{
    test_remove_dir(*state);
    return 0;
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static struct ydl_lease *new_lease(const char *dir, uint64_t ttl_ms)
{
    struct ydl_lease *lease;
    struct ydl_error err;
    assert_status(YDL_OK, ydl_lease_new(dir, ttl_ms, &lease, &err), &err);
    return lease;
}

static struct ydl_lease_view try_for(struct ydl_lease *lease, enum ydl_status expected)
{
    struct ydl_lease_view view;
    struct ydl_error err;
    assert_status(expected, ydl_lease_try(lease, &view, &err), &err);
    return view;
}

static struct ydl_lease_view peek(struct ydl_lease *lease)
{
    struct ydl_lease_view view;
    struct ydl_error err;
    assert_status(YDL_OK, ydl_lease_peek(lease, &view, &err), &err);
    return view;
}

static void release(struct ydl_lease *lease, const char *failure)
{
    struct ydl_error err;
    assert_status(YDL_OK, ydl_lease_release(lease, failure, &err), &err);
}

/* Tries until it holds; how long that took. */
static uint64_t wait_for(struct ydl_lease *lease)
{
    const uint64_t start = ydl_now_ms();
    struct ydl_lease_view view;
    struct ydl_error err;
    enum ydl_status status;
    while ((status = ydl_lease_try(lease, &view, &err)) == YDL_BUSY) {
        assert_true(ydl_now_ms() - start < PATIENCE_MS);
        sleep_ms(5);
    }
    assert_status(YDL_OK, status, &err);
    return ydl_now_ms() - start;
}

static char *generation_path(const char *dir, unsigned generation)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%08u.lease", dir, generation) > 0);
    return path;
}

static bool generation_exists(const char *dir, unsigned generation)
{
    char *path = generation_path(dir, generation);
    struct stat st;
    bool exists = lstat(path, &st) == 0;
    free(path);
    return exists;
}

/* A child that holds the lease and then does what it is told by signals. */
static pid_t start_holder(const char *dir, uint64_t ttl_ms)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct ydl_lease *lease;
        struct ydl_lease_view view;
        struct ydl_error err;
        if (ydl_lease_new(dir, ttl_ms, &lease, &err) != YDL_OK ||
            ydl_lease_try(lease, &view, &err) != YDL_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void kill_and_reap(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_one_holds_and_the_next_follows(void **state)
{
    const char *dir = *state;
    struct ydl_lease *one = new_lease(dir, LONG_TTL_MS);
    struct ydl_lease *two = new_lease(dir, LONG_TTL_MS);
    assert_int_equal(peek(two).generation, 0);
    assert_false(ydl_lease_is_held(one));

    struct ydl_lease_view view = try_for(one, YDL_OK);
    assert_int_equal(view.generation, 0);
    assert_true(ydl_lease_is_held(one));
    view = try_for(two, YDL_BUSY);
    assert_false(ydl_lease_is_held(two));
    assert_int_equal(view.generation, 1);
    assert_true(view.held && !view.failed && !view.stale);
    assert_int_equal(view.pid, getpid());
    assert_true(strlen(view.host) > 0);
    assert_true(view.since > 1700000000);
    assert_int_equal(view.failures, 0);

    /* Trying again changes nothing for the holder. */
    view = try_for(one, YDL_OK);
    assert_int_equal(view.generation, 1);

    release(one, NULL);
    assert_false(ydl_lease_is_held(one));
    view = peek(two);
    assert_true(view.generation == 1 && !view.held && !view.failed);
    try_for(two, YDL_OK);
    try_for(one, YDL_BUSY);
    assert_int_equal(peek(one).generation, 2);
    ydl_lease_free(one);
    assert_true(ydl_lease_is_held(two));
    ydl_lease_free(two);
    ydl_lease_free(NULL);
}

static void test_release_is_idempotent(void **state)
{
    struct ydl_lease *lease = new_lease(*state, LONG_TTL_MS);
    release(lease, NULL);
    release(lease, "never held");
    assert_int_equal(peek(lease).generation, 0);
    try_for(lease, YDL_OK);
    release(lease, NULL);
    release(lease, "too late");
    assert_false(peek(lease).failed);
    ydl_lease_free(lease);
}

static void test_free_releases(void **state)
{
    struct ydl_lease *one = new_lease(*state, LONG_TTL_MS);
    struct ydl_lease *two = new_lease(*state, LONG_TTL_MS);
    try_for(one, YDL_OK);
    ydl_lease_free(one);
    try_for(two, YDL_OK);
    ydl_lease_free(two);
}

static void test_failures_in_a_row_are_counted(void **state)
{
    const char *dir = *state;
    struct ydl_lease *one = new_lease(dir, LONG_TTL_MS);
    struct ydl_lease *two = new_lease(dir, LONG_TTL_MS);
    try_for(one, YDL_OK);
    release(one, "ValueError: first\nsecond line");
    struct ydl_lease_view view = peek(two);
    assert_true(view.failed && !view.held);
    assert_int_equal(view.failures, 1);
    assert_string_equal(view.text, "ValueError: first second line");

    view = try_for(two, YDL_OK); /* shows the generation before */
    assert_true(view.failed);
    assert_int_equal(view.failures, 1);
    view = try_for(one, YDL_BUSY);
    assert_int_equal(view.failures, 1);
    assert_string_equal(view.text, "");
    release(two, "again");
    assert_int_equal(peek(one).failures, 2);

    /* A holder that died neither counts nor ends the row. */
    kill_and_reap(start_holder(dir, LONG_TTL_MS));
    view = try_for(one, YDL_OK);
    assert_int_equal(view.failures, 2);
    assert_true(view.stale && view.held);
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    release(one, long_text);
    assert_int_equal(peek(two).failures, 3);
    assert_int_equal(strlen(peek(two).text), YDL_LEASE_TEXT_BYTES - 1);

    try_for(two, YDL_OK);
    release(two, NULL);
    assert_int_equal(peek(one).failures, 0);
    try_for(one, YDL_OK);
    release(one, "new row");
    assert_int_equal(peek(one).failures, 1);
    ydl_lease_free(one);
    ydl_lease_free(two);
}

static void test_old_generations_go(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, LONG_TTL_MS);
    for (int i = 0; i < 4; i++) {
        try_for(lease, YDL_OK);
        release(lease, NULL);
    }
    assert_false(generation_exists(dir, 1));
    assert_false(generation_exists(dir, 2));
    assert_true(generation_exists(dir, 3));
    assert_true(generation_exists(dir, 4));
    ydl_lease_free(lease);
}

static void test_killed_holder_is_followed_at_once(void **state)
{
    struct ydl_lease *lease = new_lease(*state, LONG_TTL_MS);
    pid_t pid = start_holder(*state, LONG_TTL_MS);
    struct ydl_lease_view view = try_for(lease, YDL_BUSY);
    assert_int_equal(view.pid, pid);
    kill_and_reap(pid);
    view = try_for(lease, YDL_OK);
    assert_true(view.stale);
    assert_int_equal(view.pid, pid);
    assert_true(ydl_lease_is_held(lease));
    ydl_lease_free(lease);
}

static void test_stopped_holder_is_followed_after_one_and_a_half_ttl(void **state)
{
    struct ydl_lease *lease = new_lease(*state, SHORT_TTL_MS);
    pid_t pid = start_holder(*state, SHORT_TTL_MS);
    kill(pid, SIGSTOP);
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    uint64_t took = wait_for(lease);
    assert_true(took >= SHORT_TTL_MS * 3 / 2 - 1); /* two clock readings in whole ms */
    kill_and_reap(pid);
    ydl_lease_free(lease);
}

static void test_beating_holder_keeps_the_lease(void **state)
{
    /* Long enough for a loaded machine to be late with a beat. */
    const uint64_t ttl_ms = 600;
    struct ydl_lease *waiter = new_lease(*state, ttl_ms);
    struct ydl_lease *holder = new_lease(*state, ttl_ms);
    try_for(holder, YDL_OK);
    ydl_lease_set_progress(holder, 1234);
    const uint64_t start = ydl_now_ms();
    while (ydl_now_ms() - start < 2 * ttl_ms) {
        assert_false(try_for(waiter, YDL_BUSY).stale);
        sleep_ms(20);
    }
    assert_int_equal(peek(waiter).progress, 1234);
    ydl_lease_set_progress(holder, 2000);
    release(holder, NULL);
    assert_int_equal(peek(waiter).progress, 2000);
    ydl_lease_free(waiter);
    ydl_lease_free(holder);
}

/* What an overtaken holder may find out, and must not do. */
static void test_overtaken_holder_knows(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, LONG_TTL_MS);
    try_for(lease, YDL_OK);
    char *next = generation_path(dir, 2);
    test_write_file(next, "", 0); /* whoever that is */
    assert_false(ydl_lease_is_held(lease));

    struct ydl_lease_view view = try_for(lease, YDL_BUSY);
    assert_int_equal(view.generation, 2);
    assert_true(view.held);
    release(lease, "ignored");
    ydl_lease_free(lease);

    char *own = generation_path(dir, 1);
    size_t n;
    uint8_t *bytes = test_read_file(own, &n);
    struct ydl_lease_record record;
    assert_true(ydl_lease_record_parse((const char *)bytes, n, &record));
    assert_int_equal(record.state, YDL_LEASE_HELD);
    free(bytes);
    free(own);
    free(next);
}

/* The thread finds it out by itself, and a file that was removed under it, too. */
static void test_heartbeat_ends_when_overtaken(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, SHORT_TTL_MS);
    try_for(lease, YDL_OK);
    char *next = generation_path(dir, 2);
    test_write_file(next, "", 0);
    sleep_ms(2 * SHORT_TTL_MS); /* twelve beats */
    assert_int_equal(unlink(next), 0);
    assert_false(ydl_lease_is_held(lease)); /* noted while it was there */
    free(next);

    release(lease, NULL); /* of no effect: the generation goes stale with its beat at rest */
    wait_for(lease);
    char *own = generation_path(dir, 2);
    assert_int_equal(unlink(own), 0);
    assert_false(ydl_lease_is_held(lease));
    free(own);
    ydl_lease_free(lease);
}

static void test_unreadable_generations_grow_stale(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, SHORT_TTL_MS);
    static const char junk[3000] = "state=released\n";
    static const size_t sizes[] = {0, 15, YDL_LEASE_RECORD_BYTES, sizeof junk};
    unsigned generation = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *path = generation_path(dir, ++generation);
        test_write_file(path, junk, sizes[i]);
        free(path);
        struct ydl_lease_view view = try_for(lease, YDL_BUSY);
        assert_true(view.held && view.generation == generation && view.pid == 0);
        assert_true(wait_for(lease) >= SHORT_TTL_MS * 3 / 2 - 50);
        assert_true(generation_exists(dir, ++generation));
        release(lease, NULL);
    }
    ydl_lease_free(lease);
}

static void test_planted_links_and_pipes_are_not_touched(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, SHORT_TTL_MS);
    char *target = ydl_join_path(dir, "target");
    char *link = generation_path(dir, 1);
    test_write_file(target, "secret", 6);
    assert_int_equal(symlink(target, link), 0);
    assert_true(try_for(lease, YDL_BUSY).held);
    wait_for(lease);
    release(lease, NULL);
    size_t n;
    uint8_t *bytes = test_read_file(target, &n);
    assert_int_equal(n, 6);
    free(bytes);

    char *fifo = generation_path(dir, 3);
    assert_int_equal(mkfifo(fifo, 0666), 0);
    assert_true(try_for(lease, YDL_BUSY).held);
    wait_for(lease);
    ydl_lease_free(lease);
    free(fifo);
    free(link);
    free(target);
}

static void test_last_generation(void **state)
{
    const char *dir = *state;
    struct ydl_lease *lease = new_lease(dir, SHORT_TTL_MS);
    char *path = generation_path(dir, 99999999);
    test_write_file(path, "", 0);
    try_for(lease, YDL_BUSY);
    sleep_ms(SHORT_TTL_MS * 3 / 2 + 5);
    try_for(lease, YDL_CORRUPT_CACHE);
    ydl_lease_free(lease);
    free(path);
}

static void test_arguments_and_directories(void **state)
{
    struct ydl_lease *lease;
    struct ydl_error err;
    assert_status(YDL_INVALID, ydl_lease_new(*state, 0, &lease, &err), &err);
    assert_null(lease);
    assert_status(YDL_INVALID, ydl_lease_new(*state, UINT64_MAX, &lease, &err), &err);

    char *dir = ydl_join_path(*state, "lease");
    lease = new_lease(dir, YDL_LEASE_DEFAULT_TTL_MS);
    try_for(lease, YDL_OK);
    ydl_lease_free(lease);
    assert_true(generation_exists(dir, 1));
    free(dir);

    dir = ydl_join_path(*state, "absent/lease");
    assert_status(YDL_OS, ydl_lease_new(dir, LONG_TTL_MS, &lease, &err), &err);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_null(lease);
    free(dir);
}

static void test_fork_leaves_the_lease_to_the_parent(void **state)
{
    struct ydl_lease *lease = new_lease(*state, LONG_TTL_MS);
    struct ydl_lease *waiter = new_lease(*state, LONG_TTL_MS);
    try_for(lease, YDL_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct ydl_lease_view view;
        struct ydl_error err;
        alarm(10); /* a join of the missing thread would hang */
        int wrong = ydl_lease_try(lease, &view, &err) != YDL_FORKED;
        wrong += ydl_lease_peek(lease, &view, &err) != YDL_FORKED;
        wrong += ydl_lease_release(lease, NULL, &err) != YDL_FORKED;
        wrong += ydl_lease_is_held(lease);
        ydl_lease_set_progress(lease, 5);
        ydl_lease_free(lease);
        ydl_lease_free(waiter);
        _exit(wrong);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(ydl_lease_is_held(lease));
    try_for(waiter, YDL_BUSY);
    release(lease, NULL);
    assert_false(peek(waiter).held);
    ydl_lease_free(lease);
    ydl_lease_free(waiter);
}

static volatile sig_atomic_t signalled;

static void note_signal(int number)
{
    (void)number;
    signalled = 1;
}

static void test_signals_do_not_reach_the_heartbeat(void **state)
{
    struct ydl_lease *lease = new_lease(*state, LONG_TTL_MS);
    signalled = 0;
    sigset_t before;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    void (*old)(int) = signal(SIGUSR1, note_signal);
    try_for(lease, YDL_OK);

    /* The main thread blocks it: the heartbeat would be the only one to take it. */
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    kill(getpid(), SIGUSR1);
    sleep_ms(20);
    assert_int_equal(signalled, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(signalled, 1);
    signal(SIGUSR1, old);
    ydl_lease_free(lease);
}

/* Shared by processes and threads: who believes to hold the lease. */
struct arena {
    _Atomic int inside;
    _Atomic int turns;
    _Atomic int clashes;
};

static int take_turns(const char *dir, struct arena *arena, int turns)
{
    struct ydl_lease *lease;
    struct ydl_lease_view view;
    struct ydl_error err;
    if (ydl_lease_new(dir, LONG_TTL_MS, &lease, &err) != YDL_OK)
        return 1;
    for (int i = 0; i < turns;) {
        enum ydl_status status = ydl_lease_try(lease, &view, &err);
        if (status == YDL_BUSY) {
            sleep_ms(1);
            continue;
        }
        if (status != YDL_OK) {
            print_error("%s\n", err.text);
            return 2;
        }
        if (arena->inside++ != 0)
            arena->clashes++;
        sleep_ms(1);
        arena->turns++;
        arena->inside--;
        if (ydl_lease_release(lease, i % 2 ? "failed" : NULL, &err) != YDL_OK)
            return 3;
        i++;
    }
    ydl_lease_free(lease);
    return 0;
}

static void test_processes_hold_it_one_at_a_time(void **state)
{
    enum { CHILDREN = 8, TURNS = 5 };
    struct arena *arena =
        mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(arena, MAP_FAILED);
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(take_turns(*state, arena, TURNS));
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(arena->turns, CHILDREN * TURNS);
    assert_int_equal(arena->clashes, 0);
    munmap(arena, sizeof *arena);
}

struct thread_args {
    const char *dir;
    struct arena *arena;
    struct ydl_lease *shared;
    int result;
};

static void *run_turns(void *arg)
{
    struct thread_args *args = arg;
    args->result = take_turns(args->dir, args->arena, 5);
    return NULL;
}

static void test_threads_hold_it_one_at_a_time(void **state)
{
    enum { THREADS = 4 };
    struct arena arena = {0};
    struct thread_args args = {.dir = *state, .arena = &arena};
    struct thread_args each[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        each[i] = args;
        assert_int_equal(pthread_create(&threads[i], NULL, run_turns, &each[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(each[i].result, 0);
    }
    assert_int_equal(arena.turns, THREADS * 5);
    assert_int_equal(arena.clashes, 0);
}

static void *use_shared(void *arg)
{
    struct thread_args *args = arg;
    struct ydl_lease_view view;
    struct ydl_error err;
    for (uint64_t i = 0; i < 20 && args->result == 0; i++) {
        if (ydl_lease_try(args->shared, &view, &err) != YDL_OK)
            args->result = 1;
        ydl_lease_set_progress(args->shared, i);
        ydl_lease_is_held(args->shared);
        if (ydl_lease_release(args->shared, NULL, &err) != YDL_OK)
            args->result = 2;
    }
    return NULL;
}

/* One object in several threads: for the thread sanitizer to look at. */
static void test_shared_object(void **state)
{
    enum { THREADS = 3 };
    struct ydl_lease *lease = new_lease(*state, 12);
    struct thread_args each[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        each[i] = (struct thread_args){.shared = lease};
        assert_int_equal(pthread_create(&threads[i], NULL, use_shared, &each[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(each[i].result, 0);
    }
    ydl_lease_free(lease);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_one_holds_and_the_next_follows),
        WITH_DIR(test_release_is_idempotent),
        WITH_DIR(test_free_releases),
        WITH_DIR(test_failures_in_a_row_are_counted),
        WITH_DIR(test_old_generations_go),
        WITH_DIR(test_killed_holder_is_followed_at_once),
        WITH_DIR(test_stopped_holder_is_followed_after_one_and_a_half_ttl),
        WITH_DIR(test_beating_holder_keeps_the_lease),
        WITH_DIR(test_overtaken_holder_knows),
        WITH_DIR(test_heartbeat_ends_when_overtaken),
        WITH_DIR(test_unreadable_generations_grow_stale),
        WITH_DIR(test_planted_links_and_pipes_are_not_touched),
        WITH_DIR(test_last_generation),
        WITH_DIR(test_arguments_and_directories),
        WITH_DIR(test_fork_leaves_the_lease_to_the_parent),
        WITH_DIR(test_signals_do_not_reach_the_heartbeat),
        WITH_DIR(test_processes_hold_it_one_at_a_time),
        WITH_DIR(test_threads_hold_it_one_at_a_time),
        WITH_DIR(test_shared_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
