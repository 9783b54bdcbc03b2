#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

static struct fault_plan plan; /* constant during a run; nth 0: no faults */
static atomic_bool is_running;
static atomic_bool is_paused;
static atomic_bool was_hit;
static atomic_uint calls[FAULT_FUNCTION_COUNT];
static atomic_long live;

const char *fault_name(enum fault_function function)
{
    static const char *const names[] = {
#define FAULT_NAME(name) #name,
        FAULT_FUNCTIONS(FAULT_NAME)
#undef FAULT_NAME
    };
    return names[function];
}

void fault_begin(const struct fault_plan *new_plan)
{
    plan = new_plan ? *new_plan : (struct fault_plan){0};
    for (int i = 0; i < FAULT_FUNCTION_COUNT; i++)
        atomic_store(&calls[i], 0);
    atomic_store(&was_hit, false);
    atomic_store(&live, 0);
    atomic_store(&is_paused, false);
    atomic_store(&is_running, true);
}

void fault_end(void)
{
    atomic_store(&is_running, false);
}

void fault_pause(void)
{
    atomic_store(&is_paused, true);
}

void fault_resume(void)
{
    atomic_store(&is_paused, false);
}

bool fault_was_hit(void)
{
    return atomic_load(&was_hit);
}

unsigned fault_calls(enum fault_function function)
{
    return atomic_load(&calls[function]);
}

long fault_leaked(void)
{
    return atomic_load(&live);
}

static bool is_chosen(enum fault_function function)
{
    if (!atomic_load(&is_running) || atomic_load(&is_paused))
        return false;
    unsigned call = atomic_fetch_add(&calls[function], 1) + 1;
    bool chosen = plan.nth != 0 && plan.function == function &&
                  (plan.persistent ? call >= plan.nth : call == plan.nth);
    if (chosen)
        atomic_store(&was_hit, true);
    return chosen;
}

/* Whether this call fails; errno is set then. */
static bool fails(enum fault_function function)
{
    bool chosen = is_chosen(function);
    if (chosen)
        errno = plan.error;
    return chosen;
}

/* For calls that move bytes: may make n smaller instead. */
static bool fails_or_cuts(enum fault_function function, size_t *n)
{
    if (!is_chosen(function))
        return false;
    if (plan.error == FAULT_SHORT) {
        *n = *n > 1 ? *n / 2 : *n;
        return false;
    }
    errno = plan.error;
    return true;
}

/* The prototype of the real function, and the head of the one in its place. */
#define WRAP(type, name, parameters)                                                               \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters

/* ---- memory ---- */

static void *note(void *memory)
{
    if (memory && atomic_load(&is_running))
        atomic_fetch_add(&live, 1);
    return memory;
}

WRAP(void *, malloc, (size_t n))
{
    return fails(FAULT_malloc) ? NULL : note(__real_malloc(n));
}

WRAP(void *, calloc, (size_t count, size_t n))
{
    return fails(FAULT_calloc) ? NULL : note(__real_calloc(count, n));
}

WRAP(void *, realloc, (void *memory, size_t n))
{
    if (fails(FAULT_realloc))
        return NULL;
    void *grown = __real_realloc(memory, n);
    return memory ? grown : note(grown);
}

WRAP(void *, aligned_alloc, (size_t alignment, size_t n))
{
    return fails(FAULT_aligned_alloc) ? NULL : note(__real_aligned_alloc(alignment, n));
}

WRAP(char *, strdup, (const char *text))
{
    return fails(FAULT_strdup) ? NULL : note(__real_strdup(text));
}

WRAP(void, free, (void *memory))
{
    if (memory && atomic_load(&is_running))
        atomic_fetch_sub(&live, 1);
    __real_free(memory);
}

/* ---- files ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(FAULT_open) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(FAULT_openat) ? -1 : __real_openat(dir, path, flags, mode);
}

WRAP(DIR *, fdopendir, (int fd))
{
    return fails(FAULT_fdopendir) ? NULL : __real_fdopendir(fd);
}

WRAP(struct dirent *, readdir, (DIR * listing))
{
    return fails(FAULT_readdir) ? NULL : __real_readdir(listing);
}

WRAP(int, mkdir, (const char *path, mode_t mode))
{
    return fails(FAULT_mkdir) ? -1 : __real_mkdir(path, mode);
}

WRAP(ssize_t, read, (int fd, void *to, size_t n))
{
    return fails_or_cuts(FAULT_read, &n) ? -1 : __real_read(fd, to, n);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t n, off_t offset))
{
    return fails_or_cuts(FAULT_pread, &n) ? -1 : __real_pread(fd, to, n, offset);
}

WRAP(ssize_t, write, (int fd, const void *from, size_t n))
{
    return fails_or_cuts(FAULT_write, &n) ? -1 : __real_write(fd, from, n);
}

WRAP(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t offset))
{
    return fails_or_cuts(FAULT_pwrite, &n) ? -1 : __real_pwrite(fd, from, n, offset);
}

WRAP(int, sync_file_range, (int fd, off_t offset, off_t n, unsigned flags))
{
    return fails(FAULT_sync_file_range) ? -1 : __real_sync_file_range(fd, offset, n, flags);
}

WRAP(int, fsync, (int fd))
{
    return fails(FAULT_fsync) ? -1 : __real_fsync(fd);
}

WRAP(int, fdatasync, (int fd))
{
    return fails(FAULT_fdatasync) ? -1 : __real_fdatasync(fd);
}

/* The descriptor is gone whatever close reports. */
WRAP(int, close, (int fd))
{
    int rc = __real_close(fd);
    return fails(FAULT_close) ? -1 : rc;
}

WRAP(void *, mmap, (void *at, size_t n, int protection, int flags, int fd, off_t offset))
{
    return fails(FAULT_mmap) ? MAP_FAILED : __real_mmap(at, n, protection, flags, fd, offset);
}

WRAP(int, fstat, (int fd, struct stat *st))
{
    return fails(FAULT_fstat) ? -1 : __real_fstat(fd, st);
}

WRAP(int, fstatat, (int dir, const char *path, struct stat *st, int flags))
{
    return fails(FAULT_fstatat) ? -1 : __real_fstatat(dir, path, st, flags);
}

WRAP(int, stat, (const char *path, struct stat *st))
{
    return fails(FAULT_stat) ? -1 : __real_stat(path, st);
}

WRAP(int, linkat, (int from_dir, const char *from, int dir, const char *path, int flags))
{
    return fails(FAULT_linkat) ? -1 : __real_linkat(from_dir, from, dir, path, flags);
}

WRAP(int, renameat, (int from_dir, const char *from, int dir, const char *path))
{
    return fails(FAULT_renameat) ? -1 : __real_renameat(from_dir, from, dir, path);
}

WRAP(int, unlink, (const char *path))
{
    return fails(FAULT_unlink) ? -1 : __real_unlink(path);
}

WRAP(int, unlinkat, (int dir, const char *path, int flags))
{
    return fails(FAULT_unlinkat) ? -1 : __real_unlinkat(dir, path, flags);
}

/* ---- the rest ---- */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && fails(FAULT_openat2))
        return -1;
    if (number == SYS_renameat2 && fails(FAULT_renameat2))
        return -1;
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

WRAP(ssize_t, getrandom, (void *to, size_t n, unsigned flags))
{
    return fails(FAULT_getrandom) ? -1 : __real_getrandom(to, n, flags);
}

WRAP(int, pthread_create,
     (pthread_t * out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument))
{
    return fails(FAULT_pthread_create) ? plan.error
                                       : __real_pthread_create(out, attributes, run, argument);
}
