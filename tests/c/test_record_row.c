/* Rows taken apart: well-formed ones, and bytes that are anything else. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "record/row.h"

static const int64_t dims_varies_2[] = {YDL_DIM_VARIES, 2};

/* int16 scalar, float32 (?, 2), uint8 of unknown rank, string (?,) */
enum { COMPONENTS = 4, MAX_ROW = 256 };
static const struct ydl_component_spec varying_specs[COMPONENTS] = {
    {YDL_INT16, 0, NULL},
    {YDL_FLOAT32, 2, dims_varies_2},
    {YDL_UINT8, YDL_RANK_VARIES, NULL},
    {YDL_STRING, 1, dims_varies_2},
};

static struct ydl_error err;
static struct ydl_layout layout;

static int set_up(void **state)
{
    (void)state;
    return ydl_layout_init(&layout, varying_specs, COMPONENTS, &err) == YDL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ydl_layout_clear(&layout);
    return 0;
}

/* Parses a copy of exactly n bytes, so that ASan sees every read past it. */
static enum ydl_status parse(const struct ydl_layout *of, const uint8_t *row, size_t n)
{
    struct ydl_field fields[COMPONENTS];
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, row, n);
    enum ydl_status status = ydl_row_parse(of, exact, n, fields, &err);
    if (status == YDL_OK) {
        uint64_t data = 0;
        for (uint32_t i = 0; i < of->count; i++) {
            assert_true(fields[i].rank <= YDL_MAX_RANK);
            assert_true(fields[i].data >= exact);
            assert_true(fields[i].data + fields[i].bytes <= exact + n - YDL_CHECKSUM_BYTES);
            data += fields[i].bytes;
        }
        assert_true(data <= n - YDL_CHECKSUM_BYTES);
    }
    free(exact);
    return status;
}

/* A row of the layout above: float32 (1, 2), uint8 (4,), strings "ab", "". */
enum {
    WORDS = 6,
    DATA = 4 * WORDS,
    ROW = DATA + 2 + 8 + 4 + 2 + YDL_CHECKSUM_BYTES,
};
static const uint32_t good_words[WORDS] = {1, 1, 4, 2, 2, 0};

static void make_row(uint8_t row[ROW])
{
    for (int i = 0; i < WORDS; i++)
        ydl_store_u32(row + 4 * i, good_words[i]);
    memcpy(row + DATA, "\1\2floatsXYuvwxab####", 20);
    assert_int_equal(ROW, DATA + 20);
}

static void test_varying_row(void **state)
{
    (void)state;
    uint8_t row[ROW];
    struct ydl_field fields[COMPONENTS];
    make_row(row);
    assert_status(YDL_OK, ydl_row_parse(&layout, row, ROW, fields, &err), &err);
    assert_int_equal(fields[0].rank, 0);
    assert_int_equal(fields[0].elements, 1);
    assert_ptr_equal(fields[0].data, row + DATA);
    assert_int_equal(fields[1].rank, 2);
    assert_int_equal(fields[1].dims[0], 1);
    assert_int_equal(fields[1].dims[1], 2);
    assert_int_equal(fields[1].bytes, 8);
    assert_memory_equal(fields[1].data, "floatsXY", 8);
    assert_int_equal(fields[2].rank, 1);
    assert_int_equal(fields[2].dims[0], 4);
    assert_memory_equal(fields[2].data, "uvwx", 4);
    assert_null(fields[2].lengths);
    assert_int_equal(fields[3].elements, 2);
    assert_ptr_equal(fields[3].lengths, row + 16);
    assert_int_equal(fields[3].bytes, 2);
    assert_memory_equal(fields[3].data, "ab", 2);
}

static void test_every_wrong_length_is_refused(void **state)
{
    (void)state;
    uint8_t row[ROW + 8] = {0};
    make_row(row);
    for (size_t n = 0; n <= ROW + 8; n++)
        assert_status(n == ROW ? YDL_OK : YDL_CORRUPT_RECORD, parse(&layout, row, n), &err);
}

static void refuse_word(int word, uint32_t value)
{
    uint8_t row[ROW];
    make_row(row);
    ydl_store_u32(row + 4 * word, value);
    assert_status(YDL_CORRUPT_RECORD, parse(&layout, row, ROW), &err);
}

static void test_hostile_words(void **state)
{
    (void)state;
    static const uint32_t hostile[] = {7, 31, 32, 0x7fffffff, 0x80000000, 0xfffffffe, UINT32_MAX};
    for (int word = 0; word < WORDS; word++) {
        for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
            refuse_word(word, hostile[i]);
        if (good_words[word] != 0)
            refuse_word(word, 0);
    }
}

/* Products and sums that come out right modulo 2^64. */
static void test_overflows(void **state)
{
    (void)state;
    struct ydl_layout hostile;
    static const struct ydl_component_spec any = {YDL_COMPLEX128, YDL_RANK_VARIES, NULL};
    assert_status(YDL_OK, ydl_layout_init(&hostile, &any, 1, &err), &err);
    uint8_t row[4 * 5 + YDL_CHECKSUM_BYTES] = {0};
    const uint32_t words[] = {4, 0x80000000, 0x80000000, 0x80000000, 0x80000000};
    for (int i = 0; i < 5; i++)
        ydl_store_u32(row + 4 * i, words[i]);
    assert_status(YDL_CORRUPT_RECORD, parse(&hostile, row, sizeof row), &err);
    ydl_store_u32(row + 4, 0); /* the product of the others still overflows */
    assert_status(YDL_CORRUPT_RECORD, parse(&hostile, row, sizeof row), &err);
    ydl_store_u32(row + 8, 5);
    ydl_store_u32(row + 12, 5);
    assert_status(YDL_OK, parse(&hostile, row, sizeof row), &err);
    ydl_layout_clear(&hostile);
}

static void test_fixed_row(void **state)
{
    (void)state;
    struct ydl_layout fixed;
    static const int64_t dims_3[] = {3};
    static const int64_t dims_0[] = {0};
    const struct ydl_component_spec specs[] = {
        {YDL_UINT8, 1, dims_3}, {YDL_INT32, 0, NULL}, {YDL_INT8, 1, dims_0}};
    struct ydl_field fields[3];
    uint8_t row[16] = {0};
    assert_status(YDL_OK, ydl_layout_init(&fixed, specs, 3, &err), &err);
    assert_int_equal(fixed.row_bytes, 12);
    assert_status(YDL_OK, ydl_row_parse(&fixed, row, 12, fields, &err), &err);
    assert_ptr_equal(fields[0].data, row);
    assert_int_equal(fields[0].elements, 3);
    assert_ptr_equal(fields[1].data, row + 4);
    assert_int_equal(fields[1].bytes, 4);
    assert_int_equal(fields[2].elements, 0);
    for (size_t n = 0; n <= 16; n++)
        assert_status(n == 12 ? YDL_OK : YDL_CORRUPT_RECORD, parse(&fixed, row, n), &err);
    ydl_layout_clear(&fixed);
}

static void test_random_rows(void **state)
{
    (void)state;
    struct test_random random = test_random_init(1);
    int accepted = 0;
    for (int round = 0; round < 50000; round++) {
        uint8_t row[MAX_ROW];
        size_t n = (size_t)test_random_below(&random, 80);
        test_random_fill(&random, row, n);
        /* Small words, most of them, so that many rows come close to being right. */
        for (size_t at = 0; at + 4 <= n && at < DATA; at += 4) {
            if (test_random_below(&random, 16) != 0)
                ydl_store_u32(row + at, (uint32_t)test_random_below(&random, 4));
        }
        accepted += parse(&layout, row, n) == YDL_OK;
    }
    assert_true(accepted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_varying_row),   cmocka_unit_test(test_every_wrong_length_is_refused),
        cmocka_unit_test(test_hostile_words), cmocka_unit_test(test_overflows),
        cmocka_unit_test(test_fixed_row),     cmocka_unit_test(test_random_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
