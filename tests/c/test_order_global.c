/* Laws of the global scope: all ranks together go through the permutation, however many they are;
 * what is left out is the end of it; and it takes no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/order.h"

static struct ydl_indices fill(const struct ydl_order *order, uint64_t epoch)
{
    struct ydl_indices indices;
    assert_int_equal(ydl_order_bytes(order), 0);
    assert_true(ydl_order_fill(order, epoch, NULL, NULL, &indices));
    assert_int_equal(indices.len, ydl_order_len(order));
    assert_null(indices.values);
    return indices;
}

static void assert_ranks_share_the_sequence(struct ydl_order order, uint64_t epoch)
{
    struct ydl_permutation permutation;
    ydl_permutation_init(&permutation, order.seed, order.reshuffle ? epoch : 0, order.records);
    uint64_t kept = order.records - order.cut;
    if (order.drop_remainder)
        kept -= kept % order.num_shards;
    uint64_t total = 0;
    for (order.rank = 0; order.rank < order.num_shards; order.rank++) {
        struct ydl_indices indices = fill(&order, epoch);
        uint64_t *numbers = calloc(indices.len + 1, sizeof *numbers);
        assert_non_null(numbers);
        ydl_indices_copy(&indices, 0, indices.len, numbers);
        for (uint64_t i = 0; i < indices.len; i++) {
            const uint64_t place = i * order.num_shards + order.rank;
            const uint64_t expected =
                order.shuffle ? ydl_permutation_at(&permutation, place) : place;
            assert_true(place < kept);
            assert_int_equal(numbers[i], expected);
            assert_int_equal(ydl_indices_at(&indices, i), expected);
        }
        total += indices.len;
        free(numbers);
    }
    assert_int_equal(total, kept);
}

static void test_all_ranks_together_go_through_the_sequence(void **state)
{
    (void)state;
    for (uint64_t records = 0; records <= 30; records++)
        for (uint64_t num_shards = 1; num_shards <= 9; num_shards++)
            for (unsigned flags = 0; flags < 8; flags++) {
                struct ydl_order order = {
                    .records = records,
                    .num_shards = num_shards,
                    .drop_remainder = flags & 1,
                    .shuffle = flags & 2,
                    .reshuffle = flags & 4,
                    .scope = YDL_SCOPE_GLOBAL,
                    .seed = 11,
                };
                assert_ranks_share_the_sequence(order, 3);
                order.cut = records / 3;
                assert_ranks_share_the_sequence(order, 3);
            }
}

/* A shard of one record has still one of all, and not that of its rank. */
static void test_a_shard_of_one_record_is_shuffled(void **state)
{
    (void)state;
    struct ydl_order order = {
        .records = 10, .num_shards = 10, .shuffle = true, .scope = YDL_SCOPE_GLOBAL};
    struct ydl_indices indices = fill(&order, 0);
    assert_int_equal(indices.len, 1);
    assert_int_equal(ydl_indices_at(&indices, 0), 7); /* as promised in test_order_permutation.c */
}

static void test_epochs_differ_only_where_they_reshuffle(void **state)
{
    (void)state;
    struct ydl_order order = {.records = UINT64_MAX,
                              .num_shards = 1,
                              .shuffle = true,
                              .reshuffle = true,
                              .scope = YDL_SCOPE_GLOBAL};
    struct ydl_indices first = fill(&order, 0), later = fill(&order, UINT64_C(1) << 32);
    assert_true(ydl_indices_at(&first, 5) != ydl_indices_at(&later, 5));
    order.reshuffle = false;
    struct ydl_indices same = fill(&order, UINT64_C(1) << 32);
    assert_true(ydl_indices_at(&first, 5) == ydl_indices_at(&same, 5));
}

/* The other kinds of indices, by their bulk function. */
static void test_copies_of_the_shard_scope(void **state)
{
    (void)state;
    static const uint64_t wide_records = (UINT64_C(1) << 40) + 6;
    struct ydl_order orders[] = {
        {.records = 100, .rank = 1, .num_shards = 3},
        {.records = 100, .rank = 1, .num_shards = 3, .shuffle = true, .seed = 5},
        {.records = wide_records, .rank = 5, .num_shards = wide_records / 30, .shuffle = true},
    };
    for (size_t c = 0; c < sizeof orders / sizeof orders[0]; c++) {
        struct ydl_indices indices;
        uint64_t values[100];
        uint64_t numbers[100];
        assert_true(ydl_order_bytes(&orders[c]) <= sizeof values);
        assert_true(ydl_order_fill(&orders[c], 0, values, NULL, &indices));
        assert_int_equal(indices.wide, c == 2);
        for (uint64_t start = 0; start <= indices.len; start++) {
            ydl_indices_copy(&indices, start, indices.len - start, numbers);
            for (uint64_t i = start; i < indices.len; i++)
                assert_int_equal(numbers[i - start], ydl_indices_at(&indices, i));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ranks_together_go_through_the_sequence),
        cmocka_unit_test(test_a_shard_of_one_record_is_shuffled),
        cmocka_unit_test(test_epochs_differ_only_where_they_reshuffle),
        cmocka_unit_test(test_copies_of_the_shard_scope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
