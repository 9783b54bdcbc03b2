/* Gathering: any records in any order, across parts, mapped or read, verified or not. */
#include "batch_support.h"

#include <stdio.h>
#include <unistd.h>

enum { RECORDS = 100, SMALL_PART = 1024 };

static void gather_and_check(struct open_build *open, const uint64_t *numbers, uint64_t n)
{
    struct ydl_error err;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    assert_status(YDL_OK, ydl_finder_new(open->reader, &finder, &err), &err);
    for (int again = 0; again < 2; again++) { /* the second time nothing is left to verify */
        assert_status(YDL_OK, ydl_gather(finder, open->pool, numbers, n, false, &batch, &err),
                      &err);
        check_batch(batch, open->make, numbers, n);
        ydl_batch_free(batch);
    }
    ydl_finder_free(finder);
}

static void test_gathers_any_order(void **state)
{
    (void)state;
    struct test_random random = test_random_init(1);
    for (int kind = 0; kind < 12; kind++) {
        struct open_build open;
        open_build_init(&open, kind % 2, RECORDS, SMALL_PART,
                        kind / 2 % 2 ? YDL_ACCESS_MMAP : YDL_ACCESS_PREAD,
                        (enum ydl_verify)(kind / 4));
        assert_true(open.reader->part_count > 1);
        uint64_t numbers[3 * RECORDS];
        for (uint64_t i = 0; i < 3 * RECORDS; i++)
            numbers[i] = i < RECORDS ? i : test_random_below(&random, RECORDS);
        gather_and_check(&open, numbers, 3 * RECORDS);
        gather_and_check(&open, numbers + RECORDS, 1);
        gather_and_check(&open, numbers, 0);
        open_build_clear(&open);
    }
}

static void test_refuses_a_number_past_the_end(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    open_build_init(&open, false, RECORDS, 1 << 20, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    assert_status(YDL_OK, ydl_finder_new(open.reader, &finder, &err), &err);
    const uint64_t numbers[] = {0, RECORDS};
    assert_status(YDL_INVALID, ydl_gather(finder, open.pool, numbers, 2, false, &batch, &err),
                  &err);
    assert_non_null(strstr(err.text, "record 100"));
    const uint64_t huge = UINT64_MAX;
    assert_status(YDL_INVALID, ydl_gather(finder, open.pool, &huge, 1, false, &batch, &err), &err);
    ydl_finder_free(finder);
    open_build_clear(&open);
}

static void test_uniform_batches_refuse_other_shapes(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    open_build_init(&open, true, RECORDS, SMALL_PART, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    assert_status(YDL_OK, ydl_finder_new(open.reader, &finder, &err), &err);

    const uint64_t differ[] = {1, 2}; /* float32 (1, 2), then (2, 2) */
    assert_status(YDL_SHAPE_MISMATCH, ydl_gather(finder, open.pool, differ, 2, true, &batch, &err),
                  &err);
    assert_string_equal(err.text, "Cannot batch tensors with different shapes in component 1. "
                                  "First element had shape [1,2] and element 1 had shape [2,2].");

    const uint64_t same[] = {1, 13, 25}; /* 12 apart: all shapes repeat */
    assert_status(YDL_OK, ydl_gather(finder, open.pool, same, 3, true, &batch, &err), &err);
    check_batch(batch, open.make, same, 3);
    for (uint32_t c = 0; c < batch->count; c++)
        assert_true(batch->columns[c].uniform);
    ydl_batch_free(batch);
    ydl_finder_free(finder);
    open_build_clear(&open);
}

/* Flips one byte of a record in its file. */
static void damage(struct open_build *open, uint64_t byte_of_first_part)
{
    struct ydl_part_info info = build_info(&open->build, 0);
    size_t n;
    uint8_t *bytes = test_read_file(info.path, &n);
    bytes[byte_of_first_part] ^= 0x10;
    test_write_file(info.path, bytes, n);
    free(bytes);
    free(info.path);
}

static void test_damage_is_found_as_often_as_asked(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        enum ydl_verify verify = (enum ydl_verify)(kind / 2);
        struct open_build open;
        struct ydl_error err;
        struct ydl_finder *finder;
        struct ydl_batch *batch;
        const uint64_t numbers[] = {3, 0, 5};
        open_build_init(&open, kind % 2, RECORDS, 1 << 20, YDL_ACCESS_PREAD, verify);
        assert_status(YDL_OK, ydl_finder_new(open.reader, &finder, &err), &err);

        /* Record 5 has been read before it is damaged; only "always" looks again. */
        assert_status(YDL_OK, ydl_gather(finder, open.pool, numbers + 2, 1, false, &batch, &err),
                      &err);
        ydl_batch_free(batch);
        damage(&open, YDL_HEADER_BYTES + 1); /* in record 0 */
        enum ydl_status status = ydl_gather(finder, open.pool, numbers, 3, false, &batch, &err);
        if (verify == YDL_VERIFY_NEVER && status == YDL_OK) {
            ydl_batch_free(batch);
        } else {
            assert_status(YDL_CORRUPT_RECORD, status, &err);
            assert_non_null(strstr(err.path, "00000.ydl"));
            assert_non_null(strstr(err.text, "record 0"));
        }
        /* Others are still readable, by the same finder. */
        assert_status(YDL_OK, ydl_gather(finder, open.pool, numbers, 1, false, &batch, &err), &err);
        ydl_batch_free(batch);
        ydl_finder_free(finder);
        open_build_clear(&open);
    }
}

static void test_a_missing_part_is_named(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    open_build_init(&open, false, RECORDS, SMALL_PART, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_part_info info = build_info(&open.build, 1);
    assert_int_equal(unlink(info.path), 0);
    assert_status(YDL_OK, ydl_finder_new(open.reader, &finder, &err), &err);
    const uint64_t numbers[] = {0, info.first_record};
    assert_status(YDL_REPLACED, ydl_gather(finder, open.pool, numbers, 2, false, &batch, &err),
                  &err);
    assert_string_equal(err.path, info.path);
    free(info.path);
    ydl_finder_free(finder);
    open_build_clear(&open);
}

static void test_parts_that_do_not_join_are_refused(void **state)
{
    (void)state;
    struct ydl_error err;
    char path[] = "/nowhere";
    const struct ydl_part_info sets[][2] = {
        {{.path = path, .first_record = 1, .records = 5}, {.path = path, .first_record = 6}},
        {{.path = path, .records = 5}, {.path = path, .first_record = 6, .records = 1}},
        {{.path = path, .records = 5}, {.path = path, .first_record = 4, .records = 1}},
        {{.path = path, .records = 5}, {.path = path, .first_record = 5, .records = 0}},
        {{.path = path, .records = 5}, {.path = path, .first_record = 5, .records = UINT64_MAX}},
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct ydl_layout layout;
        struct ydl_reader *reader;
        assert_status(YDL_OK, ydl_layout_init(&layout, fixed_specs, SAMPLE_COMPONENTS, &err), &err);
        assert_status(YDL_CORRUPT_CACHE,
                      ydl_reader_open_local(&layout, sets[i], 2, YDL_ACCESS_MMAP, YDL_VERIFY_NEVER,
                                            &reader, &err),
                      &err);
    }
}

static void test_an_empty_dataset_is_open(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, true, 0, SMALL_PART, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    assert_int_equal(open.reader->records, 0);
    assert_int_equal(ydl_reader_mean_record_bytes(open.reader), 0);
    gather_and_check(&open, NULL, 0);
    open_build_clear(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gathers_any_order),
        cmocka_unit_test(test_refuses_a_number_past_the_end),
        cmocka_unit_test(test_uniform_batches_refuse_other_shapes),
        cmocka_unit_test(test_damage_is_found_as_often_as_asked),
        cmocka_unit_test(test_a_missing_part_is_named),
        cmocka_unit_test(test_parts_that_do_not_join_are_refused),
        cmocka_unit_test(test_an_empty_dataset_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
