/* Copies past the caches: the same bytes as memcpy's, and none beside them. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "base/copy.h"

enum { MARGIN = 64, MOST = 1000 };

static void test_any_place_and_size(void **state)
{
    (void)state;
    uint8_t from[MOST + MARGIN];
    uint8_t *to = aligned_alloc(64, MARGIN + 1024 + MARGIN);
    assert_non_null(to);
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t place = 0; place < 33; place++) {
        for (size_t n = 0; n <= MOST; n += n < 200 ? 1 : 37) {
            const uint8_t *begin = from + place * 5 % MARGIN;
            memset(to, 0xee, MARGIN + 1024 + MARGIN);
            ydl_copy_stream(to + place, begin, n);
            ydl_copy_stream_end();
            assert_memory_equal(to + place, begin, n);
            for (size_t i = 0; i < place; i++)
                assert_int_equal(to[i], 0xee);
            assert_int_equal(to[place + n], 0xee);
        }
    }
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_place_and_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
