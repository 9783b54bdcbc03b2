/* Which record comes when: yogadl's order, record for record. Pure: no I/O, clock or thread.
 *
 * A rank's records are range(records)[rank::num_shards], after dropping the last
 * records % num_shards where asked; an epoch's order is that list after
 * numpy.random.RandomState(seed + epoch).shuffle(list), where the epoch is added only when
 * reshuffling and the sum wraps at 2^32. */
#ifndef YDL_ORDER_ORDER_H
#define YDL_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ydl_order {
    uint64_t records;    /* of the dataset */
    uint64_t rank;       /* < num_shards */
    uint64_t num_shards; /* >= 1 */
    bool drop_remainder;
    bool shuffle;
    bool reshuffle; /* another order each epoch */
    uint32_t seed;
};

/* Records of this shard, which is the length of each epoch. */
uint64_t ydl_order_len(const struct ydl_order *order);

/* One epoch's record numbers. Sequential orders need no memory: values is NULL and the numbers are
 * computed. */
struct ydl_indices {
    uint64_t len;
    uint64_t first, step; /* where values is NULL */
    bool wide;            /* values are u64, else u32 (records <= 2^32) */
    void *values;         /* [len], owned; or NULL */
};

/* out: zeroed or cleared before. Cost O(len) when shuffled, else O(1). */
YDL_MUST_CHECK enum ydl_status ydl_order_fill(const struct ydl_order *order, uint64_t epoch,
                                              struct ydl_indices *out, struct ydl_error *err);
void ydl_indices_clear(struct ydl_indices *indices);

static inline uint64_t ydl_indices_at(const struct ydl_indices *indices, uint64_t i)
{
    if (!indices->values)
        return indices->first + i * indices->step;
    return indices->wide ? ((const uint64_t *)indices->values)[i]
                         : ((const uint32_t *)indices->values)[i];
}

/* Where a stream begins: start_offset records after the beginning of start_epoch. An empty shard
 * has no positions: (start_epoch, 0). The epoch saturates at UINT64_MAX. */
struct ydl_cursor {
    uint64_t epoch;
    uint64_t position; /* < the shard's length, or 0 */
};
struct ydl_cursor ydl_cursor_at(uint64_t len, uint64_t start_epoch, uint64_t start_offset);

/* RandomState(seed).shuffle of a list of n numbers. */
void ydl_shuffle_u32(uint32_t *values, uint64_t n, uint32_t seed);
void ydl_shuffle_u64(uint64_t *values, uint64_t n, uint32_t seed);

#endif
