/* Writes the parts of one build: <dir>/00000.ydl, 00001.ydl, ...
 *
 * Not thread-safe: one caller at a time (it may be another thread each time). Rows are encoded
 * into a buffer of 1 MiB, checksummed, hashed for the file hash, and written. A part is closed
 * once the next row would make it larger than part_bytes (a single larger row gets a part of its
 * own), then written completely (index, layout, region table, trailer), fsynced and closed.
 * Nothing is visible to readers until the caller publishes a manifest that names the parts. */
#ifndef YDL_RECORD_WRITER_H
#define YDL_RECORD_WRITER_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"

struct ydl_writer;

struct ydl_slice {
    const uint8_t *data;
    size_t len;
};

/* One component of n records of equal shape. */
struct ydl_input {
    uint32_t rank;                   /* of one record */
    const int64_t *dims;             /* [rank], borrowed */
    const uint8_t *data;             /* n records in C order, no padding; NULL for strings */
    const struct ydl_slice *strings; /* one per element of n records; NULL unless string */
};

struct ydl_written_part {
    char name[16]; /* "00000.ydl" */
    uint64_t first_record;
    uint64_t records;
    uint64_t bytes; /* size of the file */
    uint64_t hash;  /* XXH3-64 of the whole file */
};

/* dir exists and belongs to this build alone; layout is copied. */
YDL_MUST_CHECK enum ydl_status ydl_writer_new(const char *dir,
                                              const uint8_t build_uuid[YDL_UUID_BYTES],
                                              const struct ydl_layout *layout, uint64_t part_bytes,
                                              struct ydl_writer **out, struct ydl_error *err);

/* inputs: [layout->count]. YDL_SHAPE_MISMATCH where a shape contradicts the layout; the error
 * names record, component, both shapes. YDL_INVALID for what a row cannot hold. After any failure,
 * and after finish, append and finish give YDL_CLOSED. */
YDL_MUST_CHECK enum ydl_status ydl_writer_append(struct ydl_writer *writer, uint64_t n,
                                                 const struct ydl_input *inputs,
                                                 struct ydl_error *err);

/* Completes the last part, flushes the directory, then opens every part again and verifies all of
 * it (the build may still be given up; a published one may not). */
YDL_MUST_CHECK enum ydl_status ydl_writer_finish(struct ydl_writer *writer, struct ydl_error *err);

uint64_t ydl_writer_records(const struct ydl_writer *writer);
uint64_t ydl_writer_bytes(const struct ydl_writer *writer); /* encoded so far */

/* After finish; the array is owned by the writer. Empty where no record was appended. */
const struct ydl_written_part *ydl_writer_parts(const struct ydl_writer *writer, size_t *out_count);

/* Closes what is open; removes nothing. NULL-safe. */
void ydl_writer_free(struct ydl_writer *writer);

#endif
