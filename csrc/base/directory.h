/* Opens directories without following a symbolic link anywhere on their path.
 *
 * Callers resolve the storage's root first (it may be a link, or lie behind some: it is the
 * user's), so that a link found here was planted by whoever may write below the root, and would
 * have us write or remove somewhere else. What is done in the directory afterwards is done relative
 * to its descriptor, so that nobody can put a link into the path between the look and the deed.
 *
 * openat2(RESOLVE_NO_SYMLINKS) where the kernel has it (5.6) and no sandbox forbids it, else one
 * openat(O_NOFOLLOW) a component. Thread-safe, no state. */
#ifndef YDL_BASE_DIRECTORY_H
#define YDL_BASE_DIRECTORY_H

#include "base/status.h"

enum ydl_directory_use {
    YDL_DIRECTORY_NAMES, /* to open, create and remove what is in it: no permission to list it */
    YDL_DIRECTORY_LIST,  /* also to list or flush it */
};

/* YDL_CORRUPT_CACHE where a component is a symbolic link; YDL_OS: anything else. The caller closes
 * *out_fd, which is -1 after a failure. */
YDL_MUST_CHECK enum ydl_status ydl_directory_open(const char *path, enum ydl_directory_use use,
                                                  int *out_fd, struct ydl_error *err);

/* Makes the names inside the directory durable. File systems that cannot (FUSE, CIFS) write names
 * at once or not at our bidding; there it succeeds. path: for error texts. */
YDL_MUST_CHECK enum ydl_status ydl_directory_flush(int fd, const char *path, struct ydl_error *err);

/* The same for one that is not open. */
YDL_MUST_CHECK enum ydl_status ydl_fsync_dir(const char *path, struct ydl_error *err);

#endif
