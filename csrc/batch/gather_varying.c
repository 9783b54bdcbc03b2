/* Gathers rows whose size varies, in three passes over private copies of them: copy and check,
 * measure, hand out. The copies make the passes agree even where a file changes underneath. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "batch/gather_internal.h"

static enum ydl_status copy_rows(struct ydl_gatherer *gatherer, const uint64_t *numbers, uint64_t n,
                                 struct ydl_error *err)
{
    if (n > gatherer->row_ends_capacity) {
        uint64_t *ends = realloc(gatherer->row_ends, n * sizeof *ends);
        if (!ends)
            return ydl_fail_memory(err, "row ends", n * sizeof *ends);
        gatherer->row_ends = ends;
        gatherer->row_ends_capacity = n;
    }
    struct ydl_buf *copies = &gatherer->row_copies;
    copies->len = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct ydl_part *part;
        uint64_t row;
        const uint8_t *bytes;
        uint64_t row_bytes;
        size_t start = copies->len;
        enum ydl_status status = ydl_gatherer_locate(gatherer, numbers[i], &part, &row, err);
        if (status == YDL_OK)
            status = ydl_part_row(part, row, &gatherer->pread_row, &bytes, &row_bytes, err);
        if (status == YDL_OK)
            status = ydl_buf_append(copies, bytes, (size_t)row_bytes, err);
        if (status == YDL_OK)
            status = ydl_gatherer_verify(gatherer, numbers[i], part, row, copies->data + start,
                                         row_bytes, err);
        if (status != YDL_OK)
            return status;
        gatherer->row_ends[i] = copies->len;
    }
    return YDL_OK;
}

static enum ydl_status parse_copy(struct ydl_gatherer *gatherer, const uint64_t *numbers,
                                  uint64_t i, struct ydl_error *err)
{
    uint64_t start = i == 0 ? 0 : gatherer->row_ends[i - 1];
    enum ydl_status status =
        ydl_row_parse(&gatherer->reader->layout, gatherer->row_copies.data + start,
                      gatherer->row_ends[i] - start, gatherer->fields, err);
    if (status != YDL_CORRUPT_RECORD)
        return status;

    /* The parser knows neither file nor record. */
    struct ydl_error inner = *err;
    struct ydl_part *part;
    uint64_t row;
    status = ydl_gatherer_locate(gatherer, numbers[i], &part, &row, err);
    if (status != YDL_OK)
        return status;
    ydl_fail(err, YDL_CORRUPT_RECORD, "record %" PRIu64 " (row %" PRIu64 " of %s): %.512s",
             numbers[i], row, ydl_part_path(part), inner.text);
    return ydl_fail_at(err, ydl_part_path(part));
}

static void format_shape(const int64_t *dims, uint32_t rank, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < rank && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, d ? ",%" PRId64 : "%" PRId64, dims[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static bool same_shape(const struct ydl_column *column, const struct ydl_field *field)
{
    return column->rank == field->rank &&
           memcmp(column->dims, field->dims, field->rank * sizeof *field->dims) == 0;
}

/* tf.data's own words, so that a user finds the same help for them. */
static enum ydl_status fail_shape(uint32_t component, const struct ydl_column *column, uint64_t i,
                                  const struct ydl_field *field, struct ydl_error *err)
{
    char first[320];
    char other[320];
    format_shape(column->dims, column->rank, first, sizeof first);
    format_shape(field->dims, field->rank, other, sizeof other);
    return ydl_fail(err, YDL_SHAPE_MISMATCH,
                    "Cannot batch tensors with different shapes in component %u. First element had "
                    "shape %s and element %" PRIu64 " had shape %s.",
                    component, first, i, other);
}

static enum ydl_status measure(struct ydl_gatherer *gatherer, const uint64_t *numbers, uint64_t n,
                               bool require_uniform, struct ydl_batch *batch,
                               uint32_t *max_ranks, struct ydl_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        enum ydl_status status = parse_copy(gatherer, numbers, i, err);
        if (status != YDL_OK)
            return status;
        for (uint32_t c = 0; c < batch->count; c++) {
            const struct ydl_field *field = &gatherer->fields[c];
            struct ydl_column *column = &batch->columns[c];
            if (i == 0) {
                column->uniform = true;
                column->rank = field->rank;
                memcpy(column->dims, field->dims, sizeof column->dims);
            } else if (column->uniform && !same_shape(column, field)) {
                if (require_uniform)
                    return fail_shape(c, column, i, field, err);
                column->uniform = false;
            }
            if (field->rank > max_ranks[c])
                max_ranks[c] = field->rank;
            /* Both are bounded by the copies' size, except elements of no bytes. */
            if (!ydl_add_u64(column->data_bytes, field->bytes, &column->data_bytes) ||
                !ydl_add_u64(column->elements, field->elements, &column->elements))
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

static enum ydl_status take_blocks(struct ydl_gatherer *gatherer, uint64_t n,
                                   struct ydl_batch *batch, const uint32_t *max_ranks,
                                   struct ydl_error *err)
{
    struct ydl_pool *pool = gatherer->pool;
    for (uint32_t c = 0; c < batch->count; c++) {
        const struct ydl_component *component = &gatherer->reader->layout.components[c];
        struct ydl_column *column = &batch->columns[c];
        enum ydl_status status = ydl_pool_take(pool, (size_t)column->data_bytes, &column->data, err);
        if (status == YDL_OK && component->dtype == YDL_STRING)
            status = ydl_pool_take(pool, (size_t)column->elements * sizeof(uint64_t),
                                   &column->string_ends, err);
        if (status == YDL_OK && shape_may_vary(component)) {
            size_t i64s = (size_t)n * sizeof(int64_t);
            status = ydl_pool_take(pool, i64s + sizeof(int64_t), &column->record_splits, err);
            if (status == YDL_OK)
                status = ydl_pool_take(pool, i64s, &column->record_ranks, err);
            if (status == YDL_OK)
                status = ydl_pool_take(pool, i64s * max_ranks[c], &column->record_dims, err);
        }
        if (status != YDL_OK)
            return status;
        if (!column->uniform)
            column->rank = max_ranks[c];
        column->data_bytes = 0; /* counted again as the bytes arrive */
        column->elements = 0;
    }
    return YDL_OK;
}

static void append_field(struct ydl_column *column, uint64_t i, const struct ydl_field *field)
{
    if (field->bytes)
        memcpy(column->data->data + column->data_bytes, field->data, (size_t)field->bytes);
    if (column->string_ends) {
        uint64_t *ends = (uint64_t *)(void *)column->string_ends->data + column->elements;
        uint64_t end = column->data_bytes;
        for (uint64_t e = 0; e < field->elements; e++) {
            end += ydl_load_u32(field->lengths + e * 4);
            ends[e] = end;
        }
    }
    column->data_bytes += field->bytes;
    column->elements += field->elements;
    if (!column->record_splits)
        return;
    int64_t *splits = (int64_t *)(void *)column->record_splits->data;
    splits[0] = 0;
    splits[i + 1] = (int64_t)column->elements;
    ((int64_t *)(void *)column->record_ranks->data)[i] = field->rank;
    int64_t *dims = (int64_t *)(void *)column->record_dims->data + i * column->rank;
    memset(dims, 0, column->rank * sizeof *dims);
    memcpy(dims, field->dims, field->rank * sizeof *dims);
}

/* Without records only the layout can say what an empty batch looks like. */
static void shape_of_nothing(const struct ydl_component *component, struct ydl_column *column)
{
    column->uniform = true;
    column->rank = component->rank < 0 ? 0 : (uint32_t)component->rank;
    for (uint32_t d = 0; d < column->rank; d++)
        column->dims[d] = component->dims[d] < 0 ? 0 : component->dims[d];
}

enum ydl_status ydl_gather_varying(struct ydl_gatherer *gatherer, const uint64_t *numbers,
                                   uint64_t n, bool require_uniform, struct ydl_batch *batch,
                                   struct ydl_error *err)
{
    uint32_t *max_ranks = calloc(batch->count, sizeof *max_ranks);
    if (!max_ranks)
        return ydl_fail_memory(err, "a batch's ranks", batch->count * sizeof *max_ranks);
    for (uint32_t c = 0; n == 0 && c < batch->count; c++)
        shape_of_nothing(&gatherer->reader->layout.components[c], &batch->columns[c]);

    enum ydl_status status = copy_rows(gatherer, numbers, n, err);
    if (status == YDL_OK)
        status = measure(gatherer, numbers, n, require_uniform, batch, max_ranks, err);
    if (status == YDL_OK)
        status = take_blocks(gatherer, n, batch, max_ranks, err);
    for (uint64_t i = 0; status == YDL_OK && i < n; i++) {
        status = parse_copy(gatherer, numbers, i, err);
        for (uint32_t c = 0; status == YDL_OK && c < batch->count; c++)
            append_field(&batch->columns[c], i, &gatherer->fields[c]);
    }
    free(max_ranks);
    return status;
}
