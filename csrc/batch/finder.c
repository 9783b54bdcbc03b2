#include "batch/finder.h"

#include <stdlib.h>

#include "base/bytes.h"

enum {
    /* Rows and their index entries lie anywhere: so many are asked for ahead that a memory access
       is over when their turn comes. Those that are hashed come the last step to the core in time,
       too (784 B: 37 ns more than without verification, else 52). */
    PREFETCH_ROWS = 8,
    PREFETCH_ROWS_NEAR = 4,
    PAGE_BYTES = 4096,
    /* How long one wait for a part that is still on its way may block before it is repeated. */
    WAIT_MS = 1000,
    /* Of a finder at once: neighbouring rows are often of one part. */
    MAX_READ_PARTS = 16,
};
#define ROW_IN_MAP SIZE_MAX

enum ydl_status ydl_finder_new(struct ydl_reader *reader, struct ydl_finder **out,
                               struct ydl_error *err)
{
    struct ydl_finder *finder = calloc(1, sizeof *finder);
    if (!finder)
        return ydl_fail_memory(err, "a finder of rows", sizeof *finder);
    finder->reader = ydl_reader_acquire(reader);
    ydl_buf_init(&finder->pread_row, SIZE_MAX / 2);
    ydl_buf_init(&finder->copies, SIZE_MAX / 2);

    size_t parts = reader->part_count ? reader->part_count : 1;
    finder->held = calloc(parts, sizeof(struct ydl_part *));
    finder->held_list = calloc(parts, sizeof *finder->held_list);
    finder->fields = calloc(reader->layout.count, sizeof *finder->fields);
    if (!finder->held || !finder->held_list || !finder->fields) {
        ydl_finder_free(finder);
        return ydl_fail_memory(err, "a finder's part table", parts * sizeof(size_t));
    }
    *out = finder;
    return YDL_OK;
}

void ydl_finder_release(struct ydl_finder *finder)
{
    struct ydl_source *source = finder->reader->source;
    while (finder->held_count > 0) {
        size_t part = finder->held_list[--finder->held_count];
        finder->held[part] = NULL;
        source->ops->release(source, part);
    }
}

void ydl_finder_free(struct ydl_finder *finder)
{
    if (!finder)
        return;
    ydl_finder_release(finder);
    ydl_reader_release(finder->reader);
    free(finder->held);
    free(finder->held_list);
    ydl_buf_clear(&finder->pread_row);
    free(finder->rows);
    free(finder->copy_at);
    ydl_buf_clear(&finder->copies);
    free(finder->fields);
    free(finder);
}

/* A part that was cut while we copied from it makes the batch worthless, and explains whatever else
 * may have gone wrong. */
enum ydl_status ydl_finder_check(const struct ydl_finder *finder, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    for (size_t i = 0; status == YDL_OK && i < finder->held_count; i++)
        status = ydl_part_check_whole(finder->held[finder->held_list[i]], err);
    return status;
}

static enum ydl_status hold_part(struct ydl_finder *finder, size_t part, struct ydl_error *err)
{
    struct ydl_source *source = finder->reader->source;
    enum ydl_status status;
    do {
        status = source->ops->wait(source, part, WAIT_MS, err);
    } while (status == YDL_PENDING);
    if (status != YDL_OK)
        return status;
    status = source->ops->view(source, part, &finder->held[part], err);
    if (status == YDL_OK)
        finder->held_list[finder->held_count++] = part;
    return status;
}

/* The open part that holds `record` and the record's row in it. */
static enum ydl_status locate(struct ydl_finder *finder, uint64_t record,
                              struct ydl_part **out_part, uint64_t *out_row, struct ydl_error *err)
{
    const struct ydl_reader *reader = finder->reader;
    if (record >= reader->records)
        return ydl_fail(err, YDL_INVALID, "cannot read record %llu: the dataset has %llu records",
                        (unsigned long long)record, (unsigned long long)reader->records);
    size_t part = ydl_reader_part_of(reader, record, finder->near);
    finder->near = part;
    if (!finder->held[part]) {
        enum ydl_status status = hold_part(finder, part, err);
        if (status != YDL_OK)
            return status;
    }
    *out_part = finder->held[part];
    *out_row = record - (part == 0 ? 0 : reader->part_ends[part - 1]);
    return YDL_OK;
}

static enum ydl_status reserve_rows(struct ydl_finder *finder, size_t n, struct ydl_error *err)
{
    if (n <= finder->rows_capacity)
        return YDL_OK;
    size_t bytes;
    if (__builtin_mul_overflow(n, sizeof *finder->rows, &bytes))
        return ydl_fail_memory(err, "rows", UINT64_MAX);
    struct ydl_row *rows = realloc(finder->rows, bytes);
    if (rows)
        finder->rows = rows;
    size_t *copy_at = realloc(finder->copy_at, n * sizeof *copy_at);
    if (copy_at)
        finder->copy_at = copy_at;
    if (!rows || !copy_at)
        return ydl_fail_memory(err, "rows", bytes);
    finder->rows_capacity = n;
    return YDL_OK;
}

static enum ydl_status resolve_row(struct ydl_finder *finder, size_t i, uint64_t record,
                                   struct ydl_error *err)
{
    struct ydl_row *row = &finder->rows[i];
    struct ydl_part *part = NULL;
    uint64_t number = 0;
    enum ydl_status status = locate(finder, record, &part, &number, err);
    if (status == YDL_OK)
        status = ydl_part_row(part, number, &finder->pread_row, &row->bytes, &row->n, err);
    if (status != YDL_OK)
        return status;
    row->record = record;
    row->part = part;
    finder->copy_at[i] = ROW_IN_MAP;
    finder->checks = ydl_reader_must_verify(finder->reader, record);
    if (finder->checks) {
        if (!ydl_part_row_is_valid(part, number, row->bytes, row->n))
            return ydl_part_fail_row(part, number, err);
        ydl_reader_set_verified(finder->reader, record);
    }
    if (ydl_part_is_mapped(part))
        return YDL_OK;
    finder->copy_at[i] = finder->copies.len; /* pread_row is the next one's */
    return ydl_buf_append(&finder->copies, row->bytes, (size_t)row->n, err);
}

/* Each open part that is read is a descriptor, and a batch may want rows of more parts than the
 * process may have descriptors. */
static void let_go_of_read_parts(struct ydl_finder *finder, size_t found, size_t *held_from)
{
    if (finder->held_count < MAX_READ_PARTS || ydl_part_is_mapped(finder->rows[found - 1].part))
        return;
    ydl_finder_release(finder);
    for (; *held_from < found; ++*held_from)
        finder->rows[*held_from].part = NULL;
}

static void prefetch(const struct ydl_finder *finder, uint64_t record, bool is_near)
{
    const struct ydl_reader *reader = finder->reader;
    if (record >= reader->records)
        return;
    size_t part = ydl_reader_part_of(reader, record, finder->near);
    if (!finder->held[part])
        return;
    uint64_t row = record - (part == 0 ? 0 : reader->part_ends[part - 1]);
    if (is_near)
        ydl_part_prefetch_near(finder->held[part], row);
    else
        ydl_part_prefetch(finder->held[part], row);
}

enum ydl_status ydl_finder_find(struct ydl_finder *finder, const uint64_t *numbers, size_t n,
                                struct ydl_error *err)
{
    finder->copies.len = 0;
    enum ydl_status status = reserve_rows(finder, n, err);
    size_t held_from = 0; /* the rows before have no part */
    const bool rows_vary = finder->reader->layout.rows_vary;
    for (size_t i = 0; status == YDL_OK && i < n; i++) {
        /* A row that is not checked is only pointed to: by its index entry, where rows vary. */
        if ((finder->checks || rows_vary) && i + PREFETCH_ROWS < n)
            prefetch(finder, numbers[i + PREFETCH_ROWS], false);
        if (finder->checks && i + PREFETCH_ROWS_NEAR < n)
            prefetch(finder, numbers[i + PREFETCH_ROWS_NEAR], true);
        status = resolve_row(finder, i, numbers[i], err);
        if (status == YDL_OK)
            let_go_of_read_parts(finder, i + 1, &held_from);
    }
    if (status != YDL_OK || finder->copies.len == 0)
        return status;
    for (size_t i = 0; i < n; i++) /* only now, since the buffer moves while it grows */
        if (finder->copy_at[i] != ROW_IN_MAP)
            finder->rows[i].bytes = finder->copies.data + finder->copy_at[i];
    return YDL_OK;
}

static void touch_pages(const struct ydl_row *row)
{
    const volatile uint8_t *bytes = row->bytes;
    for (uint64_t at = 0; at < row->n; at += PAGE_BYTES)
        (void)bytes[at];
    (void)bytes[row->n - 1];
}

enum ydl_status ydl_finder_lend(struct ydl_finder *finder, const uint64_t *numbers, uint64_t n,
                                const struct ydl_row **out_rows, struct ydl_error *err)
{
    ydl_finder_release(finder);
    enum ydl_status status = ydl_finder_find(finder, numbers, (size_t)n, err);
    for (uint64_t i = 0; status == YDL_OK && i < n; i++)
        touch_pages(&finder->rows[i]);
    if (ydl_finder_check(finder, err) != YDL_OK)
        status = err->status;
    if (status != YDL_OK)
        ydl_finder_release(finder);
    *out_rows = finder->rows;
    return status;
}

const char *ydl_row_path(const struct ydl_row *row)
{
    return row->part ? ydl_part_path(row->part) : "the dataset's files";
}

enum ydl_status ydl_row_take_apart(const struct ydl_layout *layout, const struct ydl_row *row,
                                   struct ydl_field *out_fields, struct ydl_error *err)
{
    enum ydl_status status = ydl_row_parse(layout, row->bytes, row->n, out_fields, err);
    if (status != YDL_CORRUPT_RECORD)
        return status;
    struct ydl_error inner = *err; /* the parser knows neither file nor record */
    if (row->part && ydl_part_check_whole(row->part, err) != YDL_OK)
        return err->status;
    ydl_fail(err, YDL_CORRUPT_RECORD, "record %llu in %s: %.512s", (unsigned long long)row->record,
             ydl_row_path(row), inner.text);
    return ydl_fail_at(err, ydl_row_path(row));
}
