/* Creating a file where the file system refuses, fails, or lies about its success.
 *
 * The calls in question are defined here, in front of the C library's, and do what *fault says. */
#include "support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "store/create.h"
#include "store/lease.h"

static struct {
    int link_errno;   /* linkat fails with it ... */
    bool link_done;   /* ... but has done its work: the reply was lost */
    int rename_errno; /* of renameat2 */
    bool rename_done; /* likewise */
    int weak_errno;   /* of renameat */
    int fsync_errno;  /* of the fsync with this number, from 1 */
    int fsync_fails_at;
    int fsyncs;
    void (*after_link)(int dir, const char *name); /* called once after a linkat that succeeds */
} fault;

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    int rc = 0;
    if (fault.link_errno == 0 || fault.link_done)
        rc = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    if (rc == 0 && fault.after_link) {
        fault.after_link(to_dir, to);
        fault.after_link = NULL;
    }
    if (rc != 0 || fault.link_errno == 0)
        return rc;
    errno = fault.link_errno;
    return -1;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (fault.weak_errno == 0)
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
    errno = fault.weak_errno;
    return -1;
}

int fsync(int fd)
{
    if (++fault.fsyncs != fault.fsync_fails_at)
        return (int)syscall(SYS_fsync, fd);
    errno = fault.fsync_errno;
    return -1;
}

/* renameat2 goes through here, and so do the calls above. */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list list;
    long args[5];
    va_start(list, number);
    for (int i = 0; i < 5; i++)
        args[i] = va_arg(list, long);
    va_end(list);
    const bool strict_rename = number == SYS_renameat2 && (args[4] & 0xffffffff) != 0;
    if (!strict_rename || fault.rename_errno == 0)
        return real(number, args[0], args[1], args[2], args[3], args[4]);
    if (fault.rename_done && real(number, args[0], args[1], args[2], args[3], args[4]) != 0)
        return -1;
    errno = fault.rename_errno;
    return -1;
}

static int make_dir(void **state)
{
    memset(&fault, 0, sizeof fault);
    *state = test_make_dir();
    return 0;
}

static int remove_dir(void **state)
{
    memset(&fault, 0, sizeof fault);
    test_remove_dir(*state);
    return 0;
}

static enum ydl_status create(const char *dir, bool allow_weak, struct ydl_error *err)
{
    fault.fsyncs = 0;
    return ydl_create_file(dir, "name", "mine", 4, allow_weak, err);
}

/* The directory holds the file with this text and nothing else; text NULL: nothing at all. */
static void assert_only(const char *dir, const char *text)
{
    DIR *listing = opendir(dir);
    assert_non_null(listing);
    const struct dirent *entry;
    while ((entry = readdir(listing))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        assert_non_null(text);
        assert_string_equal(entry->d_name, "name");
    }
    closedir(listing);
    if (!text)
        return;
    char *path = ydl_join_path(dir, "name");
    size_t n;
    uint8_t *bytes = test_read_file(path, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, n);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 1);
    free(bytes);
    free(path);
}

static void plant_theirs(const char *dir)
{
    char *path = ydl_join_path(dir, "name");
    test_write_file(path, "theirs", 6);
    free(path);
}

static void test_lost_reply_of_link(void **state)
{
    static const int errnos[] = {EEXIST, EIO, ETIMEDOUT, EPERM};
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++) {
        struct ydl_error err;
        fault.link_errno = errnos[i];
        fault.link_done = true;
        assert_status(YDL_OK, create(*state, false, &err), &err);
        assert_only(*state, "mine");
        char *path = ydl_join_path(*state, "name");
        unlink(path);
        free(path);
    }
}

static void test_link_fails(void **state)
{
    static const int errnos[] = {EIO, ENOSPC, EDQUOT, EROFS, ESTALE};
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++) {
        struct ydl_error err;
        fault.link_errno = errnos[i];
        assert_status(YDL_OS, create(*state, true, &err), &err);
        assert_int_equal(err.sys_errno, errnos[i]);
        assert_only(*state, NULL);
    }
}

static void test_without_link(void **state)
{
    static const int errnos[] = {EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EACCES, EXDEV};
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++) {
        struct ydl_error err;
        fault.link_errno = errnos[i];
        assert_status(YDL_OK, create(*state, false, &err), &err);
        assert_status(YDL_BUSY, create(*state, false, &err), &err);
        assert_only(*state, "mine");
        char *path = ydl_join_path(*state, "name");
        unlink(path);
        free(path);
    }
    plant_theirs(*state);
    struct ydl_error err;
    assert_status(YDL_BUSY, create(*state, false, &err), &err);
    assert_only(*state, "theirs");
}

static void test_lost_reply_of_rename(void **state)
{
    struct ydl_error err;
    fault.link_errno = EPERM;
    fault.rename_errno = EIO;
    fault.rename_done = true;
    assert_status(YDL_OK, create(*state, false, &err), &err);
    assert_only(*state, "mine");
}

static void test_rename_fails(void **state)
{
    struct ydl_error err;
    fault.link_errno = EPERM;
    fault.rename_errno = EIO;
    assert_status(YDL_OS, create(*state, true, &err), &err);
    assert_int_equal(err.sys_errno, EIO);
    assert_only(*state, NULL);
}

static void test_without_link_and_strict_rename(void **state)
{
    static const int errnos[] = {EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++) {
        struct ydl_error err;
        fault.link_errno = EPERM;
        fault.rename_errno = errnos[i];
        assert_status(YDL_UNSUPPORTED, create(*state, false, &err), &err);
        assert_non_null(strstr(err.text, "allow_weak_publish=True"));
        assert_only(*state, NULL);

        assert_status(YDL_OK, create(*state, true, &err), &err);
        assert_status(YDL_BUSY, create(*state, true, &err), &err);
        assert_only(*state, "mine");
        char *path = ydl_join_path(*state, "name");
        unlink(path);
        free(path);
    }
    struct ydl_error err;
    fault.weak_errno = EIO;
    assert_status(YDL_OS, create(*state, true, &err), &err);
    assert_only(*state, NULL);
    plant_theirs(*state);
    assert_status(YDL_BUSY, create(*state, true, &err), &err);
    assert_only(*state, "theirs");
}

static void test_fsync_fails(void **state)
{
    struct ydl_error err;
    fault.fsync_errno = EIO;
    fault.fsync_fails_at = 1; /* of the file */
    assert_status(YDL_OS, create(*state, false, &err), &err);
    assert_int_equal(err.sys_errno, EIO);
    assert_only(*state, NULL);

    fault.fsync_fails_at = 2; /* of the directory: the file is there, and the text says so */
    assert_status(YDL_OS, create(*state, false, &err), &err);
    assert_non_null(strstr(err.text, "created"));
    assert_only(*state, "mine");
}

static void test_directory_that_cannot_be_flushed(void **state)
{
    struct ydl_error err;
    fault.fsync_errno = EINVAL;
    fault.fsync_fails_at = 2;
    assert_status(YDL_OK, create(*state, false, &err), &err);
    assert_only(*state, "mine");
}

/* A lease needs no atomic appearance: without link and rename it falls back to O_EXCL. */
static void test_lease_without_link_and_rename(void **state)
{
    struct ydl_error err;
    struct ydl_lease_view view;
    struct ydl_lease *one;
    struct ydl_lease *two;
    fault.link_errno = EPERM;
    fault.rename_errno = EINVAL;
    assert_status(YDL_OK, ydl_lease_new(*state, 60000, &one, &err), &err);
    assert_status(YDL_OK, ydl_lease_new(*state, 60000, &two, &err), &err);
    assert_status(YDL_OK, ydl_lease_try(one, &view, &err), &err);
    assert_status(YDL_BUSY, ydl_lease_try(two, &view, &err), &err);
    assert_int_equal(view.pid, getpid());
    assert_status(YDL_OK, ydl_lease_release(one, "why", &err), &err);
    assert_status(YDL_OK, ydl_lease_try(two, &view, &err), &err);
    assert_string_equal(view.text, "why");
    ydl_lease_free(one);
    ydl_lease_free(two);
}

static void pass_by(int dir, const char *name)
{
    (void)name;
    int fd = openat(dir, "00000007.lease", O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    close(fd);
}

static void pass_by_and_prune(int dir, const char *name)
{
    pass_by(dir, name);
    assert_int_equal(unlinkat(dir, name, 0), 0);
}

/* A slow waiter gets a number that others have used and pruned since it looked. */
static void test_lease_of_a_passed_generation(void **state)
{
    static void (*const events[])(int, const char *) = {pass_by, pass_by_and_prune};
    for (size_t i = 0; i < 2; i++) {
        struct ydl_error err;
        struct ydl_lease_view view;
        struct ydl_lease *lease;
        assert_status(YDL_OK, ydl_lease_new(*state, 60000, &lease, &err), &err);
        fault.after_link = events[i];
        assert_status(YDL_BUSY, ydl_lease_try(lease, &view, &err), &err);
        assert_null(fault.after_link);
        assert_int_equal(view.generation, 7);
        assert_false(ydl_lease_is_held(lease));
        ydl_lease_free(lease);

        char *first = ydl_join_path(*state, "00000001.lease");
        char *seventh = ydl_join_path(*state, "00000007.lease");
        assert_int_equal(access(first, F_OK), -1);
        assert_int_equal(unlink(seventh), 0);
        free(first);
        free(seventh);
    }
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_lost_reply_of_link),
        WITH_DIR(test_link_fails),
        WITH_DIR(test_without_link),
        WITH_DIR(test_lost_reply_of_rename),
        WITH_DIR(test_rename_fails),
        WITH_DIR(test_without_link_and_strict_rename),
        WITH_DIR(test_fsync_fails),
        WITH_DIR(test_directory_that_cannot_be_flushed),
        WITH_DIR(test_lease_without_link_and_rename),
        WITH_DIR(test_lease_of_a_passed_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
