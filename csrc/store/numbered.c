#include "store/numbered.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/io.h"

enum { DIGITS = 8 };

void ydl_numbered_name(char out[YDL_NUMBERED_NAME_BYTES], uint64_t number, const char *suffix)
{
    assert(number <= YDL_NUMBERED_MAX);
    int n = snprintf(out, YDL_NUMBERED_NAME_BYTES, "%0*llu%s", DIGITS, (unsigned long long)number,
                     suffix);
    assert(n > 0 && n < YDL_NUMBERED_NAME_BYTES);
    (void)n;
}

/* Not strtoul, which takes signs, spaces and any number of digits. */
bool ydl_numbered_parse(const char *name, const char *suffix, uint64_t *out_number)
{
    uint64_t number = 0;
    for (int i = 0; i < DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    *out_number = number;
    return strcmp(name + DIGITS, suffix) == 0;
}

static enum ydl_status open_listing(const char *dir, DIR **out, struct ydl_error *err)
{
    int fd;
    enum ydl_status status = ydl_directory_open(dir, YDL_DIRECTORY_LIST, &fd, err);
    if (status != YDL_OK)
        return status;
    *out = fdopendir(fd);
    if (*out)
        return YDL_OK;
    status = ydl_fail_os(err, errno, dir, "cannot list directory %s", dir);
    close(fd);
    return status;
}

enum ydl_status ydl_numbered_latest(const char *dir, const char *suffix, uint64_t *out_number,
                                    struct ydl_error *err)
{
    *out_number = 0;
    DIR *listing = NULL;
    enum ydl_status status = open_listing(dir, &listing, err);
    if (status == YDL_OS && err->sys_errno == ENOENT)
        return YDL_OK;
    if (status != YDL_OK)
        return status;

    uint64_t latest = 0;
    const struct dirent *entry;
    errno = 0; /* readdir reports an error only there */
    while ((entry = readdir(listing))) {
        uint64_t number;
        if (ydl_numbered_parse(entry->d_name, suffix, &number) && number > latest)
            latest = number;
        errno = 0;
    }
    int read_errno = errno;
    closedir(listing);
    if (read_errno != 0)
        return ydl_fail_os(err, read_errno, dir, "cannot list directory %s", dir);
    *out_number = latest;
    return YDL_OK;
}

static enum ydl_status refuse(struct ydl_error *err, const char *path)
{
    ydl_fail(err, YDL_CORRUPT_CACHE, "%s is not a regular file: refusing to open it", path);
    return ydl_fail_at(err, path);
}

enum ydl_status ydl_numbered_open(const char *dir, uint64_t number, const char *suffix, int flags,
                                  int *out_fd, struct stat *out_stat, struct ydl_error *err)
{
    *out_fd = -1;
    char name[YDL_NUMBERED_NAME_BYTES];
    ydl_numbered_name(name, number, suffix);
    char *path = ydl_join_path(dir, name);
    if (!path)
        return ydl_fail_memory(err, "a path", strlen(dir) + sizeof name);

    int fd = -1;
    int dir_fd;
    enum ydl_status status = ydl_directory_open(dir, YDL_DIRECTORY_NAMES, &dir_fd, err);
    if (status != YDL_OK)
        goto done;
    /* O_NONBLOCK: a planted FIFO would keep open waiting for its other end. */
    fd = ydl_openat(dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0) {
        /* ELOOP: a symbolic link; ENXIO: a socket, or a FIFO opened for writing; EISDIR: likewise
         * a directory. */
        bool odd = errno == ELOOP || errno == ENXIO || errno == EISDIR;
        status = odd ? refuse(err, path) : ydl_fail_os(err, errno, path, "cannot open %s", path);
    } else if (fstat(fd, out_stat) != 0) {
        status = ydl_fail_os(err, errno, path, "cannot look at %s", path);
    } else if (!S_ISREG(out_stat->st_mode)) {
        status = refuse(err, path);
    } else {
        *out_fd = fd;
        fd = -1;
    }
done:
    if (fd >= 0)
        close(fd);
    if (dir_fd >= 0)
        close(dir_fd);
    free(path);
    return status;
}

void ydl_numbered_prune(const char *dir, const char *suffix, uint64_t below)
{
    DIR *listing = NULL;
    struct ydl_error err;
    if (open_listing(dir, &listing, &err) != YDL_OK)
        return;
    const struct dirent *entry;
    while ((entry = readdir(listing))) {
        uint64_t number;
        if (ydl_numbered_parse(entry->d_name, suffix, &number) && number < below)
            unlinkat(dirfd(listing), entry->d_name, 0);
    }
    closedir(listing);
}
