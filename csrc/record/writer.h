/* Writes the parts of one build: <dir>/00000.ydl, 00001.ydl, ...
 *
 * Not thread-safe: one caller at a time (it may be another thread each time). Rows are encoded
 * into a buffer of 1 MiB (or one row), checksummed, hashed for the file hash, and written. A part
 * is complete once the next row would make it larger than part_bytes (a single larger row gets a
 * part of its own); then a thread of the writer's flushes it to disk, opens it again and verifies
 * all of it, while the next one is written (finisher.h). That thread reads through 1 MiB (or one
 * row) and, where rows vary, one part's index. In a forked child everything but free gives
 * YDL_FORKED. Nothing is visible to readers until the caller publishes a manifest that names the
 * parts. */
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

/* One component of n records; all pointers are borrowed. */
struct ydl_input {
    uint32_t rank;                   /* of one record */
    const int64_t *dims;             /* [rank]: the shape of each; unused where they differ */
    const uint8_t *data;             /* n records in C order, no padding; NULL for strings */
    const struct ydl_slice *strings; /* one per element of n records; NULL unless string */
    const int64_t *shapes;           /* [n][rank] where records' shapes differ; else NULL */
    uint64_t elements;               /* with shapes: how many data or strings holds */
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
 * names record, component, both shapes. YDL_INVALID for what a row cannot hold, and where shapes
 * ask for other than `elements`. May report what became of an earlier part, and waits for the disk
 * where two parts wait for it already. After any failure, and after finish, append and finish give
 * YDL_CLOSED. */
YDL_MUST_CHECK enum ydl_status ydl_writer_append(struct ydl_writer *writer, uint64_t n,
                                                 const struct ydl_input *inputs,
                                                 struct ydl_error *err);

/* Completes the last part, waits until all are durable and verified, and flushes the directory
 * (the build may still be given up; a published one may not). */
YDL_MUST_CHECK enum ydl_status ydl_writer_finish(struct ydl_writer *writer, struct ydl_error *err);

/* The same, but YDL_PENDING after timeout_ms of waiting: then it is called again. */
YDL_MUST_CHECK enum ydl_status ydl_writer_try_finish(struct ydl_writer *writer, uint64_t timeout_ms,
                                                     struct ydl_error *err);

/* Waits until append would not wait for the disk (but for an append of several parts): YDL_PENDING
 * after timeout_ms; YDL_OK also for a writer that append will refuse. For callers who have to look
 * for signals now and then. */
YDL_MUST_CHECK enum ydl_status ydl_writer_wait(struct ydl_writer *writer, uint64_t timeout_ms,
                                               struct ydl_error *err);

uint64_t ydl_writer_records(const struct ydl_writer *writer);
uint64_t ydl_writer_bytes(const struct ydl_writer *writer); /* encoded so far */

/* After finish; the array is owned by the writer. Empty where no record was appended. */
const struct ydl_written_part *ydl_writer_parts(const struct ydl_writer *writer, size_t *out_count);

/* Closes what is open and ends the thread (see ydl_finisher_free); removes nothing. NULL-safe. In a
 * forked child it only lets go. */
void ydl_writer_free(struct ydl_writer *writer);

#endif
