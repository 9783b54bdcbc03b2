/* The manifest log: what is an entry, what is refused, and that one of many writers wins. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "store/log.h"

enum { MAX_BYTES = 1 << 20 };

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

static char *path_of(const char *dir, const char *name)
{
    char *path = ydl_join_path(dir, name);
    assert_non_null(path);
    return path;
}

static void plant(const char *dir, const char *name, const char *text)
{
    char *path = path_of(dir, name);
    test_write_file(path, text, strlen(text));
    free(path);
}

static void append(const char *dir, uint64_t number, const char *text)
{
    struct ydl_error err;
    assert_status(YDL_OK, ydl_log_append(dir, number, text, strlen(text), false, &err), &err);
}

static uint64_t latest(const char *dir)
{
    struct ydl_error err;
    uint64_t number = 77;
    assert_status(YDL_OK, ydl_log_latest(dir, &number, &err), &err);
    return number;
}

static void assert_entry(const char *dir, uint64_t number, const char *text)
{
    struct ydl_buf buf;
    struct ydl_error err;
    ydl_buf_init(&buf, MAX_BYTES);
    assert_status(YDL_OK, ydl_log_read(dir, number, MAX_BYTES, &buf, &err), &err);
    assert_int_equal(buf.len, strlen(text));
    if (buf.len > 0)
        assert_memory_equal(buf.data, text, buf.len);
    ydl_buf_clear(&buf);
}

static enum ydl_status read_status(const char *dir, uint64_t number, size_t max_bytes,
                                   struct ydl_error *err)
{
    struct ydl_buf buf;
    ydl_buf_init(&buf, MAX_BYTES);
    enum ydl_status status = ydl_log_read(dir, number, max_bytes, &buf, err);
    assert_int_equal(buf.len, 0);
    ydl_buf_clear(&buf);
    return status;
}

/* Names in the directory, hidden ones too. */
static int count_names(const char *dir)
{
    char *command = NULL;
    assert_true(asprintf(&command, "ls -A '%s' | wc -l", dir) > 0);
    FILE *pipe = popen(command, "r");
    int n = -1;
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    free(command);
    return n;
}

static void test_entries_come_back(void **state)
{
    const char *dir = *state;
    assert_int_equal(latest(dir), 0);
    append(dir, 1, "first\n");
    append(dir, 2, "");
    append(dir, 12345678, "third\n");
    assert_int_equal(latest(dir), 12345678);
    assert_entry(dir, 1, "first\n");
    assert_entry(dir, 2, "");
    assert_entry(dir, 12345678, "third\n");
    assert_int_equal(count_names(dir), 3);

    char *path = path_of(dir, "00000001.json");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(st.st_mode & 07777, 0666 & ~mask);
    assert_int_equal(st.st_nlink, 1);
    free(path);
}

static void test_read_appends_to_the_buffer(void **state)
{
    const char *dir = *state;
    append(dir, 1, "second");
    struct ydl_buf buf;
    struct ydl_error err;
    ydl_buf_init(&buf, 16);
    assert_status(YDL_OK, ydl_buf_append(&buf, "first ", 6, &err), &err);
    assert_status(YDL_OK, ydl_log_read(dir, 1, 6, &buf, &err), &err);
    assert_int_equal(buf.len, 12);
    assert_memory_equal(buf.data, "first second", 12);
    /* A buffer without room for it stays as it was. */
    assert_status(YDL_INVALID, ydl_log_read(dir, 1, 6, &buf, &err), &err);
    assert_int_equal(buf.len, 12);
    ydl_buf_clear(&buf);
}

static void test_other_names_are_no_entries(void **state)
{
    const char *dir = *state;
    static const char *const names[] = {
        "00000009.jsoN",  "00000009.json.tmp", ".00000009.json", "0000009.json",
        "000000009.json", "+0000009.json",     "00000009json",   "00000009",
        "x0000009.json",  "0000000a.json",     " 0000009.json",  "00000009.json~",
        "00000000.json",  "99999999.yaml",     "\xff\xff.json",  "latest.json",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        plant(dir, names[i], "junk");
    assert_int_equal(latest(dir), 0);
    append(dir, 3, "entry");
    assert_int_equal(latest(dir), 3);
}

static void test_taken_number_is_busy(void **state)
{
    const char *dir = *state;
    struct ydl_error err;
    append(dir, 1, "theirs");
    assert_status(YDL_BUSY, ydl_log_append(dir, 1, "mine", 4, false, &err), &err);
    assert_status(YDL_BUSY, ydl_log_append(dir, 1, "mine", 4, true, &err), &err);
    assert_non_null(strstr(err.path, "00000001.json"));
    assert_entry(dir, 1, "theirs");
    assert_int_equal(count_names(dir), 1);
}

static void test_numbers_out_of_range_are_refused(void **state)
{
    const char *dir = *state;
    struct ydl_error err;
    static const uint64_t numbers[] = {0, 100000000, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_status(YDL_INVALID, ydl_log_append(dir, numbers[i], "x", 1, false, &err), &err);
        assert_status(YDL_INVALID, read_status(dir, numbers[i], 1, &err), &err);
    }
    append(dir, YDL_LOG_MAX_NUMBER, "last");
    assert_int_equal(latest(dir), YDL_LOG_MAX_NUMBER);
    assert_int_equal(count_names(dir), 1);
}

static void test_missing_directory(void **state)
{
    char *dir = path_of(*state, "absent");
    struct ydl_error err;
    assert_int_equal(latest(dir), 0);
    assert_status(YDL_OS, read_status(dir, 1, 1, &err), &err);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_status(YDL_OS, ydl_log_append(dir, 1, "x", 1, false, &err), &err);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_string_equal(err.path, dir);
    free(dir);

    plant(*state, "file", "x");
    dir = path_of(*state, "file");
    uint64_t number;
    assert_status(YDL_OS, ydl_log_latest(dir, &number, &err), &err);
    assert_int_equal(err.sys_errno, ENOTDIR);
    free(dir);
}

static void test_absent_and_oversized_entries(void **state)
{
    const char *dir = *state;
    struct ydl_error err;
    append(dir, 1, "eleven byte");
    assert_status(YDL_OS, read_status(dir, 2, MAX_BYTES, &err), &err);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_status(YDL_CORRUPT_CACHE, read_status(dir, 1, 10, &err), &err);
    assert_non_null(strstr(err.text, "11 bytes"));
    assert_entry(dir, 1, "eleven byte");
}

/* A link, even a dangling one, takes the number; it is never written through nor read. */
static void test_symlinks_are_not_followed(void **state)
{
    const char *dir = *state;
    struct ydl_error err;
    plant(dir, "target", "secret");
    char *target = path_of(dir, "target");
    char *absent = path_of(dir, "absent");
    char *one = path_of(dir, "00000001.json");
    char *two = path_of(dir, "00000002.json");
    assert_int_equal(symlink(target, one), 0);
    assert_int_equal(symlink(absent, two), 0);

    assert_status(YDL_BUSY, ydl_log_append(dir, 1, "mine", 4, false, &err), &err);
    assert_status(YDL_BUSY, ydl_log_append(dir, 2, "mine", 4, true, &err), &err);
    assert_int_equal(access(absent, F_OK), -1);
    assert_status(YDL_CORRUPT_CACHE, read_status(dir, 1, MAX_BYTES, &err), &err);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_status(YDL_CORRUPT_CACHE, read_status(dir, 2, MAX_BYTES, &err), &err);
    size_t n;
    uint8_t *bytes = test_read_file(target, &n);
    assert_int_equal(n, 6);
    assert_memory_equal(bytes, "secret", 6);
    free(bytes);
    free(target);
    free(absent);
    free(one);
    free(two);
}

static void test_odd_files_are_refused_without_waiting(void **state)
{
    const char *dir = *state;
    struct ydl_error err;
    char *fifo = path_of(dir, "00000001.json");
    char *subdir = path_of(dir, "00000002.json");
    assert_int_equal(mkfifo(fifo, 0666), 0);
    assert_int_equal(mkdir(subdir, 0777), 0);
    for (uint64_t number = 1; number <= 2; number++) {
        assert_status(YDL_CORRUPT_CACHE, read_status(dir, number, MAX_BYTES, &err), &err);
        assert_status(YDL_BUSY, ydl_log_append(dir, number, "mine", 4, false, &err), &err);
    }
    assert_int_equal(latest(dir), 2);
    assert_int_equal(count_names(dir), 2);
    free(fifo);
    free(subdir);
}

/* Each child appends text of its own under the same numbers and exits with a bit for each win. */
static void race(const char *dir, int child, int rounds, int start_fd)
{
    char go;
    while (read(start_fd, &go, 1) < 0)
        continue;
    int wins = 0;
    for (int round = 0; round < rounds; round++) {
        char text[4096];
        memset(text, 'a' + child, sizeof text);
        struct ydl_error err;
        enum ydl_status status =
            ydl_log_append(dir, (uint64_t)round + 1, text, sizeof text, false, &err);
        if (status != YDL_OK && status != YDL_BUSY)
            _exit(255);
        wins |= (status == YDL_OK) << round;
    }
    _exit(wins);
}

static void test_one_of_eight_processes_wins_each_number(void **state)
{
    enum { CHILDREN = 8, ROUNDS = 7 };
    const char *dir = *state;
    int start[2];
    pid_t pids[CHILDREN];
    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(start[1]);
            race(dir, i, ROUNDS, start[0]);
        }
    }
    close(start[0]);
    close(start[1]); /* end of file is the starting shot */

    int winner[ROUNDS];
    int wins_of_round[ROUNDS] = {0};
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
        for (int round = 0; round < ROUNDS; round++) {
            if (WEXITSTATUS(status) & 1 << round) {
                winner[round] = i;
                wins_of_round[round]++;
            }
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(wins_of_round[round], 1);
        char text[4097];
        memset(text, 'a' + winner[round], sizeof text - 1);
        text[sizeof text - 1] = '\0';
        assert_entry(dir, (uint64_t)round + 1, text);
    }
    assert_int_equal(count_names(dir), ROUNDS);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_entries_come_back),
        WITH_DIR(test_read_appends_to_the_buffer),
        WITH_DIR(test_other_names_are_no_entries),
        WITH_DIR(test_taken_number_is_busy),
        WITH_DIR(test_numbers_out_of_range_are_refused),
        WITH_DIR(test_missing_directory),
        WITH_DIR(test_absent_and_oversized_entries),
        WITH_DIR(test_symlinks_are_not_followed),
        WITH_DIR(test_odd_files_are_refused_without_waiting),
        WITH_DIR(test_one_of_eight_processes_wins_each_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
