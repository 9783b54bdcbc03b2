/* Component tables: what follows from dtypes and shapes, and the layout region's bytes. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "record/layout.h"

static const int64_t dims_3_4[] = {3, 4};
static const int64_t dims_varies_5[] = {YDL_DIM_VARIES, 5};
static const int64_t dims_0[] = {0};

/* uint8 scalar, float32 (3, 4), complex128 scalar, int16 (0,) */
static const struct ydl_component_spec fixed_specs[] = {
    {YDL_UINT8, 0, NULL},
    {YDL_FLOAT32, 2, dims_3_4},
    {YDL_COMPLEX128, 0, NULL},
    {YDL_INT16, 1, dims_0},
};
static const struct ydl_component_spec varying_specs[] = {
    {YDL_INT64, 0, NULL},
    {YDL_FLOAT32, 2, dims_varies_5},
    {YDL_BOOL, YDL_RANK_VARIES, NULL},
    {YDL_STRING, 0, NULL},
};

static struct ydl_error err;

static void init(struct ydl_layout *layout, const struct ydl_component_spec *specs, uint32_t count)
{
    assert_status(YDL_OK, ydl_layout_init(layout, specs, count, &err), &err);
}

static void encode(const struct ydl_component_spec *specs, uint32_t count, struct ydl_buf *out)
{
    struct ydl_layout layout;
    init(&layout, specs, count);
    ydl_buf_init(out, SIZE_MAX);
    assert_status(YDL_OK, ydl_layout_encode(&layout, out, &err), &err);
    ydl_layout_clear(&layout);
}

static void test_dtypes(void **state)
{
    (void)state;
    enum ydl_dtype dtype;
    for (uint32_t number = 1; number <= 18; number++) {
        const struct ydl_dtype_info *info = ydl_dtype_info(number);
        assert_non_null(info);
        assert_ptr_equal(ydl_dtype_by_name(info->name, &dtype), info);
        assert_int_equal(dtype, number);
    }
    assert_null(ydl_dtype_info(0));
    assert_null(ydl_dtype_info(19));
    assert_null(ydl_dtype_info(UINT32_MAX));
    assert_null(ydl_dtype_by_name("variant", &dtype));
    assert_int_equal(ydl_dtype_info(YDL_COMPLEX64)->bytes, 8);
    assert_int_equal(ydl_dtype_info(YDL_COMPLEX64)->alignment, 4);
}

static void test_fixed_rows_are_aligned(void **state)
{
    (void)state;
    struct ydl_layout layout;
    init(&layout, fixed_specs, 4);
    assert_false(layout.rows_vary);
    assert_int_equal(layout.components[0].offset, 0);
    assert_int_equal(layout.components[1].offset, 4);
    assert_int_equal(layout.components[1].bytes, 48);
    assert_int_equal(layout.components[2].offset, 56);
    assert_int_equal(layout.components[3].offset, 72);
    assert_int_equal(layout.components[3].bytes, 0);
    assert_int_equal(layout.row_bytes, 80); /* 72 + 4, to a multiple of 8 */
    ydl_layout_clear(&layout);
    assert_null(layout.components);
    ydl_layout_clear(&layout);
}

static void test_empty_rows_are_a_checksum(void **state)
{
    (void)state;
    struct ydl_layout layout;
    init(&layout, &fixed_specs[3], 1);
    assert_int_equal(layout.row_bytes, YDL_CHECKSUM_BYTES);
    ydl_layout_clear(&layout);
}

static void test_varying_rows(void **state)
{
    (void)state;
    struct ydl_layout layout;
    init(&layout, varying_specs, 4);
    assert_true(layout.rows_vary);
    assert_int_equal(layout.row_bytes, 0);
    assert_true(layout.components[0].is_static);
    assert_int_equal(layout.components[0].bytes, 8);
    assert_int_equal(layout.components[0].words, 0);
    assert_int_equal(layout.components[1].words, 1);
    assert_int_equal(layout.components[2].words, 1);
    assert_int_equal(layout.components[3].words, 0);
    assert_false(layout.components[3].is_static);
    ydl_layout_clear(&layout);
}

static void refuse_spec(enum ydl_dtype dtype, int32_t rank, const int64_t *dims)
{
    struct ydl_layout layout;
    struct ydl_component_spec specs[2] = {{YDL_INT8, 0, NULL}, {dtype, rank, dims}};
    assert_status(YDL_INVALID, ydl_layout_init(&layout, specs, 2, &err), &err);
    assert_null(layout.components);
}

static void test_refused_specs(void **state)
{
    (void)state;
    struct ydl_layout layout;
    static const int64_t ones[YDL_MAX_RANK + 1];
    static struct ydl_component_spec many[YDL_MAX_COMPONENTS + 1];
    assert_status(YDL_INVALID, ydl_layout_init(&layout, many, 0, &err), &err);
    assert_status(YDL_INVALID, ydl_layout_init(&layout, many, YDL_MAX_COMPONENTS + 1, &err), &err);
    refuse_spec(YDL_INT8, -2, NULL);
    refuse_spec(YDL_INT8, YDL_MAX_RANK + 1, ones);
    refuse_spec((enum ydl_dtype)0, 0, NULL);
    refuse_spec((enum ydl_dtype)99, 0, NULL);
    refuse_spec(YDL_INT8, 1, (int64_t[]){-2});
    refuse_spec(YDL_INT8, 2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31});
    refuse_spec(YDL_INT64, 1, (int64_t[]){INT64_C(1) << 60});
    refuse_spec(YDL_INT8, 3, (int64_t[]){INT64_C(1) << 62, INT64_C(1) << 62, 0});
    refuse_spec(YDL_INT8, 1, (int64_t[]){INT64_MAX}); /* fits alone, but not with its checksum */
}

static void test_shape_text(void **state)
{
    (void)state;
    char text[16];
    assert_string_equal(ydl_shape_text(text, sizeof text, 0, NULL), "()");
    assert_string_equal(ydl_shape_text(text, sizeof text, 1, dims_0), "(0,)");
    assert_string_equal(ydl_shape_text(text, sizeof text, 2, dims_varies_5), "(?, 5)");
    assert_string_equal(ydl_shape_text(text, sizeof text, -1, NULL), "(unknown rank)");
    const int64_t large[] = {INT64_MAX, INT64_MAX, INT64_MAX};
    assert_string_equal(ydl_shape_text(text, sizeof text, 3, large), "(92233720368547");
}

static void check_identity(const struct ydl_component_spec *specs, uint32_t count)
{
    struct ydl_layout a;
    struct ydl_layout b;
    struct ydl_layout c;
    struct ydl_buf bytes;
    struct ydl_buf again;
    init(&a, specs, count);
    encode(specs, count, &bytes);
    assert_status(YDL_OK, ydl_layout_parse(&b, bytes.data, bytes.len, &err), &err);
    assert_true(ydl_layout_equal(&a, &b));
    assert_int_equal(a.rows_vary, b.rows_vary);
    assert_int_equal(a.row_bytes, b.row_bytes);
    for (uint32_t i = 0; i < count; i++)
        assert_memory_equal(&a.components[i], &b.components[i], sizeof a.components[i]);
    assert_status(YDL_OK, ydl_layout_copy(&b, &c, &err), &err);
    ydl_layout_clear(&b);
    ydl_buf_init(&again, SIZE_MAX);
    assert_status(YDL_OK, ydl_layout_encode(&c, &again, &err), &err);
    assert_int_equal(bytes.len, again.len);
    assert_memory_equal(bytes.data, again.data, bytes.len);
    ydl_buf_clear(&bytes);
    ydl_buf_clear(&again);
    ydl_layout_clear(&a);
    ydl_layout_clear(&c);
}

static void test_encode_then_parse_is_identity(void **state)
{
    (void)state;
    check_identity(fixed_specs, 4);
    check_identity(varying_specs, 4);
    int64_t dims[YDL_MAX_RANK];
    for (int i = 0; i < YDL_MAX_RANK; i++)
        dims[i] = 1 + i % 2;
    struct ydl_component_spec deep = {YDL_BFLOAT16, YDL_MAX_RANK, dims};
    check_identity(&deep, 1);
}

static void test_layouts_differ(void **state)
{
    (void)state;
    struct ydl_layout a;
    init(&a, varying_specs, 4);
    for (int change = 0; change < 4; change++) {
        struct ydl_component_spec specs[4];
        int64_t dims[2] = {YDL_DIM_VARIES, 6};
        memcpy(specs, varying_specs, sizeof specs);
        if (change == 0)
            specs[0].dtype = YDL_UINT64;
        else if (change == 1)
            specs[1].dims = dims;
        else if (change == 2)
            specs[2].rank = 0;
        struct ydl_layout b;
        init(&b, specs, change == 3 ? 3 : 4);
        assert_false(ydl_layout_equal(&a, &b));
        ydl_layout_clear(&b);
    }
    ydl_layout_clear(&a);
}

/* Offsets of fields in the encoding of fixed_specs. */
enum { AT_C0 = 24, AT_C1 = 56, AT_C2 = 104, END = 176 };

static void refuse_u32(size_t at, uint32_t value, enum ydl_status expected)
{
    struct ydl_layout layout;
    struct ydl_buf bytes;
    encode(fixed_specs, 4, &bytes);
    assert_int_equal(bytes.len, END);
    assert_int_not_equal(ydl_load_u32(bytes.data + at), value);
    ydl_store_u32(bytes.data + at, value);
    assert_status(expected, ydl_layout_parse(&layout, bytes.data, bytes.len, &err), &err);
    assert_null(layout.components);
    ydl_buf_clear(&bytes);
}

static void test_refused_fields(void **state)
{
    (void)state;
    refuse_u32(0, 0, YDL_CORRUPT_CACHE); /* components */
    refuse_u32(0, 3, YDL_CORRUPT_CACHE);
    refuse_u32(0, 5, YDL_CORRUPT_CACHE);
    refuse_u32(0, UINT32_MAX, YDL_CORRUPT_CACHE);
    refuse_u32(4, 1, YDL_CORRUPT_CACHE); /* flags: rows do not vary */
    refuse_u32(4, 2, YDL_UNSUPPORTED);
    refuse_u32(8, 84, YDL_CORRUPT_CACHE); /* bytes of a row */
    refuse_u32(12, 1, YDL_CORRUPT_CACHE);
    refuse_u32(16, 2, YDL_UNSUPPORTED); /* checksum */
    refuse_u32(20, 8, YDL_UNSUPPORTED);
    refuse_u32(AT_C0, 0, YDL_UNSUPPORTED); /* dtype */
    refuse_u32(AT_C0, 19, YDL_UNSUPPORTED);
    refuse_u32(AT_C0, YDL_INT64, YDL_CORRUPT_CACHE);      /* then offsets do not fit */
    refuse_u32(AT_C0, YDL_STRING, YDL_CORRUPT_CACHE);     /* then rows vary */
    refuse_u32(AT_C0 + 4, UINT32_MAX, YDL_CORRUPT_CACHE); /* rank */
    refuse_u32(AT_C1 + 4, 1, YDL_UNSUPPORTED); /* what follows is then read as another component */
    refuse_u32(AT_C1 + 4, YDL_MAX_RANK + 1, YDL_CORRUPT_CACHE);
    refuse_u32(AT_C1 + 4, YDL_MAX_RANK, YDL_CORRUPT_CACHE);
    refuse_u32(AT_C1 + 8, 8, YDL_CORRUPT_CACHE); /* offset */
    refuse_u32(AT_C1 + 12, 1, YDL_CORRUPT_CACHE);
    refuse_u32(AT_C1 + 16, 1, YDL_UNSUPPORTED); /* checksum group, codec, key id, 0 */
    refuse_u32(AT_C1 + 20, 1, YDL_UNSUPPORTED);
    refuse_u32(AT_C1 + 24, 1, YDL_UNSUPPORTED);
    refuse_u32(AT_C1 + 28, 1, YDL_CORRUPT_CACHE);
    refuse_u32(AT_C1 + 32, 4, YDL_CORRUPT_CACHE);          /* dimensions */
    refuse_u32(AT_C1 + 36, 0x80000000, YDL_CORRUPT_CACHE); /* 2^63 */
    refuse_u32(AT_C1 + 36, 0x7fffffff, YDL_CORRUPT_CACHE); /* overflows */
    refuse_u32(AT_C2 + 8, 52, YDL_CORRUPT_CACHE);
}

static void test_offsets_are_zero_where_rows_vary(void **state)
{
    (void)state;
    struct ydl_layout layout;
    struct ydl_buf bytes;
    encode(varying_specs, 4, &bytes);
    ydl_store_u64(bytes.data + 24 + 32 + 8, 8);
    assert_status(YDL_CORRUPT_CACHE, ydl_layout_parse(&layout, bytes.data, bytes.len, &err), &err);
    ydl_buf_clear(&bytes);
}

static void test_every_wrong_length_is_refused(void **state)
{
    (void)state;
    struct ydl_buf bytes;
    encode(fixed_specs, 4, &bytes);
    for (size_t n = 0; n <= END + 8; n++) {
        struct ydl_layout layout;
        uint8_t *exact = calloc(n ? n : 1, 1); /* of its own, so that ASan sees reads past it */
        assert_non_null(exact);
        memcpy(exact, bytes.data, n < END ? n : END);
        enum ydl_status status = ydl_layout_parse(&layout, exact, n, &err);
        assert_status(n == END ? YDL_OK : YDL_CORRUPT_CACHE, status, &err);
        ydl_layout_clear(&layout);
        free(exact);
    }
    ydl_buf_clear(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_fixed_rows_are_aligned),
        cmocka_unit_test(test_empty_rows_are_a_checksum),
        cmocka_unit_test(test_varying_rows),
        cmocka_unit_test(test_refused_specs),
        cmocka_unit_test(test_shape_text),
        cmocka_unit_test(test_encode_then_parse_is_identity),
        cmocka_unit_test(test_layouts_differ),
        cmocka_unit_test(test_refused_fields),
        cmocka_unit_test(test_offsets_are_zero_where_rows_vary),
        cmocka_unit_test(test_every_wrong_length_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
