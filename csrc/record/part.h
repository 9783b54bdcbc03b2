/* Opens one part file for reading and hands out its rows.
 *
 * Opening runs the one validation of a part: header, trailer, region table, layout and index are
 * checked against each other, against the file's size and against what the manifest says; rows are
 * checked by their checksum when they are read. Bytes are hostile: an error, never a crash, and no
 * allocation for a count that the file cannot hold.
 *
 * After open a part is immutable: threads may read rows at once, each with its own scratch.
 *
 * A file that is cut short while it is mapped gives zeros (base/map.h), in its last page without
 * any sign. So whoever copied rows calls ydl_part_check_whole before anything is handed out, also
 * in the place of another error, which the zeros may have caused. */
#ifndef YDL_RECORD_PART_H
#define YDL_RECORD_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "record/layout.h"

struct ydl_part;

/* What the manifest says about a part. */
struct ydl_part_info {
    char *path; /* owned by whoever owns the struct */
    uint8_t build_uuid[YDL_UUID_BYTES];
    uint64_t number;
    uint64_t first_record;
    uint64_t records;
    uint64_t bytes; /* size of the file */
};

enum ydl_access {
    YDL_ACCESS_MMAP,
    YDL_ACCESS_PREAD, /* network file systems: rows are read into the caller's scratch */
};

/* info and layout are borrowed for the call. YDL_OS (ENOENT where it is gone), YDL_CORRUPT_CACHE,
 * YDL_UNSUPPORTED. */
YDL_MUST_CHECK enum ydl_status ydl_part_open(const struct ydl_part_info *info,
                                             const struct ydl_layout *layout,
                                             enum ydl_access access, struct ydl_part **out,
                                             struct ydl_error *err);
void ydl_part_close(struct ydl_part *part); /* NULL-safe */

uint64_t ydl_part_records(const struct ydl_part *part);
const char *ydl_part_path(const struct ydl_part *part);

bool ydl_part_is_mapped(const struct ydl_part *part);

/* Asks the memory for what is read first of this row: its index entry, or else the row itself. */
void ydl_part_prefetch(const struct ydl_part *part, uint64_t row);

/* A few rows later: brings the row to the core. */
void ydl_part_prefetch_near(const struct ydl_part *part, uint64_t row);

/* Where the row lies in the file. False where a damaged index says nonsense. */
bool ydl_part_row_span(const struct ydl_part *part, uint64_t row, uint64_t *out_offset,
                       uint64_t *out_n);

/* For who reads ahead of rows, in bytes of the file: hints that may come to nothing, never an
 * error. want: [offset, offset + n) will be read soon; does not wait for it. await: returns once
 * the byte at `offset` is there, or cannot be read. expect_random: rows that nobody has asked for
 * are read by themselves, not with what lies around them; once is enough, and for good. */
uint64_t ydl_part_bytes(const struct ydl_part *part);
void ydl_part_want(const struct ydl_part *part, uint64_t offset, uint64_t n);
void ydl_part_await(const struct ydl_part *part, uint64_t offset);
void ydl_part_expect_random(struct ydl_part *part);

/* YDL_CORRUPT_CACHE where the file was cut since it was opened, so that what was read from the map
 * may be wrong; YDL_OS where it has all of its bytes, but they cannot be read now. Costs two loads;
 * nothing for parts that are not mapped, whose reads fail. */
YDL_MUST_CHECK enum ydl_status ydl_part_check_whole(const struct ydl_part *part,
                                                    struct ydl_error *err);

/* Row `row` of the part (row < records, an assert): a pointer into the map, or into scratch, valid
 * until scratch changes or the part is closed. The checksum is part of the row and not verified. */
YDL_MUST_CHECK enum ydl_status ydl_part_row(const struct ydl_part *part, uint64_t row,
                                            struct ydl_buf *scratch, const uint8_t **out_bytes,
                                            uint64_t *out_n, struct ydl_error *err);

/* bytes: a copy of the whole row, checksum included. */
bool ydl_part_row_is_valid(const struct ydl_part *part, uint64_t row, const uint8_t *bytes,
                           uint64_t n);

/* YDL_CORRUPT_RECORD with file, record and offset, for a row that failed the check above; or
 * YDL_CORRUPT_CACHE where the file was cut. */
enum ydl_status ydl_part_fail_row(const struct ydl_part *part, uint64_t row, struct ydl_error *err);

/* Reads and checks every row; needs no ydl_part_check_whole. */
YDL_MUST_CHECK enum ydl_status ydl_part_verify(const struct ydl_part *part, struct ydl_error *err);

#endif
