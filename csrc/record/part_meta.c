#include "record/part_meta.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

enum {
    MAX_TABLE_BYTES = YDL_MAX_REGIONS * YDL_REGION_ENTRY_BYTES,
    TRAILER_HASHED_BYTES = 48,
    /* What ydl_layout_parse could accept at most: bounds what is allocated for it. */
    MAX_LAYOUT_BYTES = 24 + YDL_MAX_COMPONENTS * (32 + 8 * YDL_MAX_RANK),
};

struct region {
    uint32_t type;
    uint32_t flags;
    uint64_t offset;
    uint64_t bytes;
    uint64_t hash;
};

/* A part while it is being checked. */
struct check {
    int fd;
    const struct ydl_part_info *info;
    const struct ydl_layout *layout; /* of the dataset */
    uint8_t header[YDL_HEADER_BYTES];
    uint8_t trailer[YDL_TRAILER_BYTES];
    uint8_t table[MAX_TABLE_BYTES];
    uint32_t entries;
    uint64_t table_offset;
    struct region rows, index, layout_region; /* type 0 where not found */
};

enum ydl_status ydl_part_refuse(struct ydl_error *err, enum ydl_status status, const char *path,
                                const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* A long path must not push the text out: it is whole in err->path. */
    ydl_fail(err, status, "part file %.480s: %s", path, text);
    return ydl_fail_at(err, path);
}

#define CORRUPT(check, err, ...)                                                                   \
    ydl_part_refuse(err, YDL_CORRUPT_CACHE, (check)->info->path, __VA_ARGS__)
#define UNSUPPORTED(check, err, ...)                                                               \
    ydl_part_refuse(err, YDL_UNSUPPORTED, (check)->info->path, __VA_ARGS__)

static enum ydl_status check_header(const struct check *check, struct ydl_error *err)
{
    const uint8_t *header = check->header;
    const struct ydl_part_info *info = check->info;
    if (memcmp(header, YDL_HEAD_MAGIC, 8) != 0)
        return CORRUPT(check, err, "does not begin like a part file");
    uint64_t hash = ydl_hash(header, 56);
    if (ydl_load_u64(header + 56) != hash)
        return CORRUPT(check, err, "the header's hash is %016" PRIx64 " instead of %016" PRIx64,
                       hash, ydl_load_u64(header + 56));
    if (ydl_load_u32(header + 8) != YDL_FORMAT_VERSION)
        return UNSUPPORTED(
            check, err, "has format version %u; this version of ydl reads version %d: update ydl",
            ydl_load_u32(header + 8), YDL_FORMAT_VERSION);
    if (ydl_load_u32(header + 12) != 0)
        return UNSUPPORTED(
            check, err, "needs features %#x, which this version of ydl does not know: update ydl",
            ydl_load_u32(header + 12));
    if (ydl_load_u32(header + 20) != 0)
        return CORRUPT(check, err, "a reserved field of the header is %u",
                       ydl_load_u32(header + 20));
    if (memcmp(header + 24, info->build_uuid, YDL_UUID_BYTES) != 0)
        return CORRUPT(check, err, "belongs to another build than the manifest says");
    if (ydl_load_u64(header + 40) != info->number ||
        ydl_load_u64(header + 48) != info->first_record)
        return CORRUPT(check, err,
                       "is part %" PRIu64 " from record %" PRIu64
                       ", but the manifest says part %" PRIu64 " from record %" PRIu64,
                       ydl_load_u64(header + 40), ydl_load_u64(header + 48), info->number,
                       info->first_record);
    return YDL_OK;
}

/* Takes from the trailer where the table is, after which the table can be read. */
static enum ydl_status check_trailer_place(struct check *check, struct ydl_error *err)
{
    const uint8_t *trailer = check->trailer;
    uint64_t bytes = check->info->bytes;
    if (memcmp(trailer + 56, YDL_TAIL_MAGIC, 8) != 0)
        return CORRUPT(check, err, "is incomplete: it does not end like a part file");
    if (ydl_load_u64(trailer + 40) != bytes)
        return CORRUPT(check, err, "has %" PRIu64 " bytes, but its trailer says %" PRIu64, bytes,
                       ydl_load_u64(trailer + 40));
    check->table_offset = ydl_load_u64(trailer + 24);
    check->entries = ydl_load_u32(trailer + 32);
    uint64_t end;
    if (check->entries > YDL_MAX_REGIONS || check->table_offset < YDL_HEADER_BYTES ||
        !ydl_add_u64(check->table_offset, check->entries * (uint64_t)YDL_REGION_ENTRY_BYTES,
                     &end) ||
        end != bytes - YDL_TRAILER_BYTES)
        return CORRUPT(check, err,
                       "a region table of %u entries at offset %" PRIu64
                       " does not end where the trailer begins, at %" PRIu64,
                       check->entries, check->table_offset, bytes - YDL_TRAILER_BYTES);
    return YDL_OK;
}

static enum ydl_status check_metadata_hash(const struct check *check, struct ydl_error *err)
{
    uint8_t bytes[YDL_HEADER_BYTES + MAX_TABLE_BYTES + TRAILER_HASHED_BYTES];
    size_t table_bytes = check->entries * (size_t)YDL_REGION_ENTRY_BYTES;
    memcpy(bytes, check->header, YDL_HEADER_BYTES);
    memcpy(bytes + YDL_HEADER_BYTES, check->table, table_bytes);
    memcpy(bytes + YDL_HEADER_BYTES + table_bytes, check->trailer, TRAILER_HASHED_BYTES);
    uint64_t hash = ydl_hash(bytes, YDL_HEADER_BYTES + table_bytes + TRAILER_HASHED_BYTES);
    if (hash != ydl_load_u64(check->trailer + 48))
        return CORRUPT(check, err, "the metadata's hash is %016" PRIx64 " instead of %016" PRIx64,
                       hash, ydl_load_u64(check->trailer + 48));
    return YDL_OK;
}

static enum ydl_status check_trailer(const struct check *check, struct ydl_error *err)
{
    const uint8_t *trailer = check->trailer;
    uint64_t records = ydl_load_u64(trailer + 16);
    uint64_t end;
    if (memcmp(trailer, check->header + 24, YDL_UUID_BYTES) != 0)
        return CORRUPT(check, err, "header and trailer belong to different builds");
    if (ydl_load_u32(trailer + 36) != 0)
        return CORRUPT(check, err, "a reserved field of the trailer is %u",
                       ydl_load_u32(trailer + 36));
    if (records == 0 || records != check->info->records)
        return CORRUPT(check, err, "has %" PRIu64 " records, but the manifest says %" PRIu64,
                       records, check->info->records);
    if (!ydl_add_u64(check->info->first_record, records, &end))
        return CORRUPT(check, err,
                       "%" PRIu64 " records from record %" PRIu64 " do not fit into 2^64", records,
                       check->info->first_record);
    return YDL_OK;
}

/* Bytes between regions are covered by no hash: they must be zero, so that whatever changes in a
 * file is noticed. */
static enum ydl_status check_zeros(const struct check *check, uint64_t from, uint64_t until,
                                   struct ydl_error *err)
{
    uint8_t bytes[YDL_REGION_ALIGNMENT] = {0};
    enum ydl_status status =
        ydl_pread_all(check->fd, bytes, until - from, from, check->info->path, err);
    if (status != YDL_OK)
        return status;
    for (uint64_t i = 0; i < until - from; i++) {
        if (bytes[i] != 0)
            return CORRUPT(check, err,
                           "the byte at offset %" PRIu64 " between regions is %d, not 0", from + i,
                           bytes[i]);
    }
    return YDL_OK;
}

/* What ends at *at is followed by padding and then by something at offset `next`. */
static enum ydl_status check_follows(const struct check *check, uint64_t at, uint64_t next,
                                     const char *what, uint32_t entry, struct ydl_error *err)
{
    uint64_t expected;
    if (!ydl_align_u64(at, YDL_REGION_ALIGNMENT, &expected) || expected != next)
        return CORRUPT(check, err,
                       "%s %u is at offset %" PRIu64
                       ", which is not the first multiple of %d behind %" PRIu64,
                       what, entry, next, YDL_REGION_ALIGNMENT, at);
    return check_zeros(check, at, next, err);
}

static enum ydl_status note_region(struct check *check, const struct region *region,
                                   struct ydl_error *err)
{
    struct region *known = region->type == YDL_REGION_ROWS     ? &check->rows
                           : region->type == YDL_REGION_INDEX  ? &check->index
                           : region->type == YDL_REGION_LAYOUT ? &check->layout_region
                                                               : NULL;
    if (known && known->type != 0)
        return CORRUPT(check, err, "has two regions of type %u", region->type);
    if (known)
        *known = *region;
    else if (region->flags & YDL_REGION_REQUIRED)
        return UNSUPPORTED(check, err,
                           "needs a region of type %u, which this version of ydl does not know: "
                           "update ydl",
                           region->type);
    return YDL_OK;
}

static enum ydl_status check_table(struct check *check, struct ydl_error *err)
{
    uint64_t at = YDL_HEADER_BYTES;
    enum ydl_status status = YDL_OK;
    for (uint32_t i = 0; status == YDL_OK && i < check->entries; i++) {
        const uint8_t *entry = check->table + i * (size_t)YDL_REGION_ENTRY_BYTES;
        struct region region = {
            .type = ydl_load_u32(entry),
            .flags = ydl_load_u32(entry + 4),
            .offset = ydl_load_u64(entry + 8),
            .bytes = ydl_load_u64(entry + 16),
            .hash = ydl_load_u64(entry + 24),
        };
        uint64_t end;
        if (!ydl_add_u64(region.offset, region.bytes, &end) || end > check->table_offset)
            return CORRUPT(check, err,
                           "region %u has %" PRIu64 " bytes at offset %" PRIu64
                           ", but the region table is at %" PRIu64,
                           i, region.bytes, region.offset, check->table_offset);
        status = check_follows(check, at, region.offset, "region", i, err);
        if (status == YDL_OK)
            status = note_region(check, &region, err);
        at = end;
    }
    if (status == YDL_OK)
        status = check_follows(check, at, check->table_offset, "the region table behind region",
                               check->entries, err);
    return status;
}

static enum ydl_status fail_layout(const struct check *check, const struct ydl_layout *found,
                                   struct ydl_error *err)
{
    const struct ydl_layout *expected = check->layout;
    if (found->count != expected->count)
        return CORRUPT(check, err, "has %u components, but the dataset has %u", found->count,
                       expected->count);
    uint32_t i = 0;
    while (
        i + 1 < found->count &&
        ydl_layout_equal(&(struct ydl_layout){.count = 1, .components = &found->components[i]},
                         &(struct ydl_layout){.count = 1, .components = &expected->components[i]}))
        i++;
    const struct ydl_component *f = &found->components[i];
    const struct ydl_component *e = &expected->components[i];
    char f_shape[128];
    char e_shape[128];
    return CORRUPT(
        check, err, "component %u is %s of shape %s, but in the dataset %s of shape %s", i,
        ydl_dtype_info(f->dtype)->name, ydl_shape_text(f_shape, sizeof f_shape, f->rank, f->dims),
        ydl_dtype_info(e->dtype)->name, ydl_shape_text(e_shape, sizeof e_shape, e->rank, e->dims));
}

static enum ydl_status check_layout(const struct check *check, struct ydl_error *err)
{
    const struct region *region = &check->layout_region;
    struct ydl_layout found = {0};
    uint8_t *bytes = NULL;
    enum ydl_status status;
    if (region->type == 0 || region->bytes == 0 || region->bytes > MAX_LAYOUT_BYTES)
        return CORRUPT(check, err, "has a layout of %" PRIu64 " bytes (1 to %d)", region->bytes,
                       MAX_LAYOUT_BYTES);
    bytes = malloc(region->bytes);
    if (!bytes)
        return ydl_fail_memory(err, "a part's layout", region->bytes);
    status = ydl_pread_all(check->fd, bytes, region->bytes, region->offset, check->info->path, err);
    if (status != YDL_OK)
        goto done;
    if (ydl_hash(bytes, region->bytes) != region->hash) {
        status = CORRUPT(check, err, "the layout's hash is %016" PRIx64 " instead of %016" PRIx64,
                         ydl_hash(bytes, region->bytes), region->hash);
        goto done;
    }
    status = ydl_layout_parse(&found, bytes, region->bytes, err);
    if (status != YDL_OK) {
        char text[sizeof err->text];
        memcpy(text, err->text, sizeof text);
        ydl_part_refuse(err, status, check->info->path, "%s", text);
        goto done;
    }
    if (!ydl_layout_equal(&found, check->layout))
        status = fail_layout(check, &found, err);
done:
    ydl_layout_clear(&found);
    free(bytes);
    return status;
}

/* The regions' lengths against the number of records. */
static enum ydl_status check_lengths(const struct check *check, struct ydl_error *err)
{
    const struct region *rows = &check->rows;
    const struct region *index = &check->index;
    uint64_t records = check->info->records;
    uint64_t row_bytes = check->layout->rows_vary ? YDL_CHECKSUM_BYTES : check->layout->row_bytes;
    uint64_t expected;
    if (rows->type == 0 || rows->hash != 0)
        return CORRUPT(check, err, "has no region of rows, or one with a hash");
    bool fits = ydl_mul_u64(records, row_bytes, &expected) &&
                (check->layout->rows_vary ? expected <= rows->bytes : expected == rows->bytes);
    if (!fits)
        return CORRUPT(
            check, err,
            "%" PRIu64 " records of %s%" PRIu64 " bytes cannot be in %" PRIu64 " bytes of rows",
            records, check->layout->rows_vary ? "at least " : "", row_bytes, rows->bytes);
    if ((index->type != 0) != check->layout->rows_vary)
        return CORRUPT(check, err, "rows %s, but there is %s index",
                       check->layout->rows_vary ? "vary" : "have a fixed size",
                       index->type != 0 ? "an" : "no");
    if (check->layout->rows_vary &&
        (!ydl_mul_u64(records, 8, &expected) || expected != index->bytes))
        return CORRUPT(check, err, "an index of %" PRIu64 " bytes for %" PRIu64 " records",
                       index->bytes, records);
    return YDL_OK;
}

static enum ydl_status read_ends(struct check *check, struct ydl_error *err)
{
    const char *path = check->info->path;
    uint64_t bytes = check->info->bytes;
    if (bytes < YDL_HEADER_BYTES + YDL_TRAILER_BYTES)
        return CORRUPT(check, err, "has only %" PRIu64 " bytes", bytes);
    enum ydl_status status =
        ydl_pread_all(check->fd, check->header, YDL_HEADER_BYTES, 0, path, err);
    if (status == YDL_OK)
        status = check_header(check, err);
    if (status == YDL_OK)
        status = ydl_pread_all(check->fd, check->trailer, YDL_TRAILER_BYTES,
                               bytes - YDL_TRAILER_BYTES, path, err);
    if (status == YDL_OK)
        status = check_trailer_place(check, err);
    if (status == YDL_OK)
        status =
            ydl_pread_all(check->fd, check->table, check->entries * (size_t)YDL_REGION_ENTRY_BYTES,
                          check->table_offset, path, err);
    return status;
}

enum ydl_status ydl_part_meta_read(int fd, const struct ydl_part_info *info,
                                   const struct ydl_layout *layout, struct ydl_part_meta *out,
                                   struct ydl_error *err)
{
    struct check check = {.fd = fd, .info = info, .layout = layout};
    enum ydl_status status = read_ends(&check, err);
    if (status == YDL_OK)
        status = check_metadata_hash(&check, err);
    if (status == YDL_OK)
        status = check_trailer(&check, err);
    if (status == YDL_OK)
        status = check_table(&check, err);
    if (status == YDL_OK)
        status = check_layout(&check, err);
    if (status == YDL_OK)
        status = check_lengths(&check, err);
    if (status != YDL_OK)
        return status;
    *out = (struct ydl_part_meta){
        .rows_offset = check.rows.offset,
        .rows_bytes = check.rows.bytes,
        .index_offset = check.index.offset,
        .index_bytes = check.index.bytes,
        .index_hash = check.index.hash,
    };
    return YDL_OK;
}
