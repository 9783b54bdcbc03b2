/* Records into rows: the other direction of row.h, for many records at a time. Pure; no I/O.
 *
 * A column is one component of n records of equal shape, checked against the layout: what follows
 * from the shape is computed once for all n records. Rows are made without their checksum, which
 * depends on where a row goes. */
#ifndef YDL_RECORD_ENCODE_H
#define YDL_RECORD_ENCODE_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"
#include "record/writer.h"

struct ydl_column {
    struct ydl_input input; /* borrowed */
    uint64_t elements;      /* of one record */
    uint64_t bytes;         /* of one record; 0 for strings, whose lengths differ */
    uint32_t words_bytes;
    uint8_t words[4 * (1 + YDL_MAX_RANK)]; /* rank and dimensions as in a varying row */
};

/* out_columns: [layout->count]. first_record is for error texts. YDL_SHAPE_MISMATCH where a
 * shape contradicts the layout; YDL_INVALID where a row cannot hold it. */
YDL_MUST_CHECK enum ydl_status
ydl_columns_init(const struct ydl_layout *layout, const struct ydl_input *inputs,
                 uint64_t first_record, struct ydl_column *out_columns, struct ydl_error *err);

/* Fixed-size rows first .. first + n - 1 of the columns, to n * row_bytes bytes at rows. */
void ydl_encode_fixed(const struct ydl_layout *layout, const struct ydl_column *columns,
                      uint64_t first, uint64_t n, uint8_t *rows);

/* Size of varying row i with its checksum. record: its number in the dataset. YDL_INVALID where a
 * string is too long. */
YDL_MUST_CHECK enum ydl_status ydl_measure_varying(const struct ydl_layout *layout,
                                                   const struct ydl_column *columns, uint64_t i,
                                                   uint64_t record, uint64_t *out_bytes,
                                                   struct ydl_error *err);

/* Varying row i of the columns, to as many bytes at row as were measured. */
void ydl_encode_varying(const struct ydl_layout *layout, const struct ydl_column *columns,
                        uint64_t i, uint8_t *row);

#endif
