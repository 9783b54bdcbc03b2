/* Directories: opened without following a link, flushed where that is possible. */
#include "support.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"

static void test_opens_what_is_there(void **state)
{
    (void)state;
    struct ydl_error err;
    int fd;
    assert_status(YDL_OK, ydl_directory_open("/proc", YDL_DIRECTORY_NAMES, &fd, &err), &err);
    close(fd);
    assert_status(YDL_OS, ydl_directory_open("/proc/absent", YDL_DIRECTORY_LIST, &fd, &err), &err);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(fd, -1);
}

static void test_refuses_a_link_on_the_way(void **state)
{
    (void)state;
    struct ydl_error err;
    int fd;
    assert_status(YDL_CORRUPT_CACHE,
                  ydl_directory_open("/proc/self/fd", YDL_DIRECTORY_LIST, &fd, &err), &err);
    assert_non_null(strstr(err.text, "symbolic link"));
}

static void test_flushes_what_cannot_be_flushed(void **state)
{
    (void)state;
    struct ydl_error err;
    int fd;
    assert_status(YDL_OK, ydl_directory_open("/proc", YDL_DIRECTORY_LIST, &fd, &err), &err);
    errno = 0;
    assert_int_equal(fsync(fd), -1); /* else this shows nothing */
    assert_int_equal(errno, EINVAL);
    assert_status(YDL_OK, ydl_directory_flush(fd, "/proc", &err), &err);
    close(fd);
    assert_status(YDL_OK, ydl_fsync_dir("/proc", &err), &err);
    assert_status(YDL_OS, ydl_fsync_dir("/proc/absent", &err), &err);
    assert_status(YDL_OS, ydl_directory_flush(-1, "nothing", &err), &err);
    assert_int_equal(err.sys_errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_what_is_there),
        cmocka_unit_test(test_refuses_a_link_on_the_way),
        cmocka_unit_test(test_flushes_what_cannot_be_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
