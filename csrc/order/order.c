#include "order/order.h"

#include <assert.h>
#include <stdlib.h>

#include "base/bytes.h"

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

static enum ydl_status fill_shuffled(const struct ydl_order *order, uint64_t epoch,
                                     struct ydl_indices *out, struct ydl_error *err)
{
    const bool wide = order->records > UINT64_C(1) << 32;
    uint64_t bytes;
    if (!ydl_mul_u64(out->len, wide ? sizeof(uint64_t) : sizeof(uint32_t), &bytes))
        bytes = UINT64_MAX;
    void *values = bytes <= PTRDIFF_MAX ? malloc((size_t)bytes) : NULL;
    if (!values)
        return ydl_fail_memory(err, "the shuffled record numbers of an epoch", bytes);

    /* The wrap at 2^32 is part of the order. */
    const uint32_t seed = order->reshuffle ? order->seed + (uint32_t)epoch : order->seed;
    if (wide) {
        uint64_t *numbers = values;
        for (uint64_t i = 0; i < out->len; i++)
            numbers[i] = out->first + i * out->step;
        ydl_shuffle_u64(numbers, out->len, seed);
    } else {
        uint32_t *numbers = values;
        for (uint64_t i = 0; i < out->len; i++)
            numbers[i] = (uint32_t)(out->first + i * out->step);
        ydl_shuffle_u32(numbers, out->len, seed);
    }
    out->wide = wide;
    out->values = values;
    return YDL_OK;
}

enum ydl_status ydl_order_fill(const struct ydl_order *order, uint64_t epoch,
                               struct ydl_indices *out, struct ydl_error *err)
{
    *out = (struct ydl_indices){
        .len = ydl_order_len(order),
        .first = order->rank,
        .step = order->num_shards,
    };
    if (!order->shuffle)
        return YDL_OK;
    if (order->scope == YDL_SCOPE_GLOBAL) {
        out->permuted = true;
        ydl_permutation_init(&out->permutation, order->seed, order->reshuffle ? epoch : 0,
                             order->records);
        return YDL_OK;
    }
    /* A list of one has one order. */
    if (out->len < 2)
        return YDL_OK;
    enum ydl_status status = fill_shuffled(order, epoch, out, err);
    if (status != YDL_OK)
        ydl_indices_clear(out);
    return status;
}

void ydl_indices_clear(struct ydl_indices *indices)
{
    free(indices->values);
    *indices = (struct ydl_indices){0};
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
