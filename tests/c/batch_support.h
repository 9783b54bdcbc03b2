/* A reader over a build of made-up records, and a check of what is gathered from it. */
#ifndef YDL_TESTS_BATCH_SUPPORT_H
#define YDL_TESTS_BATCH_SUPPORT_H

#include "part_support.h"

#include "batch/gather.h"
#include "batch/orders.h"
#include "batch/pool.h"
#include "batch/reader.h"

struct open_build {
    struct build build;
    sample_fn *make;
    struct ydl_reader *reader;
    struct ydl_pool *pool;
};

static inline void open_build_init(struct open_build *open, bool varying, uint64_t records,
                                   uint64_t part_bytes, enum ydl_access access,
                                   enum ydl_verify verify)
{
    open->make = varying ? varying_sample : fixed_sample;
    build_init(&open->build, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS, part_bytes);
    build_write(&open->build, open->make, records);

    size_t count;
    (void)ydl_writer_parts(open->build.writer, &count);
    struct ydl_part_info *infos = calloc(count + 1, sizeof *infos);
    assert_non_null(infos);
    for (size_t i = 0; i < count; i++)
        infos[i] = build_info(&open->build, i);
    struct ydl_error err;
    struct ydl_layout layout;
    assert_status(
        YDL_OK,
        ydl_layout_init(&layout, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS, &err),
        &err);
    assert_status(YDL_OK,
                  ydl_reader_open_local(&layout, infos, count, access, verify, &open->reader, &err),
                  &err);
    for (size_t i = 0; i < count; i++)
        free(infos[i].path);
    free(infos);
    open->pool = ydl_pool_new(1 << 20);
    assert_non_null(open->pool);
}

static inline void open_build_clear(struct open_build *open)
{
    ydl_pool_release(open->pool);
    ydl_reader_release(open->reader);
    build_clear(&open->build);
}

/* The numbers of an epoch, for a test to compare with. Ends with free(values). */
static inline struct ydl_indices fill_indices(const struct ydl_order *order, uint64_t epoch)
{
    struct ydl_indices indices;
    const uint64_t bytes = ydl_order_bytes(order);
    void *values = bytes ? malloc(bytes) : NULL;
    assert_true(values || !bytes);
    assert_true(ydl_order_fill(order, epoch, values, NULL, &indices));
    return indices;
}

static inline struct ydl_orders *new_orders(const struct ydl_order *order)
{
    struct ydl_error err;
    struct ydl_orders *orders;
    assert_status(YDL_OK, ydl_orders_new(order, &orders, &err), &err);
    return orders;
}

/* The shape of record i of the batch. */
static inline const int64_t *shape_in_batch(const struct ydl_column *column, uint64_t i,
                                            uint32_t *out_rank)
{
    *out_rank = column->rank;
    if (column->uniform)
        return column->dims;
    *out_rank = (uint32_t)((const int64_t *)(const void *)column->record_ranks->data)[i];
    return (const int64_t *)(const void *)column->record_dims->data + i * column->rank;
}

/* The batch holds the records with these numbers, in this order. */
static inline void check_batch(const struct ydl_batch *batch, sample_fn *make,
                               const uint64_t *numbers, uint64_t n)
{
    struct sample samples[SAMPLE_COMPONENTS];
    uint64_t data_at[SAMPLE_COMPONENTS] = {0};
    uint64_t element_at[SAMPLE_COMPONENTS] = {0};
    assert_int_equal(batch->records, n);
    assert_int_equal(batch->count, SAMPLE_COMPONENTS);
    for (uint64_t i = 0; i < n; i++) {
        make(numbers[i], samples);
        for (int c = 0; c < SAMPLE_COMPONENTS; c++) {
            const struct ydl_column *column = &batch->columns[c];
            uint32_t rank;
            const int64_t *dims = shape_in_batch(column, i, &rank);
            uint64_t elements = 1;
            assert_int_equal(rank, samples[c].rank);
            for (uint32_t d = 0; d < rank; d++) {
                assert_int_equal(dims[d], samples[c].dims[d]);
                elements *= (uint64_t)dims[d];
            }
            assert_memory_equal(column->data->data + data_at[c], samples[c].data, samples[c].bytes);
            data_at[c] += samples[c].bytes;
            for (uint64_t e = 0; e < samples[c].strings_len; e++) {
                const uint64_t *ends = (const uint64_t *)(const void *)column->string_ends->data;
                uint64_t at = element_at[c] + e;
                assert_int_equal(ends[at] - (at ? ends[at - 1] : 0), samples[c].strings[e].len);
            }
            element_at[c] += elements;
            if (column->record_splits)
                assert_int_equal(((int64_t *)(void *)column->record_splits->data)[i + 1],
                                 element_at[c]);
        }
    }
    for (int c = 0; c < SAMPLE_COMPONENTS; c++) {
        assert_int_equal(batch->columns[c].data_bytes, data_at[c]);
        assert_int_equal(batch->columns[c].elements, element_at[c]);
        assert_int_equal((uintptr_t)batch->columns[c].data->data % YDL_BLOCK_ALIGNMENT, 0);
    }
}

#endif
