/* Maps whose file is cut short: marked, never fatal; and faults that are not ours reach whom they
 * would have reached without us. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/map.h"
#include "base/thread.h"

enum { PAGE = 4096, FILE_BYTES = 8 * PAGE };

/* A file of 0xa5 bytes without a name. */
static int make_file(void)
{
    static uint8_t bytes[FILE_BYTES];
    memset(bytes, 0xa5, sizeof bytes);
    int fd = memfd_create("map", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    return fd;
}

static void cut(int fd, off_t bytes)
{
    assert_int_equal(ftruncate(fd, bytes), 0);
}

static struct ydl_map *map(int fd)
{
    struct ydl_error err;
    struct ydl_map *out;
    assert_status(YDL_OK, ydl_map_new(fd, FILE_BYTES, "a file", &out, &err), &err);
    return out;
}

static uint8_t read_at(const uint8_t *bytes, size_t at)
{
    return *(const volatile uint8_t *)(bytes + at);
}

/* A map that is not ours, cut so that reading any of it is a fault. */
static const uint8_t *foreign_map(void)
{
    int fd = make_file();
    const uint8_t *bytes = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    cut(fd, 0);
    close(fd);
    return bytes;
}

/* ---- faults that are not ours: each in a child, whose first map comes after its own handler ----
 */

static const uint8_t *volatile foreign;
static volatile sig_atomic_t calls;
static volatile sig_atomic_t address_is_right;
static volatile sig_atomic_t blocked; /* bit 0: SIGBUS, bit 1: SIGUSR1 */
static sigjmp_buf back;

/* ThreadSanitizer calls handlers with a mask of its own. */
#ifdef __SANITIZE_THREAD__
#define MASK_IS(expected) true
#else
#define MASK_IS(expected) (blocked == (expected))
#endif

static void note_mask(void)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    blocked = (sigismember(&now, SIGBUS) ? 1 : 0) | (sigismember(&now, SIGUSR1) ? 2 : 0);
}

static void plain_handler(int sig)
{
    calls = calls + (sig == SIGBUS);
    note_mask();
    siglongjmp(back, 1);
}

static void info_handler(int sig, siginfo_t *info, void *context)
{
    address_is_right = context && info->si_addr == foreign + PAGE;
    plain_handler(sig);
}

/* What the child found to be wrong, or a signal that ended it (then 0). */
static int in_child(int (*run)(void), int *out_signal)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(run());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *out_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static void install(struct sigaction action)
{
    sigaction(SIGBUS, &action, NULL);
    int fd = make_file();
    struct ydl_map *ours = map(fd); /* installs ours */
    cut(fd, 0);
    if (read_at(ydl_map_bytes(ours), 0) != 0 || !ydl_map_is_damaged(ours))
        _exit(100);
    ydl_map_free(ours);
    foreign = foreign_map();
}

static int fault_by_default(void)
{
    install((struct sigaction){.sa_handler = SIG_DFL});
    return 1 + read_at(foreign, PAGE);
}

static int fault_while_ignored(void)
{
    install((struct sigaction){.sa_handler = SIG_IGN});
    if (raise(SIGBUS) != 0)
        return 1;
    return 2 + read_at(foreign, PAGE);
}

static int sent_by_default(void)
{
    install((struct sigaction){.sa_handler = SIG_DFL});
    raise(SIGBUS);
    return 1;
}

static int fault_to_plain_handler(void)
{
    struct sigaction action = {.sa_handler = plain_handler};
    sigaddset(&action.sa_mask, SIGUSR1);
    install(action);
    if (sigsetjmp(back, 1) == 0)
        return 1 + read_at(foreign, PAGE);
    if (calls != 1 || !MASK_IS(3))
        return 2;
    if (sigsetjmp(back, 1) == 0)
        raise(SIGBUS);
    return calls == 2 ? 0 : 3;
}

static int fault_to_info_handler(void)
{
    install((struct sigaction){.sa_sigaction = info_handler, .sa_flags = SA_SIGINFO | SA_NODEFER});
    if (sigsetjmp(back, 1) == 0)
        return 1 + read_at(foreign, PAGE);
    return calls == 1 && MASK_IS(0) && address_is_right ? 0 : 2;
}

static int fault_to_spent_handler(void)
{
    struct sigaction action = {.sa_handler = plain_handler, .sa_flags = (int)SA_RESETHAND};
    install(action);
    if (sigsetjmp(back, 1) == 0)
        return 1 + read_at(foreign, PAGE);
    if (calls != 1)
        return 2;
    return 3 + read_at(foreign, PAGE);
}

/* Where a map of ours was, somebody else's is somebody else's. */
static int fault_at_an_old_place(void)
{
    install((struct sigaction){.sa_handler = plain_handler});
    int fd = make_file();
    struct ydl_map *ours = map(fd);
    void *place = (void *)(uintptr_t)ydl_map_bytes(ours);
    ydl_map_free(ours);
    uint8_t *theirs = mmap(place, FILE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    cut(fd, 0);
    if (sigsetjmp(back, 1) == 0)
        return 1 + read_at(theirs, 0);
    return calls == 1 ? 0 : 2;
}

static void test_other_faults_are_passed_on(void **state)
{
    (void)state;
    int signal;
    assert_int_equal(in_child(fault_to_plain_handler, &signal) + signal, 0);
    assert_int_equal(in_child(fault_to_info_handler, &signal) + signal, 0);
    assert_int_equal(in_child(fault_at_an_old_place, &signal) + signal, 0);
}

static void test_the_default_action_still_kills(void **state)
{
    (void)state;
    static int (*const runs[])(void) = {fault_by_default, fault_while_ignored, sent_by_default,
                                        fault_to_spent_handler};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        int signal;
        assert_int_equal(in_child(runs[i], &signal), 0);
        assert_int_equal(signal, SIGBUS);
    }
}

/* ---- faults that are ours ---- */

static void test_cut_at_every_page(void **state)
{
    (void)state;
    test_handle_cut_maps();
    for (off_t left = 0; left < FILE_BYTES; left += PAGE) {
        int fd = make_file();
        struct ydl_map *damaged = map(fd);
        const uint8_t *bytes = ydl_map_bytes(damaged);
        cut(fd, left);
        for (off_t at = 0; at < left; at += PAGE)
            assert_int_equal(read_at(bytes, (size_t)at), 0xa5);
        assert_false(ydl_map_is_damaged(damaged));
        assert_int_equal(read_at(bytes, (size_t)left), 0);
        assert_true(ydl_map_is_damaged(damaged));
        for (size_t at = 0; at < FILE_BYTES; at++) /* now in any order, without a fault */
            (void)read_at(bytes, at);
        ydl_map_free(damaged);
        close(fd);
    }
}

/* More than one chunk of the table; only the map that was read is marked, and a later one that
 * takes its place is not. */
static void test_many_maps(void **state)
{
    (void)state;
    test_handle_cut_maps();
    enum { MAPS = 400 };
    static struct ydl_map *maps[MAPS];
    int whole = make_file();
    int short_one = make_file();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MAPS; i++)
            maps[i] = map(i % 3 == 0 ? short_one : whole);
        cut(short_one, 0);
        for (int i = 0; i < MAPS; i++) {
            assert_int_equal(read_at(ydl_map_bytes(maps[i]), 5), i % 3 == 0 ? 0 : 0xa5);
            assert_int_equal(ydl_map_is_damaged(maps[i]), i % 3 == 0);
        }
        for (int i = 0; i < MAPS; i++)
            ydl_map_free(maps[(i * 7) % MAPS]);
        close(short_one);
        short_one = make_file();
    }
    close(short_one);
    close(whole);
    ydl_map_free(NULL);
}

static void test_what_cannot_be_mapped(void **state)
{
    (void)state;
    test_handle_cut_maps();
    struct ydl_error err;
    struct ydl_map *out;
    assert_status(YDL_OS, ydl_map_new(-1, 1, "/some/file", &out, &err), &err);
    assert_null(out);
    assert_string_equal(err.path, "/some/file");
    assert_non_null(strstr(err.text, "cannot map 1 bytes of /some/file"));
}

static struct ydl_map *shared;

static int read_cut_map(void)
{
    return read_at(ydl_map_bytes(shared), 0) == 0 && ydl_map_is_damaged(shared) ? 0 : 1;
}

static void test_fork(void **state)
{
    (void)state;
    test_handle_cut_maps();
    int signal;
    int fd = make_file();
    shared = map(fd);
    cut(fd, 0);
    assert_int_equal(in_child(read_cut_map, &signal) + signal, 0);
    assert_false(ydl_map_is_damaged(shared));
    assert_int_equal(read_cut_map(), 0);
    ydl_map_free(shared);
    close(fd);
}

/* ---- threads ---- */

static atomic_bool stop;
static atomic_uint started;

/* A copy that holds anything but the file's bytes must come with the mark. */
static void *read_until_damaged(void *argument)
{
    static const uint8_t zeros[FILE_BYTES];
    const struct ydl_map *shared_map = argument;
    uint8_t *copy = malloc(FILE_BYTES);
    uint8_t *expected = malloc(FILE_BYTES);
    if (!copy || !expected)
        abort();
    memset(expected, 0xa5, FILE_BYTES);
    bool lied = false;
    bool damaged = false;
    atomic_fetch_add(&started, 1);
    while (!damaged) {
        memcpy(copy, ydl_map_bytes(shared_map), FILE_BYTES);
        damaged = ydl_map_is_damaged(shared_map);
        if (!damaged && memcmp(copy, expected, FILE_BYTES) != 0)
            lied = true;
    }
    do { /* whose fault it was marks the map before the zeros are there */
        sched_yield();
        memcpy(copy, ydl_map_bytes(shared_map), FILE_BYTES);
    } while (memcmp(copy, zeros, FILE_BYTES) != 0);
    free(expected);
    free(copy);
    return lied ? (void *)1 : NULL;
}

static void *map_and_unmap(void *argument)
{
    int fd = *(const int *)argument;
    void *wrong = NULL;
    while (!atomic_load(&stop)) {
        struct ydl_error err;
        struct ydl_map *own;
        if (ydl_map_new(fd, FILE_BYTES, "a file", &own, &err) != YDL_OK)
            abort();
        if (read_at(ydl_map_bytes(own), 3) != 0xa5 || ydl_map_is_damaged(own))
            wrong = (void *)1;
        ydl_map_free(own);
    }
    return wrong;
}

static void test_threads(void **state)
{
    (void)state;
    test_handle_cut_maps();
    enum { READERS = 3, MAPPERS = 2, ROUNDS = 50 };
    int whole = make_file();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[READERS + MAPPERS];
        int fd = make_file();
        struct ydl_map *damaged = map(fd);
        atomic_store(&stop, false);
        atomic_store(&started, 0);
        for (int i = 0; i < READERS + MAPPERS; i++)
            assert_int_equal(ydl_thread_start(&threads[i],
                                              i < READERS ? read_until_damaged : map_and_unmap,
                                              i < READERS ? (void *)damaged : (void *)&whole),
                             0);
        while (atomic_load(&started) < READERS)
            sched_yield();
        cut(fd, (round % 3) * 2 * PAGE);
        for (int i = 0; i < READERS + MAPPERS; i++) {
            void *wrong;
            if (i == READERS)
                atomic_store(&stop, true);
            assert_int_equal(pthread_join(threads[i], &wrong), 0);
            assert_null(wrong);
        }
        ydl_map_free(damaged);
        close(fd);
    }
    close(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: no map may exist before their children make one. */
        cmocka_unit_test(test_other_faults_are_passed_on),
        cmocka_unit_test(test_the_default_action_still_kills),
        cmocka_unit_test(test_cut_at_every_page),
        cmocka_unit_test(test_many_maps),
        cmocka_unit_test(test_what_cannot_be_mapped),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
