/* The manifest log: files <dir>/00000001.json, 00000002.json, ... each created once, never changed.
 *
 * Creating number N + 1 is the only commit point of a dataset; whoever loses the race adopts what
 * the winner wrote. Contents are bytes to this module. Any process or host may call at any time;
 * there is no state and no lock. */
#ifndef YDL_STORE_LOG_H
#define YDL_STORE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum {
    YDL_LOG_NAME_BYTES = 32,
    /* 1e8 builds of one dataset: only a planted file gets there, and its number must not wedge the
       log. */
    YDL_LOG_MAX_NUMBER = 99999999,
};

/* The highest number in the directory; 0 where it is empty or absent. Other names are ignored. */
YDL_MUST_CHECK enum ydl_status ydl_log_latest(const char *dir, uint64_t *out_number,
                                              struct ydl_error *err);

/* Appends entry `number` to out. YDL_OS with ENOENT where it is absent; at most max_bytes, else
 * YDL_CORRUPT_CACHE. A symlink or anything but a regular file is refused. */
YDL_MUST_CHECK enum ydl_status ydl_log_read(const char *dir, uint64_t number, size_t max_bytes,
                                            struct ydl_buf *out, struct ydl_error *err);

/* Creates entry `number` durably: temporary name, write, fsync, link, fsync of the directory.
 * YDL_BUSY where the number is taken (by somebody else: an entry whose link succeeded but reported
 * an error is recognised by st_nlink). YDL_UNSUPPORTED where the file system has neither link nor
 * a rename that refuses to replace, unless allow_weak. Leaves no temporary file. Only one failure
 * comes after the entry exists, and its text says so: YDL_OS because the directory cannot be
 * flushed. So whoever removes something after a failure looks at entry `number` first. */
YDL_MUST_CHECK enum ydl_status ydl_log_append(const char *dir, uint64_t number, const void *bytes,
                                              size_t n, bool allow_weak, struct ydl_error *err);

#endif
