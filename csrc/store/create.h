/* Creates a file that appears with all its bytes or not at all, and only where its name is free.
 *
 * The one commit step of the store; the manifest log and the lease are built on it. Safe against
 * any number of processes and hosts that try the same name. Thread-safe, no state. */
#ifndef YDL_STORE_CREATE_H
#define YDL_STORE_CREATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* name: at most 40 bytes, in dir, which exists. On YDL_OK the bytes and the name are on disk.
 *
 * YDL_BUSY: the name is taken, by whatever it may be. YDL_UNSUPPORTED: the file system knows no way
 * to create a name without replacing one; with allow_weak a look before the rename is made to do,
 * and of two creators at the same moment both may be told YDL_OK. YDL_OS: anything else; the file
 * may then exist only where the text says so (the directory could not be flushed).
 *
 * No temporary file stays behind unless this process is killed here. */
YDL_MUST_CHECK enum ydl_status ydl_create_file(const char *dir, const char *name, const void *bytes,
                                               size_t n, bool allow_weak, struct ydl_error *err);

#endif
