/* Which record comes when. Pure: no I/O, clock, thread or memory of its own.
 *
 * Shard scope is yogadl's order, record for record: a rank's records are
 * range(records)[rank::num_shards], after dropping the last records % num_shards where asked; an
 * epoch's order is that list after numpy.random.RandomState(seed + epoch).shuffle(list), where the
 * epoch is added only when reshuffling and the sum wraps at 2^32.
 *
 * Global scope shuffles first: an epoch's sequence is the permutation of (seed, epoch, records) in
 * order/permutation.h, with epoch 0 where it does not reshuffle, or range(records) unshuffled. A
 * rank's records are sequence[rank::num_shards], after dropping the last of the *sequence* where
 * asked. So place p belongs to rank p % num_shards, and whatever num_shards is, all ranks together
 * go through the same sequence. */
#ifndef YDL_ORDER_ORDER_H
#define YDL_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "order/permutation.h"

enum ydl_scope {
    YDL_SCOPE_SHARD,
    YDL_SCOPE_GLOBAL,
};

struct ydl_order {
    uint64_t records;    /* of the dataset */
    uint64_t rank;       /* < num_shards */
    uint64_t num_shards; /* >= 1 */
    uint64_t cut;        /* <= records: left out at the end, before any remainder; else 0 */
    bool drop_remainder;
    bool shuffle;
    bool reshuffle; /* another order each epoch */
    enum ydl_scope scope;
    uint32_t seed;
};

/* Records of this shard, which is the length of each epoch. */
uint64_t ydl_order_len(const struct ydl_order *order);

/* One epoch's record numbers. Sequential orders and those of global scope need no memory: values is
 * NULL and the numbers are computed. */
struct ydl_indices {
    uint64_t len;
    uint64_t first, step; /* where values is NULL: of the places, which are the numbers ... */
    bool permuted;        /* ... unless this says that permutation gives the numbers there */
    bool wide;            /* values are u64, else u32 (records <= 2^32) */
    void *values;         /* [len], the memory given to ydl_order_fill; or NULL */
    struct ydl_permutation permutation;
};

/* Asked every few microseconds of long work: true ends it, unfinished. NULL: never. */
struct ydl_stop {
    bool (*is_asked)(void *argument);
    void *argument;
};

/* Bytes of memory that an epoch's numbers take: 4 a record, 8 of datasets of more than 2^32; 0
 * where they are computed, UINT64_MAX where they are more than that. */
uint64_t ydl_order_bytes(const struct ydl_order *order);

/* values: ydl_order_bytes(order) bytes, aligned for uint64_t, the caller's, and in use as long as
 * *out is; NULL where that is 0. Cost O(len) with values, 10 to 15 ns a record, else O(1). False
 * where `stop` ended it: then *out is of no use. */
YDL_MUST_CHECK bool ydl_order_fill(const struct ydl_order *order, uint64_t epoch, void *values,
                                   const struct ydl_stop *stop, struct ydl_indices *out);

static inline uint64_t ydl_indices_at(const struct ydl_indices *indices, uint64_t i)
{
    if (!indices->values) {
        uint64_t place = indices->first + i * indices->step;
        return indices->permuted ? ydl_permutation_at(&indices->permutation, place) : place;
    }
    return indices->wide ? ((const uint64_t *)indices->values)[i]
                         : ((const uint32_t *)indices->values)[i];
}

/* The numbers at [start, start + n), which lie within len, into out[n]. Where they are permuted,
 * several times faster than one by one. */
void ydl_indices_copy(const struct ydl_indices *indices, uint64_t start, uint64_t n, uint64_t *out);

/* Where a stream begins: start_offset records after the beginning of start_epoch. An empty shard
 * has no positions: (start_epoch, 0). The epoch saturates at UINT64_MAX. */
struct ydl_cursor {
    uint64_t epoch;
    uint64_t position; /* < the shard's length, or 0 */
};
struct ydl_cursor ydl_cursor_at(uint64_t len, uint64_t start_epoch, uint64_t start_offset);

/* RandomState(seed).shuffle of a list of n numbers. False where `stop` ended it. */
bool ydl_shuffle_u32(uint32_t *values, uint64_t n, uint32_t seed, const struct ydl_stop *stop);
bool ydl_shuffle_u64(uint64_t *values, uint64_t n, uint32_t seed, const struct ydl_stop *stop);

static inline bool ydl_stop_is_asked(const struct ydl_stop *stop)
{
    return stop && stop->is_asked(stop->argument);
}

#endif
