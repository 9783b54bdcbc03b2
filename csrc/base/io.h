/* File calls that finish what they start: EINTR is retried, short reads and writes are continued.
 *
 * `path` is what error texts name; it is not opened. Thread-safe; no state. */
#ifndef YDL_BASE_IO_H
#define YDL_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* open(2), tried again after a signal (slow devices, FUSE, NFS). -1 with errno, like open. */
int ydl_open(const char *path, int flags, mode_t mode);
int ydl_openat(int dir_fd, const char *name, int flags, mode_t mode);

YDL_MUST_CHECK enum ydl_status ydl_write_all(int fd, const void *bytes, size_t n, const char *path,
                                             struct ydl_error *err);

/* Fails with YDL_CORRUPT_CACHE where the file ends before offset + n. */
YDL_MUST_CHECK enum ydl_status ydl_pread_all(int fd, void *bytes, size_t n, uint64_t offset,
                                             const char *path, struct ydl_error *err);

/* Has the kernel begin to write these bytes to disk and does not wait for it. It makes nothing
 * durable: fsync does, in less time then. Nothing happens where the system cannot do it. */
YDL_MUST_CHECK enum ydl_status ydl_start_writeback(int fd, uint64_t offset, uint64_t n,
                                                   const char *path, struct ydl_error *err);

YDL_MUST_CHECK enum ydl_status ydl_fsync(int fd, const char *path, struct ydl_error *err);

/* Closes and reports a late write error (NFS, quota). The descriptor is gone whatever comes. */
YDL_MUST_CHECK enum ydl_status ydl_close(int fd, const char *path, struct ydl_error *err);

/* "<dir>/<name>" in a new string, owned by the caller; NULL without memory. */
char *ydl_join_path(const char *dir, const char *name);

#endif
