/* Part files that are not what was written: every bit flipped, cut at every length, rows moved,
 * and metadata that is wrong but whose hashes are right. Wrong bytes are never taken for a record.
 *
 * A test changes a copy of a small part in memory ("image") and looks at it through a file. */
#include "part_support.h"

#include <fcntl.h>
#include <unistd.h>

enum { RECORDS = 5 };
static const enum ydl_access accesses[] = {YDL_ACCESS_MMAP, YDL_ACCESS_PREAD};

/* A finished one-part build of RECORDS records and its bytes. */
struct fixture {
    struct build build;
    sample_fn *make;
    struct ydl_part_info info;
    uint8_t *image;
    size_t n;
};

static void fixture_init(struct fixture *fixture, bool varying)
{
    fixture->make = varying ? varying_sample : fixed_sample;
    build_init(&fixture->build, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS, 1 << 20);
    build_write(&fixture->build, fixture->make, RECORDS);
    fixture->info = build_info(&fixture->build, 0);
    fixture->image = test_read_file(fixture->info.path, &fixture->n);
}

static void fixture_clear(struct fixture *fixture)
{
    free(fixture->image);
    free(fixture->info.path);
    build_clear(&fixture->build);
}

static enum ydl_status open_part(struct fixture *fixture, enum ydl_access access,
                                 struct ydl_part **out)
{
    return ydl_part_open(&fixture->info, &fixture->build.layout, access, out, &fixture->build.err);
}

/* The file as it is: either it does not open, or a row is found to be damaged and all that are
 * not hold their records. Says whether it opened. */
static bool expect_damage(struct fixture *fixture, enum ydl_access access)
{
    struct ydl_error *err = &fixture->build.err;
    struct ydl_part *part;
    if (open_part(fixture, access, &part) != YDL_OK)
        return false;
    int damaged = 0;
    struct ydl_buf scratch;
    ydl_buf_init(&scratch, 1 << 20);
    for (uint64_t row = 0; row < RECORDS; row++) {
        const uint8_t *bytes;
        uint64_t n;
        assert_status(YDL_OK, ydl_part_row(part, row, &scratch, &bytes, &n, err), err);
        if (ydl_part_row_is_valid(part, row, bytes, n)) {
            check_row(&fixture->build.layout, fixture->make, row, bytes, n);
        } else {
            damaged++;
            assert_status(YDL_CORRUPT_RECORD, ydl_part_fail_row(part, row, err), err);
        }
    }
    assert_true(damaged > 0);
    assert_status(YDL_CORRUPT_RECORD, ydl_part_verify(part, err), err);
    ydl_buf_clear(&scratch);
    ydl_part_close(part);
    return true;
}

static void flip_every_bit(bool varying)
{
    struct fixture fixture;
    fixture_init(&fixture, varying);
    int fd = open(fixture.info.path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    size_t opened = 0;
    for (size_t bit = 0; bit < 8 * fixture.n; bit++) {
        off_t at = (off_t)(bit / 8);
        uint8_t byte = (uint8_t)(fixture.image[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        opened += expect_damage(&fixture, YDL_ACCESS_MMAP);
        (void)expect_damage(&fixture, YDL_ACCESS_PREAD);
        assert_int_equal(pwrite(fd, &fixture.image[bit / 8], 1, at), 1);
    }
    close(fd);
    /* Exactly the bits of rows let the part open. */
    assert_int_equal(opened, 8 * ydl_load_u64(fixture.image +
                                              ydl_load_u64(fixture.image + fixture.n - 40) + 16));
    check_build(&fixture.build, fixture.make, RECORDS);
    fixture_clear(&fixture);
}

static void test_every_bit_of_fixed_rows(void **state)
{
    (void)state;
    flip_every_bit(false);
}

static void test_every_bit_of_varying_rows(void **state)
{
    (void)state;
    flip_every_bit(true);
}

/* Cut (or grown) files, also where the manifest has the wrong size. */
static void test_every_length(void **state)
{
    (void)state;
    for (int varying = 0; varying < 2; varying++) {
        struct fixture fixture;
        struct ydl_part *part;
        fixture_init(&fixture, varying);
        uint8_t *longer = calloc(fixture.n + 70, 1);
        assert_non_null(longer);
        memcpy(longer, fixture.image, fixture.n);
        for (size_t n = 0; n <= fixture.n + 70; n++) {
            if (n == fixture.n)
                continue;
            test_write_file(fixture.info.path, longer, n);
            for (int a = 0; a < 2; a++) {
                fixture.info.bytes = fixture.n;
                assert_status(YDL_CORRUPT_CACHE, open_part(&fixture, accesses[a], &part),
                              &fixture.build.err);
                fixture.info.bytes = n;
                assert_status(YDL_CORRUPT_CACHE, open_part(&fixture, accesses[a], &part),
                              &fixture.build.err);
            }
        }
        free(longer);
        fixture_clear(&fixture);
    }
}

/* The part's table, trailer and region entries in an image. */
static uint8_t *trailer_of(uint8_t *image, size_t n)
{
    return image + n - YDL_TRAILER_BYTES;
}

static uint8_t *entry_of(uint8_t *image, size_t n, uint32_t type)
{
    uint8_t *trailer = trailer_of(image, n);
    uint8_t *entry = image + ydl_load_u64(trailer + 24);
    for (uint32_t i = 0; i < ydl_load_u32(trailer + 32); i++, entry += YDL_REGION_ENTRY_BYTES) {
        if (ydl_load_u32(entry) == type)
            return entry;
    }
    fail_msg("there is no region of type %u", type);
    return NULL;
}

/* Hashes as somebody would set them who knows the format. */
static void rehash_region(uint8_t *image, uint8_t *entry)
{
    ydl_store_u64(entry + 24, ydl_hash(image + ydl_load_u64(entry + 8), ydl_load_u64(entry + 16)));
}

static void rehash_metadata(uint8_t *image, size_t n)
{
    uint8_t bytes[4096];
    uint8_t *trailer = trailer_of(image, n);
    size_t table_bytes = ydl_load_u32(trailer + 32) * (size_t)YDL_REGION_ENTRY_BYTES;
    ydl_store_u64(image + 56, ydl_hash(image, 56));
    memcpy(bytes, image, 64);
    memcpy(bytes + 64, trailer - table_bytes, table_bytes);
    memcpy(bytes + 64 + table_bytes, trailer, 48);
    ydl_store_u64(trailer + 48, ydl_hash(bytes, 64 + table_bytes + 48));
}

/* Opens the image in both ways, which gives this status; and takes back all changes. */
static void expect_open(struct fixture *fixture, enum ydl_status expected, const char *text)
{
    uint8_t *changed = malloc(fixture->n);
    assert_non_null(changed);
    memcpy(changed, fixture->image, fixture->n);
    rehash_metadata(changed, fixture->n);
    test_write_file(fixture->info.path, changed, fixture->n);
    for (int a = 0; a < 2; a++) {
        struct ydl_part *part;
        assert_status(expected, open_part(fixture, accesses[a], &part), &fixture->build.err);
        if (expected == YDL_OK)
            check_part(part, &fixture->build.layout, fixture->make, 0);
        else if (!strstr(fixture->build.err.text, text))
            fail_msg("\"%s\" is not in \"%s\"", text, fixture->build.err.text);
        ydl_part_close(part);
    }
    free(changed);
}

/* expect_open with one changed field of 4 or 8 bytes. */
static void expect_u32(struct fixture *fixture, uint8_t *field, uint32_t value,
                       enum ydl_status expected, const char *text)
{
    uint32_t before = ydl_load_u32(field);
    ydl_store_u32(field, value);
    expect_open(fixture, expected, text);
    ydl_store_u32(field, before);
}

static void expect_u64(struct fixture *fixture, uint8_t *field, uint64_t value, const char *text)
{
    uint64_t before = ydl_load_u64(field);
    ydl_store_u64(field, value);
    expect_open(fixture, YDL_CORRUPT_CACHE, text);
    ydl_store_u64(field, before);
}

static void test_header_fields(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, false);
    expect_open(&f, YDL_OK, "");
    expect_u32(&f, f.image, 0, YDL_CORRUPT_CACHE, "does not begin like a part");
    expect_u32(&f, f.image + 8, 2, YDL_UNSUPPORTED, "has format version 2");
    expect_u32(&f, f.image + 12, 4, YDL_UNSUPPORTED, "needs features 0x4");
    expect_u32(&f, f.image + 16, 4, YDL_OK, ""); /* optional features */
    expect_u32(&f, f.image + 20, 1, YDL_CORRUPT_CACHE, "a reserved field of the header is 1");
    expect_u32(&f, f.image + 24, 1, YDL_CORRUPT_CACHE, "belongs to another build");
    expect_u64(&f, f.image + 40, 3, "is part 3 from record 0");
    expect_u64(&f, f.image + 48, 3, "is part 0 from record 3");
    f.info.first_record = UINT64_MAX - 2;
    expect_u64(&f, f.image + 48, UINT64_MAX - 2, "do not fit into 2^64");
    fixture_clear(&f);
}

static void test_trailer_fields(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, false);
    uint8_t *trailer = trailer_of(f.image, f.n);
    expect_u32(&f, trailer + 60, 0, YDL_CORRUPT_CACHE, "is incomplete");
    expect_u32(&f, trailer, 0, YDL_CORRUPT_CACHE, "header and trailer belong to different builds");
    expect_u64(&f, trailer + 16, RECORDS - 1, "has 4 records, but the manifest says 5");
    expect_u32(&f, trailer + 36, 1, YDL_CORRUPT_CACHE, "a reserved field of the trailer is 1");
    expect_u64(&f, trailer + 40, f.n + 64, "its trailer says");
    fixture_clear(&f);
}

/* Where the table is: what expect_open rehashes needs it in place, so these are refused before. */
static void test_table_place(void **state)
{
    (void)state;
    static const uint64_t offsets[] = {0, 32, 64, UINT64_MAX, UINT64_MAX - 63, UINT64_MAX - 95};
    struct fixture f;
    struct ydl_part *part;
    fixture_init(&f, false);
    uint8_t *trailer = trailer_of(f.image, f.n);
    uint64_t offset = ydl_load_u64(trailer + 24);
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        ydl_store_u64(trailer + 24, offsets[i]);
        test_write_file(f.info.path, f.image, f.n);
        assert_status(YDL_CORRUPT_CACHE, open_part(&f, YDL_ACCESS_MMAP, &part), &f.build.err);
        assert_non_null(strstr(f.build.err.text, "does not end where the trailer begins"));
    }
    for (uint32_t entries = 0; entries < 200; entries++) {
        ydl_store_u64(trailer + 24, offset + 64 - entries * 32);
        ydl_store_u32(trailer + 32, entries);
        test_write_file(f.info.path, f.image, f.n);
        if (entries != 2)
            assert_status(YDL_CORRUPT_CACHE, open_part(&f, YDL_ACCESS_MMAP, &part), &f.build.err);
    }
    ydl_store_u64(trailer + 24, offset);
    ydl_store_u32(trailer + 32, UINT32_MAX);
    test_write_file(f.info.path, f.image, f.n);
    assert_status(YDL_CORRUPT_CACHE, open_part(&f, YDL_ACCESS_MMAP, &part), &f.build.err);
    fixture_clear(&f);
}

static void test_region_entries(void **state)
{
    (void)state;
    for (int varying = 0; varying < 2; varying++) {
        struct fixture f;
        fixture_init(&f, varying);
        uint8_t *rows = entry_of(f.image, f.n, YDL_REGION_ROWS);
        uint8_t *layout = entry_of(f.image, f.n, YDL_REGION_LAYOUT);
        uint64_t rows_bytes = ydl_load_u64(rows + 16);
        expect_u32(&f, rows, YDL_REGION_LAYOUT, YDL_CORRUPT_CACHE, "has two regions of type 2");
        expect_u32(&f, rows, 9, YDL_UNSUPPORTED, "needs a region of type 9");
        expect_u32(&f, layout, 9, YDL_UNSUPPORTED, "needs a region of type 9");
        expect_u32(&f, layout + 4, 0, YDL_OK, ""); /* known, whether or not a reader must know it */
        expect_u64(&f, rows + 8, 0, "region 0 is at offset 0");
        expect_u64(&f, rows + 8, 128, "region 0 is at offset 128");
        expect_u64(&f, rows + 8, UINT64_MAX - 63, "region 0 has");
        expect_u64(&f, rows + 16, UINT64_MAX, "region 0 has");
        expect_u64(&f, rows + 16, UINT64_MAX - 64, "region 0 has");
        expect_u64(&f, rows + 16, INT64_MAX, "region 0 has");
        expect_u64(&f, rows + 16, rows_bytes - 1, ""); /* not zero behind it, or not this many */
        expect_u64(&f, rows + 16, rows_bytes + 1, "");
        expect_u64(&f, rows + 16, 0, "region 1 is at offset");
        expect_u64(&f, rows + 24, 1, "one with a hash");
        expect_u64(&f, layout + 8, 64, "region");
        expect_u64(&f, layout + 16, 0, "region table behind");
        expect_u64(&f, layout + 24, 1, "the layout's hash is");
        fixture_clear(&f);
    }
}

static void test_regions_belong_to_the_kind_of_rows(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, true);
    uint8_t *index = entry_of(f.image, f.n, YDL_REGION_INDEX);
    ydl_store_u32(index, 9);
    ydl_store_u32(index + 4, 0); /* optional, but without it no row is found */
    expect_open(&f, YDL_CORRUPT_CACHE, "rows vary, but there is no index");
    fixture_clear(&f);
}

/* The image with another region before the table. */
static void add_region(struct fixture *fixture, uint32_t type, uint32_t flags)
{
    size_t n = fixture->n + 64 + YDL_REGION_ENTRY_BYTES;
    uint8_t *image = calloc(n, 1);
    assert_non_null(image);
    uint8_t *old_trailer = trailer_of(fixture->image, fixture->n);
    size_t at = ydl_load_u64(old_trailer + 24);
    memcpy(image, fixture->image, at);
    memcpy(image + at, "a region of a later version", 27);
    memcpy(image + at + 64, fixture->image + at, fixture->n - at - YDL_TRAILER_BYTES);
    uint8_t *trailer = trailer_of(image, n);
    memcpy(trailer, old_trailer, YDL_TRAILER_BYTES);
    ydl_store_u64(trailer + 24, at + 64);
    ydl_store_u32(trailer + 32, ydl_load_u32(trailer + 32) + 1);
    ydl_store_u64(trailer + 40, n);
    uint8_t *entry = trailer - YDL_REGION_ENTRY_BYTES;
    ydl_store_u32(entry, type);
    ydl_store_u32(entry + 4, flags);
    ydl_store_u64(entry + 8, at);
    ydl_store_u64(entry + 16, 27);
    rehash_region(image, entry);
    free(fixture->image);
    fixture->image = image;
    fixture->n = n;
    fixture->info.bytes = n;
}

static void test_unknown_regions(void **state)
{
    (void)state;
    for (int varying = 0; varying < 2; varying++) {
        struct fixture f;
        fixture_init(&f, varying);
        add_region(&f, 77, 0);
        expect_open(&f, YDL_OK, "");
        add_region(&f, 77, 2); /* a second one, with an unknown flag */
        expect_open(&f, YDL_OK, "");
        add_region(&f, 78, YDL_REGION_REQUIRED);
        expect_open(&f, YDL_UNSUPPORTED, "needs a region of type 78");
        fixture_clear(&f);
    }
    struct fixture f;
    fixture_init(&f, false);
    add_region(&f, YDL_REGION_INDEX, YDL_REGION_REQUIRED);
    expect_open(&f, YDL_CORRUPT_CACHE, "rows have a fixed size, but there is an index");
    fixture_clear(&f);
}

static void test_layout_region(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, false);
    uint8_t *entry = entry_of(f.image, f.n, YDL_REGION_LAYOUT);
    uint8_t *layout = f.image + ydl_load_u64(entry + 8);
    ydl_store_u32(layout + 24, YDL_INT8); /* uint8 in the dataset */
    rehash_region(f.image, entry);
    expect_open(&f, YDL_CORRUPT_CACHE,
                "component 0 is int8 of shape (), but in the dataset uint8 of shape ()");
    ydl_store_u32(layout + 24, 200);
    rehash_region(f.image, entry);
    expect_open(&f, YDL_UNSUPPORTED, "dtype 200");
    fixture_clear(&f);
}

static void refuse_index(struct fixture *fixture, uint64_t row, uint64_t end)
{
    uint8_t *entry = entry_of(fixture->image, fixture->n, YDL_REGION_INDEX);
    uint8_t *field = fixture->image + ydl_load_u64(entry + 8) + 8 * row;
    uint64_t before = ydl_load_u64(field);
    ydl_store_u64(field, end);
    rehash_region(fixture->image, entry);
    expect_open(fixture, YDL_CORRUPT_CACHE, "the index says that row");
    ydl_store_u64(field, before);
    rehash_region(fixture->image, entry);
}

static void test_index(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, true);
    uint8_t *entry = entry_of(f.image, f.n, YDL_REGION_INDEX);
    const uint8_t *index = f.image + ydl_load_u64(entry + 8);
    uint64_t rows_bytes = ydl_load_u64(entry_of(f.image, f.n, YDL_REGION_ROWS) + 16);
    assert_int_equal(ydl_load_u64(index + 8 * (RECORDS - 1)), rows_bytes);
    refuse_index(&f, 0, 0);
    refuse_index(&f, 0, 3); /* no room for a checksum */
    refuse_index(&f, 0, ydl_load_u64(index + 8));
    refuse_index(&f, 0, UINT64_MAX);
    refuse_index(&f, 2, ydl_load_u64(index + 8));
    refuse_index(&f, 2, ydl_load_u64(index + 8) + 3);
    refuse_index(&f, 2, ydl_load_u64(index + 8) - 1);
    refuse_index(&f, 2, rows_bytes + 1);
    refuse_index(&f, RECORDS - 1, rows_bytes - 1);
    refuse_index(&f, RECORDS - 1, rows_bytes + 1);
    expect_u64(&f, entry + 24, 0, "the index's hash is");
    fixture_clear(&f);
}

/* An index that changes while it is mapped leads to an error, not out of the rows. */
static void test_index_changes_later(void **state)
{
    (void)state;
    struct fixture f;
    struct ydl_part *part;
    struct ydl_buf scratch = {.max = 1 << 20};
    const uint8_t *bytes;
    uint64_t n;
    fixture_init(&f, true);
    assert_status(YDL_OK, open_part(&f, YDL_ACCESS_MMAP, &part), &f.build.err);
    uint8_t *entry = entry_of(f.image, f.n, YDL_REGION_INDEX);
    memset(f.image + ydl_load_u64(entry + 8), 0xff, 8);
    int fd = open(f.info.path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, f.image, f.n, 0), (ssize_t)f.n);
    close(fd);
    for (uint64_t row = 0; row < 2; row++) {
        assert_status(YDL_CORRUPT_CACHE,
                      ydl_part_row(part, row, &scratch, &bytes, &n, &f.build.err), &f.build.err);
        assert_status(YDL_CORRUPT_CACHE, ydl_part_fail_row(part, row, &f.build.err), &f.build.err);
    }
    assert_status(YDL_OK, ydl_part_row(part, 2, &scratch, &bytes, &n, &f.build.err), &f.build.err);
    assert_status(YDL_CORRUPT_CACHE, ydl_part_verify(part, &f.build.err), &f.build.err);
    ydl_part_close(part);
    fixture_clear(&f);
}

static void test_file_shrinks_later(void **state)
{
    (void)state;
    struct fixture f;
    struct ydl_part *part;
    struct ydl_buf scratch = {.max = 1 << 20};
    const uint8_t *bytes;
    uint64_t n;
    fixture_init(&f, false);
    assert_status(YDL_OK, open_part(&f, YDL_ACCESS_PREAD, &part), &f.build.err);
    assert_int_equal(truncate(f.info.path, 64 + 32 + 10), 0);
    assert_status(YDL_OK, ydl_part_row(part, 0, &scratch, &bytes, &n, &f.build.err), &f.build.err);
    assert_status(YDL_CORRUPT_CACHE, ydl_part_row(part, 1, &scratch, &bytes, &n, &f.build.err),
                  &f.build.err);
    assert_status(YDL_CORRUPT_CACHE, ydl_part_verify(part, &f.build.err), &f.build.err);
    ydl_buf_clear(&scratch);
    ydl_part_close(part);
    fixture_clear(&f);
}

/* Puts bytes over row 2 of the file; the part opens, and finds exactly this row damaged. */
static void expect_row_refused(struct fixture *f, const uint8_t *row)
{
    uint64_t row_bytes = f->build.layout.row_bytes;
    memcpy(f->image + YDL_HEADER_BYTES + 2 * row_bytes, row, row_bytes);
    test_write_file(f->info.path, f->image, f->n);
    for (int a = 0; a < 2; a++)
        assert_true(expect_damage(f, accesses[a]));
    assert_string_equal(f->build.err.path, f->info.path);
    assert_non_null(strstr(f->build.err.text,
                           "record 2 (row 2 of part 0, 32 bytes at offset 128) does not match"));
}

static void test_rows_of_other_places(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t row[32];
    fixture_init(&f, false);
    assert_int_equal(f.build.layout.row_bytes, sizeof row);

    memcpy(row, f.image + YDL_HEADER_BYTES + 3 * sizeof row, sizeof row); /* another row */
    expect_row_refused(&f, row);

    /* Record 2 of other builds, whose rows have equal bytes but for the checksum. */
    static const char *const uuids[] = {"0123456789abcdeg", "1123456789abcdef"};
    for (int i = 0; i < 2; i++) {
        uint64_t seed = ydl_part_seed((const uint8_t *)uuids[i], 0);
        ydl_store_u32(row + 28, ydl_row_checksum(row, 28, seed, 2));
        expect_row_refused(&f, row);
    }
    /* And of another part of the same build. */
    ydl_store_u32(row + 28, ydl_row_checksum(row, 28, ydl_part_seed(f.build.uuid, 1), 2));
    expect_row_refused(&f, row);

    memset(row, 0, sizeof row); /* a block of zeros, as a file system leaves it after a crash */
    expect_row_refused(&f, row);
    fixture_clear(&f);
}

static void rehash_where_in_place(uint8_t *changed, const struct fixture *fixture, uint32_t type)
{
    const uint8_t *entry = entry_of(fixture->image, fixture->n, type);
    uint8_t *changed_entry = changed + (entry - fixture->image);
    if (memcmp(entry + 8, changed_entry + 8, 16) == 0)
        rehash_region(changed, changed_entry);
}

/* Many random changes with correct hashes: whatever a reader makes of it, it does not crash. */
static void test_random_metadata(void **state)
{
    (void)state;
    struct test_random random = test_random_init(2);
    for (int varying = 0; varying < 2; varying++) {
        struct fixture f;
        fixture_init(&f, varying);
        uint8_t *changed = malloc(f.n);
        assert_non_null(changed);
        size_t rows_end =
            YDL_HEADER_BYTES + ydl_load_u64(entry_of(f.image, f.n, YDL_REGION_ROWS) + 16);
        for (int round = 0; round < 3000; round++) {
            memcpy(changed, f.image, f.n);
            for (uint64_t i = test_random_below(&random, 3); i < 3; i++) {
                size_t at = rows_end + (size_t)test_random_below(&random, f.n - rows_end - 32);
                changed[at] = (uint8_t)test_random_below(&random, 256);
            }
            rehash_where_in_place(changed, &f, YDL_REGION_LAYOUT);
            if (varying)
                rehash_where_in_place(changed, &f, YDL_REGION_INDEX);
            if (memcmp(trailer_of(changed, f.n) + 24, trailer_of(f.image, f.n) + 24, 12) == 0)
                rehash_metadata(changed, f.n);
            test_write_file(f.info.path, changed, f.n);
            for (int a = 0; a < 2; a++) {
                struct ydl_part *part;
                if (open_part(&f, accesses[a], &part) == YDL_OK)
                    (void)!ydl_part_verify(part, &f.build.err);
                ydl_part_close(part);
            }
        }
        free(changed);
        fixture_clear(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit_of_fixed_rows),
        cmocka_unit_test(test_every_bit_of_varying_rows),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_header_fields),
        cmocka_unit_test(test_trailer_fields),
        cmocka_unit_test(test_table_place),
        cmocka_unit_test(test_region_entries),
        cmocka_unit_test(test_regions_belong_to_the_kind_of_rows),
        cmocka_unit_test(test_unknown_regions),
        cmocka_unit_test(test_layout_region),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_index_changes_later),
        cmocka_unit_test(test_file_shrinks_later),
        cmocka_unit_test(test_rows_of_other_places),
        cmocka_unit_test(test_random_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
