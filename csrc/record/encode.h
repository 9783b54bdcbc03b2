/* Records into rows: the other direction of row.h, for many records at a time. Pure; no I/O.
 *
 * A column is one component of n records, checked against the layout. What follows from the shape
 * is computed once for all n records, or, where their shapes differ, for each when it is moved to.
 * Rows are made without their checksum, which depends on where a row goes. */
#ifndef YDL_RECORD_ENCODE_H
#define YDL_RECORD_ENCODE_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"
#include "record/writer.h"

struct ydl_column {
    struct ydl_input input; /* borrowed */
    uint64_t element;       /* the record's first one, in data or strings */
    uint64_t elements;      /* of one record */
    uint64_t bytes;         /* of one record; 0 for strings, whose lengths differ */
    uint32_t words_bytes;
    uint8_t words[4 * (1 + YDL_MAX_RANK)]; /* rank and dimensions as in a varying row */
};

/* out_columns: [layout->count]. first_record is for error texts. YDL_SHAPE_MISMATCH where a
 * shape contradicts the layout; YDL_INVALID where a row cannot hold it, and where `elements` is
 * not what n shapes ask for. */
YDL_MUST_CHECK enum ydl_status
ydl_columns_init(const struct ydl_layout *layout, const struct ydl_input *inputs, uint64_t n,
                 uint64_t first_record, struct ydl_column *out_columns, struct ydl_error *err);

/* Fixed-size rows first .. first + n - 1 of the columns, to n * row_bytes bytes at rows. */
void ydl_encode_fixed(const struct ydl_layout *layout, const struct ydl_column *columns,
                      uint64_t first, uint64_t n, uint8_t *rows);

/* Moves to record i of the columns: 0, 1, 2, ... one after another, as shapes may differ. */
void ydl_columns_move(const struct ydl_layout *layout, struct ydl_column *columns, uint64_t i);

/* Size of this record's varying row with its checksum. record: its number in the dataset.
 * YDL_INVALID where a string is too long. */
YDL_MUST_CHECK enum ydl_status ydl_measure_varying(const struct ydl_layout *layout,
                                                   const struct ydl_column *columns,
                                                   uint64_t record, uint64_t *out_bytes,
                                                   struct ydl_error *err);

/* This record's varying row, to as many bytes at row as were measured. */
void ydl_encode_varying(const struct ydl_layout *layout, const struct ydl_column *columns,
                        uint8_t *row);

#endif
