/* LD_PRELOAD: notes every call that changes files below a directory, and ends the story after one.
 *
 * Does nothing until recorder_arm is called (soak/forked.py, by ctypes); a line of its notes is the
 * call, a tab, and what it was about (soak/disk.py reads them). Calls of several threads are noted
 * in the order in which they were made, because they are made one at a time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FS_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define NOLOGFLUSH 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root; /* NULL: not armed */
static size_t root_len;
static FILE *notes;
static long kill_at, shutdown_at, count;
static int leaves_flushes_out;

/* dir: other files are left alone. file: notes are appended there; NULL: none are kept. kill: the
 * process kills itself after so many noted calls; shutdown: the file system of dir is shut down
 * then, its journal not written out, and the process ends with status 98; 0: never. no_flushes:
 * fsync does nothing. */
void recorder_arm(const char *dir, const char *file, long kill, long shutdown, int no_flushes)
{
    root = strdup(dir);
    root_len = strlen(root);
    kill_at = kill;
    shutdown_at = shutdown;
    count = 0;
    leaves_flushes_out = no_flushes;
    notes = file ? fopen(file, "ae") : NULL;
}

static int is_below(const char *path)
{
    return root && strncmp(path, root, root_len) == 0 && (path[root_len] == '/' || !path[root_len]);
}

static void path_of_fd(int fd, char out[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
}

/* Whether it is below the root; out then is the whole path. */
static int resolve(int dir_fd, const char *path, char out[PATH_MAX])
{
    char dir[PATH_MAX] = "";
    if (path[0] == '/')
        snprintf(out, PATH_MAX, "%s", path);
    else if (dir_fd != AT_FDCWD) {
        path_of_fd(dir_fd, dir);
        snprintf(out, PATH_MAX, "%.2000s/%.2000s", dir, path);
    } else {
        if (!getcwd(dir, sizeof dir))
            return 0;
        snprintf(out, PATH_MAX, "%.2000s/%.2000s", dir, path);
    }
    return is_below(out);
}

static void end_here(void)
{
    count++;
    if (notes)
        fflush(notes);
    if (kill_at && count == kill_at)
        kill(getpid(), SIGKILL);
    if (shutdown_at && count == shutdown_at) {
        uint32_t how = NOLOGFLUSH;
        int fd = (int)syscall(SYS_openat, AT_FDCWD, root, O_RDONLY | O_DIRECTORY);
        if (fd < 0 || ioctl(fd, FS_IOC_SHUTDOWN, &how) != 0) {
            perror("FS_IOC_SHUTDOWN");
            _exit(99);
        }
        _exit(98);
    }
}

static void note(const char *format, ...)
{
    if (notes) {
        va_list args;
        va_start(args, format);
        vfprintf(notes, format, args);
        va_end(args);
        fputc('\n', notes);
    }
    end_here();
}

static unsigned long long inode_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? (unsigned long long)st.st_ino : 0;
}

#define REAL(name, ...)                                                                            \
    static int (*real)(__VA_ARGS__);                                                               \
    if (!real)                                                                                     \
    real = (int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int open_noted(int dir_fd, const char *path, int flags, mode_t mode)
{
    static int (*real)(int, const char *, int, ...);
    if (!real)
        real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    char full[PATH_MAX];
    int changes = (flags & (O_CREAT | O_TRUNC)) && root && resolve(dir_fd, path, full);
    if (!changes)
        return real(dir_fd, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat st;
    int was_there = stat(full, &st) == 0;
    int fd = real(dir_fd, path, flags, mode);
    int saved = errno;
    if (fd >= 0 && !was_there)
        note("create\t%llu\t%s", inode_of(fd), full);
    else if (fd >= 0 && (flags & O_TRUNC))
        note("truncate\t%llu\t0", inode_of(fd));
    pthread_mutex_unlock(&lock);
    errno = saved;
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(args, int) : 0;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_noted(AT_FDCWD, path, flags, mode);                                            \
    }
#define OPENAT(name)                                                                               \
    int name(int dir_fd, const char *path, int flags, ...)                                         \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = mode_of(flags, args);                                                        \
        va_end(args);                                                                              \
        return open_noted(dir_fd, path, flags, mode);                                              \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static int fd_is_below(int fd)
{
    if (!root)
        return 0;
    char path[PATH_MAX];
    path_of_fd(fd, path);
    return is_below(path);
}

static void note_write(int fd, const void *bytes, size_t n, off_t offset)
{
    if (notes) {
        fprintf(notes, "write\t%llu\t%lld\t", inode_of(fd), (long long)offset);
        for (size_t i = 0; i < n; i++)
            fprintf(notes, "%02x", ((const unsigned char *)bytes)[i]);
        fputc('\n', notes);
    }
    end_here();
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!fd_is_below(fd))
        return real(fd, bytes, n);
    pthread_mutex_lock(&lock);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, bytes, n);
    int saved = errno;
    if (done > 0)
        note_write(fd, bytes, (size_t)done, offset);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return done;
}

#define PWRITE(name)                                                                               \
    ssize_t name(int fd, const void *bytes, size_t n, off_t offset)                                \
    {                                                                                              \
        static ssize_t (*real)(int, const void *, size_t, off_t);                                  \
        if (!real)                                                                                 \
            real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");       \
        if (!fd_is_below(fd))                                                                      \
            return real(fd, bytes, n, offset);                                                     \
        pthread_mutex_lock(&lock);                                                                 \
        ssize_t done = real(fd, bytes, n, offset);                                                 \
        int saved = errno;                                                                         \
        if (done > 0)                                                                              \
            note_write(fd, bytes, (size_t)done, offset);                                           \
        pthread_mutex_unlock(&lock);                                                               \
        errno = saved;                                                                             \
        return done;                                                                               \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FSYNC(name)                                                                                \
    int name(int fd)                                                                               \
    {                                                                                              \
        REAL(#name, int);                                                                          \
        if (!fd_is_below(fd))                                                                      \
            return real(fd);                                                                       \
        pthread_mutex_lock(&lock);                                                                 \
        int rc = leaves_flushes_out ? 0 : real(fd);                                                \
        int saved = errno;                                                                         \
        char path[PATH_MAX];                                                                       \
        path_of_fd(fd, path);                                                                      \
        if (rc == 0)                                                                               \
            note("fsync\t%llu\t%s", inode_of(fd), path);                                           \
        pthread_mutex_unlock(&lock);                                                               \
        errno = saved;                                                                             \
        return rc;                                                                                 \
    }
FSYNC(fsync)
FSYNC(fdatasync)

#define FTRUNCATE(name)                                                                            \
    int name(int fd, off_t size)                                                                   \
    {                                                                                              \
        REAL(#name, int, off_t);                                                                   \
        int rc = real(fd, size);                                                                   \
        if (rc == 0 && fd_is_below(fd)) {                                                          \
            pthread_mutex_lock(&lock);                                                             \
            note("truncate\t%llu\t%lld", inode_of(fd), (long long)size);                           \
            pthread_mutex_unlock(&lock);                                                           \
        }                                                                                          \
        return rc;                                                                                 \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

static int two_names(const char *call, int from_fd, const char *from, int to_fd, const char *to,
                     int flags)
{
    pthread_mutex_lock(&lock);
    long number = strcmp(call, "link") == 0 ? SYS_linkat : SYS_renameat2;
    int rc = (int)syscall(number, from_fd, from, to_fd, to, flags);
    int saved = errno;
    char full_from[PATH_MAX], full_to[PATH_MAX];
    if (rc == 0 && root && resolve(from_fd, from, full_from) && resolve(to_fd, to, full_to))
        note("%s\t%s\t%s", call, full_from, full_to);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return rc;
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return two_names("link", from_fd, from, to_fd, to, flags);
}

int link(const char *from, const char *to)
{
    return two_names("link", AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return two_names("rename", from_fd, from, to_fd, to, 0);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
    return two_names("rename", from_fd, from, to_fd, to, (int)flags);
}

int rename(const char *from, const char *to)
{
    return two_names("rename", AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int one_name(const char *call, long number, int dir_fd, const char *path, int argument)
{
    pthread_mutex_lock(&lock);
    int rc = (int)syscall(number, dir_fd, path, argument);
    int saved = errno;
    char full[PATH_MAX];
    if (rc == 0 && root && resolve(dir_fd, path, full))
        note("%s\t%s", call, full);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return rc;
}

int mkdirat(int dir_fd, const char *path, mode_t mode)
{
    return one_name("mkdir", SYS_mkdirat, dir_fd, path, (int)mode);
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dir_fd, const char *path, int flags)
{
    return one_name("unlink", SYS_unlinkat, dir_fd, path, flags);
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
