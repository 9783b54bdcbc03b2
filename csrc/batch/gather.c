#include "batch/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "batch/gather_internal.h"

enum {
    /* Fixed-size rows are resolved, checked and copied in groups that stay in a core's L2 cache. */
    GROUP_BYTES = 256 * 1024,
    MAX_GROUP_ROWS = 1024,
    /* Rows lie anywhere: so many are asked for ahead that a memory access is over when its row's
       turn comes. */
    PREFETCH_ROWS = 8,
    PAGE_BYTES = 4096,
    /* How long one wait for a part that is still on its way may block before it is repeated. */
    WAIT_MS = 1000,
};
#define ROW_IN_MAP SIZE_MAX

static size_t rows_of_a_group(const struct ydl_layout *layout)
{
    if (layout->rows_vary)
        return 1; /* not gathered in groups */
    uint64_t rows = GROUP_BYTES / layout->row_bytes;
    return rows < 1 ? 1 : rows > MAX_GROUP_ROWS ? MAX_GROUP_ROWS : (size_t)rows;
}

enum ydl_status ydl_gatherer_new(struct ydl_reader *reader, struct ydl_pool *pool,
                                 struct ydl_gatherer **out, struct ydl_error *err)
{
    struct ydl_gatherer *gatherer = calloc(1, sizeof *gatherer);
    if (!gatherer)
        return ydl_fail_memory(err, "a gatherer", sizeof *gatherer);
    gatherer->reader = ydl_reader_acquire(reader);
    gatherer->pool = pool;
    gatherer->group_rows = rows_of_a_group(&reader->layout);
    ydl_buf_init(&gatherer->pread_row, SIZE_MAX / 2);
    ydl_buf_init(&gatherer->copies, SIZE_MAX / 2);

    size_t parts = reader->part_count ? reader->part_count : 1;
    gatherer->held = calloc(parts, sizeof(struct ydl_part *));
    gatherer->held_list = calloc(parts, sizeof *gatherer->held_list);
    gatherer->fields = calloc(reader->layout.count, sizeof *gatherer->fields);
    if (!gatherer->held || !gatherer->held_list || !gatherer->fields) {
        ydl_gatherer_free(gatherer);
        return ydl_fail_memory(err, "a gatherer's part table", parts * sizeof(size_t));
    }
    *out = gatherer;
    return YDL_OK;
}

/* A part that was cut while we copied from it makes the batch worthless, and explains whatever else
 * may have gone wrong. */
static enum ydl_status check_parts(const struct ydl_gatherer *gatherer, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    for (size_t i = 0; status == YDL_OK && i < gatherer->held_count; i++)
        status = ydl_part_check_whole(gatherer->held[gatherer->held_list[i]], err);
    return status;
}

static void release_parts(struct ydl_gatherer *gatherer)
{
    struct ydl_source *source = gatherer->reader->source;
    while (gatherer->held_count > 0) {
        size_t part = gatherer->held_list[--gatherer->held_count];
        gatherer->held[part] = NULL;
        source->ops->release(source, part);
    }
}

void ydl_gatherer_free(struct ydl_gatherer *gatherer)
{
    if (!gatherer)
        return;
    if (gatherer->held_list)
        release_parts(gatherer);
    ydl_reader_release(gatherer->reader);
    free(gatherer->held);
    free(gatherer->held_list);
    ydl_buf_clear(&gatherer->pread_row);
    free(gatherer->rows);
    free(gatherer->copy_at);
    ydl_buf_clear(&gatherer->copies);
    free(gatherer->fields);
    free(gatherer);
}

static enum ydl_status hold_part(struct ydl_gatherer *gatherer, size_t part, struct ydl_error *err)
{
    struct ydl_source *source = gatherer->reader->source;
    enum ydl_status status;
    do {
        status = source->ops->wait(source, part, WAIT_MS, err);
    } while (status == YDL_PENDING);
    if (status != YDL_OK)
        return status;
    status = source->ops->view(source, part, &gatherer->held[part], err);
    if (status == YDL_OK)
        gatherer->held_list[gatherer->held_count++] = part;
    return status;
}

/* The open part that holds `record` and the record's row in it. */
static enum ydl_status locate(struct ydl_gatherer *gatherer, uint64_t record,
                              struct ydl_part **out_part, uint64_t *out_row, struct ydl_error *err)
{
    const struct ydl_reader *reader = gatherer->reader;
    if (record >= reader->records)
        return ydl_fail(err, YDL_INVALID, "cannot read record %llu: the dataset has %llu records",
                        (unsigned long long)record, (unsigned long long)reader->records);
    size_t part = ydl_reader_part_of(reader, record, gatherer->near);
    gatherer->near = part;
    if (!gatherer->held[part]) {
        enum ydl_status status = hold_part(gatherer, part, err);
        if (status != YDL_OK)
            return status;
    }
    *out_part = gatherer->held[part];
    *out_row = record - (part == 0 ? 0 : reader->part_ends[part - 1]);
    return YDL_OK;
}

static enum ydl_status reserve_rows(struct ydl_gatherer *gatherer, size_t n, struct ydl_error *err)
{
    if (n <= gatherer->rows_capacity)
        return YDL_OK;
    size_t bytes;
    if (__builtin_mul_overflow(n, sizeof *gatherer->rows, &bytes))
        return ydl_fail_memory(err, "rows", UINT64_MAX);
    struct ydl_row *rows = realloc(gatherer->rows, bytes);
    if (rows)
        gatherer->rows = rows;
    size_t *copy_at = realloc(gatherer->copy_at, n * sizeof *copy_at);
    if (copy_at)
        gatherer->copy_at = copy_at;
    if (!rows || !copy_at)
        return ydl_fail_memory(err, "rows", bytes);
    gatherer->rows_capacity = n;
    return YDL_OK;
}

static enum ydl_status resolve_row(struct ydl_gatherer *gatherer, size_t i, uint64_t record,
                                   struct ydl_error *err)
{
    struct ydl_row *row = &gatherer->rows[i];
    struct ydl_part *part = NULL;
    uint64_t number = 0;
    enum ydl_status status = locate(gatherer, record, &part, &number, err);
    if (status == YDL_OK)
        status = ydl_part_row(part, number, &gatherer->pread_row, &row->bytes, &row->n, err);
    if (status != YDL_OK)
        return status;
    row->record = record;
    row->part = part;
    gatherer->copy_at[i] = ROW_IN_MAP;
    bool must_verify = ydl_reader_must_verify(gatherer->reader, record);
    if (!must_verify && ydl_part_is_mapped(part))
        return YDL_OK;

    size_t at = gatherer->copies.len;
    gatherer->copy_at[i] = at;
    status = ydl_buf_append(&gatherer->copies, row->bytes, (size_t)row->n, err);
    if (status != YDL_OK || !must_verify)
        return status;
    if (!ydl_part_row_is_valid(part, number, gatherer->copies.data + at, row->n))
        return ydl_part_fail_row(part, number, err);
    ydl_reader_set_verified(gatherer->reader, record);
    return YDL_OK;
}

static void prefetch(const struct ydl_gatherer *gatherer, uint64_t record)
{
    const struct ydl_reader *reader = gatherer->reader;
    if (record >= reader->records)
        return;
    size_t part = ydl_reader_part_of(reader, record, gatherer->near);
    if (gatherer->held[part])
        ydl_part_prefetch(gatherer->held[part],
                          record - (part == 0 ? 0 : reader->part_ends[part - 1]));
}

enum ydl_status ydl_gatherer_resolve(struct ydl_gatherer *gatherer, const uint64_t *numbers,
                                     size_t n, struct ydl_error *err)
{
    gatherer->copies.len = 0;
    enum ydl_status status = reserve_rows(gatherer, n, err);
    bool looks_up = gatherer->reader->layout.rows_vary;
    for (size_t i = 0; status == YDL_OK && i < n; i++) {
        if (looks_up && i + PREFETCH_ROWS < n)
            prefetch(gatherer, numbers[i + PREFETCH_ROWS]);
        status = resolve_row(gatherer, i, numbers[i], err);
    }
    if (status != YDL_OK || gatherer->copies.len == 0)
        return status;
    for (size_t i = 0; i < n; i++) /* only now, since the buffer moves while it grows */
        if (gatherer->copy_at[i] != ROW_IN_MAP)
            gatherer->rows[i].bytes = gatherer->copies.data + gatherer->copy_at[i];
    return YDL_OK;
}

/* One loop for each size that a compiler turns into a single load and store. */
#define SCATTER_ITEMS(item_bytes)                                                                  \
    for (size_t i = 0; i < n; i++) {                                                               \
        if (i + PREFETCH_ROWS < n)                                                                 \
            __builtin_prefetch(rows[i + PREFETCH_ROWS].bytes + offset);                            \
        memcpy(to + i * (item_bytes), rows[i].bytes + offset, (item_bytes));                       \
    }                                                                                              \
    break

static void scatter(uint8_t *to, const struct ydl_row *rows, size_t n, uint64_t offset,
                    uint64_t bytes)
{
    switch (bytes) {
    case 0:
        break;
    case 1:
        SCATTER_ITEMS(1);
    case 2:
        SCATTER_ITEMS(2);
    case 4:
        SCATTER_ITEMS(4);
    case 8:
        SCATTER_ITEMS(8);
    case 16:
        SCATTER_ITEMS(16);
    default:
        SCATTER_ITEMS(bytes);
    }
}

static enum ydl_status gather_fixed(struct ydl_gatherer *gatherer, const uint64_t *numbers,
                                    uint64_t n, struct ydl_batch *batch, struct ydl_error *err)
{
    const struct ydl_layout *layout = &gatherer->reader->layout;
    for (uint32_t c = 0; c < layout->count; c++) {
        const struct ydl_component *component = &layout->components[c];
        struct ydl_column *column = &batch->columns[c];
        column->uniform = true;
        column->rank = (uint32_t)component->rank;
        memcpy(column->dims, component->dims, sizeof column->dims);
        if (!ydl_mul_u64(n, component->bytes, &column->data_bytes))
            return ydl_fail(err, YDL_INVALID, "%llu records of %llu bytes do not fit memory",
                            (unsigned long long)n, (unsigned long long)component->bytes);
        column->elements = column->data_bytes / component->item_bytes;
        enum ydl_status status =
            ydl_pool_take(gatherer->pool, (size_t)column->data_bytes, &column->data, err);
        if (status != YDL_OK)
            return status;
    }

    for (uint64_t start = 0; start < n; start += gatherer->group_rows) {
        uint64_t left = n - start;
        size_t rows = left < gatherer->group_rows ? (size_t)left : gatherer->group_rows;
        enum ydl_status status = ydl_gatherer_resolve(gatherer, numbers + start, rows, err);
        if (status != YDL_OK)
            return status;
        for (uint32_t c = 0; c < layout->count; c++) {
            const struct ydl_component *component = &layout->components[c];
            scatter(batch->columns[c].data->data + start * component->bytes, gatherer->rows, rows,
                    component->offset, component->bytes);
        }
    }
    return YDL_OK;
}

enum ydl_status ydl_gather(struct ydl_gatherer *gatherer, const uint64_t *numbers, uint64_t n,
                           bool require_uniform, struct ydl_batch **out, struct ydl_error *err)
{
    const struct ydl_layout *layout = &gatherer->reader->layout;
    struct ydl_batch *batch = calloc(1, sizeof *batch + layout->count * sizeof *batch->columns);
    if (!batch)
        return ydl_fail_memory(err, "a batch", layout->count * sizeof *batch->columns);
    batch->records = n;
    batch->count = layout->count;

    enum ydl_status status;
    if (layout->rows_vary) {
        status = ydl_gatherer_resolve(gatherer, numbers, (size_t)n, err);
        if (status == YDL_OK)
            status = ydl_gather_varying(gatherer, n, require_uniform, batch, err);
    } else {
        status = gather_fixed(gatherer, numbers, n, batch, err);
    }
    if (check_parts(gatherer, err) != YDL_OK)
        status = err->status;
    release_parts(gatherer);

    if (status == YDL_OK)
        *out = batch;
    else
        ydl_batch_free(batch);
    return status;
}

static void touch_pages(const struct ydl_row *row)
{
    const volatile uint8_t *bytes = row->bytes;
    for (uint64_t at = 0; at < row->n; at += PAGE_BYTES)
        (void)bytes[at];
    (void)bytes[row->n - 1];
}

enum ydl_status ydl_gather_rows(struct ydl_gatherer *gatherer, const uint64_t *numbers, uint64_t n,
                                const struct ydl_row **out_rows, struct ydl_error *err)
{
    release_parts(gatherer);
    enum ydl_status status = ydl_gatherer_resolve(gatherer, numbers, (size_t)n, err);
    for (uint64_t i = 0; status == YDL_OK && i < n; i++)
        touch_pages(&gatherer->rows[i]);
    if (check_parts(gatherer, err) != YDL_OK)
        status = err->status;
    if (status != YDL_OK)
        release_parts(gatherer);
    *out_rows = gatherer->rows;
    return status;
}

void ydl_gatherer_release_rows(struct ydl_gatherer *gatherer)
{
    release_parts(gatherer);
}

enum ydl_status ydl_row_take_apart(const struct ydl_layout *layout, const struct ydl_row *row,
                                   struct ydl_field *out_fields, struct ydl_error *err)
{
    enum ydl_status status = ydl_row_parse(layout, row->bytes, row->n, out_fields, err);
    if (status != YDL_CORRUPT_RECORD)
        return status;
    struct ydl_error inner = *err; /* the parser knows neither file nor record */
    if (ydl_part_check_whole(row->part, err) != YDL_OK)
        return err->status;
    ydl_fail(err, YDL_CORRUPT_RECORD, "record %llu in %s: %.512s", (unsigned long long)row->record,
             ydl_part_path(row->part), inner.text);
    return ydl_fail_at(err, ydl_part_path(row->part));
}

void ydl_batch_free(struct ydl_batch *batch)
{
    if (!batch)
        return;
    for (uint32_t c = 0; c < batch->count; c++) {
        struct ydl_column *column = &batch->columns[c];
        ydl_block_release(column->data);
        ydl_block_release(column->string_ends);
        ydl_block_release(column->record_splits);
        ydl_block_release(column->record_ranks);
        ydl_block_release(column->record_dims);
    }
    free(batch);
}
