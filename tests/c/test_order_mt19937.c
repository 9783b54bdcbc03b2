/* Known answers of NumPy's legacy generator: MT19937 seeded by RandomState(seed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "order/mt19937.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* MT19937()._legacy_seeding(seed); random_raw(2000)[[0, 1, 2, 3, 623, 624, 1999]] */
static void test_words_match_numpy(void **state)
{
    (void)state;
    static const int places[] = {0, 1, 2, 3, 623, 624, 1999};
    static const struct {
        uint32_t seed;
        uint32_t words[COUNT(places)];
    } cases[] = {
        {0, {2357136044, 2546248239, 3071714933, 3626093760, 3791854820, 341544762, 3856691381}},
        {1, {1791095845, 4282876139, 3093770124, 4005303368, 2006116153, 1104314680, 138279050}},
        {7, {327741615, 976413892, 3349725721, 1369975286, 3222554838, 3732577367, 1233290179}},
        {12345,
         {3992670690, 3823185381, 1358822685, 561383553, 2940097750, 3957348375, 3374551203}},
        {UINT32_MAX,
         {419326371, 479346978, 3918654476, 2416749639, 1027084080, 3860652269, 1762272365}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct ydl_mt19937 rng;
        ydl_mt19937_seed(&rng, cases[c].seed);
        size_t place = 0;
        for (int i = 0; i < 2000; i++) {
            uint32_t word = ydl_mt19937_next(&rng);
            if (i == places[place])
                assert_int_equal(word, cases[c].words[place++]);
        }
        assert_int_equal(place, COUNT(places));
    }
}

static void test_fill_is_next_repeated(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 0, 623, 624, 5, 1300};
    struct ydl_mt19937 one;
    struct ydl_mt19937 bulk;
    ydl_mt19937_seed(&one, 7);
    ydl_mt19937_seed(&bulk, 7);
    uint32_t words[1300];
    for (size_t c = 0; c < COUNT(lengths); c++) {
        ydl_mt19937_fill(&bulk, words, lengths[c]);
        for (size_t i = 0; i < lengths[c]; i++)
            assert_int_equal(words[i], ydl_mt19937_next(&one));
    }
}

/* numpy's random_interval over the words above; the word behind the last draw shows how many it
 * took. */
static void test_interval_matches_numpy(void **state)
{
    (void)state;
    static const uint64_t bounds[] = {
        UINT64_C(1) << 32, 1000000000000, UINT64_MAX, UINT32_MAX, 5, 0, (UINT64_C(1) << 40) + 1,
    };
    static const struct {
        uint32_t seed;
        uint64_t draws[COUNT(bounds)];
        uint32_t behind;
    } cases[] = {
        {0,
         {2546248239, 506137267392, 11119021634053362427u, 2340255427, 1, 0, 909012193557},
         1650906866},
        {7,
         {1322904761, 611018672663, 9244040966043914585u, 309457262, 2, 0, 936371205000},
         2146978983},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct ydl_mt19937 rng;
        ydl_mt19937_seed(&rng, cases[c].seed);
        for (size_t i = 0; i < COUNT(bounds); i++)
            assert_int_equal(ydl_mt19937_interval(&rng, bounds[i]), cases[c].draws[i]);
        assert_int_equal(ydl_mt19937_next(&rng), cases[c].behind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_match_numpy),
        cmocka_unit_test(test_fill_is_next_repeated),
        cmocka_unit_test(test_interval_matches_numpy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
