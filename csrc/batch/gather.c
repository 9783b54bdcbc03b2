#include "batch/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/copy.h"
#include "base/prefetch.h"
#include "batch/gather_varying.h"

enum {
    /* Fixed-size rows are found, checked and copied in groups that stay in a core's L2 cache. */
    GROUP_BYTES = 256 * 1024,
    MAX_GROUP_ROWS = 1024,
    /* Rows lie anywhere: so many are asked for ahead that a memory access is over when its row's
       turn comes. */
    PREFETCH_ROWS = 8,
    /* Long rows of columns that no cache of one core holds are copied past it. */
    STREAM_ROW_BYTES = 16 * 1024,
    STREAM_COLUMN_BYTES = 4 * 1024 * 1024,
};

/* One loop for each size that a compiler turns into a single load and store. */
#define SCATTER_ITEMS(item_bytes)                                                                  \
    for (size_t i = 0; i < n; i++) {                                                               \
        if (i + PREFETCH_ROWS < n)                                                                 \
            ydl_prefetch(rows[i + PREFETCH_ROWS].bytes + offset, (item_bytes));                    \
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

static void stream(uint8_t *to, const struct ydl_row *rows, size_t n, uint64_t offset,
                   uint64_t bytes)
{
    for (size_t i = 0; i < n; i++)
        ydl_copy_stream(to + i * bytes, rows[i].bytes + offset, (size_t)bytes);
    ydl_copy_stream_end();
}

static size_t rows_of_a_group(uint64_t row_bytes)
{
    uint64_t rows = GROUP_BYTES / row_bytes;
    return rows < 1 ? 1 : rows > MAX_GROUP_ROWS ? MAX_GROUP_ROWS : (size_t)rows;
}

static enum ydl_status gather_fixed(struct ydl_finder *finder, struct ydl_pool *pool,
                                    const uint64_t *numbers, uint64_t n, struct ydl_batch *batch,
                                    struct ydl_error *err)
{
    const struct ydl_layout *layout = &finder->reader->layout;
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
            ydl_pool_take(pool, (size_t)column->data_bytes, &column->data, err);
        if (status != YDL_OK)
            return status;
    }

    size_t group_rows = rows_of_a_group(layout->row_bytes);
    for (uint64_t start = 0; start < n; start += group_rows) {
        uint64_t left = n - start;
        size_t rows = left < group_rows ? (size_t)left : group_rows;
        enum ydl_status status = ydl_finder_find(finder, numbers + start, rows, err);
        if (status != YDL_OK)
            return status;
        for (uint32_t c = 0; c < layout->count; c++) {
            const struct ydl_component *component = &layout->components[c];
            const struct ydl_column *column = &batch->columns[c];
            const bool is_long =
                component->bytes >= STREAM_ROW_BYTES && column->data_bytes >= STREAM_COLUMN_BYTES;
            (is_long ? stream : scatter)(column->data->data + start * component->bytes,
                                         finder->rows, rows, component->offset, component->bytes);
        }
    }
    return YDL_OK;
}

enum ydl_status ydl_gather(struct ydl_finder *finder, struct ydl_pool *pool,
                           const uint64_t *numbers, uint64_t n, bool require_uniform,
                           struct ydl_batch **out, struct ydl_error *err)
{
    const struct ydl_layout *layout = &finder->reader->layout;
    struct ydl_batch *batch = calloc(1, sizeof *batch + layout->count * sizeof *batch->columns);
    if (!batch)
        return ydl_fail_memory(err, "a batch", layout->count * sizeof *batch->columns);
    batch->records = n;
    batch->count = layout->count;

    enum ydl_status status;
    if (layout->rows_vary)
        status = ydl_gather_varying(finder, pool, numbers, n, require_uniform, batch, err);
    else
        status = gather_fixed(finder, pool, numbers, n, batch, err);
    if (ydl_finder_check(finder, err) != YDL_OK)
        status = err->status;
    ydl_finder_release(finder);

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
