#include "record/part_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/io.h"

/* Large enough that a write() costs little beside the copy it makes, and that network file systems
 * get requests of full size; small enough that the copy reads from the second-level cache (4 MiB
 * took a fifth more time). */
#define PENDING_BYTES ((size_t)1 << 20)

/* The file's hash follows the encoder this closely, so that it reads what is still in the cache;
 * more often would cost more calls. */
#define HASH_STEP_BYTES ((size_t)128 << 10)

/* The disk begins to work while rows are still made, so that little is left to do when the file is
 * flushed. Large enough that each piece goes to the disk in long runs. */
#define WRITEBACK_BYTES ((uint64_t)8 << 20)

enum {
    MAX_TABLE_BYTES = 3 * YDL_REGION_ENTRY_BYTES, /* rows, index, layout */
    /* What may come behind a full pending buffer without being reserved. */
    MAX_TAIL_BYTES = 3 * YDL_REGION_ALIGNMENT + MAX_TABLE_BYTES + YDL_TRAILER_BYTES,
};

static uint64_t align_region(uint64_t offset)
{
    return (offset + YDL_REGION_ALIGNMENT - 1) & ~(uint64_t)(YDL_REGION_ALIGNMENT - 1);
}

static uint32_t region_count(const struct ydl_part_writer *writer)
{
    return writer->layout->rows_vary ? 3 : 2;
}

enum ydl_status ydl_part_writer_init(struct ydl_part_writer *writer,
                                     const struct ydl_layout *layout,
                                     const uint8_t build_uuid[YDL_UUID_BYTES],
                                     struct ydl_error *err)
{
    *writer = (struct ydl_part_writer){.layout = layout, .fd = -1};
    memcpy(writer->build_uuid, build_uuid, YDL_UUID_BYTES);
    ydl_buf_init(&writer->layout_region, SIZE_MAX);
    ydl_buf_init(&writer->pending, SIZE_MAX);
    ydl_buf_init(&writer->index, SIZE_MAX);
    return ydl_layout_encode(layout, &writer->layout_region, err);
}

void ydl_part_file_clear(struct ydl_part_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    *file = YDL_PART_FILE_NONE;
}

static void end_part(struct ydl_part_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    writer->fd = -1;
    free(writer->path);
    writer->path = NULL;
    ydl_hasher_free(writer->hasher);
    writer->hasher = NULL;
}

void ydl_part_writer_clear(struct ydl_part_writer *writer)
{
    end_part(writer);
    ydl_buf_clear(&writer->layout_region);
    ydl_buf_clear(&writer->pending);
    ydl_buf_clear(&writer->index);
}

static void encode_header(struct ydl_part_writer *writer, uint32_t number, uint64_t first_record)
{
    uint8_t *header = writer->header;
    memset(header, 0, YDL_HEADER_BYTES); /* feature flags: none */
    memcpy(header, YDL_HEAD_MAGIC, 8);
    ydl_store_u32(header + 8, YDL_FORMAT_VERSION);
    memcpy(header + 24, writer->build_uuid, YDL_UUID_BYTES);
    ydl_store_u64(header + 40, number);
    ydl_store_u64(header + 48, first_record);
    ydl_store_u64(header + 56, ydl_hash(header, 56));
}

enum ydl_status ydl_part_writer_begin(struct ydl_part_writer *writer, const char *dir,
                                      uint32_t number, uint64_t first_record, struct ydl_error *err)
{
    assert(writer->fd < 0 && !writer->path);
    writer->number = number;
    writer->part = (struct ydl_written_part){.first_record = first_record};
    snprintf(writer->part.name, sizeof writer->part.name, "%05" PRIu32 ".ydl", number);
    writer->seed = ydl_part_seed(writer->build_uuid, number);
    writer->flushed = 0;
    writer->on_its_way = 0;
    writer->pending.len = 0;
    writer->hashed = 0;
    writer->rows_bytes = 0;
    writer->index.len = 0;
    encode_header(writer, number, first_record);

    writer->path = ydl_join_path(dir, writer->part.name);
    writer->hasher = ydl_hasher_new();
    if (!writer->path || !writer->hasher)
        return ydl_fail_memory(err, "a part file's state", strlen(dir) + 1024);
    enum ydl_status status = ydl_buf_reserve(&writer->pending, PENDING_BYTES + MAX_TAIL_BYTES, err);
    if (status != YDL_OK)
        return status;
    int dir_fd;
    status = ydl_directory_open(dir, YDL_DIRECTORY_NAMES, &dir_fd, err);
    if (status != YDL_OK)
        return status;
    /* O_EXCL and O_NOFOLLOW: the directory belongs to this build alone, so whatever is there
     * already is somebody's mistake and is not written into. */
    writer->fd = ydl_openat(dir_fd, writer->part.name,
                            O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0666);
    int open_errno = errno;
    close(dir_fd);
    if (writer->fd < 0)
        return ydl_fail_os(err, open_errno, writer->path, "cannot create part file %s",
                           writer->path);
    return ydl_buf_append(&writer->pending, writer->header, YDL_HEADER_BYTES, err);
}

uint64_t ydl_part_writer_file_bytes(const struct ydl_part_writer *writer, uint64_t records,
                                    uint64_t rows_bytes)
{
    uint64_t end = align_region(YDL_HEADER_BYTES + rows_bytes);
    if (writer->layout->rows_vary)
        end = align_region(end + 8 * records);
    end = align_region(end + writer->layout_region.len);
    return end + region_count(writer) * YDL_REGION_ENTRY_BYTES + YDL_TRAILER_BYTES;
}

static void hash_pending(struct ydl_part_writer *writer)
{
    ydl_hasher_update(writer->hasher, writer->pending.data + writer->hashed,
                      writer->pending.len - writer->hashed);
    writer->hashed = writer->pending.len;
}

static enum ydl_status flush_pending(struct ydl_part_writer *writer, struct ydl_error *err)
{
    hash_pending(writer);
    enum ydl_status status =
        ydl_write_all(writer->fd, writer->pending.data, writer->pending.len, writer->path, err);
    writer->flushed += writer->pending.len;
    writer->pending.len = 0;
    writer->hashed = 0;
    if (status != YDL_OK || writer->flushed - writer->on_its_way < WRITEBACK_BYTES)
        return status;
    status = ydl_start_writeback(writer->fd, writer->on_its_way,
                                 writer->flushed - writer->on_its_way, writer->path, err);
    writer->on_its_way = writer->flushed;
    return status;
}

enum ydl_status ydl_part_writer_reserve(struct ydl_part_writer *writer, uint64_t bytes,
                                        uint8_t **out, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    if (writer->pending.len > 0 && writer->pending.len + bytes > PENDING_BYTES)
        status = flush_pending(writer, err);
    if (status == YDL_OK) /* grows for rows larger than PENDING_BYTES only */
        status = ydl_buf_reserve(&writer->pending, bytes, err);
    *out = writer->pending.data + writer->pending.len;
    return status;
}

static void push(struct ydl_part_writer *writer, uint64_t records, uint64_t bytes)
{
    assert(bytes <= writer->pending.capacity - writer->pending.len);
    writer->pending.len += bytes;
    writer->rows_bytes += bytes;
    writer->part.records += records;
    if (writer->pending.len - writer->hashed >= HASH_STEP_BYTES)
        hash_pending(writer);
}

void ydl_part_writer_push_fixed(struct ydl_part_writer *writer, uint64_t n)
{
    uint64_t row_bytes = writer->layout->row_bytes;
    uint64_t body_bytes = row_bytes - YDL_CHECKSUM_BYTES;
    uint8_t *row = writer->pending.data + writer->pending.len;
    for (uint64_t i = 0; i < n; i++, row += row_bytes)
        ydl_store_u32(row + body_bytes,
                      ydl_row_checksum(row, body_bytes, writer->seed, writer->part.records + i));
    push(writer, n, n * row_bytes);
}

enum ydl_status ydl_part_writer_push_varying(struct ydl_part_writer *writer, uint64_t bytes,
                                             struct ydl_error *err)
{
    uint64_t body_bytes = bytes - YDL_CHECKSUM_BYTES;
    uint8_t *row = writer->pending.data + writer->pending.len;
    ydl_store_u32(row + body_bytes,
                  ydl_row_checksum(row, body_bytes, writer->seed, writer->part.records));
    push(writer, 1, bytes);
    return ydl_buf_append_u64(&writer->index, writer->rows_bytes, err);
}

/* Zero bytes up to the next multiple of YDL_REGION_ALIGNMENT in the file. */
static enum ydl_status pad_region(struct ydl_part_writer *writer, struct ydl_error *err)
{
    static const uint8_t zeros[YDL_REGION_ALIGNMENT];
    uint64_t at = writer->flushed + writer->pending.len;
    return ydl_buf_append(&writer->pending, zeros, align_region(at) - at, err);
}

/* Writes one region behind the rows, larger than pending as it may be, and its table entry. */
static enum ydl_status put_region(struct ydl_part_writer *writer, uint32_t type,
                                  const struct ydl_buf *region, uint8_t *entry,
                                  struct ydl_error *err)
{
    ydl_store_u32(entry, type);
    ydl_store_u32(entry + 4, YDL_REGION_REQUIRED);
    ydl_store_u64(entry + 8, writer->flushed + writer->pending.len);
    ydl_store_u64(entry + 16, region->len);
    ydl_store_u64(entry + 24, ydl_hash(region->data, region->len));

    enum ydl_status status = YDL_OK;
    for (size_t at = 0, n; status == YDL_OK && at < region->len; at += n) {
        n = region->len - at < PENDING_BYTES ? region->len - at : PENDING_BYTES;
        uint8_t *to;
        status = ydl_part_writer_reserve(writer, n, &to, err);
        if (status == YDL_OK)
            status = ydl_buf_append(&writer->pending, region->data + at, n, err);
    }
    return status == YDL_OK ? pad_region(writer, err) : status;
}

static enum ydl_status put_table_and_trailer(struct ydl_part_writer *writer, const uint8_t *table,
                                             struct ydl_error *err)
{
    size_t table_bytes = region_count(writer) * YDL_REGION_ENTRY_BYTES;
    uint64_t table_offset = writer->flushed + writer->pending.len;
    uint8_t trailer[YDL_TRAILER_BYTES] = {0};
    memcpy(trailer, writer->build_uuid, YDL_UUID_BYTES);
    ydl_store_u64(trailer + 16, writer->part.records);
    ydl_store_u64(trailer + 24, table_offset);
    ydl_store_u32(trailer + 32, region_count(writer));
    ydl_store_u64(trailer + 40, table_offset + table_bytes + YDL_TRAILER_BYTES);
    memcpy(trailer + 56, YDL_TAIL_MAGIC, 8);

    uint8_t hashed[YDL_HEADER_BYTES + MAX_TABLE_BYTES + 48];
    memcpy(hashed, writer->header, YDL_HEADER_BYTES);
    memcpy(hashed + YDL_HEADER_BYTES, table, table_bytes);
    memcpy(hashed + YDL_HEADER_BYTES + table_bytes, trailer, 48);
    ydl_store_u64(trailer + 48, ydl_hash(hashed, YDL_HEADER_BYTES + table_bytes + 48));

    enum ydl_status status = ydl_buf_append(&writer->pending, table, table_bytes, err);
    if (status == YDL_OK)
        status = ydl_buf_append(&writer->pending, trailer, sizeof trailer, err);
    return status;
}

enum ydl_status ydl_part_writer_finish(struct ydl_part_writer *writer, struct ydl_part_file *out,
                                       struct ydl_error *err)
{
    assert(writer->fd >= 0 && writer->part.records > 0);
    uint8_t table[MAX_TABLE_BYTES] = {0};
    uint8_t *entry = table;
    ydl_store_u32(entry, YDL_REGION_ROWS); /* its hash stays 0 */
    ydl_store_u32(entry + 4, YDL_REGION_REQUIRED);
    ydl_store_u64(entry + 8, YDL_HEADER_BYTES);
    ydl_store_u64(entry + 16, writer->rows_bytes);
    entry += YDL_REGION_ENTRY_BYTES;

    enum ydl_status status = pad_region(writer, err);
    if (status == YDL_OK && writer->layout->rows_vary) {
        status = put_region(writer, YDL_REGION_INDEX, &writer->index, entry, err);
        entry += YDL_REGION_ENTRY_BYTES;
    }
    if (status == YDL_OK)
        status = put_region(writer, YDL_REGION_LAYOUT, &writer->layout_region, entry, err);
    if (status == YDL_OK)
        status = put_table_and_trailer(writer, table, err);
    if (status == YDL_OK)
        status = flush_pending(writer, err);
    if (status != YDL_OK)
        return status;

    writer->part.bytes = writer->flushed;
    writer->part.hash = ydl_hasher_digest(writer->hasher);
    *out = (struct ydl_part_file){writer->fd, writer->path, writer->number, writer->part};
    writer->fd = -1;
    writer->path = NULL;
    end_part(writer);
    return YDL_OK;
}
