#include "order/mt19937.h"

enum { SHIFT = 397 }; /* the paper's m: how far ahead the recurrence looks */

void ydl_mt19937_seed(struct ydl_mt19937 *rng, uint32_t seed)
{
    /* Knuth, TAOCP vol. 2, 3rd ed., p. 106, line 15: the multiplier of init_genrand. */
    uint32_t word = seed;
    for (uint32_t i = 0; i < YDL_MT19937_WORDS; i++) {
        rng->key[i] = word;
        word = 1812433253u * (word ^ (word >> 30)) + i + 1;
    }
    rng->pos = YDL_MT19937_WORDS;
}

/* The upper bit of one word joined with the lower 31 of the next, times the twist matrix. */
static uint32_t twist(uint32_t upper, uint32_t lower)
{
    uint32_t joined = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return (joined >> 1) ^ (-(lower & 1u) & 0x9908b0dfu);
}

static void generate(struct ydl_mt19937 *rng)
{
    uint32_t *key = rng->key;
    int i = 0;
    for (; i < YDL_MT19937_WORDS - SHIFT; i++)
        key[i] = key[i + SHIFT] ^ twist(key[i], key[i + 1]);
    for (; i < YDL_MT19937_WORDS - 1; i++)
        key[i] = key[i + SHIFT - YDL_MT19937_WORDS] ^ twist(key[i], key[i + 1]);
    key[i] = key[SHIFT - 1] ^ twist(key[i], key[0]);
    rng->pos = 0;
}

static uint32_t temper(uint32_t word)
{
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
}

uint32_t ydl_mt19937_next(struct ydl_mt19937 *rng)
{
    if (rng->pos == YDL_MT19937_WORDS)
        generate(rng);
    return temper(rng->key[rng->pos++]);
}

void ydl_mt19937_fill(struct ydl_mt19937 *rng, uint32_t *out, size_t n)
{
    while (n > 0) {
        if (rng->pos == YDL_MT19937_WORDS)
            generate(rng);
        size_t ready = YDL_MT19937_WORDS - rng->pos;
        size_t taken = n < ready ? n : ready;
        for (size_t i = 0; i < taken; i++)
            out[i] = temper(rng->key[rng->pos + i]);
        rng->pos += (uint32_t)taken;
        out += taken;
        n -= taken;
    }
}

uint64_t ydl_mt19937_interval(struct ydl_mt19937 *rng, uint64_t max)
{
    if (max == 0)
        return 0;
    uint64_t mask = UINT64_MAX >> __builtin_clzll(max);
    uint64_t value;
    do {
        value = ydl_mt19937_next(rng);
        if (max > UINT32_MAX)
            value = value << 32 | ydl_mt19937_next(rng);
        value &= mask;
    } while (value > max);
    return value;
}
