/* Shared by gather.c (parts, fixed-size rows) and gather_varying.c; nobody else includes it. */
#ifndef YDL_BATCH_GATHER_INTERNAL_H
#define YDL_BATCH_GATHER_INTERNAL_H

#include "batch/gather.h"

struct ydl_gatherer {
    struct ydl_reader *reader; /* counted */
    struct ydl_pool *pool;     /* borrowed; outlives the gatherer */

    /* Parts viewed during the running gather: each once, however many of its rows are wanted. */
    struct ydl_part **held; /* [part_count], NULL where not held; owned array */
    size_t *held_list;      /* [part_count], the first held_count are held; owned */
    size_t held_count;
    size_t near; /* the part of the last record */

    struct ydl_buf pread_row; /* one row, where parts are not mapped */

    /* Fixed-size rows: pointers of one group of rows, and room for copies of them. */
    size_t group_rows;
    const uint8_t **rows; /* [group_rows], owned */
    uint8_t *copies;      /* [group_rows * row_bytes], owned */

    /* Varying rows: copies of a whole batch, where each ends, and one row taken apart. */
    struct ydl_buf row_copies;
    uint64_t *row_ends; /* [row_ends_capacity], owned */
    uint64_t row_ends_capacity;
    struct ydl_field *fields; /* [components], owned */
};

/* The open part that holds `record` and the record's row in it. */
YDL_MUST_CHECK enum ydl_status ydl_gatherer_locate(struct ydl_gatherer *gatherer, uint64_t record,
                                                   struct ydl_part **out_part, uint64_t *out_row,
                                                   struct ydl_error *err);

/* Checks a copy of a row where this reader must, and remembers that it did. */
YDL_MUST_CHECK enum ydl_status ydl_gatherer_verify(struct ydl_gatherer *gatherer, uint64_t record,
                                                   const struct ydl_part *part, uint64_t row,
                                                   const uint8_t *copy, uint64_t n,
                                                   struct ydl_error *err);

YDL_MUST_CHECK enum ydl_status ydl_gather_varying(struct ydl_gatherer *gatherer,
                                                  const uint64_t *numbers, uint64_t n,
                                                  bool require_uniform, struct ydl_batch *batch,
                                                  struct ydl_error *err);

#endif
