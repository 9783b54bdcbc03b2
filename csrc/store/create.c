#include "store/create.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/io.h"

enum {
    MAX_NAME = 40,
    TEMP_NAME_BYTES = 1 + MAX_NAME + 1 + 16 + 4 + 1, /* .<name>.<16 hex digits>.tmp */
    /* Two equal 64-bit random numbers are already beyond chance. */
    TEMP_TRIES = 8,
};

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1 /* linux/fs.h, where the libc's stdio.h is older than the kernel */
#endif

struct creation {
    const char *dir;
    const char *name;
    char *path; /* owned: <dir>/<name>, for error texts */
    int dir_fd; /* names are resolved here, so that the directory may be renamed meanwhile */
    int fd;     /* the temporary file, or -1 */
    char temp[TEMP_NAME_BYTES]; /* its name while it has one, or "" */
};

static enum ydl_status open_temp(struct creation *c, struct ydl_error *err)
{
    for (int i = 0; i < TEMP_TRIES; i++) {
        /* Random rather than pid and thread, which repeat across hosts, containers and leftovers
         * of the killed. The dot hides it from listings and from the numbered entries. */
        uint64_t nonce;
        if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
            return ydl_fail_os(err, errno, c->path, "cannot draw a temporary name for %s", c->path);
        snprintf(c->temp, sizeof c->temp, ".%s.%016llx.tmp", c->name, (unsigned long long)nonce);
        c->fd =
            openat(c->dir_fd, c->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (c->fd >= 0)
            return YDL_OK;
        c->temp[0] = '\0';
        if (errno != EEXIST && errno != EINTR)
            break;
    }
    return ydl_fail_os(err, errno, c->path, "cannot create a temporary file for %s", c->path);
}

/* Whether the name already is our file, whatever the call that made it so reported: over NFS a
 * reply gets lost, the request is sent again, and the second one fails. */
static bool is_ours(const struct creation *c)
{
    struct stat ours;
    if (fstat(c->fd, &ours) != 0)
        return false;
    /* Only linking the name adds a link to a file that nobody else knows. Inode numbers come
     * second because some FUSE file systems make them up for each name; a rename leaves only
     * those. */
    if (ours.st_nlink == 2)
        return true;
    struct stat named;
    return fstatat(c->dir_fd, c->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
}

static enum ydl_status fail_busy(const struct creation *c, struct ydl_error *err)
{
    ydl_fail(err, YDL_BUSY, "%s exists already", c->path);
    return ydl_fail_at(err, c->path);
}

static enum ydl_status fail_create(const struct creation *c, int sys_errno, struct ydl_error *err)
{
    return ydl_fail_os(err, sys_errno, c->path, "cannot create %s", c->path);
}

/* "Not in this file system", as opposed to "not now". The next way refuses to replace just as
 * strictly, so that a doubtful errno may safely count as the former. */
static bool lacks_link(int sys_errno)
{
    switch (sys_errno) {
    case EPERM:      /* what link(2) names: vfat, exFAT, many FUSE */
    case EOPNOTSUPP: /* CIFS without unix extensions, some FUSE */
    case ENOSYS:     /* FUSE without the operation */
    case EMLINK:     /* one link a file is the limit; ours is new, so it cannot have more */
    case EACCES:     /* SMB and security modules; the directory itself just let us create */
    case EXDEV:      /* stacked FUSE that places files on several branches */
        return true;
    default:
        return false;
    }
}

static bool lacks_noreplace(int sys_errno)
{
    switch (sys_errno) {
    case EINVAL:     /* the file system knows no flags: NFS and others */
    case ENOSYS:     /* kernel before 3.15, or a sandbox */
    case EOPNOTSUPP: /* FUSE and network file systems */
    case EPERM:      /* seccomp filters that do not know the call */
        return true;
    default:
        return false;
    }
}

/* For want of anything atomic: between the look and the rename somebody else may create the name,
 * and lose it. */
static enum ydl_status rename_weakly(struct creation *c, struct ydl_error *err)
{
    struct stat named;
    if (fstatat(c->dir_fd, c->name, &named, AT_SYMLINK_NOFOLLOW) == 0)
        return fail_busy(c, err);
    if (errno != ENOENT)
        return fail_create(c, errno, err);
    int rename_errno = renameat(c->dir_fd, c->temp, c->dir_fd, c->name) == 0 ? 0 : errno;
    if (rename_errno != 0 && !is_ours(c))
        return fail_create(c, rename_errno, err);
    c->temp[0] = '\0';
    return YDL_OK;
}

static enum ydl_status rename_strictly(struct creation *c, bool allow_weak, int link_errno,
                                       struct ydl_error *err)
{
    /* By number: glibc has a wrapper only since 2.28. */
    long rc = syscall(SYS_renameat2, c->dir_fd, c->temp, c->dir_fd, c->name, RENAME_NOREPLACE);
    int rename_errno = rc == 0 ? 0 : errno;
    if (rc == 0 || is_ours(c)) {
        c->temp[0] = '\0';
        return YDL_OK;
    }
    if (rename_errno == EEXIST)
        return fail_busy(c, err);
    if (!lacks_noreplace(rename_errno))
        return fail_create(c, rename_errno, err);
    if (allow_weak)
        return rename_weakly(c, err);
    ydl_fail(err, YDL_UNSUPPORTED,
             "cannot create %s safely: its file system has neither hard links (errno %d) nor a "
             "rename that refuses to replace (errno %d). allow_weak_publish=True publishes all the "
             "same; two builders that finish in the same moment could then replace each other",
             c->path, link_errno, rename_errno);
    return ydl_fail_at(err, c->path);
}

static enum ydl_status give_name(struct creation *c, bool allow_weak, struct ydl_error *err)
{
    /* link, not rename: it is the one call that fails on an existing name everywhere, NFS too. */
    int link_errno;
    do {
        if (linkat(c->dir_fd, c->temp, c->dir_fd, c->name, 0) == 0)
            return YDL_OK;
        link_errno = errno;
    } while (link_errno == EINTR); /* where it was made all the same, the next one says EEXIST */
    if (is_ours(c))
        return YDL_OK;
    if (link_errno == EEXIST)
        return fail_busy(c, err);
    if (!lacks_link(link_errno))
        return fail_create(c, link_errno, err);
    return rename_strictly(c, allow_weak, link_errno, err);
}

/* The temporary name goes. Closed first: NFS gives an open file another name instead. */
static void drop_temp(struct creation *c)
{
    if (c->fd >= 0)
        close(c->fd); /* what close could report, fsync has */
    c->fd = -1;
    while (c->temp[0] != '\0' && unlinkat(c->dir_fd, c->temp, 0) != 0 && errno == EINTR)
        ;
    c->temp[0] = '\0';
}

static enum ydl_status flush_names(const struct creation *c, struct ydl_error *err)
{
    enum ydl_status status = ydl_directory_flush(c->dir_fd, c->dir, err);
    if (status == YDL_OK)
        return YDL_OK;
    return ydl_fail_os(err, err->sys_errno, c->path, "created %s but cannot flush its directory",
                       c->path);
}

static enum ydl_status create(struct creation *c, const void *bytes, size_t n, bool allow_weak,
                              struct ydl_error *err)
{
    enum ydl_status status = open_temp(c, err);
    if (status != YDL_OK)
        return status;
    status = ydl_write_all(c->fd, bytes, n, c->path, err);
    if (status != YDL_OK)
        return status;
    /* Before the name: after a crash the entry has its bytes or does not exist. */
    status = ydl_fsync(c->fd, c->path, err);
    if (status != YDL_OK)
        return status;
    status = give_name(c, allow_weak, err);
    if (status != YDL_OK)
        return status;
    drop_temp(c);
    return flush_names(c, err);
}

enum ydl_status ydl_create_file(const char *dir, const char *name, const void *bytes, size_t n,
                                bool allow_weak, struct ydl_error *err)
{
    assert(strlen(name) <= MAX_NAME);
    struct creation c = {.dir = dir, .name = name, .dir_fd = -1, .fd = -1};
    enum ydl_status status;
    c.path = ydl_join_path(dir, name);
    if (!c.path)
        return ydl_fail_memory(err, "a path", strlen(dir) + MAX_NAME);

    status = ydl_directory_open(dir, YDL_DIRECTORY_LIST, &c.dir_fd, err);
    if (status == YDL_OK)
        status = create(&c, bytes, n, allow_weak, err);

    drop_temp(&c);
    if (c.dir_fd >= 0)
        close(c.dir_fd);
    free(c.path);
    return status;
}
