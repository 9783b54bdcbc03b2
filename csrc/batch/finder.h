/* Finds records' rows: in which part, where, and whether they still have to be checked.
 *
 * A finder is a thread's working memory, not shared between threads. It holds the parts of the rows
 * it found last, each once, however many of its rows are wanted. Rows of mapped parts are verified
 * where they lie, and used there, in this epoch and in later ones: a copy would only guard the
 * first.
 */
#ifndef YDL_BATCH_FINDER_H
#define YDL_BATCH_FINDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "batch/reader.h"
#include "record/row.h"

/* One whole row with its checksum, verified where this reader must. */
struct ydl_row {
    const uint8_t *bytes; /* borrowed: in a map or in the finder's memory */
    uint64_t n;
    uint64_t record;
    const struct ydl_part *part; /* ask ydl_part_check_whole after copying from bytes. NULL: they
                                    are a copy, and the part was let go */
};

/* For error texts. */
const char *ydl_row_path(const struct ydl_row *row);

struct ydl_finder {
    struct ydl_reader *reader; /* counted */
    struct ydl_row *rows;      /* [rows_capacity], owned: what was found last */
    size_t *copy_at;           /* [rows_capacity] where a row's copy begins, or ROW_IN_MAP; owned */
    size_t rows_capacity;
    struct ydl_buf copies;    /* of rows of parts that are not mapped */
    struct ydl_buf pread_row; /* one row, where parts are not mapped */
    struct ydl_field *fields; /* [components], owned; for the user: one row taken apart */

    struct ydl_part **held; /* [part_count], NULL where not held; owned array */
    size_t *held_list;      /* [part_count], the first held_count are held; owned */
    size_t held_count;
    size_t near; /* the part of the last record */
    bool checks; /* the last record was verified: the next ones probably are, too */
};

YDL_MUST_CHECK enum ydl_status ydl_finder_new(struct ydl_reader *reader, struct ydl_finder **out,
                                              struct ydl_error *err);
void ydl_finder_free(struct ydl_finder *finder); /* NULL-safe */

/* Fills finder->rows with the n rows of these records; YDL_INVALID where a number is not below the
 * reader's records. They stay valid until the next call, and mapped parts open until
 * ydl_finder_release; of parts that are read, whose rows are copied, only a few are open at once.
 */
YDL_MUST_CHECK enum ydl_status ydl_finder_find(struct ydl_finder *finder, const uint64_t *numbers,
                                               size_t n, struct ydl_error *err);

/* After copying from rows: an error where a held part was cut meanwhile, which makes the copies
 * worthless and explains whatever else may have gone wrong. */
YDL_MUST_CHECK enum ydl_status ydl_finder_check(const struct ydl_finder *finder,
                                                struct ydl_error *err);

/* Lets go of the parts. */
void ydl_finder_release(struct ydl_finder *finder);

/* For who makes single records of rows: finds them, letting go of those before, and touches every
 * page of them, so that copying does not wait for a disk. */
YDL_MUST_CHECK enum ydl_status ydl_finder_lend(struct ydl_finder *finder, const uint64_t *numbers,
                                               uint64_t n, const struct ydl_row **out_rows,
                                               struct ydl_error *err);

/* ydl_row_parse, with an error that names file and record. */
YDL_MUST_CHECK enum ydl_status ydl_row_take_apart(const struct ydl_layout *layout,
                                                  const struct ydl_row *row,
                                                  struct ydl_field *out_fields,
                                                  struct ydl_error *err);

#endif
