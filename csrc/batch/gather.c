#include "batch/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "batch/gather_internal.h"

enum {
    /* Rows are resolved, checked and copied in groups that stay in a core's L2 cache. */
    GROUP_BYTES = 256 * 1024,
    MAX_GROUP_ROWS = 1024,
    /* Rows lie anywhere: so many are asked for ahead that a memory access is over when its row's
       turn comes. */
    PREFETCH_ROWS = 8,
    /* How long one wait for a part that is still on its way may block before it is repeated. */
    WAIT_MS = 1000,
};

static enum ydl_status init_groups(struct ydl_gatherer *gatherer, struct ydl_error *err)
{
    uint64_t row_bytes = gatherer->reader->layout.row_bytes;
    uint64_t rows = GROUP_BYTES / row_bytes;
    gatherer->group_rows = rows < 1 ? 1 : rows > MAX_GROUP_ROWS ? MAX_GROUP_ROWS : (size_t)rows;
    gatherer->rows = calloc(gatherer->group_rows, sizeof *gatherer->rows);
    gatherer->copies = calloc(gatherer->group_rows, (size_t)row_bytes);
    if (!gatherer->rows || !gatherer->copies)
        return ydl_fail_memory(err, "a group of rows", gatherer->group_rows * row_bytes);
    return YDL_OK;
}

enum ydl_status ydl_gatherer_new(struct ydl_reader *reader, struct ydl_pool *pool,
                                 struct ydl_gatherer **out, struct ydl_error *err)
{
    struct ydl_gatherer *gatherer = calloc(1, sizeof *gatherer);
    if (!gatherer)
        return ydl_fail_memory(err, "a gatherer", sizeof *gatherer);
    gatherer->reader = ydl_reader_acquire(reader);
    gatherer->pool = pool;
    ydl_buf_init(&gatherer->pread_row, SIZE_MAX / 2);
    ydl_buf_init(&gatherer->row_copies, SIZE_MAX / 2);

    enum ydl_status status = YDL_OK;
    size_t parts = reader->part_count ? reader->part_count : 1;
    gatherer->held = calloc(parts, sizeof(struct ydl_part *));
    gatherer->held_list = calloc(parts, sizeof *gatherer->held_list);
    gatherer->fields = calloc(reader->layout.count, sizeof *gatherer->fields);
    if (!gatherer->held || !gatherer->held_list || !gatherer->fields)
        status = ydl_fail_memory(err, "a gatherer's part table", parts * sizeof(size_t));
    else if (!reader->layout.rows_vary)
        status = init_groups(gatherer, err);

    if (status == YDL_OK)
        *out = gatherer;
    else
        ydl_gatherer_free(gatherer);
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
    ydl_reader_release(gatherer->reader);
    free(gatherer->held);
    free(gatherer->held_list);
    ydl_buf_clear(&gatherer->pread_row);
    free(gatherer->rows);
    free(gatherer->copies);
    ydl_buf_clear(&gatherer->row_copies);
    free(gatherer->row_ends);
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

enum ydl_status ydl_gatherer_locate(struct ydl_gatherer *gatherer, uint64_t record,
                                    struct ydl_part **out_part, uint64_t *out_row,
                                    struct ydl_error *err)
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

enum ydl_status ydl_gatherer_verify(struct ydl_gatherer *gatherer, uint64_t record,
                                    const struct ydl_part *part, uint64_t row, const uint8_t *copy,
                                    uint64_t n, struct ydl_error *err)
{
    if (!ydl_reader_must_verify(gatherer->reader, record))
        return YDL_OK;
    if (!ydl_part_row_is_valid(part, row, copy, n))
        return ydl_part_fail_row(part, row, err);
    ydl_reader_set_verified(gatherer->reader, record);
    return YDL_OK;
}

/* Lets gatherer->rows[i] point to the row of `record`: in the map where nothing is left to check,
 * else to a copy that is as good as what is checked. */
static enum ydl_status resolve_fixed(struct ydl_gatherer *gatherer, size_t i, uint64_t record,
                                     struct ydl_error *err)
{
    uint64_t row_bytes = gatherer->reader->layout.row_bytes;
    struct ydl_part *part;
    uint64_t row;
    enum ydl_status status = ydl_gatherer_locate(gatherer, record, &part, &row, err);
    if (status != YDL_OK)
        return status;

    const uint8_t *base = ydl_part_fixed_rows(part);
    if (base && !ydl_reader_must_verify(gatherer->reader, record)) {
        gatherer->rows[i] = base + row * row_bytes;
        return YDL_OK;
    }
    const uint8_t *bytes;
    uint64_t n;
    status = ydl_part_row(part, row, &gatherer->pread_row, &bytes, &n, err);
    if (status != YDL_OK)
        return status;
    uint8_t *copy = gatherer->copies + i * row_bytes;
    memcpy(copy, bytes, (size_t)row_bytes);
    gatherer->rows[i] = copy;
    return ydl_gatherer_verify(gatherer, record, part, row, copy, row_bytes, err);
}

/* One loop for each size that a compiler turns into a single load and store. */
#define SCATTER_ITEMS(item_bytes)                                                                  \
    for (size_t i = 0; i < n; i++) {                                                               \
        if (i + PREFETCH_ROWS < n)                                                                 \
            __builtin_prefetch(rows[i + PREFETCH_ROWS] + offset);                                  \
        memcpy(to + i * (item_bytes), rows[i] + offset, (item_bytes));                             \
    }                                                                                              \
    break

static void scatter(uint8_t *to, const uint8_t *const *rows, size_t n, uint64_t offset,
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
        for (size_t i = 0; i < rows; i++) {
            enum ydl_status status = resolve_fixed(gatherer, i, numbers[start + i], err);
            if (status != YDL_OK)
                return status;
        }
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
    if (layout->rows_vary)
        status = ydl_gather_varying(gatherer, numbers, n, require_uniform, batch, err);
    else
        status = gather_fixed(gatherer, numbers, n, batch, err);
    release_parts(gatherer);

    if (status == YDL_OK)
        *out = batch;
    else
        ydl_batch_free(batch);
    return status;
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
