#include "record/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM_VARIES_STORED UINT64_MAX
#define RANK_VARIES_STORED UINT32_MAX

enum {
    HEAD_BYTES = 24,      /* of the region, before the first component */
    COMPONENT_BYTES = 32, /* before its dimensions */
    FLAG_ROWS_VARY = 1,
    /* A row's size is a multiple of this, so that checksums are aligned, too. */
    MIN_ROW_ALIGNMENT = YDL_CHECKSUM_BYTES,
};

bool ydl_shape_size(uint32_t rank, const int64_t *dims, uint32_t item_bytes, uint64_t *out_elements,
                    uint64_t *out_bytes)
{
    uint64_t elements = 1;
    uint64_t bytes;
    bool is_empty = false;
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d] == 0)
            is_empty = true;
        else if (!ydl_mul_u64(elements, (uint64_t)dims[d], &elements))
            return false;
    }
    if (!ydl_mul_u64(elements, item_bytes, &bytes))
        return false;
    if (elements > INT64_MAX || bytes > INT64_MAX)
        return false;
    *out_elements = is_empty ? 0 : elements;
    *out_bytes = is_empty ? 0 : bytes;
    return true;
}

char *ydl_shape_text(char *out, size_t n, int32_t rank, const int64_t *dims)
{
    if (rank == YDL_RANK_VARIES) {
        snprintf(out, n, "(unknown rank)");
        return out;
    }
    snprintf(out, n, "(");
    for (int32_t d = 0; d < rank; d++) {
        size_t used = strlen(out);
        if (dims[d] == YDL_DIM_VARIES)
            snprintf(out + used, n - used, "?%s", d + 1 < rank ? ", " : "");
        else
            snprintf(out + used, n - used, "%" PRId64 "%s", dims[d], d + 1 < rank ? ", " : "");
    }
    size_t used = strlen(out);
    snprintf(out + used, n - used, rank == 1 ? ",)" : ")");
    return out;
}

/* Fills what follows from dtype, rank and dims; i names the component in errors. */
static enum ydl_status complete_component(struct ydl_component *component, uint32_t i,
                                          struct ydl_error *err)
{
    const struct ydl_dtype_info *info = ydl_dtype_info(component->dtype);
    if (!info)
        return ydl_fail(err, YDL_INVALID, "component %u: there is no dtype with number %d", i,
                        (int)component->dtype);
    component->item_bytes = info->bytes;
    component->is_static = component->dtype != YDL_STRING && component->rank != YDL_RANK_VARIES;
    component->words = component->rank == YDL_RANK_VARIES ? 1 : 0;
    for (int32_t d = 0; d < component->rank; d++) {
        if (component->dims[d] == YDL_DIM_VARIES) {
            component->is_static = false;
            component->words++;
        } else if (component->dims[d] < 0) {
            return ydl_fail(err, YDL_INVALID,
                            "component %u: dimension %d is %" PRId64 ", less than 0", i, d,
                            component->dims[d]);
        }
    }
    uint64_t elements;
    if (component->is_static && !ydl_shape_size((uint32_t)component->rank, component->dims,
                                                info->bytes, &elements, &component->bytes)) {
        char shape[256];
        ydl_shape_text(shape, sizeof shape, component->rank, component->dims);
        return ydl_fail(err, YDL_INVALID,
                        "component %u: %s of shape %s does not fit into 2^63 bytes", i, info->name,
                        shape);
    }
    return YDL_OK;
}

static enum ydl_status place_components(struct ydl_layout *layout, struct ydl_error *err)
{
    uint64_t end = 0;
    uint64_t row_alignment = MIN_ROW_ALIGNMENT;
    for (uint32_t i = 0; i < layout->count; i++) {
        struct ydl_component *component = &layout->components[i];
        uint64_t alignment = ydl_dtype_info(component->dtype)->alignment;
        if (alignment > row_alignment)
            row_alignment = alignment;
        if (!ydl_align_u64(end, alignment, &component->offset) ||
            !ydl_add_u64(component->offset, component->bytes, &end))
            return ydl_fail(err, YDL_INVALID,
                            "rows do not fit into 2^63 bytes from component %u on", i);
    }
    if (!ydl_add_u64(end, YDL_CHECKSUM_BYTES, &end) ||
        !ydl_align_u64(end, row_alignment, &layout->row_bytes) || layout->row_bytes > INT64_MAX)
        return ydl_fail(err, YDL_INVALID, "rows of %" PRIu64 " bytes do not fit into 2^63 bytes",
                        end);
    return YDL_OK;
}

/* Fills what follows from the components' dtypes, ranks and dimensions. */
static enum ydl_status complete_layout(struct ydl_layout *layout, struct ydl_error *err)
{
    for (uint32_t i = 0; i < layout->count; i++) {
        enum ydl_status status = complete_component(&layout->components[i], i, err);
        if (status != YDL_OK)
            return status;
        if (!layout->components[i].is_static)
            layout->rows_vary = true;
    }
    return layout->rows_vary ? YDL_OK : place_components(layout, err);
}

static enum ydl_status allocate(struct ydl_layout *layout, uint32_t count, struct ydl_error *err)
{
    layout->components = calloc(count, sizeof layout->components[0]);
    if (!layout->components)
        return ydl_fail_memory(err, "a layout", count * sizeof layout->components[0]);
    layout->count = count;
    return YDL_OK;
}

enum ydl_status ydl_layout_init(struct ydl_layout *layout, const struct ydl_component_spec *specs,
                                uint32_t count, struct ydl_error *err)
{
    *layout = (struct ydl_layout){0};
    if (count == 0 || count > YDL_MAX_COMPONENTS)
        return ydl_fail(err, YDL_INVALID, "a record of %u components: 1 to %d can be stored", count,
                        YDL_MAX_COMPONENTS);
    enum ydl_status status = allocate(layout, count, err);
    if (status != YDL_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct ydl_component *component = &layout->components[i];
        component->dtype = specs[i].dtype;
        component->rank = specs[i].rank;
        if (specs[i].rank < YDL_RANK_VARIES || specs[i].rank > YDL_MAX_RANK) {
            status = ydl_fail(err, YDL_INVALID,
                              "component %u has rank %d: 0 to %d dimensions can be stored", i,
                              specs[i].rank, YDL_MAX_RANK);
            goto done;
        }
        for (int32_t d = 0; d < specs[i].rank; d++)
            component->dims[d] = specs[i].dims[d];
    }
    status = complete_layout(layout, err);
done:
    if (status != YDL_OK)
        ydl_layout_clear(layout);
    return status;
}

void ydl_layout_clear(struct ydl_layout *layout)
{
    free(layout->components);
    *layout = (struct ydl_layout){0};
}

enum ydl_status ydl_layout_copy(const struct ydl_layout *layout, struct ydl_layout *out,
                                struct ydl_error *err)
{
    *out = (struct ydl_layout){0};
    enum ydl_status status = allocate(out, layout->count, err);
    if (status != YDL_OK)
        return status;
    memcpy(out->components, layout->components, layout->count * sizeof layout->components[0]);
    out->rows_vary = layout->rows_vary;
    out->row_bytes = layout->row_bytes;
    return YDL_OK;
}

bool ydl_layout_equal(const struct ydl_layout *a, const struct ydl_layout *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct ydl_component *x = &a->components[i];
        const struct ydl_component *y = &b->components[i];
        if (x->dtype != y->dtype || x->rank != y->rank)
            return false;
        for (int32_t d = 0; d < x->rank; d++) {
            if (x->dims[d] != y->dims[d])
                return false;
        }
    }
    return true;
}

/* The two spellings of "varies" differ: -1 in memory, all bits set in files. */
static uint32_t stored_rank(const struct ydl_component *component)
{
    return component->rank == YDL_RANK_VARIES ? RANK_VARIES_STORED : (uint32_t)component->rank;
}

static size_t stored_dims_bytes(const struct ydl_component *component)
{
    return component->rank == YDL_RANK_VARIES ? 0 : 8 * (size_t)component->rank;
}

enum ydl_status ydl_layout_encode(const struct ydl_layout *layout, struct ydl_buf *out,
                                  struct ydl_error *err)
{
    size_t bytes = HEAD_BYTES;
    for (uint32_t i = 0; i < layout->count; i++)
        bytes += COMPONENT_BYTES + stored_dims_bytes(&layout->components[i]);
    enum ydl_status status = ydl_buf_reserve(out, bytes, err);
    if (status != YDL_OK)
        return status;

    uint8_t *to = out->data + out->len;
    memset(to, 0, bytes);
    ydl_store_u32(to, layout->count);
    ydl_store_u32(to + 4, layout->rows_vary ? FLAG_ROWS_VARY : 0);
    ydl_store_u64(to + 8, layout->row_bytes);
    ydl_store_u32(to + 16, YDL_CHECKSUM_XXH3_LOW32);
    ydl_store_u32(to + 20, YDL_CHECKSUM_BYTES);
    to += HEAD_BYTES;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        ydl_store_u32(to, component->dtype);
        ydl_store_u32(to + 4, stored_rank(component));
        ydl_store_u64(to + 8, component->offset);
        to += COMPONENT_BYTES;
        for (int32_t d = 0; d < component->rank; d++, to += 8)
            ydl_store_u64(to, component->dims[d] == YDL_DIM_VARIES ? DIM_VARIES_STORED
                                                                   : (uint64_t)component->dims[d]);
    }
    out->len += bytes;
    return YDL_OK;
}

/* One component from the n bytes at `from`; *out_used says how many of them it took. */
static enum ydl_status parse_component(struct ydl_component *component, uint32_t i,
                                       const uint8_t *from, size_t n, size_t *out_used,
                                       struct ydl_error *err)
{
    if (n < COMPONENT_BYTES)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "layout: %zu bytes are left for component %u", n,
                        i);
    uint32_t dtype = ydl_load_u32(from);
    uint32_t rank = ydl_load_u32(from + 4);
    if (!ydl_dtype_info(dtype))
        return ydl_fail(
            err, YDL_UNSUPPORTED,
            "layout: component %u has dtype %u, which this version of ydl does not know", i, dtype);
    if (ydl_load_u32(from + 16) != 0 || ydl_load_u32(from + 20) != 0 ||
        ydl_load_u32(from + 24) != 0)
        return ydl_fail(err, YDL_UNSUPPORTED,
                        "layout: component %u has checksum group %u, codec %u and key %u; this "
                        "version of ydl knows only 0",
                        i, ydl_load_u32(from + 16), ydl_load_u32(from + 20),
                        ydl_load_u32(from + 24));
    if (ydl_load_u32(from + 28) != 0)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "layout: a reserved field of component %u is %u", i,
                        ydl_load_u32(from + 28));
    if (rank != RANK_VARIES_STORED && rank > YDL_MAX_RANK)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "layout: component %u has rank %u (at most %d)", i,
                        rank, YDL_MAX_RANK);

    component->dtype = (enum ydl_dtype)dtype;
    component->rank = rank == RANK_VARIES_STORED ? YDL_RANK_VARIES : (int32_t)rank;
    size_t used = COMPONENT_BYTES + stored_dims_bytes(component);
    if (n < used)
        return ydl_fail(err, YDL_CORRUPT_CACHE,
                        "layout: %zu bytes are left for component %u of rank %u", n, i, rank);
    for (int32_t d = 0; d < component->rank; d++) {
        uint64_t dim = ydl_load_u64(from + COMPONENT_BYTES + 8 * (size_t)d);
        if (dim > INT64_MAX && dim != DIM_VARIES_STORED)
            return ydl_fail(err, YDL_CORRUPT_CACHE,
                            "layout: dimension %d of component %u is %" PRIu64, d, i, dim);
        component->dims[d] = dim == DIM_VARIES_STORED ? YDL_DIM_VARIES : (int64_t)dim;
    }
    *out_used = used;
    return YDL_OK;
}

static enum ydl_status parse_head(const uint8_t *bytes, size_t n, uint32_t *out_count,
                                  struct ydl_error *err)
{
    if (n < HEAD_BYTES)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "layout: %zu bytes, but its head has %d", n,
                        HEAD_BYTES);
    uint32_t count = ydl_load_u32(bytes);
    if (ydl_load_u32(bytes + 4) & ~(uint32_t)FLAG_ROWS_VARY)
        return ydl_fail(err, YDL_UNSUPPORTED,
                        "layout: flags are %#x, which this version of ydl does not know",
                        ydl_load_u32(bytes + 4));
    if (ydl_load_u32(bytes + 16) != YDL_CHECKSUM_XXH3_LOW32 ||
        ydl_load_u32(bytes + 20) != YDL_CHECKSUM_BYTES)
        return ydl_fail(err, YDL_UNSUPPORTED,
                        "layout: rows have checksums of kind %u with %u bytes; this version of ydl "
                        "knows kind %d with %d",
                        ydl_load_u32(bytes + 16), ydl_load_u32(bytes + 20), YDL_CHECKSUM_XXH3_LOW32,
                        YDL_CHECKSUM_BYTES);
    if (count == 0 || count > YDL_MAX_COMPONENTS || count > (n - HEAD_BYTES) / COMPONENT_BYTES)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "layout: %u components in %zu bytes (at most %d)",
                        count, n, YDL_MAX_COMPONENTS);
    *out_count = count;
    return YDL_OK;
}

/* What the file says about sizes must be what follows from its dtypes and dimensions. offsets: the
 * stored ones, [count] at 32 + 8 * rank bytes from one another. */
static enum ydl_status compare_stored(const struct ydl_layout *layout, const uint8_t *bytes,
                                      struct ydl_error *err)
{
    uint32_t flags = ydl_load_u32(bytes + 4);
    uint64_t row_bytes = ydl_load_u64(bytes + 8);
    if ((flags & FLAG_ROWS_VARY) != (layout->rows_vary ? FLAG_ROWS_VARY : 0u) ||
        row_bytes != layout->row_bytes)
        return ydl_fail(err, YDL_CORRUPT_CACHE,
                        "layout: flags %#x and rows of %" PRIu64
                        " bytes, but its components make rows of %" PRIu64 " (0: they vary)",
                        flags, row_bytes, layout->row_bytes);
    const uint8_t *from = bytes + HEAD_BYTES;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        if (ydl_load_u64(from + 8) != component->offset)
            return ydl_fail(err, YDL_CORRUPT_CACHE,
                            "layout: component %u at offset %" PRIu64
                            ", but it belongs at %" PRIu64,
                            i, ydl_load_u64(from + 8), component->offset);
        from += COMPONENT_BYTES + stored_dims_bytes(component);
    }
    return YDL_OK;
}

enum ydl_status ydl_layout_parse(struct ydl_layout *layout, const uint8_t *bytes, size_t n,
                                 struct ydl_error *err)
{
    *layout = (struct ydl_layout){0};
    uint32_t count = 0;
    enum ydl_status status = parse_head(bytes, n, &count, err);
    if (status == YDL_OK)
        status = allocate(layout, count, err);
    size_t at = HEAD_BYTES;
    for (uint32_t i = 0; status == YDL_OK && i < count; i++) {
        size_t used = 0;
        status = parse_component(&layout->components[i], i, bytes + at, n - at, &used, err);
        at += used;
    }
    if (status != YDL_OK)
        goto done;
    if (at != n) {
        status =
            ydl_fail(err, YDL_CORRUPT_CACHE, "layout: %zu bytes behind the last component", n - at);
        goto done;
    }
    status = complete_layout(layout, err);
    if (status == YDL_INVALID) /* no argument is wrong here: the file is */
        status = err->status = YDL_CORRUPT_CACHE;
    if (status == YDL_OK)
        status = compare_stored(layout, bytes, err);
done:
    if (status != YDL_OK)
        ydl_layout_clear(layout);
    return status;
}
