/* One row, taken apart: where each component lies and which shape it has. Pure; no I/O. */
#ifndef YDL_RECORD_ROW_H
#define YDL_RECORD_ROW_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"

struct ydl_field {
    uint32_t rank;
    int64_t dims[YDL_MAX_RANK]; /* [rank] */
    uint64_t elements;          /* product of dims */
    const uint8_t *lengths;     /* string: u32 per element, not aligned; else NULL */
    const uint8_t *data;        /* borrowed from the row, not aligned */
    uint64_t bytes;
};

/* row, n: a whole row with its checksum (not verified here). out_fields: [layout->count].
 * Hostile bytes: YDL_CORRUPT_RECORD where the words do not add up to exactly n bytes; the caller
 * names file and record. */
YDL_MUST_CHECK enum ydl_status ydl_row_parse(const struct ydl_layout *layout, const uint8_t *row,
                                             uint64_t n, struct ydl_field *out_fields,
                                             struct ydl_error *err);

#endif
