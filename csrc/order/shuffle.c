/* numpy.random.RandomState(seed).shuffle: Fisher-Yates from the last element down, each partner
 * drawn by masked rejection.
 *
 * A rejection is a coin flip that no branch predictor guesses, and the swap after it misses the
 * cache. So a block of words is filtered first, without branches, and the swaps are done second:
 * their addresses are then known early and their cache misses overlap. */
#include "order/mt19937.h"
#include "order/order.h"

enum {
    BLOCK_WORDS = YDL_MT19937_WORDS, /* what one generation of the twister yields */
    AHEAD = 16,                      /* swaps between a prefetch and its use */
    DRAWN_AT_ONCE = 1 << 6,          /* of the numbers beyond 2^32, one by one */
};

struct picker {
    struct ydl_mt19937 rng;
    uint32_t words[BLOCK_WORDS];
    uint32_t used; /* of words */
    uint32_t picks[BLOCK_WORDS + AHEAD];
};

static void picker_init(struct picker *picker, uint32_t seed)
{
    ydl_mt19937_seed(&picker->rng, seed);
    picker->used = BLOCK_WORDS;
    /* What lies behind the picks of a round is only prefetched, which never faults. */
    for (int i = 0; i < BLOCK_WORDS + AHEAD; i++)
        picker->picks[i] = 0;
}

/* Fills picks[] with numbers in [0, max], [0, max - 1], ... and says how many (possibly none):
 * until the block is used up or the bound falls below a power of two and the mask changes. */
static uint32_t pick(struct picker *picker, uint32_t max)
{
    if (picker->used == BLOCK_WORDS) {
        ydl_mt19937_fill(&picker->rng, picker->words, BLOCK_WORDS);
        picker->used = 0;
    }
    const uint32_t mask = UINT32_MAX >> __builtin_clz(max);
    const uint32_t lowest = mask / 2 + 1; /* the smallest bound with this mask */
    uint32_t wanted = max - lowest + 1;
    uint32_t used = picker->used;
    uint32_t count = 0;
    while (used < BLOCK_WORDS && count < wanted) {
        uint32_t value = picker->words[used++] & mask;
        picker->picks[count] = value; /* overwritten by the next one where rejected */
        count += value <= max - count;
    }
    picker->used = used;
    return count;
}

#define YDL_DEFINE_SHUFFLE(bits)                                                                   \
    static inline void swap_u##bits(uint##bits##_t *values, uint64_t i, uint64_t j)                \
    {                                                                                              \
        uint##bits##_t value = values[i];                                                          \
        values[i] = values[j];                                                                     \
        values[j] = value;                                                                         \
    }                                                                                              \
                                                                                                   \
    bool ydl_shuffle_u##bits(uint##bits##_t *values, uint64_t n, uint32_t seed,                    \
                             const struct ydl_stop *stop)                                          \
    {                                                                                              \
        struct picker picker;                                                                      \
        picker_init(&picker, seed);                                                                \
        uint64_t i = n > 0 ? n - 1 : 0;                                                            \
        for (; i > UINT32_MAX; i--) {                                                              \
            if (i % DRAWN_AT_ONCE == 0 && ydl_stop_is_asked(stop))                                 \
                return false;                                                                      \
            swap_u##bits(values, i, ydl_mt19937_interval(&picker.rng, i));                         \
        }                                                                                          \
        while (i > 0) {                                                                            \
            if (ydl_stop_is_asked(stop))                                                           \
                return false;                                                                      \
            uint32_t count = pick(&picker, (uint32_t)i);                                           \
            for (uint32_t k = 0; k < count; k++) {                                                 \
                __builtin_prefetch(&values[picker.picks[k + AHEAD]], 1);                           \
                swap_u##bits(values, i - k, picker.picks[k]);                                      \
            }                                                                                      \
            i -= count;                                                                            \
        }                                                                                          \
        return true;                                                                               \
    }
YDL_DEFINE_SHUFFLE(32)
YDL_DEFINE_SHUFFLE(64)
