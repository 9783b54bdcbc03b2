/* Tells the system which rows will be needed soon, so that a disk with a cold page cache has many
 * requests to work on and not one.
 *
 * A loader knows its order. With each batch that it plans, the rows of those that come next are
 * asked for: sorted, where they lie near each other as one, and so far ahead as AHEAD_BYTES, or one
 * batch where that is more. Where the whole dataset fits into memory and most of it is needed, it
 * is also swept (sweep.h); small rows are then left to the sweep, which they would only disturb.
 *
 * Cost. Whether the cache is cold is seen from what the kernel counts for a thread: blocks read and
 * major faults. A newly opened dataset is tried with a few hints; where none makes a disk work,
 * there are no more. Then a batch is watched now and then (SAMPLE_RECORDS, SAMPLE_BYTES), at two
 * system calls. Nothing here is ever an error.
 *
 * Threads. plan is called under the loader's lock; begin and end by the lane alone, without it. */
#ifndef YDL_BATCH_LOOKAHEAD_H
#define YDL_BATCH_LOOKAHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch/reader.h"
#include "order/order.h"

struct ydl_lookahead;

/* order is that of the loader, whose threads are lanes 0, 1, ... NULL without memory. The reader is
 * borrowed until free. */
struct ydl_lookahead *ydl_lookahead_new(struct ydl_reader *reader, const struct ydl_order *order,
                                        uint64_t batch_records, unsigned lanes);

/* Lane has got a batch of n records; after it the order goes on at `next`, in the epoch of these
 * indices. */
void ydl_lookahead_plan(struct ydl_lookahead *lookahead, unsigned lane,
                        const struct ydl_indices *indices, struct ydl_cursor next, uint64_t n);

/* Around the reading of that batch. begin gives the hints. */
void ydl_lookahead_begin(struct ydl_lookahead *lookahead, unsigned lane);
void ydl_lookahead_end(struct ydl_lookahead *lookahead, unsigned lane);

/* Stops the sweep, where this loader has one. No other call is running. NULL-safe. */
void ydl_lookahead_free(struct ydl_lookahead *lookahead);

/* ---- the pure parts, for tests ---- */

/* Which positions of the epochs were asked for already. */
struct ydl_window {
    uint64_t ahead; /* positions to be asked for before their batch is planned */
    uint64_t most;  /* at once; >= 1 */
    uint64_t least; /* fewer wait for others, unless the epoch or the batch needs them */
    uint64_t epoch;
    uint64_t end; /* positions of the epoch before it were asked for */
};

/* The positions [*out_from, *out_from + result) of next.epoch (len positions) that have to be asked
 * for now, and no more; the last batch ended at next.position and had n records. */
uint64_t ydl_window_claim(struct ydl_window *window, struct ydl_cursor next, uint64_t n,
                          uint64_t len, uint64_t *out_from);

/* Bytes of a file. */
struct ydl_span {
    uint64_t offset;
    uint64_t bytes;
};

/* spans: [n], by rising offset. Joins those with at most max_gap bytes between them, in place;
 * returns how many are left. */
size_t ydl_spans_merge(struct ydl_span *spans, size_t n, uint64_t max_gap);

#endif
