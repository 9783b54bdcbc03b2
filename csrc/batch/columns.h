/* A batch of records as columns: one aligned buffer per component. */
#ifndef YDL_BATCH_COLUMNS_H
#define YDL_BATCH_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "batch/pool.h"
#include "record/format.h"

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

#endif
