#include "order/order.h"

#include <assert.h>

#include "base/bytes.h"

/* Of the memory that is new to the process: a few microseconds. */
enum { NUMBERED_AT_ONCE = 1 << 13 };

uint64_t ydl_order_len(const struct ydl_order *order)
{
    assert(order->num_shards > 0 && order->rank < order->num_shards);
    assert(order->cut <= order->records);
    const uint64_t dealt = order->records - order->cut;
    uint64_t len = dealt / order->num_shards;
    if (!order->drop_remainder && order->rank < dealt % order->num_shards)
        len++;
    return len;
}

static bool is_wide(const struct ydl_order *order)
{
    return order->records > UINT64_C(1) << 32;
}

uint64_t ydl_order_bytes(const struct ydl_order *order)
{
    const uint64_t len = ydl_order_len(order);
    /* A list of one has one order. */
    if (!order->shuffle || order->scope == YDL_SCOPE_GLOBAL || len < 2)
        return 0;
    uint64_t bytes;
    if (!ydl_mul_u64(len, is_wide(order) ? sizeof(uint64_t) : sizeof(uint32_t), &bytes))
        bytes = UINT64_MAX;
    return bytes;
}

/* The shard's numbers [from, to), unshuffled, into their places among the values. */
static void number(const struct ydl_indices *indices, uint64_t from, uint64_t to)
{
    if (indices->wide) {
        uint64_t *values = indices->values;
        for (uint64_t i = from; i < to; i++)
            values[i] = indices->first + i * indices->step;
    } else {
        uint32_t *values = indices->values;
        for (uint64_t i = from; i < to; i++)
            values[i] = (uint32_t)(indices->first + i * indices->step);
    }
}

static bool fill_shuffled(const struct ydl_order *order, uint64_t epoch,
                          const struct ydl_stop *stop, const struct ydl_indices *indices)
{
    const uint64_t len = indices->len;
    for (uint64_t done = 0; done < len; done += NUMBERED_AT_ONCE) {
        if (ydl_stop_is_asked(stop))
            return false;
        number(indices, done, len - done < NUMBERED_AT_ONCE ? len : done + NUMBERED_AT_ONCE);
    }
    /* The wrap at 2^32 is part of the order. */
    const uint32_t seed = order->reshuffle ? order->seed + (uint32_t)epoch : order->seed;
    return indices->wide ? ydl_shuffle_u64(indices->values, len, seed, stop)
                         : ydl_shuffle_u32(indices->values, len, seed, stop);
}

bool ydl_order_fill(const struct ydl_order *order, uint64_t epoch, void *values,
                    const struct ydl_stop *stop, struct ydl_indices *out)
{
    *out = (struct ydl_indices){
        .len = ydl_order_len(order),
        .first = order->rank,
        .step = order->num_shards,
    };
    if (ydl_order_bytes(order) > 0) {
        assert(values);
        out->wide = is_wide(order);
        out->values = values;
        return fill_shuffled(order, epoch, stop, out);
    }
    if (order->shuffle && order->scope == YDL_SCOPE_GLOBAL) {
        out->permuted = true;
        ydl_permutation_init(&out->permutation, order->seed, order->reshuffle ? epoch : 0,
                             order->records);
    }
    return true;
}

void ydl_indices_copy(const struct ydl_indices *indices, uint64_t start, uint64_t n, uint64_t *out)
{
    assert(start <= indices->len && n <= indices->len - start);
    if (indices->values && indices->wide) {
        const uint64_t *values = (const uint64_t *)indices->values + start;
        for (uint64_t i = 0; i < n; i++)
            out[i] = values[i];
    } else if (indices->values) {
        const uint32_t *values = (const uint32_t *)indices->values + start;
        for (uint64_t i = 0; i < n; i++)
            out[i] = values[i];
    } else if (indices->permuted) {
        ydl_permutation_copy(&indices->permutation, indices->first + start * indices->step,
                             indices->step, n, out);
    } else {
        for (uint64_t i = 0; i < n; i++)
            out[i] = indices->first + (start + i) * indices->step;
    }
}

struct ydl_cursor ydl_cursor_at(uint64_t len, uint64_t start_epoch, uint64_t start_offset)
{
    struct ydl_cursor cursor = {.epoch = start_epoch};
    if (len == 0)
        return cursor;
    if (!ydl_add_u64(start_epoch, start_offset / len, &cursor.epoch))
        cursor.epoch = UINT64_MAX;
    cursor.position = start_offset % len;
    return cursor;
}
