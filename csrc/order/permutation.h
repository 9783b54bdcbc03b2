/* A shuffled order of n records that is computed place by place: a permutation of 0, ..., n - 1 as
 * a function of (seed, epoch, n). Called by order.c. Pure; a place costs some ten nanoseconds and
 * no memory, wherever it is.
 *
 * The order is a promise: a job that resumes under another version of ydl goes on with the same
 * permutation. What follows, and the values in tests/c/test_order_permutation.c, never change.
 *
 * A Feistel network on a grid of R rows and 2^b columns that has at least n cells, with cycle
 * walking for the cells beyond n (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains",
 * CT-RSA 2002). All arithmetic is modulo 2^64 unless said otherwise; / rounds down.
 *
 *   grid     m = max(n - 1, 255);  b = (bits of m) / 2;  R = m / 2^b + 1
 *   mix(z)   z ^= z >> 30;  z *= 0xbf58476d1ce4e5b9;  z ^= z >> 27;  z *= 0x94d049bb133111eb;
 *            z ^ (z >> 31)                 (the finalizer of SplitMix64: G. Steele, D. Lea,
 *            C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
 *   keys     g = 0x9e3779b97f4a7c15;  s = mix(seed + g);  s = mix((s ^ epoch) + g);
 *            s = mix((s ^ n) + g);  key[i] = mix(s + (i + 1) * g),  i = 0, ..., 7
 *   f(x, k)  z = (x ^ k) * 0xbf58476d1ce4e5b9;  z ^= z >> 32;  z *= 0x94d049bb133111eb;  z >> 32
 *   pass     row = x / 2^b, column = x % 2^b; then for i = 0, 2, 4, 6:
 *                row = (row + f(column, key[i]) * R / 2^32) mod R
 *                column = (column + f(row, key[i + 1])) mod 2^b
 *            x = row * 2^b + column
 *   place p  x = p; pass, and again while x >= n; x is the record
 *
 * Sums instead of the usual exclusive or, which gives even permutations only where the sides are
 * powers of two from 4 up. The grid is never smaller than 16 x 16, because a network on a few cells
 * needs many more rounds: eight on such a grid leave no trace in the pairs of places under 10^7
 * keys, and six do. It is no cipher: somebody who sees many places may well find the others. */
#ifndef YDL_ORDER_PERMUTATION_H
#define YDL_ORDER_PERMUTATION_H

#include <stdint.h>

enum { YDL_PERMUTATION_ROUNDS = 8 };

struct ydl_permutation {
    uint64_t n;
    uint64_t rows;        /* R, <= 2^32 */
    uint64_t column_mask; /* 2^b - 1 */
    uint32_t column_bits; /* b, <= 32 */
    uint64_t keys[YDL_PERMUTATION_ROUNDS];
};

/* Any n; one of 0 has no places. */
void ydl_permutation_init(struct ydl_permutation *permutation, uint64_t seed, uint64_t epoch,
                          uint64_t n);

/* The record at a place < n. */
uint64_t ydl_permutation_at(const struct ydl_permutation *permutation, uint64_t place);

/* The records at places first, first + step, ..., count of them, all < n. */
void ydl_permutation_copy(const struct ydl_permutation *permutation, uint64_t first, uint64_t step,
                          uint64_t count, uint64_t *out);

#endif
