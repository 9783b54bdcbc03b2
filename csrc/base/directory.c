#include "base/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

/* linux/openat2.h, where the headers are older than the kernel. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
struct open_how_v0 {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};
static const uint64_t resolve_no_symlinks = 0x04;

enum { MAX_NAME = 255 };

static int open_at_once(const char *path, int flags)
{
    struct open_how_v0 how = {.flags = (uint64_t)flags, .resolve = resolve_no_symlinks};
    long fd;
    do {
        fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    } while (fd < 0 && errno == EINTR);
    return (int)fd;
}

/* One component, below the directory fd. */
static int open_inner(int fd, const char *name, int flags)
{
    int inner = ydl_openat(fd, name, flags | O_NOFOLLOW, 0);
    struct stat st;
    if (inner < 0 && errno == ENOTDIR)
        errno = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) ? ELOOP
                                                                                        : ENOTDIR;
    return inner;
}

static int open_by_components(const char *path, int flags)
{
    const int on_the_way = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = open_inner(AT_FDCWD, path[0] == '/' ? "/" : ".", on_the_way);
    while (fd >= 0) {
        char name[MAX_NAME + 1];
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        if (n > MAX_NAME) {
            close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, n ? path : ".", n ? n : 1);
        name[n ? n : 1] = '\0';
        path += n;
        bool is_last = path[strspn(path, "/")] == '\0';
        int inner = open_inner(fd, name, is_last ? flags : on_the_way);
        int open_errno = errno;
        close(fd);
        errno = open_errno;
        fd = inner;
        if (is_last)
            break;
    }
    return fd;
}

enum ydl_status ydl_directory_open(const char *path, enum ydl_directory_use use, int *out_fd,
                                   struct ydl_error *err)
{
    const int flags = (use == YDL_DIRECTORY_LIST ? O_RDONLY : O_PATH) | O_DIRECTORY | O_CLOEXEC;
    *out_fd = open_at_once(path, flags);
    /* ENOSYS: an older kernel; EPERM: what sandboxes say of calls they do not know. */
    if (*out_fd < 0 && (errno == ENOSYS || errno == EPERM))
        *out_fd = open_by_components(path, flags);
    if (*out_fd >= 0)
        return YDL_OK;
    if (errno != ELOOP)
        return ydl_fail_os(err, errno, path, "cannot open directory %s", path);
    ydl_fail(err, YDL_CORRUPT_CACHE,
             "a symbolic link is part of the path %s: ydl follows none below the storage's "
             "directory, since whoever may write there could lead it elsewhere. Remove the link",
             path);
    return ydl_fail_at(err, path);
}

enum ydl_status ydl_directory_flush(int fd, const char *path, struct ydl_error *err)
{
    enum ydl_status status = ydl_fsync(fd, path, err);
    if (status == YDL_OS &&
        (err->sys_errno == EINVAL || err->sys_errno == EOPNOTSUPP || err->sys_errno == ENOSYS))
        return YDL_OK;
    return status;
}

enum ydl_status ydl_fsync_dir(const char *path, struct ydl_error *err)
{
    int fd;
    enum ydl_status status = ydl_directory_open(path, YDL_DIRECTORY_LIST, &fd, err);
    if (status != YDL_OK)
        return status;
    status = ydl_directory_flush(fd, path, err);
    close(fd); /* nothing was written through it */
    return status;
}
