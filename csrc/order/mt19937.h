/* MT19937 and the bounded draw of NumPy's legacy RandomState, bit for bit.
 *
 * Source: M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998 (init_genrand of
 * 2002); the masked rejection is numpy.random.RandomState's, frozen by NEP 19. Pure. */
#ifndef YDL_ORDER_MT19937_H
#define YDL_ORDER_MT19937_H

#include <stddef.h>
#include <stdint.h>

enum { YDL_MT19937_WORDS = 624 };

struct ydl_mt19937 {
    uint32_t key[YDL_MT19937_WORDS];
    uint32_t pos; /* words of key used up; YDL_MT19937_WORDS: generate first */
};

void ydl_mt19937_seed(struct ydl_mt19937 *rng, uint32_t seed);
uint32_t ydl_mt19937_next(struct ydl_mt19937 *rng);

/* The next n words; a bulk caller saves the call per word. */
void ydl_mt19937_fill(struct ydl_mt19937 *rng, uint32_t *out, size_t n);

/* A number in [0, max]: 32 bits are drawn where max fits them, else 64 (high word first). */
uint64_t ydl_mt19937_interval(struct ydl_mt19937 *rng, uint64_t max);

#endif
