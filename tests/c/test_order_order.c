/* Laws of the order: an epoch is a permutation, shards are disjoint and cover, and everything is
 * a function of (seed, epoch, records); and the order of NumPy's legacy generator itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/order.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Ends with free(values). */
static struct ydl_indices fill(const struct ydl_order *order, uint64_t epoch)
{
    struct ydl_indices indices;
    const uint64_t bytes = ydl_order_bytes(order);
    void *values = bytes ? malloc(bytes) : NULL;
    assert_true(values || !bytes);
    assert_true(ydl_order_fill(order, epoch, values, NULL, &indices));
    assert_ptr_equal(indices.values, values);
    assert_int_equal(indices.len, ydl_order_len(order));
    return indices;
}

static bool same(const struct ydl_indices *a, const struct ydl_indices *b)
{
    if (a->len != b->len)
        return false;
    for (uint64_t i = 0; i < a->len; i++)
        if (ydl_indices_at(a, i) != ydl_indices_at(b, i))
            return false;
    return true;
}

/* numpy.random.RandomState(seed).shuffle(list(range(10))) */
static void test_shuffle_of_ten_matches_numpy(void **state)
{
    (void)state;
    static const struct {
        uint32_t seed;
        uint32_t expected[10];
    } cases[] = {
        {0, {2, 8, 4, 9, 1, 6, 7, 3, 0, 5}},          {1, {2, 9, 6, 4, 0, 3, 1, 7, 8, 5}},
        {7, {8, 5, 0, 2, 1, 9, 7, 3, 6, 4}},          {12345, {0, 7, 3, 9, 6, 4, 1, 8, 5, 2}},
        {UINT32_MAX, {6, 9, 5, 1, 8, 0, 7, 4, 2, 3}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        uint32_t narrow[10];
        uint64_t wide[10];
        for (uint32_t i = 0; i < 10; i++)
            wide[i] = narrow[i] = i;
        assert_true(ydl_shuffle_u32(narrow, 10, cases[c].seed, NULL));
        assert_true(ydl_shuffle_u64(wide, 10, cases[c].seed, NULL));
        assert_memory_equal(narrow, cases[c].expected, sizeof narrow);
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(wide[i], narrow[i]);
    }
}

static void test_short_lists_match_numpy(void **state)
{
    (void)state;
    uint32_t values[17];
    assert_true(ydl_shuffle_u32(values, 0, 3, NULL));

    static const struct {
        uint32_t n;
        uint32_t expected[17];
    } cases[] = {
        {1, {0}},
        {2, {1, 0}},
        {3, {1, 0, 2}},
        {4, {3, 1, 0, 2}},
        {5, {3, 4, 1, 0, 2}},
        {16, {7, 13, 4, 1, 6, 2, 12, 15, 5, 0, 11, 14, 3, 9, 8, 10}},
        {17, {16, 6, 4, 7, 14, 1, 11, 2, 13, 5, 0, 12, 15, 3, 9, 8, 10}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        for (uint32_t i = 0; i < cases[c].n; i++)
            values[i] = i;
        assert_true(ydl_shuffle_u32(values, cases[c].n, 3, NULL));
        assert_memory_equal(values, cases[c].expected, cases[c].n * sizeof values[0]);
    }
}

/* 65,539 elements take many blocks of the generator and cross a power of two. The expected hash is
 * FNV-1a over the numbers as 64-bit words. */
static void test_long_shuffle_matches_numpy(void **state)
{
    (void)state;
    static const struct {
        uint32_t seed;
        uint64_t hash;
    } cases[] = {
        {0, 0xb9596a5b735def3a},     {1, 0x2d4e98a1c70334b0},          {7, 0xa649eddd91ad9d38},
        {12345, 0xf8fe568905b626f6}, {UINT32_MAX, 0x15896eb12bf0cce6},
    };
    const uint32_t n = 65539;
    uint32_t *narrow = test_malloc(n * sizeof *narrow);
    uint64_t *wide = test_malloc(n * sizeof *wide);
    for (size_t c = 0; c < COUNT(cases); c++) {
        for (uint32_t i = 0; i < n; i++)
            wide[i] = narrow[i] = i;
        assert_true(ydl_shuffle_u32(narrow, n, cases[c].seed, NULL));
        assert_true(ydl_shuffle_u64(wide, n, cases[c].seed, NULL));
        uint64_t hash = 14695981039346656037u;
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(wide[i], narrow[i]);
            hash = (hash ^ narrow[i]) * 1099511628211u;
        }
        assert_int_equal(hash, cases[c].hash);
    }
    test_free(narrow);
    test_free(wide);
}

/* l = list(range(n - n % k if drop else n))[rank::k]; RandomState((seed + epoch) %
 * 2**32).shuffle(l)
 */
static void test_orders_of_yogadl(void **state)
{
    (void)state;
    static const struct {
        struct ydl_order order;
        uint64_t epoch;
        uint64_t len;
        uint64_t expected[12];
    } cases[] = {
        {{.records = 23, .rank = 1, .num_shards = 4, .shuffle = true, .reshuffle = true, .seed = 7},
         0,
         6,
         {13, 21, 1, 9, 5, 17}},
        {{.records = 23,
          .rank = 3,
          .num_shards = 4,
          .drop_remainder = true,
          .shuffle = true,
          .reshuffle = true,
          .seed = 7},
         3,
         5,
         {11, 15, 3, 19, 7}},
        /* seed + epoch wraps to 1 */
        {{.records = 12, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = UINT32_MAX},
         2,
         12,
         {2, 3, 4, 10, 1, 6, 0, 7, 11, 9, 8, 5}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct ydl_indices indices = fill(&cases[c].order, cases[c].epoch);
        assert_int_equal(indices.len, cases[c].len);
        for (uint64_t i = 0; i < indices.len; i++)
            assert_int_equal(ydl_indices_at(&indices, i), cases[c].expected[i]);
        free(indices.values);
    }
}

static void check_shards(uint64_t records, uint64_t num_shards, bool drop, bool shuffle)
{
    const uint64_t kept = drop ? records - records % num_shards : records;
    uint8_t seen[128] = {0};
    for (uint64_t rank = 0; rank < num_shards; rank++) {
        struct ydl_order order = {
            .records = records,
            .rank = rank,
            .num_shards = num_shards,
            .drop_remainder = drop,
            .shuffle = shuffle,
            .seed = (uint32_t)records,
        };
        struct ydl_indices indices = fill(&order, 0);
        for (uint64_t i = 0; i < indices.len; i++) {
            uint64_t number = ydl_indices_at(&indices, i);
            assert_true(number < kept);
            assert_int_equal(number % num_shards, rank);
            seen[number]++;
            if (!shuffle)
                assert_int_equal(number, rank + i * num_shards);
        }
        if (drop)
            assert_int_equal(indices.len, records / num_shards);
        free(indices.values);
    }
    for (uint64_t i = 0; i < sizeof seen; i++)
        assert_int_equal(seen[i], i < kept ? 1 : 0);
}

static void test_shards_are_disjoint_and_cover(void **state)
{
    (void)state;
    for (uint64_t records = 0; records <= 40; records++)
        for (uint64_t num_shards = 1; num_shards <= 45; num_shards += 1 + num_shards / 8)
            for (int flags = 0; flags < 4; flags++)
                check_shards(records, num_shards, flags & 1, flags & 2);
}

static void test_epochs_differ_only_when_reshuffling(void **state)
{
    (void)state;
    struct ydl_order order = {.records = 50, .num_shards = 1, .shuffle = true, .seed = 5};
    struct ydl_indices first = fill(&order, 0);
    struct ydl_indices later = fill(&order, 9);
    assert_true(same(&first, &later));
    free(later.values);

    order.reshuffle = true;
    later = fill(&order, 9);
    assert_false(same(&first, &later));
    struct ydl_indices again = fill(&order, 9);
    assert_true(same(&later, &again));
    free(again.values);

    /* Epoch 9 of seed 5 is epoch 0 of seed 14, and 2^32 epochs later it comes again. */
    again = fill(&order, 9 + (UINT64_C(1) << 32));
    assert_true(same(&later, &again));
    free(again.values);
    order.seed = 14;
    again = fill(&order, 0);
    assert_true(same(&later, &again));
    free(again.values);
    free(later.values);
    free(first.values);
}

static void test_sequential_order_takes_no_memory(void **state)
{
    (void)state;
    struct ydl_order order = {.records = UINT64_MAX, .rank = 2, .num_shards = 3};
    struct ydl_indices indices = fill(&order, 0);
    assert_null(indices.values);
    assert_int_equal(indices.len, UINT64_MAX / 3);
    assert_int_equal(ydl_indices_at(&indices, indices.len - 1), UINT64_MAX - 1);
    free(indices.values);
}

/* Few records of a dataset with more than 2^32: the numbers need 64 bits. */
static void test_wide_numbers(void **state)
{
    (void)state;
    static const uint64_t expected[] = {7, 13, 4, 1, 6, 2, 12, 15, 5, 0, 11, 14, 3, 9, 8, 10};
    struct ydl_order order = {
        .records = (UINT64_C(1) << 40) + 6, /* 16 full rounds and six records of a 17th */
        .rank = 5,
        .num_shards = UINT64_C(1) << 36,
        .shuffle = true,
        .seed = 3,
    };
    struct ydl_indices indices = fill(&order, 0);
    assert_true(indices.wide);
    assert_int_equal(indices.len, 17);
    free(indices.values);

    order.drop_remainder = true;
    indices = fill(&order, 0);
    assert_int_equal(indices.len, COUNT(expected));
    for (uint64_t i = 0; i < indices.len; i++)
        assert_int_equal(ydl_indices_at(&indices, i), 5 + expected[i] * order.num_shards);
    free(indices.values);

    /* 2^32 records: the largest number still fits 32 bits. */
    order = (struct ydl_order){
        .records = UINT64_C(1) << 32,
        .rank = UINT32_MAX >> 1,
        .num_shards = UINT64_C(1) << 31,
        .shuffle = true,
        .seed = 3,
    };
    indices = fill(&order, 0);
    assert_false(indices.wide);
    assert_int_equal(ydl_indices_at(&indices, 0), UINT32_MAX);
    assert_int_equal(ydl_indices_at(&indices, 1), UINT32_MAX >> 1);
    free(indices.values);
}

static void test_bytes_of_an_epoch(void **state)
{
    (void)state;
    struct ydl_order order = {.records = UINT64_MAX, .num_shards = 1, .shuffle = true};
    assert_int_equal(ydl_order_bytes(&order), UINT64_MAX);
    order.num_shards = UINT64_C(1) << 40;
    assert_int_equal(ydl_order_bytes(&order), 8 << 24);
    order.scope = YDL_SCOPE_GLOBAL;
    assert_int_equal(ydl_order_bytes(&order), 0);
    order = (struct ydl_order){.records = 7, .num_shards = 2, .shuffle = true};
    assert_int_equal(ydl_order_bytes(&order), 16);
    order.shuffle = false;
    assert_int_equal(ydl_order_bytes(&order), 0);
    order = (struct ydl_order){.records = 1, .num_shards = 1, .shuffle = true};
    assert_int_equal(ydl_order_bytes(&order), 0);
}

/* Asked often, it stops wherever it is; and whoever is never told goes through. */
struct countdown {
    uint64_t left;
    uint64_t asked;
};

static bool is_at_zero(void *argument)
{
    struct countdown *countdown = argument;
    countdown->asked++;
    return countdown->left-- == 0;
}

static void test_stops_in_the_middle(void **state)
{
    (void)state;
    const struct ydl_order order = {.records = 100000, .num_shards = 1, .shuffle = true};
    struct ydl_indices whole = fill(&order, 0);
    struct ydl_indices indices;
    void *values = malloc(ydl_order_bytes(&order));
    assert_non_null(values);
    struct countdown never = {.left = UINT64_MAX};
    struct ydl_stop stop = {is_at_zero, &never};
    assert_true(ydl_order_fill(&order, 0, values, &stop, &indices));
    assert_true(same(&whole, &indices));
    assert_true(never.asked > order.records / 1000);
    for (uint64_t left = 0; left < never.asked; left += 1 + left / 8) {
        struct countdown countdown = {.left = left};
        stop.argument = &countdown;
        assert_false(ydl_order_fill(&order, 0, values, &stop, &indices));
        assert_int_equal(countdown.asked, left + 1);
    }
    free(values);
    free(whole.values);
}

static void test_cursor(void **state)
{
    (void)state;
    static const struct {
        uint64_t len, epoch, offset, want_epoch, want_position;
    } cases[] = {
        {10, 0, 0, 0, 0},
        {10, 0, 9, 0, 9},
        {10, 0, 10, 1, 0},
        {10, 4, 25, 6, 5},
        {1, 3, 7, 10, 0},
        {0, 0, 5, 0, 0},
        {0, 6, 0, 6, 0},
        {999999999989, 0, 1000000000000000000, 1000000, 11000000},
        {7, 2, 1000000000000000000, 142857142857142859, 1},
        {1, UINT64_MAX - 1, 1, UINT64_MAX, 0},
        {1, UINT64_MAX, 1, UINT64_MAX, 0},
        {3, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0},
        {UINT64_MAX, 1, UINT64_MAX - 1, 1, UINT64_MAX - 1},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct ydl_cursor cursor = ydl_cursor_at(cases[c].len, cases[c].epoch, cases[c].offset);
        assert_int_equal(cursor.epoch, cases[c].want_epoch);
        assert_int_equal(cursor.position, cases[c].want_position);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffle_of_ten_matches_numpy),
        cmocka_unit_test(test_short_lists_match_numpy),
        cmocka_unit_test(test_long_shuffle_matches_numpy),
        cmocka_unit_test(test_orders_of_yogadl),
        cmocka_unit_test(test_shards_are_disjoint_and_cover),
        cmocka_unit_test(test_epochs_differ_only_when_reshuffling),
        cmocka_unit_test(test_sequential_order_takes_no_memory),
        cmocka_unit_test(test_wide_numbers),
        cmocka_unit_test(test_bytes_of_an_epoch),
        cmocka_unit_test(test_stops_in_the_middle),
        cmocka_unit_test(test_cursor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
