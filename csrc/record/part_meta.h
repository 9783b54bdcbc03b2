/* Everything of a part file but its rows and its index: reads it, and checks it against itself,
 * against the file's size and against what the manifest says. Called by part.c alone. */
#ifndef YDL_RECORD_PART_META_H
#define YDL_RECORD_PART_META_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"
#include "record/part.h"

/* Regions inside the file and apart from each other. */
struct ydl_part_meta {
    uint64_t rows_offset;
    uint64_t rows_bytes; /* fixed-size rows: records * row_bytes; varying: at least 4 a record */
    uint64_t index_offset;
    uint64_t index_bytes; /* 8 a record; 0 where rows have a fixed size */
    uint64_t index_hash;  /* what it should be; not compared here */
};

/* fd: a regular file of info->bytes bytes. It is read with pread, so a file that shrinks meanwhile
 * gives an error. */
YDL_MUST_CHECK enum ydl_status ydl_part_meta_read(int fd, const struct ydl_part_info *info,
                                                  const struct ydl_layout *layout,
                                                  struct ydl_part_meta *out, struct ydl_error *err);

/* "part file <path>: <what is wrong>", with err->path set. */
enum ydl_status ydl_part_refuse(struct ydl_error *err, enum ydl_status status, const char *path,
                                const char *fmt, ...) YDL_PRINTF(4, 5);

#endif
