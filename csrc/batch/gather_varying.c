#include "batch/gather_varying.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/prefetch.h"

/* Rows lie anywhere: the heads of so many are asked for ahead, and of fewer all that is copied. */
enum { PREFETCH_HEADS = 8, PREFETCH_ROWS = 3, HEAD_BYTES = 64 };

/* Of one component, over all records of the batch. */
struct measure {
    uint64_t bytes;
    uint64_t elements;
    uint32_t max_rank;
};

static bool same_shape(const struct ydl_column *column, const struct ydl_field *field)
{
    return column->rank == field->rank &&
           memcmp(column->dims, field->dims, field->rank * sizeof *field->dims) == 0;
}

static const char *format_shape(char *text, size_t size, uint32_t rank, const int64_t *dims)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < rank && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, d ? ",%" PRId64 : "%" PRId64, dims[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

/* tf.data's own words, so that a user finds the same help for them. */
static enum ydl_status fail_shape(uint32_t component, const struct ydl_column *column, uint64_t i,
                                  const struct ydl_field *field, struct ydl_error *err)
{
    char first[320];
    char other[320];
    return ydl_fail(err, YDL_SHAPE_MISMATCH,
                    "Cannot batch tensors with different shapes in component %u. First element had "
                    "shape %s and element %" PRIu64 " had shape %s.",
                    component, format_shape(first, sizeof first, column->rank, column->dims), i,
                    format_shape(other, sizeof other, field->rank, field->dims));
}

static enum ydl_status measure_rows(struct ydl_finder *finder, uint64_t n, bool require_uniform,
                                    struct ydl_batch *batch, struct measure *measures,
                                    struct ydl_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        if (i + PREFETCH_HEADS < n)
            ydl_prefetch(finder->rows[i + PREFETCH_HEADS].bytes, HEAD_BYTES);
        enum ydl_status status =
            ydl_row_take_apart(&finder->reader->layout, &finder->rows[i], finder->fields, err);
        if (status != YDL_OK)
            return status;
        for (uint32_t c = 0; c < batch->count; c++) {
            const struct ydl_field *field = &finder->fields[c];
            struct ydl_column *column = &batch->columns[c];
            struct measure *measure = &measures[c];
            if (i == 0) {
                column->uniform = true;
                column->rank = field->rank;
                memcpy(column->dims, field->dims, field->rank * sizeof *field->dims);
            } else if (column->uniform && !same_shape(column, field)) {
                if (require_uniform)
                    return fail_shape(c, column, i, field, err);
                column->uniform = false;
            }
            if (field->rank > measure->max_rank)
                measure->max_rank = field->rank;
            /* Both are bounded by the rows' size, except elements of no bytes. */
            if (!ydl_add_u64(measure->bytes, field->bytes, &measure->bytes) ||
                !ydl_add_u64(measure->elements, field->elements, &measure->elements))
                return ydl_fail(err, YDL_INVALID, "%" PRIu64 " records do not fit one batch", n);
        }
    }
    return YDL_OK;
}

static bool shape_may_vary(const struct ydl_component *component)
{
    for (int32_t d = 0; d < component->rank; d++)
        if (component->dims[d] == YDL_DIM_VARIES)
            return true;
    return component->rank == YDL_RANK_VARIES;
}

static enum ydl_status take_blocks(const struct ydl_layout *layout, struct ydl_pool *pool,
                                   uint64_t n, struct ydl_batch *batch,
                                   const struct measure *measures, struct ydl_error *err)
{
    for (uint32_t c = 0; c < batch->count; c++) {
        const struct ydl_component *component = &layout->components[c];
        const struct measure *measure = &measures[c];
        struct ydl_column *column = &batch->columns[c];
        enum ydl_status status = ydl_pool_take(pool, (size_t)measure->bytes, &column->data, err);
        if (status == YDL_OK && component->dtype == YDL_STRING)
            status = ydl_pool_take(pool, (size_t)measure->elements * sizeof(uint64_t),
                                   &column->string_ends, err);
        if (status == YDL_OK && shape_may_vary(component)) {
            size_t i64s = (size_t)n * sizeof(int64_t);
            status = ydl_pool_take(pool, i64s + sizeof(int64_t), &column->record_splits, err);
            if (status == YDL_OK)
                status = ydl_pool_take(pool, i64s, &column->record_ranks, err);
            if (status == YDL_OK)
                status = ydl_pool_take(pool, i64s * measure->max_rank, &column->record_dims, err);
        }
        if (status != YDL_OK)
            return status;
        if (!column->uniform)
            column->rank = measure->max_rank;
    }
    return YDL_OK;
}

/* False where the strings' lengths are no longer those that were measured. */
static bool append_string_ends(struct ydl_column *column, const struct ydl_field *field)
{
    uint64_t *ends = (uint64_t *)(void *)column->string_ends->data + column->elements;
    uint64_t end = column->data_bytes;
    for (uint64_t e = 0; e < field->elements; e++) {
        end += ydl_load_u32(field->lengths + e * 4);
        ends[e] = end;
    }
    return end == column->data_bytes + field->bytes;
}

/* False where the row is no longer the one that was measured. */
static bool append_field(struct ydl_column *column, uint64_t i, const struct ydl_field *field,
                         const struct measure *measure)
{
    if (field->bytes > measure->bytes - column->data_bytes ||
        field->elements > measure->elements - column->elements || field->rank > column->rank)
        return false;
    if (field->bytes)
        memcpy(column->data->data + column->data_bytes, field->data, (size_t)field->bytes);
    if (column->string_ends && !append_string_ends(column, field))
        return false;
    column->data_bytes += field->bytes;
    column->elements += field->elements;
    if (!column->record_splits)
        return true;
    int64_t *splits = (int64_t *)(void *)column->record_splits->data;
    splits[0] = 0;
    splits[i + 1] = (int64_t)column->elements;
    ((int64_t *)(void *)column->record_ranks->data)[i] = field->rank;
    int64_t *dims = (int64_t *)(void *)column->record_dims->data + i * column->rank;
    memset(dims, 0, column->rank * sizeof *dims);
    memcpy(dims, field->dims, field->rank * sizeof *dims);
    return true;
}

static enum ydl_status fail_changed(const struct ydl_row *row, struct ydl_error *err)
{
    ydl_fail(err, YDL_CORRUPT_RECORD, "record %" PRIu64 " in %s changed while it was read",
             row->record, ydl_row_path(row));
    return ydl_fail_at(err, ydl_row_path(row));
}

static enum ydl_status copy_rows(struct ydl_finder *finder, uint64_t n, struct ydl_batch *batch,
                                 const struct measure *measures, struct ydl_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        const struct ydl_row *row = &finder->rows[i];
        if (i + PREFETCH_ROWS < n)
            ydl_prefetch(row[PREFETCH_ROWS].bytes, row[PREFETCH_ROWS].n);
        enum ydl_status status =
            ydl_row_take_apart(&finder->reader->layout, row, finder->fields, err);
        if (status != YDL_OK)
            return status;
        for (uint32_t c = 0; c < batch->count; c++)
            if (!append_field(&batch->columns[c], i, &finder->fields[c], &measures[c]))
                return fail_changed(row, err);
    }
    for (uint32_t c = 0; c < batch->count; c++)
        if (batch->columns[c].data_bytes != measures[c].bytes ||
            batch->columns[c].elements != measures[c].elements)
            return fail_changed(&finder->rows[n - 1], err);
    return YDL_OK;
}

/* Without records only the layout can say what an empty batch looks like. */
static void shape_of_nothing(const struct ydl_component *component, struct ydl_column *column)
{
    column->uniform = true;
    column->rank = component->rank < 0 ? 0 : (uint32_t)component->rank;
    for (uint32_t d = 0; d < column->rank; d++)
        column->dims[d] = component->dims[d] < 0 ? 0 : component->dims[d];
}

enum ydl_status ydl_gather_varying(struct ydl_finder *finder, struct ydl_pool *pool,
                                   const uint64_t *numbers, uint64_t n, bool require_uniform,
                                   struct ydl_batch *batch, struct ydl_error *err)
{
    const struct ydl_layout *layout = &finder->reader->layout;
    struct measure *measures = calloc(batch->count, sizeof *measures);
    if (!measures)
        return ydl_fail_memory(err, "a batch's measures", batch->count * sizeof *measures);
    for (uint32_t c = 0; n == 0 && c < batch->count; c++)
        shape_of_nothing(&layout->components[c], &batch->columns[c]);

    enum ydl_status status = ydl_finder_find(finder, numbers, (size_t)n, err);
    if (status == YDL_OK)
        status = measure_rows(finder, n, require_uniform, batch, measures, err);
    if (status == YDL_OK)
        status = take_blocks(layout, pool, n, batch, measures, err);
    if (status == YDL_OK)
        status = copy_rows(finder, n, batch, measures, err);
    free(measures);
    return status;
}
