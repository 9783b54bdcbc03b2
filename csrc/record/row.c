#include "record/row.h"

#include <inttypes.h>
#include <string.h>

/* The u32 words at the head of a varying row. What is read from it is bounded by the row. */
struct words {
    const uint8_t *at;
    uint64_t left; /* bytes from `at` to the row's checksum */
};

static enum ydl_status take_word(struct words *words, uint32_t i, uint32_t *out,
                                 struct ydl_error *err)
{
    if (words->left < 4)
        return ydl_fail(err, YDL_CORRUPT_RECORD, "the row ends within the shape of component %u",
                        i);
    *out = ydl_load_u32(words->at);
    words->at += 4;
    words->left -= 4;
    return YDL_OK;
}

static enum ydl_status take_shape(struct words *words, const struct ydl_component *component,
                                  uint32_t i, struct ydl_field *field, struct ydl_error *err)
{
    uint32_t word = 0;
    enum ydl_status status;
    bool all_vary = component->rank == YDL_RANK_VARIES;
    if (all_vary) {
        status = take_word(words, i, &word, err);
        if (status != YDL_OK)
            return status;
        if (word > YDL_MAX_RANK)
            return ydl_fail(err, YDL_CORRUPT_RECORD, "component %u has rank %u (at most %d)", i,
                            word, YDL_MAX_RANK);
        field->rank = word;
    } else {
        field->rank = (uint32_t)component->rank;
    }
    for (uint32_t d = 0; d < field->rank; d++) {
        if (!all_vary && component->dims[d] != YDL_DIM_VARIES) {
            field->dims[d] = component->dims[d];
            continue;
        }
        status = take_word(words, i, &word, err);
        if (status != YDL_OK)
            return status;
        field->dims[d] = word;
    }
    if (!ydl_shape_size(field->rank, field->dims, component->item_bytes, &field->elements,
                        &field->bytes))
        return ydl_fail(err, YDL_CORRUPT_RECORD,
                        "the shape of component %u does not fit into 2^63 bytes", i);
    return YDL_OK;
}

static enum ydl_status take_lengths(struct words *words, uint32_t i, struct ydl_field *field,
                                    struct ydl_error *err)
{
    if (field->elements > words->left / 4)
        return ydl_fail(err, YDL_CORRUPT_RECORD,
                        "component %u has %" PRIu64 " strings, but %" PRIu64
                        " bytes are left for their lengths",
                        i, field->elements, words->left);
    field->lengths = words->at;
    words->at += 4 * field->elements;
    words->left -= 4 * field->elements;
    field->bytes = 0;
    for (uint64_t e = 0; e < field->elements; e++) {
        field->bytes += ydl_load_u32(field->lengths + 4 * e);
        if (field->bytes > words->left) /* also keeps the sum from overflowing */
            return ydl_fail(err, YDL_CORRUPT_RECORD,
                            "the strings of component %u need more than the %" PRIu64
                            " bytes that are left",
                            i, words->left);
    }
    return YDL_OK;
}

static enum ydl_status parse_varying(const struct ydl_layout *layout, const uint8_t *row,
                                     uint64_t n, struct ydl_field *out_fields,
                                     struct ydl_error *err)
{
    if (n < YDL_CHECKSUM_BYTES)
        return ydl_fail(err, YDL_CORRUPT_RECORD, "a row of %" PRIu64 " bytes has no checksum", n);
    struct words words = {.at = row, .left = n - YDL_CHECKSUM_BYTES};
    uint64_t total = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        struct ydl_field *field = &out_fields[i];
        field->lengths = NULL;
        enum ydl_status status = take_shape(&words, component, i, field, err);
        if (status == YDL_OK && component->dtype == YDL_STRING)
            status = take_lengths(&words, i, field, err);
        if (status != YDL_OK)
            return status;
        if (!ydl_add_u64(total, field->bytes, &total))
            return ydl_fail(err, YDL_CORRUPT_RECORD,
                            "the components up to %u do not fit into 2^64 bytes", i);
    }
    if (total != words.left)
        return ydl_fail(err, YDL_CORRUPT_RECORD,
                        "the components need %" PRIu64 " bytes, but the row has %" PRIu64, total,
                        words.left);
    for (uint32_t i = 0; i < layout->count; i++) {
        out_fields[i].data = words.at;
        words.at += out_fields[i].bytes;
    }
    return YDL_OK;
}

static enum ydl_status parse_fixed(const struct ydl_layout *layout, const uint8_t *row, uint64_t n,
                                   struct ydl_field *out_fields, struct ydl_error *err)
{
    if (n != layout->row_bytes)
        return ydl_fail(err, YDL_CORRUPT_RECORD,
                        "a row of %" PRIu64 " bytes, but the layout's rows have %" PRIu64, n,
                        layout->row_bytes);
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        struct ydl_field *field = &out_fields[i];
        field->rank = (uint32_t)component->rank;
        for (uint32_t d = 0; d < field->rank; d++)
            field->dims[d] = component->dims[d];
        field->elements = component->bytes / component->item_bytes;
        field->bytes = component->bytes;
        field->lengths = NULL;
        field->data = row + component->offset;
    }
    return YDL_OK;
}

enum ydl_status ydl_row_parse(const struct ydl_layout *layout, const uint8_t *row, uint64_t n,
                              struct ydl_field *out_fields, struct ydl_error *err)
{
    return layout->rows_vary ? parse_varying(layout, row, n, out_fields, err)
                             : parse_fixed(layout, row, n, out_fields, err);
}
