#include "record/encode.h"

#include <inttypes.h>
#include <string.h>

static enum ydl_status fail_shape(const struct ydl_component *component, uint32_t i,
                                  const struct ydl_input *input, uint64_t record,
                                  struct ydl_error *err)
{
    char expected[256];
    char given[256];
    ydl_shape_text(expected, sizeof expected, component->rank, component->dims);
    ydl_shape_text(given, sizeof given, (int32_t)input->rank, input->dims);
    return ydl_fail(err, YDL_SHAPE_MISMATCH,
                    "component %u of record %" PRIu64
                    " has shape %s, but the dataset's element spec says %s",
                    i, record, given, expected);
}

static enum ydl_status add_word(struct ydl_column *column, int64_t dim, uint32_t i, uint64_t record,
                                struct ydl_error *err)
{
    if (dim > UINT32_MAX)
        return ydl_fail(err, YDL_INVALID,
                        "component %u of record %" PRIu64 " has a dimension of %" PRId64
                        "; dimensions that vary must be less than 2^32",
                        i, record, dim);
    ydl_store_u32(column->words + column->words_bytes, (uint32_t)dim);
    column->words_bytes += 4;
    return YDL_OK;
}

static enum ydl_status init_column(const struct ydl_component *component, uint32_t i,
                                   const struct ydl_input *input, uint64_t record,
                                   struct ydl_column *column, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    bool all_vary = component->rank == YDL_RANK_VARIES;
    column->input = *input;
    column->words_bytes = 0;
    if (input->rank > YDL_MAX_RANK)
        return ydl_fail(err, YDL_INVALID,
                        "component %u of record %" PRIu64 " has rank %u: at most %d can be stored",
                        i, record, input->rank, YDL_MAX_RANK);
    if (!all_vary && (uint32_t)component->rank != input->rank)
        return fail_shape(component, i, input, record, err);
    if (all_vary)
        status = add_word(column, input->rank, i, record, err);
    for (uint32_t d = 0; status == YDL_OK && d < input->rank; d++) {
        bool varies = all_vary || component->dims[d] == YDL_DIM_VARIES;
        if (input->dims[d] < 0 || (!varies && input->dims[d] != component->dims[d]))
            return fail_shape(component, i, input, record, err);
        if (varies)
            status = add_word(column, input->dims[d], i, record, err);
    }
    if (status != YDL_OK)
        return status;
    if (!ydl_shape_size(input->rank, input->dims, component->item_bytes, &column->elements,
                        &column->bytes))
        return ydl_fail(err, YDL_INVALID,
                        "component %u of record %" PRIu64 " does not fit into 2^63 bytes", i,
                        record);
    return YDL_OK;
}

enum ydl_status ydl_columns_init(const struct ydl_layout *layout, const struct ydl_input *inputs,
                                 uint64_t first_record, struct ydl_column *out_columns,
                                 struct ydl_error *err)
{
    for (uint32_t i = 0; i < layout->count; i++) {
        enum ydl_status status =
            init_column(&layout->components[i], i, &inputs[i], first_record, &out_columns[i], err);
        if (status != YDL_OK)
            return status;
    }
    return YDL_OK;
}

/* A memcpy whose size the compiler knows is one or two moves; a call for each of many small items
 * costs several times as much. */
#define COPY_STRIDED(size)                                                                         \
    case size:                                                                                     \
        for (uint64_t r = 0; r < n; r++)                                                           \
            memcpy(to + r * stride, from + r * (size), size);                                      \
        break

static void copy_column(uint8_t *to, uint64_t stride, const uint8_t *from, uint64_t bytes,
                        uint64_t n)
{
    switch (bytes) {
    case 0: /* from may be NULL */
        break;
        COPY_STRIDED(1);
        COPY_STRIDED(2);
        COPY_STRIDED(4);
        COPY_STRIDED(8);
        COPY_STRIDED(12);
        COPY_STRIDED(16);
    default:
        for (uint64_t r = 0; r < n; r++)
            memcpy(to + r * stride, from + r * bytes, bytes);
    }
}

/* Zeroes [from, until) of each of n rows. */
static void pad_rows(uint8_t *rows, uint64_t stride, uint64_t from, uint64_t until, uint64_t n)
{
    if (from == until)
        return;
    for (uint64_t r = 0; r < n; r++)
        memset(rows + r * stride + from, 0, until - from);
}

void ydl_encode_fixed(const struct ydl_layout *layout, const struct ydl_column *columns,
                      uint64_t first, uint64_t n, uint8_t *rows)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        uint64_t bytes = component->bytes;
        pad_rows(rows, layout->row_bytes, end, component->offset, n);
        if (bytes > 0)
            copy_column(rows + component->offset, layout->row_bytes,
                        columns[i].input.data + first * bytes, bytes, n);
        end = component->offset + bytes;
    }
    pad_rows(rows, layout->row_bytes, end, layout->row_bytes - YDL_CHECKSUM_BYTES, n);
}

enum ydl_status ydl_measure_varying(const struct ydl_layout *layout,
                                    const struct ydl_column *columns, uint64_t i, uint64_t record,
                                    uint64_t *out_bytes, struct ydl_error *err)
{
    uint64_t total = YDL_CHECKSUM_BYTES;
    bool fits = true;
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        fits = fits && ydl_add_u64(total, column->words_bytes + column->bytes, &total);
        if (layout->components[c].dtype != YDL_STRING || column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + i * column->elements;
        for (uint64_t e = 0; e < column->elements; e++) {
            if (strings[e].len > UINT32_MAX)
                return ydl_fail(err, YDL_INVALID,
                                "string %" PRIu64 " in component %u of record %" PRIu64
                                " has %zu bytes; strings must have less than 2^32",
                                e, c, record, strings[e].len);
            fits = fits && ydl_add_u64(total, 4 + (uint64_t)strings[e].len, &total);
        }
    }
    if (!fits || total > INT64_MAX)
        return ydl_fail(err, YDL_INVALID, "record %" PRIu64 " does not fit into 2^63 bytes",
                        record);
    *out_bytes = total;
    return YDL_OK;
}

static uint8_t *put(uint8_t *to, const void *from, uint64_t n)
{
    if (n > 0) /* from may be NULL otherwise */
        memcpy(to, from, n);
    return to + n;
}

void ydl_encode_varying(const struct ydl_layout *layout, const struct ydl_column *columns,
                        uint64_t i, uint8_t *row)
{
    uint8_t *to = row;
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        to = put(to, column->words, column->words_bytes);
        if (layout->components[c].dtype != YDL_STRING || column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + i * column->elements;
        for (uint64_t e = 0; e < column->elements; e++, to += 4)
            ydl_store_u32(to, (uint32_t)strings[e].len);
    }
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        if (layout->components[c].dtype != YDL_STRING) {
            to = put(to, column->bytes ? column->input.data + i * column->bytes : NULL,
                     column->bytes);
            continue;
        }
        if (column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + i * column->elements;
        for (uint64_t e = 0; e < column->elements; e++)
            to = put(to, strings[e].data, strings[e].len);
    }
}
