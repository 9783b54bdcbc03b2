#include "record/writer.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/fork.h"
#include "base/io.h"
#include "record/encode.h"
#include "record/finisher.h"
#include "record/part_writer.h"

/* Rows are interleaved component by component in blocks that stay in the second-level cache. */
#define BLOCK_BYTES ((uint64_t)128 << 10)

enum state { WRITING, COMPLETED, FAILED, FINISHED };

struct ydl_writer {
    enum state state;
    unsigned forks; /* of the process that made it */
    char *dir;      /* owned */
    struct ydl_layout layout;
    uint64_t part_bytes;
    uint64_t rows_per_part;     /* at least 1; 0 where rows vary */
    struct ydl_column *columns; /* [layout.count], owned; of the current append */
    struct ydl_part_writer part;
    struct ydl_finisher *finisher; /* owned */
    uint64_t records;
    uint64_t finished_bytes; /* of parts */

    struct ydl_written_part *parts; /* [parts_len], owned */
    size_t parts_len;
    size_t parts_capacity;
};

/* The most fixed-size rows with which a file is at most part_bytes; 1 where none fits. */
static uint64_t count_rows_per_part(const struct ydl_writer *writer)
{
    uint64_t overhead = ydl_part_writer_file_bytes(&writer->part, 0, 0);
    if (writer->part_bytes < overhead)
        return 1;
    /* The file grows by whole alignments, so what is below one cannot be used. */
    uint64_t room = (writer->part_bytes - overhead) & ~(uint64_t)(YDL_REGION_ALIGNMENT - 1);
    uint64_t rows = room / writer->layout.row_bytes;
    return rows > 0 ? rows : 1;
}

enum ydl_status ydl_writer_new(const char *dir, const uint8_t build_uuid[YDL_UUID_BYTES],
                               const struct ydl_layout *layout, uint64_t part_bytes,
                               struct ydl_writer **out, struct ydl_error *err)
{
    enum ydl_status status;
    *out = NULL;
    struct ydl_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return ydl_fail_memory(err, "a writer", sizeof *writer);
    writer->part.fd = -1;
    writer->forks = ydl_fork_count();
    writer->part_bytes = part_bytes;
    writer->dir = strdup(dir);
    writer->columns = calloc(layout->count, sizeof writer->columns[0]);
    if (!writer->dir || !writer->columns) {
        status = ydl_fail_memory(err, "a writer", layout->count * sizeof writer->columns[0]);
        goto done;
    }
    status = ydl_layout_copy(layout, &writer->layout, err);
    if (status == YDL_OK)
        status = ydl_part_writer_init(&writer->part, &writer->layout, build_uuid, err);
    if (status == YDL_OK)
        status = ydl_finisher_new(&writer->layout, build_uuid, &writer->finisher, err);
    if (status != YDL_OK)
        goto done;
    if (!writer->layout.rows_vary)
        writer->rows_per_part = count_rows_per_part(writer);
    *out = writer;
    writer = NULL;
done:
    ydl_writer_free(writer);
    return status;
}

void ydl_writer_free(struct ydl_writer *writer)
{
    if (!writer)
        return;
    if (writer->forks != ydl_fork_count()) {
        ydl_part_writer_clear(&writer->part); /* the child's copy of a descriptor; the rest may be
                                                 what the thread was looking at */
        return;
    }
    ydl_finisher_free(writer->finisher);
    ydl_part_writer_clear(&writer->part);
    ydl_layout_clear(&writer->layout);
    free(writer->columns);
    free(writer->parts);
    free(writer->dir);
    free(writer);
}

uint64_t ydl_writer_records(const struct ydl_writer *writer)
{
    return writer->records;
}

uint64_t ydl_writer_bytes(const struct ydl_writer *writer)
{
    if (!ydl_part_writer_is_open(&writer->part))
        return writer->finished_bytes;
    return writer->finished_bytes + writer->part.flushed + writer->part.pending.len;
}

const struct ydl_written_part *ydl_writer_parts(const struct ydl_writer *writer, size_t *out_count)
{
    *out_count = writer->parts_len;
    return writer->parts;
}

static enum ydl_status open_part(struct ydl_writer *writer, struct ydl_error *err)
{
    if (ydl_part_writer_is_open(&writer->part))
        return YDL_OK;
    if (writer->parts_len > UINT32_MAX)
        return ydl_fail(err, YDL_INVALID,
                        "a build of more than %zu parts: make part_bytes larger than %" PRIu64,
                        writer->parts_len, writer->part_bytes);
    return ydl_part_writer_begin(&writer->part, writer->dir, (uint32_t)writer->parts_len,
                                 writer->records, err);
}

static enum ydl_status close_part(struct ydl_writer *writer, struct ydl_error *err)
{
    if (!ydl_part_writer_is_open(&writer->part))
        return YDL_OK;
    if (writer->parts_len == writer->parts_capacity) {
        size_t capacity = writer->parts_capacity ? 2 * writer->parts_capacity : 16;
        struct ydl_written_part *grown = realloc(writer->parts, capacity * sizeof *grown);
        if (!grown)
            return ydl_fail_memory(err, "a list of parts", capacity * sizeof *grown);
        writer->parts = grown;
        writer->parts_capacity = capacity;
    }
    struct ydl_part_file file;
    enum ydl_status status = ydl_part_writer_finish(&writer->part, &file, err);
    if (status != YDL_OK)
        return status;
    writer->parts[writer->parts_len++] = file.part;
    writer->finished_bytes += file.part.bytes;
    return ydl_finisher_put(writer->finisher, &file, err);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static enum ydl_status append_fixed(struct ydl_writer *writer, uint64_t n, struct ydl_error *err)
{
    uint64_t row_bytes = writer->layout.row_bytes;
    uint64_t block_rows = row_bytes < BLOCK_BYTES ? BLOCK_BYTES / row_bytes : 1;
    enum ydl_status status = YDL_OK;
    for (uint64_t done = 0, take; status == YDL_OK && done < n; done += take) {
        take = 0;
        if (writer->part.part.records == writer->rows_per_part)
            status = close_part(writer, err);
        if (status == YDL_OK)
            status = open_part(writer, err);
        if (status != YDL_OK)
            break;
        take = min_u64(n - done, writer->rows_per_part - writer->part.part.records);
        take = min_u64(take, block_rows);
        uint8_t *rows;
        status = ydl_part_writer_reserve(&writer->part, take * row_bytes, &rows, err);
        if (status != YDL_OK)
            break;
        ydl_encode_fixed(&writer->layout, writer->columns, done, take, rows);
        ydl_part_writer_push_fixed(&writer->part, take);
        writer->records += take;
    }
    return status;
}

/* Makes sure that a part is open into which a row of so many bytes may go. */
static enum ydl_status make_room(struct ydl_writer *writer, uint64_t bytes, struct ydl_error *err)
{
    if (ydl_part_writer_is_open(&writer->part)) {
        uint64_t records = writer->part.part.records + 1;
        uint64_t rows_bytes = writer->part.rows_bytes + bytes;
        if (ydl_part_writer_file_bytes(&writer->part, records, rows_bytes) <= writer->part_bytes)
            return YDL_OK;
        enum ydl_status status = close_part(writer, err);
        if (status != YDL_OK)
            return status;
    }
    return open_part(writer, err);
}

static enum ydl_status append_varying(struct ydl_writer *writer, uint64_t n, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    for (uint64_t i = 0; status == YDL_OK && i < n; i++) {
        uint64_t bytes = 0;
        uint8_t *row;
        ydl_columns_move(&writer->layout, writer->columns, i);
        status =
            ydl_measure_varying(&writer->layout, writer->columns, writer->records, &bytes, err);
        if (status == YDL_OK)
            status = make_room(writer, bytes, err);
        if (status == YDL_OK)
            status = ydl_part_writer_reserve(&writer->part, bytes, &row, err);
        if (status != YDL_OK)
            break;
        ydl_encode_varying(&writer->layout, writer->columns, row);
        status = ydl_part_writer_push_varying(&writer->part, bytes, err);
        writer->records++;
    }
    return status;
}

static enum ydl_status check_process(const struct ydl_writer *writer, struct ydl_error *err)
{
    if (writer->forks == ydl_fork_count())
        return YDL_OK;
    return ydl_fail(err, YDL_FORKED,
                    "the writer of %s was made in another process, from which this one was forked "
                    "after %" PRIu64 " records: a build is written by one process",
                    writer->dir, writer->records);
}

static enum ydl_status check_writing(const struct ydl_writer *writer, struct ydl_error *err)
{
    if (writer->state == WRITING)
        return check_process(writer, err);
    return ydl_fail(err, YDL_CLOSED, "the writer of %s has %s after %" PRIu64 " records",
                    writer->dir, writer->state == FAILED ? "failed" : "finished", writer->records);
}

enum ydl_status ydl_writer_append(struct ydl_writer *writer, uint64_t n,
                                  const struct ydl_input *inputs, struct ydl_error *err)
{
    enum ydl_status status = check_writing(writer, err);
    if (status != YDL_OK || n == 0)
        return status;
    status = ydl_finisher_wait(writer->finisher, UINT_MAX, 0, err); /* what became of them */
    if (status == YDL_OK)
        status =
            ydl_columns_init(&writer->layout, inputs, n, writer->records, writer->columns, err);
    if (status == YDL_OK)
        status = writer->layout.rows_vary ? append_varying(writer, n, err)
                                          : append_fixed(writer, n, err);
    if (status != YDL_OK)
        writer->state = FAILED;
    return status;
}

enum ydl_status ydl_writer_wait(struct ydl_writer *writer, uint64_t timeout_ms,
                                struct ydl_error *err)
{
    if (writer->state != WRITING || writer->forks != ydl_fork_count())
        return YDL_OK;
    return ydl_finisher_wait(writer->finisher, 1, timeout_ms, err);
}

enum ydl_status ydl_writer_try_finish(struct ydl_writer *writer, uint64_t timeout_ms,
                                      struct ydl_error *err)
{
    bool is_first = writer->state != COMPLETED;
    enum ydl_status status = is_first ? check_writing(writer, err) : check_process(writer, err);
    if (status != YDL_OK)
        return status;
    writer->state = COMPLETED;
    if (is_first)
        status = close_part(writer, err);
    if (status == YDL_OK)
        status = ydl_finisher_wait(writer->finisher, 0, timeout_ms, err);
    if (status == YDL_OK)
        status = ydl_fsync_dir(writer->dir, err);
    if (status != YDL_PENDING)
        writer->state = status == YDL_OK ? FINISHED : FAILED;
    return status;
}

enum ydl_status ydl_writer_finish(struct ydl_writer *writer, struct ydl_error *err)
{
    enum ydl_status status;
    do {
        status = ydl_writer_try_finish(writer, 1000, err);
    } while (status == YDL_PENDING);
    return status;
}
