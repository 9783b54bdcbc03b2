/* "Certainly dead" is said of the dead of this kernel and pid namespace, and of nobody else. */
#include "support.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/process_id.h"

/* A child that waits to be killed, and its identity as it sees it itself. */
static struct ydl_process_id start_child(pid_t *out_pid)
{
    int fds[2];
    struct ydl_process_id id;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* A command that tries to look like the fields behind it. */
        prctl(PR_SET_NAME, ") Z 1 (x) R");
        ydl_process_id_self(&id);
        if (write(fds[1], &id, sizeof id) != (ssize_t)sizeof id)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(fds[0], &id, sizeof id), sizeof id);
    close(fds[0]);
    close(fds[1]);
    *out_pid = pid;
    return id;
}

static void test_self_is_known_and_alive(void **state)
{
    (void)state;
    struct ydl_process_id self;
    ydl_process_id_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_int_equal(strlen(self.boot), 36);
    assert_true(self.pidns > 0 && self.start > 0);
    assert_false(ydl_process_is_gone(&self, &self));
}

static void test_child_lives_dies_and_is_reaped(void **state)
{
    (void)state;
    struct ydl_process_id self;
    ydl_process_id_self(&self);
    pid_t pid;
    struct ydl_process_id child = start_child(&pid);
    assert_int_equal(child.pid, pid);
    assert_false(ydl_process_is_gone(&self, &child));

    struct ydl_process_id earlier = child; /* who had the pid before */
    earlier.start--;
    assert_true(ydl_process_is_gone(&self, &earlier));

    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(ydl_process_is_gone(&self, &child)); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ydl_process_is_gone(&self, &child));
}

static void test_doubt_is_not_death(void **state)
{
    (void)state;
    struct ydl_process_id self;
    ydl_process_id_self(&self);
    pid_t pid;
    const struct ydl_process_id dead = start_child(&pid);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ydl_process_is_gone(&self, &dead));

    struct ydl_process_id other = dead;
    other.boot[0] ^= 1; /* another host, or this one before it was started again */
    assert_false(ydl_process_is_gone(&self, &other));
    other = dead;
    other.pidns++; /* another container */
    assert_false(ydl_process_is_gone(&self, &other));
    other = dead;
    other.start = 0;
    assert_false(ydl_process_is_gone(&self, &other));
    static const uint64_t no_pids[] = {0, UINT64_MAX, UINT64_C(1) << 31, UINT64_C(1) << 32};
    for (size_t i = 0; i < sizeof no_pids / sizeof no_pids[0]; i++) {
        other = dead;
        other.pid = no_pids[i];
        assert_false(ydl_process_is_gone(&self, &other));
    }

    struct ydl_process_id blind = self; /* we know nothing of ourselves */
    blind.boot[0] = '\0';
    other = dead;
    other.boot[0] = '\0';
    assert_false(ydl_process_is_gone(&blind, &other));
    blind = self;
    other = dead;
    blind.pidns = other.pidns = 0;
    assert_false(ydl_process_is_gone(&blind, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_is_known_and_alive),
        cmocka_unit_test(test_child_lives_dies_and_is_reaped),
        cmocka_unit_test(test_doubt_is_not_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
