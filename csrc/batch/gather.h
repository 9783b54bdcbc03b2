/* Copies records, in any order, into one aligned buffer per component; or lends their rows.
 *
 * What is verified is the copy that is handed out, not the map behind it, which somebody else's
 * write could change between check and copy. */
#ifndef YDL_BATCH_GATHER_H
#define YDL_BATCH_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "batch/pool.h"
#include "batch/reader.h"
#include "record/row.h"

/* One component of a batch. All blocks are owned by the column and may be taken out of it. */
struct ydl_column {
    struct ydl_block *data; /* payloads, one after another; data_bytes of them */
    uint64_t data_bytes;

    /* Strings: where each element ends in data (u64). Else NULL. */
    struct ydl_block *string_ends;
    uint64_t elements; /* of all records together */

    /* All records have this shape ... */
    bool uniform;
    uint32_t rank;
    int64_t dims[YDL_MAX_RANK];

    /* ... or, only where the layout lets shapes vary, each has its own (else NULL). All i64:
       [records + 1] the element where each begins and ends, [records] ranks, and
       [records][rank] dimensions, `rank` being the largest here, unused ones 0. Present for every
       such component, uniform or not. */
    struct ydl_block *record_splits;
    struct ydl_block *record_ranks;
    struct ydl_block *record_dims;
};

struct ydl_batch {
    uint64_t records;
    uint32_t count;              /* components */
    struct ydl_column columns[]; /* [count] */
};

/* A thread's working memory: rows, part views. One per thread; not shared. */
struct ydl_gatherer;
YDL_MUST_CHECK enum ydl_status ydl_gatherer_new(struct ydl_reader *reader, struct ydl_pool *pool,
                                                struct ydl_gatherer **out, struct ydl_error *err);
void ydl_gatherer_free(struct ydl_gatherer *gatherer); /* NULL-safe */

/* numbers: [n] record numbers, YDL_INVALID where one is not below records. require_uniform: records
 * whose shapes differ are YDL_SHAPE_MISMATCH, in tf.data's words. */
YDL_MUST_CHECK enum ydl_status ydl_gather(struct ydl_gatherer *gatherer, const uint64_t *numbers,
                                          uint64_t n, bool require_uniform, struct ydl_batch **out,
                                          struct ydl_error *err);
/* One whole row with its checksum, verified where this reader must. */
struct ydl_row {
    const uint8_t *bytes; /* borrowed: in a map or in the gatherer's memory */
    uint64_t n;
    uint64_t record;
    const struct ydl_part *part; /* ask ydl_part_check_whole after copying from bytes */
};

/* The rows themselves, for who makes single records of them. Every page of them was touched, so
 * that copying does not wait for a disk. They stay valid, and their parts open, until the next
 * call with this gatherer or ydl_gatherer_release_rows. */
YDL_MUST_CHECK enum ydl_status ydl_gather_rows(struct ydl_gatherer *gatherer,
                                               const uint64_t *numbers, uint64_t n,
                                               const struct ydl_row **out_rows,
                                               struct ydl_error *err);
void ydl_gatherer_release_rows(struct ydl_gatherer *gatherer);

/* ydl_row_parse, with an error that names file and record. */
YDL_MUST_CHECK enum ydl_status ydl_row_take_apart(const struct ydl_layout *layout,
                                                  const struct ydl_row *row,
                                                  struct ydl_field *out_fields,
                                                  struct ydl_error *err);

void ydl_batch_free(struct ydl_batch *batch); /* NULL-safe; releases the blocks still in it */

#endif
