/* A source over part files of a mounted file system.
 *
 * Parts are opened (and validated) when first viewed and stay open; beyond max_open the one that
 * was not viewed for longest is closed, so that 40,000 parts fit any limit on maps and files. */
#ifndef YDL_BATCH_LOCAL_H
#define YDL_BATCH_LOCAL_H

#include <stddef.h>

#include "batch/source.h"

/* infos are copied with their paths, layout is borrowed until close. max_open >= 1. */
YDL_MUST_CHECK enum ydl_status ydl_local_source_new(const struct ydl_part_info *infos, size_t count,
                                                    const struct ydl_layout *layout,
                                                    enum ydl_access access, size_t max_open,
                                                    struct ydl_source **out, struct ydl_error *err);

/* min(RLIMIT_NOFILE / 2, 1024): leaves the process its own descriptors. */
size_t ydl_local_source_default_max_open(void);

#endif
