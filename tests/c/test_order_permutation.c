/* The permutation of the global order: its promised values, the law that it is one, and that it
 * looks like one drawn at random. The keys are fixed, so that the statistics are, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/permutation.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_SMALL = 20, BINS = 32 };

static struct ydl_permutation make(uint64_t seed, uint64_t epoch, uint64_t n)
{
    struct ydl_permutation permutation;
    ydl_permutation_init(&permutation, seed, epoch, n);
    return permutation;
}

/* The two tables of promised values come from the model in tests/test_global_order.py. */
static void test_whole_orders_that_never_change(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, epoch, n;
        uint64_t expected[10];
    } cases[] = {
        {0, 0, 10, {7, 9, 2, 3, 0, 6, 5, 8, 4, 1}},
        {0, 1, 10, {0, 6, 1, 4, 7, 8, 9, 2, 3, 5}},
        {1, 0, 10, {8, 3, 4, 9, 6, 5, 7, 0, 1, 2}},
        {0, 0, 9, {5, 0, 3, 8, 2, 7, 6, 1, 4}},
        {UINT32_MAX, UINT64_MAX, 10, {6, 9, 5, 2, 3, 7, 8, 0, 1, 4}},
        {7, 3, 5, {4, 3, 0, 2, 1}},
        {7, 0, 2, {1, 0}},
        {7, 0, 1, {0}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct ydl_permutation permutation = make(cases[c].seed, cases[c].epoch, cases[c].n);
        for (uint64_t i = 0; i < cases[c].n; i++)
            assert_int_equal(ydl_permutation_at(&permutation, i), cases[c].expected[i]);
    }
}

static void test_single_places_that_never_change(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, epoch, n;
        uint64_t expected[4]; /* at places 0, 1, n / 2 and n - 1 */
    } cases[] = {
        {0, 0, 256, {163, 62, 142, 131}},
        {0, 0, 257, {242, 223, 30, 134}},
        {5, 2, 1000, {394, 787, 770, 438}},
        {1, 0, UINT64_C(1) << 20, {824929, 847132, 766419, 735680}},
        {1, 0, (UINT64_C(1) << 20) + 1, {765760, 144955, 168419, 530674}},
        {3, 1, (UINT64_C(1) << 40) + 6, {262572380350, 413038995116, 10326334530, 518096011254}},
        {9,
         4,
         UINT64_C(1) << 63,
         {7264298287244797115, 5570454640602307465, 392379403613571285, 6052887015506746674}},
        {9,
         4,
         UINT64_MAX,
         {UINT64_C(8965055916243497304), UINT64_C(3079863692795765198),
          UINT64_C(9946105681082956806), UINT64_C(14326986099783529445)}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        const uint64_t n = cases[c].n;
        const uint64_t places[] = {0, 1, n / 2, n - 1};
        struct ydl_permutation permutation = make(cases[c].seed, cases[c].epoch, n);
        for (size_t i = 0; i < COUNT(places); i++)
            assert_true(ydl_permutation_at(&permutation, places[i]) == cases[c].expected[i]);
    }
}

static void assert_permutation(uint64_t seed, uint64_t n)
{
    struct ydl_permutation permutation = make(seed, seed / 3, n);
    uint64_t *numbers = calloc(n + 1, sizeof *numbers);
    bool *seen = calloc(n + 1, sizeof *seen);
    assert_true(numbers && seen);
    numbers[n] = 77;
    ydl_permutation_copy(&permutation, 0, 1, n, numbers);
    assert_int_equal(numbers[n], 77);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(numbers[i] < n && !seen[numbers[i]]);
        seen[numbers[i]] = true;
    }
    free(numbers);
    free(seen);
}

static void test_every_number_comes_once(void **state)
{
    (void)state;
    for (uint64_t n = 0; n <= 300; n++)
        for (uint64_t seed = 0; seed < 5; seed++)
            assert_permutation(seed, n);
    static const uint64_t sizes[] = {511, 512, 513, 4095, 4097, 8191, 8193, 65536, 65537, 300007};
    for (size_t c = 0; c < COUNT(sizes); c++)
        assert_permutation(c, sizes[c]);
}

/* Any first, step and count, also such that the last few do not fill the lanes. */
static void test_a_copy_is_place_by_place(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 7, 200, 257, 100000, UINT64_C(1) << 41, UINT64_MAX};
    uint64_t numbers[200];
    for (size_t c = 0; c < COUNT(sizes); c++) {
        struct ydl_permutation permutation = make(c, 5, sizes[c]);
        for (uint64_t count = 1; count <= 200 && count <= sizes[c]; count += count < 20 ? 1 : 45) {
            const uint64_t step = sizes[c] / count;
            for (uint64_t first = 0; first < 3 && first + (count - 1) * step < sizes[c]; first++) {
                ydl_permutation_copy(&permutation, first, step, count, numbers);
                for (uint64_t i = 0; i < count; i++)
                    assert_true(numbers[i] == ydl_permutation_at(&permutation, first + i * step));
            }
        }
    }
}

/* ---- statistics ---- */

/* Chi-square of counts that should be equal, against 5 standard deviations beyond what `free`
 * degrees of freedom give: chance alone passes them once in a million. */
static void assert_even(const uint32_t *counts, size_t cells, double expected, double degrees)
{
    double sum = 0;
    for (size_t i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    const double excess = sum - degrees;
    assert_true(excess < 0 || excess * excess < 25 * 2 * degrees);
}

static void test_every_place_has_every_number_alike(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    for (uint64_t n = 2; n <= MAX_SMALL; n++) {
        uint32_t counts[MAX_SMALL * MAX_SMALL] = {0};
        for (uint64_t seed = 0; seed < KEYS; seed++) {
            struct ydl_permutation permutation = make(seed, 0, n);
            for (uint64_t i = 0; i < n; i++)
                counts[i * n + ydl_permutation_at(&permutation, i)]++;
        }
        const double degrees = (double)((n - 1) * (n - 1));
        assert_even(counts, n * n, (double)KEYS / (double)n, degrees);
    }
}

/* The rank of a permutation of n <= 5 among all: its Lehmer code. */
static size_t rank_of(const struct ydl_permutation *permutation)
{
    const uint64_t n = permutation->n;
    size_t rank = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t number = ydl_permutation_at(permutation, i);
        uint64_t smaller = 0;
        for (uint64_t j = i + 1; j < n; j++)
            smaller += ydl_permutation_at(permutation, j) < number;
        rank = rank * (n - i) + smaller;
    }
    return rank;
}

static void test_all_orders_of_few_records_come_alike(void **state)
{
    (void)state;
    enum { KEYS = 24000 };
    static const size_t factorial[] = {1, 1, 2, 6, 24, 120};
    for (uint64_t n = 2; n <= 5; n++) {
        uint32_t by_seed[120] = {0}, by_epoch[120] = {0};
        for (uint64_t key = 0; key < KEYS; key++) {
            struct ydl_permutation permutation = make(key, 0, n);
            by_seed[rank_of(&permutation)]++;
            permutation = make(3, key, n);
            by_epoch[rank_of(&permutation)]++;
        }
        const double expected = (double)KEYS / (double)factorial[n];
        assert_even(by_seed, factorial[n], expected, (double)factorial[n] - 1);
        assert_even(by_epoch, factorial[n], expected, (double)factorial[n] - 1);
    }
}

/* Two given places, in one row of the grid and in two, have all pairs of different numbers alike.
 */
static void test_pairs_of_places_have_all_pairs_of_numbers_alike(void **state)
{
    (void)state;
    enum { KEYS = 40000 };
    static const uint64_t sizes[] = {6, 16, 17};
    static const uint64_t places[][2] = {{0, 1}, {1, 5}, {5, 4}};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        const uint64_t n = sizes[s];
        for (size_t p = 0; p < COUNT(places); p++) {
            uint32_t counts[17 * 17] = {0};
            const double expected = (double)KEYS / (double)(n * (n - 1));
            for (uint64_t seed = 0; seed < KEYS; seed++) {
                struct ydl_permutation permutation = make(seed, 1, n);
                uint64_t first = ydl_permutation_at(&permutation, places[p][0]);
                uint64_t second = ydl_permutation_at(&permutation, places[p][1]);
                counts[first * (n - 1) + second - (second > first)]++;
            }
            assert_even(counts, n * (n - 1), expected, (double)(n * (n - 1) - 1));
        }
    }
}

/* Numbers sorted into BINS x BINS by the two orders (or two places) that they come from. */
static void assert_unrelated(const struct ydl_permutation *a, const struct ydl_permutation *b,
                             uint64_t shift)
{
    enum { PLACES = 1 << 16 };
    static uint32_t counts[BINS * BINS];
    memset(counts, 0, sizeof counts);
    const uint64_t width = a->n / BINS + 1;
    for (uint64_t i = 0; i < PLACES; i++)
        counts[ydl_permutation_at(a, i) / width * BINS +
               ydl_permutation_at(b, i + shift) / width]++;
    assert_even(counts, BINS * BINS, (double)PLACES / (BINS * BINS), BINS * BINS - 1);
}

static void test_neighbours_epochs_and_seeds_are_unrelated(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1 << 20, (1 << 21) - 31, UINT64_C(1) << 45};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        struct ydl_permutation base = make(4, 6, sizes[s]);
        struct ydl_permutation epoch = make(4, 7, sizes[s]);
        struct ydl_permutation seed = make(5, 6, sizes[s]);
        struct ydl_permutation swapped = make(6, 4, sizes[s]);
        struct ydl_permutation both = make(5, 5, sizes[s]);
        struct ydl_permutation size = make(4, 6, sizes[s] + 1);
        assert_unrelated(&base, &base, 1);
        assert_unrelated(&base, &base, 2);
        assert_unrelated(&base, &base, 1 << 10);
        assert_unrelated(&base, &epoch, 0);
        assert_unrelated(&base, &seed, 0);
        assert_unrelated(&base, &seed, 1);
        assert_unrelated(&base, &swapped, 0);
        assert_unrelated(&base, &both, 0);
        assert_unrelated(&base, &size, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_orders_that_never_change),
        cmocka_unit_test(test_single_places_that_never_change),
        cmocka_unit_test(test_every_number_comes_once),
        cmocka_unit_test(test_a_copy_is_place_by_place),
        cmocka_unit_test(test_every_place_has_every_number_alike),
        cmocka_unit_test(test_all_orders_of_few_records_come_alike),
        cmocka_unit_test(test_pairs_of_places_have_all_pairs_of_numbers_alike),
        cmocka_unit_test(test_neighbours_epochs_and_seeds_are_unrelated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
