/* The part reader: opens a file in both ways, checks and takes apart every row, and gathers all.
 *
 * Input: a byte that says what the manifest claims, then the file. The manifest mostly claims what
 * the file itself says, so that the checks of one part of the file against another are reached.
 * Law: a map and reads see the same. */
#include "fuzz.h"

#include "batch/gather.h"
#include "batch/reader.h"
#include "record/part.h"

enum {
    CLAIM_OTHER_BUILD = 1,
    CLAIM_OTHER_NUMBER = 2,
    CLAIM_MORE_RECORDS = 4,
    CLAIM_OTHER_SIZE = 8,
    CLAIM_BUILTIN_LAYOUT = 16, /* else the file's own */
    CLAIM_VARYING = 32,
    CLAIM_OTHER_DTYPE = 64,
    CLAIM_LATE_START = 128,
    MAX_RECORDS = 4096, /* that are looked at */
};

struct image {
    uint8_t *bytes;
    size_t n;
};

static struct ydl_part_info claim_info(unsigned claim, const struct image *image)
{
    struct ydl_part_info info = {.records = 1, .bytes = image->n};
    if (image->n >= YDL_HEADER_BYTES + YDL_TRAILER_BYTES) {
        memcpy(info.build_uuid, image->bytes + 24, YDL_UUID_BYTES);
        info.number = ydl_load_u64(image->bytes + 40);
        info.first_record = ydl_load_u64(image->bytes + 48);
        info.records = ydl_load_u64(image->bytes + image->n - YDL_TRAILER_BYTES + 16);
    }
    info.build_uuid[3] ^= (uint8_t)(claim & CLAIM_OTHER_BUILD);
    info.number ^= (claim & CLAIM_OTHER_NUMBER) != 0;
    info.records += (claim & CLAIM_MORE_RECORDS) != 0;
    info.bytes += (claim & CLAIM_OTHER_SIZE) != 0;
    info.first_record += (claim & CLAIM_LATE_START) != 0;
    return info;
}

/* Where the region table is and how many entries of it lie inside the file. */
static uint8_t *find_table(const struct image *image, uint32_t *out_entries)
{
    *out_entries = 0;
    if (image->n < YDL_HEADER_BYTES + YDL_TRAILER_BYTES)
        return NULL;
    const uint8_t *trailer = image->bytes + image->n - YDL_TRAILER_BYTES;
    uint64_t offset = ydl_load_u64(trailer + 24);
    uint32_t entries = ydl_load_u32(trailer + 32);
    if (offset > image->n - YDL_TRAILER_BYTES ||
        entries > (image->n - YDL_TRAILER_BYTES - offset) / YDL_REGION_ENTRY_BYTES)
        return NULL;
    *out_entries = entries;
    return image->bytes + offset;
}

/* A region's bytes where they lie inside the file. */
static uint8_t *find_region(const struct image *image, uint32_t type, uint64_t *out_bytes)
{
    uint32_t entries;
    const uint8_t *table = find_table(image, &entries);
    for (uint32_t i = 0; i < entries; i++) {
        const uint8_t *entry = table + i * (size_t)YDL_REGION_ENTRY_BYTES;
        uint64_t offset = ydl_load_u64(entry + 8);
        *out_bytes = ydl_load_u64(entry + 16);
        if (ydl_load_u32(entry) == type && offset <= image->n && *out_bytes <= image->n - offset)
            return image->bytes + offset;
    }
    return NULL;
}

static void claim_layout(unsigned claim, const struct image *image, struct ydl_layout *out)
{
    struct ydl_error err;
    uint64_t n;
    const uint8_t *bytes = find_region(image, YDL_REGION_LAYOUT, &n);
    if (claim & CLAIM_BUILTIN_LAYOUT || !bytes || ydl_layout_parse(out, bytes, n, &err) != YDL_OK)
        fuzz_make_layout(out, claim & CLAIM_VARYING ? 1 : 0);
    if (claim & CLAIM_OTHER_DTYPE) /* of equal size, so that only the comparison sees it */
        out->components[out->count - 1].dtype =
            out->components[out->count - 1].dtype == YDL_INT8 ? YDL_UINT8 : YDL_INT8;
}

static void look_at_rows(const struct ydl_part *part, const struct ydl_layout *layout,
                         struct ydl_error *err)
{
    struct ydl_buf scratch;
    ydl_buf_init(&scratch, SIZE_MAX);
    struct ydl_field *fields = calloc(layout->count, sizeof *fields);
    FUZZ_CHECK(fields);
    for (uint64_t row = 0; row < ydl_part_records(part) && row < MAX_RECORDS; row++) {
        const uint8_t *bytes;
        uint64_t n;
        FUZZ_CHECK(ydl_part_row(part, row, &scratch, &bytes, &n, err) == YDL_OK);
        uint8_t *copy = fuzz_copy(bytes, n);
        if (!ydl_part_row_is_valid(part, row, copy, n))
            FUZZ_CHECK(ydl_part_fail_row(part, row, err) == YDL_CORRUPT_RECORD);
        /* Also rows that no reader would parse: their checksum is no protection. */
        if (ydl_row_parse(layout, copy, n, fields, err) == YDL_OK)
            fuzz_touch_fields(layout, fields);
        free(copy);
    }
    free(fields);
    ydl_buf_clear(&scratch);
}

/* Rows that are lent rather than copied. */
static enum ydl_status touch_rows(struct ydl_finder *finder, const struct ydl_layout *layout,
                                  const uint64_t *numbers, uint64_t n, struct ydl_error *err)
{
    const struct ydl_row *rows;
    struct ydl_field *fields = calloc(layout->count, sizeof *fields);
    FUZZ_CHECK(fields);
    enum ydl_status status = ydl_finder_lend(finder, numbers, n, &rows, err);
    for (uint64_t i = 0; status == YDL_OK && i < n; i++) {
        status = ydl_row_take_apart(layout, &rows[i], fields, err);
        if (status == YDL_OK)
            fuzz_touch_fields(layout, fields);
    }
    ydl_finder_release(finder);
    free(fields);
    return status;
}

/* The same file through the batch layer, which trusts every row: verify is "never". */
static enum ydl_status gather_all(struct ydl_part_info *info, const struct ydl_layout *layout,
                                  enum ydl_access access, struct ydl_error *err)
{
    static uint64_t numbers[64];
    struct ydl_layout own;
    struct ydl_reader *reader = NULL;
    struct ydl_finder *finder = NULL;
    struct ydl_batch *batch = NULL;
    struct ydl_pool *pool = ydl_pool_new(1 << 16);
    FUZZ_CHECK(pool && ydl_layout_copy(layout, &own, err) == YDL_OK);
    enum ydl_status status =
        ydl_reader_open_local(&own, info, 1, access, YDL_VERIFY_NEVER, &reader, err);
    if (status == YDL_OK)
        status = ydl_finder_new(reader, &finder, err);
    uint64_t n = info->records < 64 ? info->records : 64;
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = n - 1 - i;
    if (status == YDL_OK)
        status = ydl_gather(finder, pool, numbers, n, false, &batch, err);
    for (uint32_t c = 0; status == YDL_OK && c < batch->count; c++)
        fuzz_touch(batch->columns[c].data->data, batch->columns[c].data_bytes);
    if (finder) /* one sees what the other sees */
        FUZZ_CHECK(touch_rows(finder, layout, numbers, n, err) == status);
    if (status == YDL_OK)
        ydl_batch_free(batch);
    ydl_finder_free(finder);
    ydl_reader_release(reader);
    ydl_pool_release(pool);
    return status;
}

static void part_one(const uint8_t *bytes, size_t n)
{
    if (n < 1)
        return;
    struct ydl_error err;
    struct image image = {.bytes = fuzz_copy(bytes + 1, n - 1), .n = n - 1};
    struct ydl_part_info info = claim_info(bytes[0], &image);
    struct ydl_layout layout;
    claim_layout(bytes[0], &image, &layout);
    info.path = strdup(FUZZ_FILE(image.bytes, image.n));
    FUZZ_CHECK(info.path);

    enum ydl_status opened[2];
    enum ydl_status verified[2] = {YDL_OK, YDL_OK};
    enum ydl_status gathered[2] = {YDL_OK, YDL_OK};
    for (int access = 0; access < 2; access++) {
        struct ydl_part *part;
        opened[access] = ydl_part_open(&info, &layout, (enum ydl_access)access, &part, &err);
        if (opened[access] == YDL_OK) {
            look_at_rows(part, &layout, &err);
            verified[access] = ydl_part_verify(part, &err);
            FUZZ_CHECK(ydl_part_check_whole(part, &err) == YDL_OK);
        } else {
            FUZZ_CHECK(!part && err.status == opened[access] && err.text[0]);
            FUZZ_CHECK(err.status == YDL_CORRUPT_CACHE || err.status == YDL_UNSUPPORTED);
        }
        ydl_part_close(part);
        if (opened[access] == YDL_OK && info.first_record == 0)
            gathered[access] = gather_all(&info, &layout, (enum ydl_access)access, &err);
    }
    FUZZ_CHECK(opened[0] == opened[1] && verified[0] == verified[1] && gathered[0] == gathered[1]);
    ydl_layout_clear(&layout);
    free(info.path);
    free(image.bytes);
}

#include "part_repair.h"

FUZZ_TARGET(part);
