/* One file in memory, in the place of the system calls that the part reader makes. So a target
 * runs some ten times faster than with files; and a map ends exactly where the file does, so that
 * AddressSanitizer sees a read of one byte more. Linked with -Wl,--wrap=... (fuzz.mk). */
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

enum { MEMORY_FD = 1 << 20 }; /* no kernel gives it out */
static const char name[] = "in memory/part";
static const uint8_t *file;
static size_t file_bytes;

const char *fuzz_memory_file(const uint8_t *bytes, size_t n)
{
    file = bytes;
    file_bytes = n;
    return name;
}

static char directory[] = "/dev/shm/ydl-fuzz-XXXXXX";

static void remove_directory(void)
{
    rmdir(directory);
}

const char *fuzz_directory(void)
{
    static bool is_made;
    if (!is_made) {
        FUZZ_CHECK(mkdtemp(directory));
        atexit(remove_directory);
        is_made = true;
    }
    return directory;
}

int __real_open(const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *st);
int __real_close(int fd);
ssize_t __real_pread(int fd, void *to, size_t n, off_t offset);
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t n);

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return strcmp(path, name) == 0 ? MEMORY_FD : __real_open(path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *st)
{
    if (fd != MEMORY_FD)
        return __real_fstat(fd, st);
    *st = (struct stat){.st_mode = S_IFREG | 0444, .st_size = (off_t)file_bytes};
    return 0;
}

int __wrap_close(int fd)
{
    return fd == MEMORY_FD ? 0 : __real_close(fd);
}

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset)
{
    if (fd != MEMORY_FD)
        return __real_pread(fd, to, n, offset);
    size_t at = offset < 0 || (size_t)offset > file_bytes ? file_bytes : (size_t)offset;
    size_t got = n < file_bytes - at ? n : file_bytes - at;
    if (got)
        memcpy(to, file + at, got);
    return (ssize_t)got;
}

/* Maps of ours that are out; at most two parts are open at once. */
static void *maps[8];

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (fd != MEMORY_FD)
        return __real_mmap(at, n, protection, flags, fd, offset);
    FUZZ_CHECK(n <= file_bytes && offset == 0);
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        if (!maps[i])
            return maps[i] = fuzz_copy(file, n);
    }
    abort();
}

int __wrap_munmap(void *at, size_t n)
{
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        if (maps[i] == at) {
            maps[i] = NULL;
            free(at);
            return 0;
        }
    }
    return __real_munmap(at, n);
}
