/* The layout parser. Law: what it accepts is exactly what the encoder makes of the result. */
#include "fuzz.h"

enum { LAYOUT_HEAD = 24, LAYOUT_COMPONENT = 32 };

static void layout_one(const uint8_t *bytes, size_t n)
{
    struct ydl_error err;
    struct ydl_layout layout;
    uint8_t *exact = fuzz_copy(bytes, n);
    enum ydl_status status = ydl_layout_parse(&layout, exact, n, &err);
    if (status == YDL_OK) {
        struct ydl_buf again;
        struct ydl_layout copy;
        ydl_buf_init(&again, SIZE_MAX);
        FUZZ_CHECK(ydl_layout_encode(&layout, &again, &err) == YDL_OK);
        FUZZ_CHECK(again.len == n && memcmp(again.data, bytes, n) == 0);
        FUZZ_CHECK(ydl_layout_copy(&layout, &copy, &err) == YDL_OK);
        FUZZ_CHECK(ydl_layout_equal(&layout, &copy));
        if (copy.components[0].rank > 0) {
            copy.components[0].dims[0] ^= 4;
            FUZZ_CHECK(!ydl_layout_equal(&layout, &copy));
        }
        for (uint32_t i = 0; i < layout.count; i++) {
            char text[64];
            ydl_shape_text(text, sizeof text, layout.components[i].rank, layout.components[i].dims);
            FUZZ_CHECK(strlen(text) < sizeof text);
        }
        ydl_layout_clear(&copy);
        ydl_buf_clear(&again);
    } else {
        FUZZ_CHECK(status == YDL_CORRUPT_CACHE || status == YDL_UNSUPPORTED);
        FUZZ_CHECK(status == err.status && layout.count == 0);
    }
    ydl_layout_clear(&layout);
    free(exact);
}

/* Reads the components as well as they can be read and writes sizes and offsets that fit them. */
static void layout_make_consistent(uint8_t *bytes, size_t n)
{
    struct ydl_error err;
    static struct ydl_component_spec specs[256];
    static int64_t dims[256 * YDL_MAX_RANK];
    uint32_t count = 0;
    size_t dims_len = 0;
    size_t at = LAYOUT_HEAD;
    while (n >= at + LAYOUT_COMPONENT && count < 256) {
        uint32_t dtype = ydl_load_u32(bytes + at);
        uint32_t rank = ydl_load_u32(bytes + at + 4);
        if (rank != UINT32_MAX && rank > (n - at - LAYOUT_COMPONENT) / 8)
            rank = 0;
        specs[count] = (struct ydl_component_spec){
            .dtype = ydl_dtype_info(dtype) ? (enum ydl_dtype)dtype : YDL_UINT8,
            .rank = rank == UINT32_MAX ? YDL_RANK_VARIES : (int32_t)(rank % (YDL_MAX_RANK + 1)),
            .dims = &dims[dims_len]};
        at += LAYOUT_COMPONENT;
        for (int32_t d = 0; d < specs[count].rank; d++, at += 8) {
            int64_t dim = (int64_t)ydl_load_u64(bytes + at);
            dims[dims_len++] = dim < 0 ? YDL_DIM_VARIES : dim;
        }
        count++;
    }
    struct ydl_layout layout;
    struct ydl_buf encoded;
    ydl_buf_init(&encoded, SIZE_MAX);
    if (count > 0 && at == n && ydl_layout_init(&layout, specs, count, &err) == YDL_OK) {
        if (ydl_layout_encode(&layout, &encoded, &err) == YDL_OK && encoded.len == n)
            memcpy(bytes, encoded.data, n);
        ydl_layout_clear(&layout);
    }
    ydl_buf_clear(&encoded);
}

static size_t layout_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    (void)max;
    if (seed % 4 != 0)
        layout_make_consistent(bytes, n);
    return n;
}

FUZZ_TARGET(layout);
