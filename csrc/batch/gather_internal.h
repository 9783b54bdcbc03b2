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

    /* The rows of the running group or batch, and copies of those that are not used in place. */
    struct ydl_row *rows; /* [rows_capacity], owned */
    size_t *copy_at;      /* [rows_capacity] where a row's copy begins, or ROW_IN_MAP; owned */
    size_t rows_capacity;
    struct ydl_buf copies;

    size_t group_rows;        /* fixed-size rows: how many fit a group */
    struct ydl_field *fields; /* [components], owned: one varying row taken apart */
};

/* Fills gatherer->rows with n rows: pointers into maps where nothing is left to check, else into
 * copies that were checked. Valid until the next call. */
YDL_MUST_CHECK enum ydl_status ydl_gatherer_resolve(struct ydl_gatherer *gatherer,
                                                    const uint64_t *numbers, size_t n,
                                                    struct ydl_error *err);

/* After ydl_gatherer_resolve, so the batch's rows are in gatherer->rows. */
YDL_MUST_CHECK enum ydl_status ydl_gather_varying(struct ydl_gatherer *gatherer, uint64_t n,
                                                  bool require_uniform, struct ydl_batch *batch,
                                                  struct ydl_error *err);

#endif
