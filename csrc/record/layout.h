/* What a row looks like: the component table of a dataset.
 *
 * Made from component specs (writing, and reading with the manifest's schema) or parsed from a
 * part's layout region; a reader refuses a part whose table differs from the dataset's. Immutable
 * after init, so threads may share it; the owner clears it last. */
#ifndef YDL_RECORD_LAYOUT_H
#define YDL_RECORD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "record/dtype.h"
#include "record/format.h"

#define YDL_RANK_VARIES (-1)
#define YDL_DIM_VARIES (-1)

struct ydl_component {
    enum ydl_dtype dtype;
    uint32_t item_bytes;        /* 0 for string */
    int32_t rank;               /* or YDL_RANK_VARIES */
    int64_t dims[YDL_MAX_RANK]; /* [rank]; size, or YDL_DIM_VARIES */
    uint32_t words; /* u32 words known to be in a varying row (without string lengths, and
                       without the dimensions of a varying rank) */
    /* Both only where the component is dense and static (no string, no varying dimension): */
    bool is_static;
    uint64_t bytes; /* payload in a row */
    /* Only in fixed-size rows: */
    uint64_t offset; /* of the payload in the row */
};

struct ydl_layout {
    uint32_t count;
    struct ydl_component *components; /* [count], owned */
    bool rows_vary;
    uint64_t row_bytes; /* with padding and checksum; 0 where rows vary */
};

struct ydl_component_spec {
    enum ydl_dtype dtype;
    int32_t rank;        /* or YDL_RANK_VARIES */
    const int64_t *dims; /* [rank], borrowed for the call; NULL where rank <= 0 */
};

/* Refuses with YDL_INVALID: no or too many components, an unknown dtype, a rank over YDL_MAX_RANK,
 * a negative dimension other than YDL_DIM_VARIES, rows whose size overflows. After any failure,
 * here and in parse and copy, the layout is empty: clear accepts it. */
YDL_MUST_CHECK enum ydl_status ydl_layout_init(struct ydl_layout *layout,
                                               const struct ydl_component_spec *specs,
                                               uint32_t count, struct ydl_error *err);
void ydl_layout_clear(struct ydl_layout *layout);

YDL_MUST_CHECK enum ydl_status ydl_layout_encode(const struct ydl_layout *layout,
                                                 struct ydl_buf *out, struct ydl_error *err);

/* Parses a layout region of hostile bytes: YDL_CORRUPT_CACHE where it is not one,
 * YDL_UNSUPPORTED for an unknown dtype, checksum, codec or key. Offsets and sizes are computed
 * anew from the dtypes and dimensions and must equal the stored ones. */
YDL_MUST_CHECK enum ydl_status ydl_layout_parse(struct ydl_layout *layout, const uint8_t *bytes,
                                                size_t n, struct ydl_error *err);

bool ydl_layout_equal(const struct ydl_layout *a, const struct ydl_layout *b);

/* out gets its own components and is cleared by its owner. */
YDL_MUST_CHECK enum ydl_status ydl_layout_copy(const struct ydl_layout *layout,
                                               struct ydl_layout *out, struct ydl_error *err);

/* Elements and bytes of a shape without varying dimensions. False where they overflow 2^63 - 1,
 * dimensions of size 0 left out of the product: NumPy refuses such arrays, too. */
bool ydl_shape_size(uint32_t rank, const int64_t *dims, uint32_t item_bytes, uint64_t *out_elements,
                    uint64_t *out_bytes);

/* "(3, ?)" for error texts, or "(unknown rank)"; cut where it does not fit. Returns out. */
char *ydl_shape_text(char *out, size_t n, int32_t rank, const int64_t *dims);

#endif
