#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ydl_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = open(path, flags, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int ydl_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    int fd;
    do {
        fd = openat(dir_fd, name, flags, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

enum ydl_status ydl_write_all(int fd, const void *bytes, size_t n, const char *path,
                              struct ydl_error *err)
{
    const uint8_t *from = bytes;
    size_t done = 0;
    while (done < n) {
        ssize_t wrote = write(fd, from + done, n - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return ydl_fail_os(err, errno, path, "cannot write %zu bytes to %s", n - done, path);
        done += (size_t)wrote;
    }
    return YDL_OK;
}

enum ydl_status ydl_pread_all(int fd, void *bytes, size_t n, uint64_t offset, const char *path,
                              struct ydl_error *err)
{
    uint8_t *to = bytes;
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, to + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ydl_fail_os(err, errno, path, "cannot read %zu bytes at offset %llu of %s",
                               n - done, (unsigned long long)(offset + done), path);
        if (got == 0) {
            ydl_fail(err, YDL_CORRUPT_CACHE, "%s ends at offset %llu, %zu bytes short of a read",
                     path, (unsigned long long)(offset + done), n - done);
            return ydl_fail_at(err, path);
        }
        done += (size_t)got;
    }
    return YDL_OK;
}

enum ydl_status ydl_start_writeback(int fd, uint64_t offset, uint64_t n, const char *path,
                                    struct ydl_error *err)
{
    /* Without waiting: that would take errors which fsync then reports no more. */
    if (sync_file_range(fd, (off_t)offset, (off_t)n, SYNC_FILE_RANGE_WRITE) == 0 ||
        errno == EINTR || errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP ||
        errno == EPERM)
        return YDL_OK;
    return ydl_fail_os(err, errno, path, "cannot write %llu bytes at offset %llu of %s to disk",
                       (unsigned long long)n, (unsigned long long)offset, path);
}

enum ydl_status ydl_fsync(int fd, const char *path, struct ydl_error *err)
{
    /* Not retried after a failure: the kernel may have dropped the dirty pages it failed on, and a
     * second fsync would then succeed without them. */
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return ydl_fail_os(err, errno, path, "cannot flush %s to disk", path);
    return YDL_OK;
}

enum ydl_status ydl_close(int fd, const char *path, struct ydl_error *err)
{
    /* On Linux the descriptor is released even where close reports EINTR. */
    if (close(fd) != 0 && errno != EINTR)
        return ydl_fail_os(err, errno, path, "cannot close %s", path);
    return YDL_OK;
}

char *ydl_join_path(const char *dir, const char *name)
{
    size_t dir_len = strlen(dir);
    size_t name_len = strlen(name);
    char *path = malloc(dir_len + 1 + name_len + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, dir_len);
    path[dir_len] = '/';
    memcpy(path + dir_len + 1, name, name_len + 1);
    return path;
}
