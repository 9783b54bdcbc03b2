/* One part file while it is written, strictly from its beginning to its end.
 *
 * The writer (writer.c) decides which rows go into which part; this knows the file. Rows are made
 * in place: reserve room, encode there, push. Everything of a part but its rows is a few KiB, and
 * its index 8 B a record, kept until the rows are written. Buffers are kept from part to part.
 * Not thread-safe. After a failure only clear is allowed. */
#ifndef YDL_RECORD_PART_WRITER_H
#define YDL_RECORD_PART_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"
#include "record/format.h"
#include "record/layout.h"
#include "record/writer.h"

/* A part file that is completely written, but perhaps not yet on disk. */
struct ydl_part_file {
    int fd;     /* owned; -1: closed */
    char *path; /* owned */
    uint32_t number;
    struct ydl_written_part part;
};

#define YDL_PART_FILE_NONE ((struct ydl_part_file){.fd = -1})

void ydl_part_file_clear(struct ydl_part_file *file);

struct ydl_part_writer {
    const struct ydl_layout *layout; /* borrowed; outlives this */
    uint8_t build_uuid[YDL_UUID_BYTES];
    struct ydl_buf layout_region; /* encoded once */

    /* Of the part being written: */
    int fd;     /* -1 between parts */
    char *path; /* owned; NULL between parts */
    uint32_t number;
    struct ydl_written_part part; /* bytes and hash are set by finish */
    struct ydl_hasher *hasher;    /* owned; NULL between parts */
    uint64_t seed;                /* of its rows' checksums */
    uint64_t flushed;             /* bytes of the file behind which pending goes */
    uint64_t on_its_way;          /* as many of them go to the disk already */
    struct ydl_buf pending;       /* not yet written */
    size_t hashed;                /* how much of pending the hasher has seen */
    uint64_t rows_bytes;
    struct ydl_buf index; /* only where rows vary */
    uint8_t header[YDL_HEADER_BYTES];
};

/* Even after a failure the struct may be cleared. */
YDL_MUST_CHECK enum ydl_status ydl_part_writer_init(struct ydl_part_writer *writer,
                                                    const struct ydl_layout *layout,
                                                    const uint8_t build_uuid[YDL_UUID_BYTES],
                                                    struct ydl_error *err);

/* Closes an unfinished file and leaves it where it is. */
void ydl_part_writer_clear(struct ydl_part_writer *writer);

/* Creates <dir>/<number>.ydl, which must not exist. No part is open. */
YDL_MUST_CHECK enum ydl_status ydl_part_writer_begin(struct ydl_part_writer *writer,
                                                     const char *dir, uint32_t number,
                                                     uint64_t first_record, struct ydl_error *err);

static inline bool ydl_part_writer_is_open(const struct ydl_part_writer *writer)
{
    return writer->fd >= 0;
}

/* Size of a complete file with so many records and bytes of rows. */
uint64_t ydl_part_writer_file_bytes(const struct ydl_part_writer *writer, uint64_t records,
                                    uint64_t rows_bytes);

/* Room for the next rows; valid until the next call. */
YDL_MUST_CHECK enum ydl_status ydl_part_writer_reserve(struct ydl_part_writer *writer,
                                                       uint64_t bytes, uint8_t **out,
                                                       struct ydl_error *err);

/* Takes n rows of fixed size, or one varying row of so many bytes, from the reserved room; sets
 * their checksums. */
void ydl_part_writer_push_fixed(struct ydl_part_writer *writer, uint64_t n);
YDL_MUST_CHECK enum ydl_status ydl_part_writer_push_varying(struct ydl_part_writer *writer,
                                                            uint64_t bytes, struct ydl_error *err);

/* Writes what follows the rows and lets go of the file. Flushing it to disk is the caller's
 * business, by this descriptor: another one may not be told of errors that came before. */
YDL_MUST_CHECK enum ydl_status ydl_part_writer_finish(struct ydl_part_writer *writer,
                                                      struct ydl_part_file *out,
                                                      struct ydl_error *err);

#endif
