/* The bytes of format version 1, which must stay readable for good: files that were written once
 * and are kept in tests/golden, and every offset that format.h documents.
 *
 * Run from the root of the repository, or with YDL_GOLDEN_DIR. YDL_GOLDEN_WRITE=1 writes files that
 * are missing there, once, when a format version is new. */
#include "part_support.h"

#include <stdio.h>
#include <unistd.h>

enum { RECORDS = 6 };

struct golden {
    const char *name;
    const struct ydl_component_spec *specs;
    sample_fn *make;
};
static const struct golden fixed_golden = {"v1-fixed.ydl", fixed_specs, fixed_sample};
static const struct golden varying_golden = {"v1-varying.ydl", varying_specs, varying_sample};

static char *golden_path(const struct golden *golden)
{
    const char *dir = getenv("YDL_GOLDEN_DIR");
    char *path = ydl_join_path(dir ? dir : "tests/golden", golden->name);
    assert_non_null(path);
    return path;
}

static void write_build(struct build *build, const struct golden *golden)
{
    build_init(build, golden->specs, SAMPLE_COMPONENTS, 1 << 20);
    build_write(build, golden->make, RECORDS);
}

static void read_golden(const struct golden *golden)
{
    static const enum ydl_access accesses[] = {YDL_ACCESS_MMAP, YDL_ACCESS_PREAD};
    struct ydl_error err;
    struct ydl_layout layout;
    struct ydl_part_info info = {.path = golden_path(golden), .records = RECORDS};
    size_t n;
    free(test_read_file(info.path, &n));
    info.bytes = n;
    memcpy(info.build_uuid, "0123456789abcdef", YDL_UUID_BYTES);
    assert_status(YDL_OK, ydl_layout_init(&layout, golden->specs, SAMPLE_COMPONENTS, &err), &err);
    for (int a = 0; a < 2; a++) {
        struct ydl_part *part;
        assert_status(YDL_OK, ydl_part_open(&info, &layout, accesses[a], &part, &err), &err);
        check_part(part, &layout, golden->make, 0);
        ydl_part_close(part);
    }
    ydl_layout_clear(&layout);
    free(info.path);
}

static void compare_golden(const struct golden *golden)
{
    struct build build;
    size_t n;
    size_t golden_n;
    write_build(&build, golden);
    struct ydl_part_info info = build_info(&build, 0);
    uint8_t *bytes = test_read_file(info.path, &n);
    char *path = golden_path(golden);
    if (getenv("YDL_GOLDEN_WRITE") && access(path, F_OK) != 0)
        test_write_file(path, bytes, n);
    uint8_t *golden_bytes = test_read_file(path, &golden_n);
    assert_int_equal(n, golden_n);
    assert_memory_equal(bytes, golden_bytes, n);
    free(golden_bytes);
    free(path);
    free(bytes);
    free(info.path);
    build_clear(&build);
}

/* The same input still gives the same bytes. */
static void test_writes_the_golden_files(void **state)
{
    (void)state;
    compare_golden(&fixed_golden);
    compare_golden(&varying_golden);
}

static void test_reads_the_golden_files(void **state)
{
    (void)state;
    read_golden(&fixed_golden);
    read_golden(&varying_golden);
}

/* One region table entry, and its region's hash (0 for rows). Returns the region. */
static const uint8_t *check_entry(const uint8_t *image, const uint8_t *entry, uint32_t type,
                                  uint64_t offset, uint64_t bytes)
{
    assert_int_equal(ydl_load_u32(entry), type);
    assert_int_equal(ydl_load_u32(entry + 4), 1);
    assert_int_equal(ydl_load_u64(entry + 8), offset);
    assert_int_equal(ydl_load_u64(entry + 16), bytes);
    assert_int_equal(offset % 64, 0);
    uint64_t hash = type == 1 ? 0 : ydl_hash(image + offset, bytes);
    assert_true(ydl_load_u64(entry + 24) == hash);
    return image + offset;
}

static void check_ends(const uint8_t *image, size_t n, uint64_t table, uint32_t entries)
{
    assert_memory_equal(image, "\x89YDL\r\n\x1a\n", 8);
    assert_int_equal(ydl_load_u32(image + 8), 1);
    for (int at = 12; at < 24; at += 4)
        assert_int_equal(ydl_load_u32(image + at), 0);
    assert_memory_equal(image + 24, "0123456789abcdef", 16);
    assert_int_equal(ydl_load_u64(image + 40), 0);
    assert_int_equal(ydl_load_u64(image + 48), 0);
    assert_true(ydl_load_u64(image + 56) == ydl_hash(image, 56));

    const uint8_t *trailer = image + n - 64;
    assert_memory_equal(trailer, "0123456789abcdef", 16);
    assert_int_equal(ydl_load_u64(trailer + 16), RECORDS);
    assert_int_equal(ydl_load_u64(trailer + 24), table);
    assert_int_equal(table + 32 * entries, n - 64);
    assert_int_equal(ydl_load_u32(trailer + 32), entries);
    assert_int_equal(ydl_load_u32(trailer + 36), 0);
    assert_int_equal(ydl_load_u64(trailer + 40), n);
    uint8_t hashed[64 + 32 * 3 + 48];
    memcpy(hashed, image, 64);
    memcpy(hashed + 64, image + table, 32 * entries + 48);
    assert_true(ydl_load_u64(trailer + 48) == ydl_hash(hashed, 64 + 32 * entries + 48));
    assert_memory_equal(trailer + 56, "\nYDLend\x89", 8);
}

static void check_component(const uint8_t **at, uint32_t dtype, uint32_t rank, uint64_t offset,
                            const uint64_t *dims)
{
    assert_int_equal(ydl_load_u32(*at), dtype);
    assert_int_equal(ydl_load_u32(*at + 4), rank);
    assert_int_equal(ydl_load_u64(*at + 8), offset);
    for (int field = 16; field < 32; field += 4)
        assert_int_equal(ydl_load_u32(*at + field), 0);
    *at += 32;
    for (uint32_t d = 0; rank != UINT32_MAX && d < rank; d++, *at += 8)
        assert_true(ydl_load_u64(*at) == dims[d]);
}

static void check_layout_head(const uint8_t *layout, uint32_t flags, uint64_t row_bytes)
{
    assert_int_equal(ydl_load_u32(layout), SAMPLE_COMPONENTS);
    assert_int_equal(ydl_load_u32(layout + 4), flags);
    assert_int_equal(ydl_load_u64(layout + 8), row_bytes);
    assert_int_equal(ydl_load_u32(layout + 16), 1);
    assert_int_equal(ydl_load_u32(layout + 20), 4);
}

/* The checksum as format.h words it, not as its functions compute it. */
static void check_checksum(const uint8_t *row, uint64_t n, uint64_t number)
{
    uint8_t seed_bytes[24] = "0123456789abcdef"; /* and part number 0 */
    uint64_t sum =
        ydl_hash(row, n - 4) + ydl_hash(seed_bytes, 24) + number * UINT64_C(0x9E3779B97F4A7C15);
    assert_int_equal(ydl_load_u32(row + n - 4), sum & 0xffffffff);
}

static void test_offsets_of_fixed_rows(void **state)
{
    (void)state;
    size_t n;
    char *path = golden_path(&fixed_golden);
    uint8_t *image = test_read_file(path, &n);
    enum { LAYOUT = 24 + 4 * 32 + 2 * 8, TABLE = 256 + 192 };
    check_ends(image, n, TABLE, 2);
    const uint8_t *rows = check_entry(image, image + TABLE, 1, 64, RECORDS * 32);
    const uint8_t *at = check_entry(image, image + TABLE + 32, 2, 256, LAYOUT);
    check_layout_head(at, 0, 32);
    at += 24;
    check_component(&at, 6, 0, 0, NULL);
    check_component(&at, 11, 1, 4, (const uint64_t[]){3});
    check_component(&at, 3, 1, 16, (const uint64_t[]){0});
    check_component(&at, 5, 0, 16, NULL);
    for (uint64_t r = 0; r < RECORDS; r++) {
        const uint8_t *row = rows + 32 * r;
        struct sample samples[SAMPLE_COMPONENTS];
        fixed_sample(r, samples);
        assert_int_equal(row[0], samples[0].data[0]);
        assert_memory_equal(row + 1, "\0\0\0", 3);
        assert_memory_equal(row + 4, samples[1].data, 12);
        assert_memory_equal(row + 16, samples[3].data, 8);
        assert_memory_equal(row + 24, "\0\0\0\0", 4);
        check_checksum(row, 32, r);
    }
    free(image);
    free(path);
}

/* Where a varying row of the samples ends that begins at row. */
static uint64_t check_varying_row(const uint8_t *row, uint64_t number)
{
    struct sample samples[SAMPLE_COMPONENTS];
    varying_sample(number, samples);
    const uint8_t *at = row;
    assert_int_equal(ydl_load_u32(at), samples[1].dims[0]); /* float32 (?, 2) */
    at += 4;
    assert_int_equal(ydl_load_u32(at), samples[2].rank); /* uint8 of unknown rank */
    at += 4;
    for (uint32_t d = 0; d < samples[2].rank; d++, at += 4)
        assert_int_equal(ydl_load_u32(at), samples[2].dims[d]);
    assert_int_equal(ydl_load_u32(at), samples[3].strings_len); /* string (?,) */
    at += 4;
    for (uint64_t e = 0; e < samples[3].strings_len; e++, at += 4)
        assert_int_equal(ydl_load_u32(at), samples[3].strings[e].len);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++) {
        assert_memory_equal(at, samples[i].data, samples[i].bytes);
        at += samples[i].bytes;
    }
    uint64_t n = (uint64_t)(at - row) + 4;
    check_checksum(row, n, number);
    return n;
}

static void test_offsets_of_varying_rows(void **state)
{
    (void)state;
    size_t n;
    char *path = golden_path(&varying_golden);
    uint8_t *image = test_read_file(path, &n);
    enum { LAYOUT = 24 + 4 * 32 + 3 * 8 };
    uint64_t ends[RECORDS];
    uint64_t end = 0;
    for (uint64_t r = 0; r < RECORDS; r++)
        ends[r] = end += check_varying_row(image + 64 + end, r);
    uint64_t index_offset = (64 + end + 63) / 64 * 64;
    uint64_t table = index_offset + 64 + 192;
    check_ends(image, n, table, 3);
    check_entry(image, image + table, 1, 64, end);
    const uint8_t *index = check_entry(image, image + table + 32, 3, index_offset, 8 * RECORDS);
    const uint8_t *at = check_entry(image, image + table + 64, 2, index_offset + 64, LAYOUT);
    for (uint64_t r = 0; r < RECORDS; r++)
        assert_int_equal(ydl_load_u64(index + 8 * r), ends[r]);
    check_layout_head(at, 1, 0);
    at += 24;
    check_component(&at, 5, 0, 0, NULL);
    check_component(&at, 11, 2, 0, (const uint64_t[]){UINT64_MAX, 2});
    check_component(&at, 6, UINT32_MAX, 0, NULL);
    check_component(&at, 16, 1, 0, (const uint64_t[]){UINT64_MAX});
    free(image);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_the_golden_files),
        cmocka_unit_test(test_reads_the_golden_files),
        cmocka_unit_test(test_offsets_of_fixed_rows),
        cmocka_unit_test(test_offsets_of_varying_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
