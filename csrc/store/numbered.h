/* Entries of a directory that are named by a number: 00000001<suffix>, 00000002<suffix>, ...
 *
 * The naming and looking-up that the manifest log and the lease share. Exactly eight digits and
 * the suffix make an entry; every other name is ignored. Thread-safe, no state; each call costs a
 * few system calls, or one listing of the directory. */
#ifndef YDL_STORE_NUMBERED_H
#define YDL_STORE_NUMBERED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

enum {
    YDL_NUMBERED_NAME_BYTES = 32, /* a name with its NUL; the suffix is at most 23 bytes */
    YDL_NUMBERED_MAX = 99999999,
};

/* number: at most YDL_NUMBERED_MAX. */
void ydl_numbered_name(char out[YDL_NUMBERED_NAME_BYTES], uint64_t number, const char *suffix);

/* Whether a name is an entry's, and its number. name: any string. */
YDL_MUST_CHECK bool ydl_numbered_parse(const char *name, const char *suffix, uint64_t *out_number);

/* The highest number in the directory; 0 where it is empty or absent. */
YDL_MUST_CHECK enum ydl_status ydl_numbered_latest(const char *dir, const char *suffix,
                                                   uint64_t *out_number, struct ydl_error *err);

/* Opens an entry with these access flags; never follows or waits for what lies there. YDL_OS with
 * ENOENT where it is absent, YDL_CORRUPT_CACHE where it is no regular file. */
YDL_MUST_CHECK enum ydl_status ydl_numbered_open(const char *dir, uint64_t number,
                                                 const char *suffix, int flags, int *out_fd,
                                                 struct stat *out_stat, struct ydl_error *err);

/* Removes the entries below a number, as far as that is possible. */
void ydl_numbered_prune(const char *dir, const char *suffix, uint64_t below);

#endif
