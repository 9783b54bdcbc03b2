#include "record/encode.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static enum ydl_status fail_shape(const struct ydl_component *component, uint32_t i,
                                  const struct ydl_input *input, const int64_t *dims,
                                  uint64_t record, struct ydl_error *err)
{
    char expected[256];
    char given[256];
    ydl_shape_text(expected, sizeof expected, component->rank, component->dims);
    ydl_shape_text(given, sizeof given, (int32_t)input->rank, dims);
    return ydl_fail(err, YDL_SHAPE_MISMATCH,
                    "component %u of record %" PRIu64
                    " has shape %s, but the dataset's element spec says %s",
                    i, record, given, expected);
}

static enum ydl_status check_dim(int64_t dim, uint32_t i, uint64_t record, struct ydl_error *err)
{
    if (dim <= UINT32_MAX)
        return YDL_OK;
    return ydl_fail(err, YDL_INVALID,
                    "component %u of record %" PRIu64 " has a dimension of %" PRId64
                    "; dimensions that vary must be less than 2^32",
                    i, record, dim);
}

static bool is_varying(const struct ydl_component *component, uint32_t d)
{
    return component->rank == YDL_RANK_VARIES || component->dims[d] == YDL_DIM_VARIES;
}

/* dims: of the record, as many as the input's rank says. */
static enum ydl_status check_shape(const struct ydl_component *component, uint32_t i,
                                   const struct ydl_input *input, const int64_t *dims,
                                   uint64_t record, uint64_t *out_elements, struct ydl_error *err)
{
    uint64_t bytes;
    for (uint32_t d = 0; d < input->rank; d++) {
        bool varies = is_varying(component, d);
        if (dims[d] < 0 || (!varies && dims[d] != component->dims[d]))
            return fail_shape(component, i, input, dims, record, err);
        if (varies && check_dim(dims[d], i, record, err) != YDL_OK)
            return err->status;
    }
    if (!ydl_shape_size(input->rank, dims, component->item_bytes, out_elements, &bytes))
        return ydl_fail(err, YDL_INVALID,
                        "component %u of record %" PRIu64 " does not fit into 2^63 bytes", i,
                        record);
    return YDL_OK;
}

/* What follows from a shape that was checked. */
static void set_shape(const struct ydl_component *component, struct ydl_column *column,
                      const int64_t *dims)
{
    uint32_t rank = column->input.rank;
    bool fits =
        ydl_shape_size(rank, dims, component->item_bytes, &column->elements, &column->bytes);
    assert(fits);
    (void)fits;
    uint8_t *to = column->words;
    if (component->rank == YDL_RANK_VARIES) {
        ydl_store_u32(to, rank);
        to += 4;
    }
    for (uint32_t d = 0; d < rank; d++) {
        if (!is_varying(component, d))
            continue;
        ydl_store_u32(to, (uint32_t)dims[d]);
        to += 4;
    }
    column->words_bytes = (uint32_t)(to - column->words);
}

/* Checks the shapes of all n records and that they make up the elements that there are. */
static enum ydl_status check_shapes(const struct ydl_component *component, uint32_t i,
                                    const struct ydl_input *input, uint64_t n, uint64_t record,
                                    struct ydl_error *err)
{
    uint64_t total = 0;
    bool fits = true;
    for (uint64_t r = 0; r < n; r++) {
        uint64_t elements = 0;
        enum ydl_status status = check_shape(component, i, input, input->shapes + r * input->rank,
                                             record + r, &elements, err);
        if (status != YDL_OK)
            return status;
        fits = fits && ydl_add_u64(total, elements, &total);
    }
    if (!fits || total != input->elements)
        return ydl_fail(err, YDL_INVALID,
                        "component %u of the records %" PRIu64 " to %" PRIu64 " has %" PRIu64
                        " elements, but their shapes ask for %" PRIu64,
                        i, record, record + n - 1, input->elements, fits ? total : UINT64_MAX);
    return YDL_OK;
}

static enum ydl_status init_column(const struct ydl_component *component, uint32_t i,
                                   const struct ydl_input *input, uint64_t n, uint64_t record,
                                   struct ydl_column *column, struct ydl_error *err)
{
    *column = (struct ydl_column){.input = *input};
    const int64_t *first_dims = input->shapes ? input->shapes : input->dims;
    if (input->rank > YDL_MAX_RANK)
        return ydl_fail(err, YDL_INVALID,
                        "component %u of record %" PRIu64 " has rank %u: at most %d can be stored",
                        i, record, input->rank, YDL_MAX_RANK);
    if (component->rank != YDL_RANK_VARIES && (uint32_t)component->rank != input->rank)
        return fail_shape(component, i, input, first_dims, record, err);
    if (input->shapes)
        return check_shapes(component, i, input, n, record, err);
    uint64_t elements;
    enum ydl_status status = check_shape(component, i, input, first_dims, record, &elements, err);
    if (status == YDL_OK)
        set_shape(component, column, first_dims);
    return status;
}

enum ydl_status ydl_columns_init(const struct ydl_layout *layout, const struct ydl_input *inputs,
                                 uint64_t n, uint64_t first_record, struct ydl_column *out_columns,
                                 struct ydl_error *err)
{
    for (uint32_t i = 0; i < layout->count; i++) {
        enum ydl_status status = init_column(&layout->components[i], i, &inputs[i], n, first_record,
                                             &out_columns[i], err);
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

void ydl_columns_move(const struct ydl_layout *layout, struct ydl_column *columns, uint64_t i)
{
    for (uint32_t c = 0; c < layout->count; c++) {
        struct ydl_column *column = &columns[c];
        column->element = i == 0 ? 0 : column->element + column->elements;
        if (column->input.shapes)
            set_shape(&layout->components[c], column,
                      column->input.shapes + i * column->input.rank);
    }
}

enum ydl_status ydl_measure_varying(const struct ydl_layout *layout,
                                    const struct ydl_column *columns, uint64_t record,
                                    uint64_t *out_bytes, struct ydl_error *err)
{
    uint64_t total = YDL_CHECKSUM_BYTES;
    bool fits = true;
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        fits = fits && ydl_add_u64(total, column->words_bytes + column->bytes, &total);
        if (layout->components[c].dtype != YDL_STRING || column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + column->element;
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

static const uint8_t *data_of(const struct ydl_component *component,
                              const struct ydl_column *column)
{
    /* data may be NULL where no record has a byte */
    return column->bytes ? column->input.data + column->element * component->item_bytes : NULL;
}

void ydl_encode_varying(const struct ydl_layout *layout, const struct ydl_column *columns,
                        uint8_t *row)
{
    uint8_t *to = row;
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        to = put(to, column->words, column->words_bytes);
        if (layout->components[c].dtype != YDL_STRING || column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + column->element;
        for (uint64_t e = 0; e < column->elements; e++, to += 4)
            ydl_store_u32(to, (uint32_t)strings[e].len);
    }
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_column *column = &columns[c];
        if (layout->components[c].dtype != YDL_STRING) {
            to = put(to, data_of(&layout->components[c], column), column->bytes);
            continue;
        }
        if (column->elements == 0)
            continue;
        const struct ydl_slice *strings = column->input.strings + column->element;
        for (uint64_t e = 0; e < column->elements; e++)
            to = put(to, strings[e].data, strings[e].len);
    }
}
