/* The row parser, for a layout of ours or one that the input brings along.
 *
 * Input: a byte; where it is 3 or more, u16 length of a layout region, and the region; a row. */
#include "fuzz.h"

static void row_one(const uint8_t *bytes, size_t n)
{
    struct ydl_error err;
    struct ydl_layout layout;
    if (n < 1)
        return;
    unsigned which = bytes[0];
    bytes++;
    n--;
    if (which < 3) {
        fuzz_make_layout(&layout, which);
    } else {
        if (n < 2)
            return;
        size_t layout_bytes = bytes[0] + 256u * bytes[1];
        bytes += 2;
        n -= 2;
        if (layout_bytes > n || ydl_layout_parse(&layout, bytes, layout_bytes, &err) != YDL_OK)
            return;
        bytes += layout_bytes;
        n -= layout_bytes;
    }
    struct ydl_field *fields = calloc(layout.count, sizeof *fields);
    FUZZ_CHECK(fields);
    uint8_t *row = fuzz_copy(bytes, n);
    enum ydl_status status = ydl_row_parse(&layout, row, n, fields, &err);
    if (status == YDL_OK)
        fuzz_touch_fields(&layout, fields);
    else
        FUZZ_CHECK(status == YDL_CORRUPT_RECORD && err.status == status && err.text[0]);
    free(row);
    free(fields);
    ydl_layout_clear(&layout);
}

/* Nothing in a row depends on anything else in it that the parser checks but its length. */
static size_t row_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    struct ydl_error err;
    struct ydl_layout layout;
    if (seed % 4 == 0 || n < 3 || bytes[0] < 3)
        return n;
    size_t layout_bytes = bytes[1] + 256u * bytes[2];
    if (layout_bytes > n - 3 || ydl_layout_parse(&layout, bytes + 3, layout_bytes, &err) != YDL_OK)
        return n;
    size_t wanted = 3 + layout_bytes + (size_t)layout.row_bytes;
    if (!layout.rows_vary && layout.row_bytes < max && wanted <= max) {
        for (size_t i = n; i < wanted; i++)
            bytes[i] = 0;
        n = wanted;
    }
    ydl_layout_clear(&layout);
    return n;
}

FUZZ_TARGET(row);
