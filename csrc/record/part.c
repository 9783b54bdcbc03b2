#include "record/part.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/map.h"
#include "base/prefetch.h"
#include "record/part_meta.h"

_Static_assert(sizeof(size_t) == sizeof(uint64_t),
               "parts of any size are mapped and buffered whole");

/* What verify reads at once where a part is not mapped: enough for a network file system's
 * read-ahead, small enough for the second-level cache. */
#define VERIFY_BYTES ((uint64_t)1 << 20)

/* What one hint asks for: a kernel reads no more of a longer one than the larger of its read-ahead
 * (128 KiB unless configured) and what the disk takes in one request. */
#define WANT_BYTES ((uint64_t)128 << 10)

struct ydl_part {
    char *path; /* owned */
    uint64_t number;
    uint64_t first_record;
    uint64_t records;
    uint64_t row_bytes;   /* 0 where rows vary */
    uint64_t rows_offset; /* in the file */
    uint64_t rows_bytes;
    uint64_t seed; /* of the rows' checksums */

    uint64_t bytes;       /* of the file */
    int fd;               /* pread only; else -1 */
    struct ydl_map *map;  /* mmap only: the whole file; else NULL */
    const uint8_t *file;  /* the map's bytes, or NULL */
    const uint8_t *index; /* varying rows only: u64 ends, in the map or owned_index */
    uint8_t *owned_index; /* pread only */
    atomic_bool expects_random;
};

static enum ydl_status open_file(struct ydl_part *part, uint64_t bytes, struct ydl_error *err)
{
    struct stat st;
    /* O_NONBLOCK: a FIFO in the file's place would hang here otherwise; regular files ignore it. */
    part->fd = ydl_open(part->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    /* A symbolic link; a socket. */
    if (part->fd < 0 && (errno == ELOOP || errno == ENXIO))
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path, "is not a regular file");
    if (part->fd < 0)
        return ydl_fail_os(err, errno, part->path, "cannot open part file %s", part->path);
    if (fstat(part->fd, &st) != 0)
        return ydl_fail_os(err, errno, part->path, "cannot stat part file %s", part->path);
    if (!S_ISREG(st.st_mode))
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path, "is not a regular file");
    if ((uint64_t)st.st_size != bytes)
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                               "has %" PRIu64 " bytes, but the manifest says %" PRIu64,
                               (uint64_t)st.st_size, bytes);
    return YDL_OK;
}

static enum ydl_status map_file(struct ydl_part *part, struct ydl_error *err)
{
    enum ydl_status status = ydl_map_new(part->fd, part->bytes, part->path, &part->map, err);
    if (status != YDL_OK)
        return status;
    part->file = ydl_map_bytes(part->map);
    close(part->fd); /* only read from */
    part->fd = -1;
    return YDL_OK;
}

/* The file's last byte goes with every cut: to a fault, which puts zeros there, or to 0. */
static bool ends_like_a_part(const struct ydl_part *part)
{
    const volatile uint8_t *last = part->file + part->bytes - 1;
    return *last == (uint8_t)YDL_TAIL_MAGIC[7];
}

/* A map cannot tell a disk or server that fails from a file that was cut; reading can. */
static enum ydl_status read_through(const struct ydl_part *part, struct ydl_error *err)
{
    uint8_t *bytes = malloc(VERIFY_BYTES);
    int fd = ydl_open(part->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    enum ydl_status status = YDL_OK;
    if (!bytes)
        status = ydl_fail_memory(err, "reading a part", VERIFY_BYTES);
    else if (fd < 0)
        status = ydl_fail_os(err, errno, part->path, "cannot open part file %s", part->path);
    for (uint64_t at = 0; status == YDL_OK && at < part->bytes; at += VERIFY_BYTES) {
        uint64_t n = part->bytes - at < VERIFY_BYTES ? part->bytes - at : VERIFY_BYTES;
        status = ydl_pread_all(fd, bytes, (size_t)n, at, part->path, err);
    }
    if (fd >= 0)
        close(fd);
    free(bytes);
    return status;
}

enum ydl_status ydl_part_check_whole(const struct ydl_part *part, struct ydl_error *err)
{
    /* In this order: the first keeps the copy's loads before the second's. */
    if (!part->map || (!ydl_map_is_damaged(part->map) && ends_like_a_part(part)))
        return YDL_OK;
    struct stat st;
    if (stat(part->path, &st) != 0)
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                               "was cut short while it was open, and removed: expected %" PRIu64
                               " bytes",
                               part->bytes);
    uint64_t now = st.st_size < 0 ? 0 : (uint64_t)st.st_size;
    if (now >= part->bytes && read_through(part, err) == YDL_OS)
        return err->status;
    if (now >= part->bytes)
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                               "could not be read while it was open: either the disk failed, or "
                               "the file was cut short and now has %" PRIu64 " bytes again",
                               now);
    return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                           "was truncated while it was open: %" PRIu64
                           " bytes are missing, expected %" PRIu64 " and found %" PRIu64,
                           part->bytes - now, part->bytes, now);
}

static enum ydl_status load_index(struct ydl_part *part, const struct ydl_part_meta *meta,
                                  struct ydl_error *err)
{
    if (part->map) {
        part->index = part->file + meta->index_offset;
    } else {
        part->owned_index = malloc(meta->index_bytes); /* no more than the file has */
        if (!part->owned_index)
            return ydl_fail_memory(err, "a part's index", meta->index_bytes);
        part->index = part->owned_index;
        enum ydl_status status = ydl_pread_all(part->fd, part->owned_index, meta->index_bytes,
                                               meta->index_offset, part->path, err);
        if (status != YDL_OK)
            return status;
    }
    uint64_t hash = ydl_hash(part->index, meta->index_bytes);
    if (hash != meta->index_hash && ydl_part_check_whole(part, err) != YDL_OK)
        return err->status;
    if (hash != meta->index_hash)
        return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                               "the index's hash is %016" PRIx64 " instead of %016" PRIx64, hash,
                               meta->index_hash);
    return YDL_OK;
}

/* Where a row lies, counted from the start of the rows. Varying rows: looked at on every use and
 * not only when the part is opened, because a mapped index may change under us. */
static inline bool find_row(const struct ydl_part *part, uint64_t row, uint64_t *out_start,
                            uint64_t *out_n)
{
    if (!part->index) {
        *out_start = row * part->row_bytes;
        *out_n = part->row_bytes;
        return true;
    }
    uint64_t start = row == 0 ? 0 : ydl_load_u64(part->index + 8 * (row - 1));
    uint64_t end = ydl_load_u64(part->index + 8 * row);
    if (end > part->rows_bytes || start > end || end - start < YDL_CHECKSUM_BYTES)
        return false;
    *out_start = start;
    *out_n = end - start;
    return true;
}

static enum ydl_status fail_index(const struct ydl_part *part, uint64_t row, struct ydl_error *err)
{
    enum ydl_status status = ydl_part_check_whole(part, err);
    if (status != YDL_OK)
        return status;
    return ydl_part_refuse(err, YDL_CORRUPT_CACHE, part->path,
                           "the index says that row %" PRIu64 " of %" PRIu64 " ends at %" PRIu64
                           " of %" PRIu64 " bytes",
                           row, part->records, ydl_load_u64(part->index + 8 * row),
                           part->rows_bytes);
}

static enum ydl_status check_index(const struct ydl_part *part, struct ydl_error *err)
{
    uint64_t start = 0;
    uint64_t n = 0;
    for (uint64_t row = 0; row < part->records; row++) {
        if (!find_row(part, row, &start, &n))
            return fail_index(part, row, err);
    }
    if (start + n != part->rows_bytes)
        return fail_index(part, part->records - 1, err);
    return YDL_OK;
}

enum ydl_status ydl_part_open(const struct ydl_part_info *info, const struct ydl_layout *layout,
                              enum ydl_access access, struct ydl_part **out, struct ydl_error *err)
{
    enum ydl_status status;
    struct ydl_part_meta meta;
    *out = NULL;
    struct ydl_part *part = calloc(1, sizeof *part);
    if (!part)
        return ydl_fail_memory(err, "a part", sizeof *part);
    part->fd = -1;
    part->path = strdup(info->path);
    if (!part->path) {
        status = ydl_fail_memory(err, "a part's path", strlen(info->path));
        goto done;
    }
    part->number = info->number;
    part->first_record = info->first_record;
    part->records = info->records;
    part->bytes = info->bytes;
    part->row_bytes = layout->row_bytes;
    part->seed = ydl_part_seed(info->build_uuid, info->number);

    status = open_file(part, info->bytes, err);
    if (status == YDL_OK)
        status = ydl_part_meta_read(part->fd, info, layout, &meta, err);
    if (status != YDL_OK)
        goto done;
    part->rows_offset = meta.rows_offset;
    part->rows_bytes = meta.rows_bytes;
    if (access == YDL_ACCESS_MMAP)
        status = map_file(part, err);
    if (status == YDL_OK && layout->rows_vary)
        status = load_index(part, &meta, err);
    if (status == YDL_OK && layout->rows_vary)
        status = check_index(part, err);
    if (status == YDL_OK)
        status = ydl_part_check_whole(part, err);
    if (status != YDL_OK)
        goto done;
    *out = part;
    part = NULL;
done:
    ydl_part_close(part);
    return status;
}

void ydl_part_close(struct ydl_part *part)
{
    if (!part)
        return;
    ydl_map_free(part->map);
    if (part->fd >= 0)
        close(part->fd);
    free(part->owned_index);
    free(part->path);
    free(part);
}

uint64_t ydl_part_records(const struct ydl_part *part)
{
    return part->records;
}

const char *ydl_part_path(const struct ydl_part *part)
{
    return part->path;
}

bool ydl_part_is_mapped(const struct ydl_part *part)
{
    return part->file != NULL;
}

void ydl_part_prefetch(const struct ydl_part *part, uint64_t row)
{
    if (part->index) {
        ydl_prefetch(part->index + 8 * row, 8);
    } else if (part->file) {
        ydl_prefetch(part->file + part->rows_offset + row * part->row_bytes, part->row_bytes);
    }
}

void ydl_part_prefetch_near(const struct ydl_part *part, uint64_t row)
{
    uint64_t start, n;
    if (part->file && find_row(part, row, &start, &n))
        ydl_prefetch_near(part->file + part->rows_offset + start, n);
}

uint64_t ydl_part_bytes(const struct ydl_part *part)
{
    return part->bytes;
}

bool ydl_part_row_span(const struct ydl_part *part, uint64_t row, uint64_t *out_offset,
                       uint64_t *out_n)
{
    uint64_t start;
    if (row >= part->records || !find_row(part, row, &start, out_n))
        return false;
    *out_offset = part->rows_offset + start;
    return true;
}

void ydl_part_want(const struct ydl_part *part, uint64_t offset, uint64_t n)
{
    assert(offset <= part->bytes && n <= part->bytes - offset);
    for (uint64_t at = offset; at < offset + n; at += WANT_BYTES) {
        uint64_t left = offset + n - at;
        uint64_t bytes = left < WANT_BYTES ? left : WANT_BYTES;
        if (part->map)
            ydl_map_want(part->map, at, bytes);
        else
            (void)posix_fadvise(part->fd, (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
    }
}

void ydl_part_await(const struct ydl_part *part, uint64_t offset)
{
    assert(offset < part->bytes);
    uint8_t byte;
    if (part->file)
        (void)*(const volatile uint8_t *)(part->file + offset);
    else
        (void)!pread(part->fd, &byte, 1, (off_t)offset);
}

void ydl_part_expect_random(struct ydl_part *part)
{
    if (atomic_exchange_explicit(&part->expects_random, true, memory_order_relaxed))
        return;
    if (part->map)
        ydl_map_expect_random(part->map);
    else
        (void)posix_fadvise(part->fd, 0, 0, POSIX_FADV_RANDOM);
}

enum ydl_status ydl_part_row(const struct ydl_part *part, uint64_t row, struct ydl_buf *scratch,
                             const uint8_t **out_bytes, uint64_t *out_n, struct ydl_error *err)
{
    assert(row < part->records);
    uint64_t start;
    uint64_t n;
    if (!find_row(part, row, &start, &n))
        return fail_index(part, row, err);
    if (part->file) {
        *out_bytes = part->file + part->rows_offset + start;
        *out_n = n;
        return YDL_OK;
    }
    scratch->len = 0;
    enum ydl_status status = ydl_buf_reserve(scratch, n, err);
    if (status == YDL_OK)
        status =
            ydl_pread_all(part->fd, scratch->data, n, part->rows_offset + start, part->path, err);
    if (status != YDL_OK)
        return status;
    scratch->len = n;
    *out_bytes = scratch->data;
    *out_n = n;
    return YDL_OK;
}

bool ydl_part_row_is_valid(const struct ydl_part *part, uint64_t row, const uint8_t *bytes,
                           uint64_t n)
{
    if (n < YDL_CHECKSUM_BYTES)
        return false;
    uint64_t body_bytes = n - YDL_CHECKSUM_BYTES;
    return ydl_load_u32(bytes + body_bytes) == ydl_row_checksum(bytes, body_bytes, part->seed, row);
}

enum ydl_status ydl_part_fail_row(const struct ydl_part *part, uint64_t row, struct ydl_error *err)
{
    uint64_t start = 0;
    uint64_t n = 0;
    if (!find_row(part, row, &start, &n))
        return fail_index(part, row, err);
    enum ydl_status status = ydl_part_check_whole(part, err);
    if (status != YDL_OK)
        return status;
    return ydl_part_refuse(
        err, YDL_CORRUPT_RECORD, part->path,
        "record %" PRIu64 " (row %" PRIu64 " of part %" PRIu64 ", %" PRIu64
        " bytes at offset %" PRIu64
        ") does not match its checksum: the file was damaged after it was written",
        part->first_record + row, row, part->number, n, part->rows_offset + start);
}

/* Rows one after another: all of them where they are mapped, else a window that moves on. */
struct window {
    const uint8_t *bytes;
    uint64_t start; /* counted from the start of the rows */
    uint64_t end;
    struct ydl_buf buf; /* behind bytes; empty where mapped */
};

static enum ydl_status move_window(const struct ydl_part *part, struct window *window,
                                   uint64_t start, uint64_t n, struct ydl_error *err)
{
    uint64_t left = part->rows_bytes - start;
    /* Whole rows where they have one size: what is cut off is read again with the next window. */
    uint64_t bytes = n < VERIFY_BYTES ? VERIFY_BYTES / n * n : n;
    if (bytes > left)
        bytes = left;
    enum ydl_status status = ydl_buf_reserve(&window->buf, bytes, err);
    if (status == YDL_OK)
        status = ydl_pread_all(part->fd, window->buf.data, bytes, part->rows_offset + start,
                               part->path, err);
    window->bytes = window->buf.data;
    window->start = start;
    window->end = start + bytes;
    return status;
}

enum ydl_status ydl_part_verify(const struct ydl_part *part, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    struct window window = {0};
    ydl_buf_init(&window.buf, SIZE_MAX);
    if (part->file) {
        window.bytes = part->file + part->rows_offset;
        window.end = part->rows_bytes;
    }
    for (uint64_t row = 0; status == YDL_OK && row < part->records; row++) {
        uint64_t start;
        uint64_t n;
        if (!find_row(part, row, &start, &n)) {
            status = fail_index(part, row, err);
            break;
        }
        if (start + n > window.end)
            status = move_window(part, &window, start, n, err);
        if (status == YDL_OK &&
            !ydl_part_row_is_valid(part, row, window.bytes + (start - window.start), n))
            status = ydl_part_fail_row(part, row, err);
    }
    if (status == YDL_OK)
        status = ydl_part_check_whole(part, err);
    ydl_buf_clear(&window.buf);
    return status;
}
