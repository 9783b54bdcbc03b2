/* Lets the N-th call of a system or library function fail. Linked with -Wl,--wrap=... (fault.mk),
 * so that every call that the core and the tests make goes through fault.c; calls inside of libc do
 * not. Calls of all threads count. */
#ifndef YDL_TESTS_FAULT_H
#define YDL_TESTS_FAULT_H

#include <stdbool.h>

/* The wrapped functions. fault.mk has the same list. */
#define FAULT_FUNCTIONS(X)                                                                         \
    X(malloc)                                                                                      \
    X(calloc)                                                                                      \
    X(realloc)                                                                                     \
    X(aligned_alloc)                                                                               \
    X(strdup)                                                                                      \
    X(open)                                                                                        \
    X(openat)                                                                                      \
    X(openat2)                                                                                     \
    X(fdopendir)                                                                                   \
    X(readdir)                                                                                     \
    X(mkdir)                                                                                       \
    X(read)                                                                                        \
    X(pread)                                                                                       \
    X(write)                                                                                       \
    X(pwrite)                                                                                      \
    X(sync_file_range)                                                                             \
    X(fsync)                                                                                       \
    X(fdatasync)                                                                                   \
    X(close)                                                                                       \
    X(mmap)                                                                                        \
    X(fstat)                                                                                       \
    X(fstatat)                                                                                     \
    X(stat)                                                                                        \
    X(linkat)                                                                                      \
    X(renameat)                                                                                    \
    X(renameat2)                                                                                   \
    X(unlink)                                                                                      \
    X(unlinkat)                                                                                    \
    X(getrandom)                                                                                   \
    X(pthread_create)

enum fault_function {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_FUNCTIONS(FAULT_ENUM)
#undef FAULT_ENUM
        FAULT_FUNCTION_COUNT
};

enum { FAULT_SHORT = -1 }; /* in the place of an errno: half of the bytes asked for */

struct fault_plan {
    enum fault_function function;
    int error;       /* an errno, or FAULT_SHORT */
    unsigned nth;    /* from 1 */
    bool persistent; /* the n-th and all later calls; else this one alone */
};

const char *fault_name(enum fault_function function);

/* Begins a run, with or (NULL) without faults; and ends it. */
void fault_begin(const struct fault_plan *plan);
void fault_end(void);

/* Within a run: calls of the test's own, which are neither counted nor fail. */
void fault_pause(void);
void fault_resume(void);

/* Of the last run: whether a call failed, how many calls of the function there were, and how many
 * pieces of memory were allocated in it and not freed. */
bool fault_was_hit(void);
unsigned fault_calls(enum fault_function function);
long fault_leaked(void);

#endif
