/* XXH3-64, whichever instructions compute it. */
#include "support.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/hash_avx2.h"

enum { MOST = 5000, PLACES = 3 };

static void test_known_values(void **state)
{
    (void)state;
    /* xxHash's own sanity test: no bytes, seed 0. */
    assert_true(ydl_hash("", 0) == UINT64_C(0x2D06800538D394C2));
}

/* The streaming form knows nothing of AVX2. */
static void test_both_forms_agree(void **state)
{
    (void)state;
    uint8_t bytes[MOST + PLACES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 251);
    for (size_t n = 0; n <= MOST; n += n < 1200 ? 1 : 61) {
        const uint8_t *begin = bytes + n % PLACES;
        size_t half = n / 2;
        struct ydl_hasher *hasher = ydl_hasher_new();
        assert_non_null(hasher);
        ydl_hasher_update(hasher, begin, half);
        ydl_hasher_update(hasher, begin + half, n - half);
        assert_true(ydl_hasher_digest(hasher) == ydl_hash(begin, n));
        if (n >= YDL_HASH_AVX2_LEAST && ydl_hash_avx2_works())
            assert_true(ydl_hasher_digest(hasher) == ydl_hash_avx2(begin, n));
        ydl_hasher_free(hasher);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_both_forms_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
