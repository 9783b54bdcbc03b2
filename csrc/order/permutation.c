/* One pass is a chain of multiplications, each of which waits for the one before. So several places
 * go through the rounds side by side, and those that have to walk on are gathered without branches,
 * of which no predictor would guess any. */
#include "order/permutation.h"

#include <assert.h>

enum {
    LANES = 8,  /* places side by side: more gain nothing, four cost a quarter more time */
    BLOCK = 64, /* places whose walks are gathered; a multiple of LANES */
    SMALLEST_GRID = 256,
};

static const uint64_t GOLDEN = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t MIX_1 = UINT64_C(0xbf58476d1ce4e5b9);
static const uint64_t MIX_2 = UINT64_C(0x94d049bb133111eb);

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * MIX_1;
    z = (z ^ (z >> 27)) * MIX_2;
    return z ^ (z >> 31);
}

void ydl_permutation_init(struct ydl_permutation *permutation, uint64_t seed, uint64_t epoch,
                          uint64_t n)
{
    const uint64_t last = n > SMALLEST_GRID ? n - 1 : SMALLEST_GRID - 1;
    const uint32_t bits = 64 - (uint32_t)__builtin_clzll(last);
    permutation->n = n;
    permutation->column_bits = bits / 2;
    permutation->column_mask = (UINT64_C(1) << permutation->column_bits) - 1;
    permutation->rows = (last >> permutation->column_bits) + 1;

    /* One after the other, so that no two of the three can stand in for each other. */
    uint64_t state = mix(seed + GOLDEN);
    state = mix((state ^ epoch) + GOLDEN);
    state = mix((state ^ n) + GOLDEN);
    for (int i = 0; i < YDL_PERMUTATION_ROUNDS; i++) {
        state += GOLDEN;
        permutation->keys[i] = mix(state);
    }
}

/* 32 bits. */
static inline uint64_t scramble(uint64_t x, uint64_t key)
{
    uint64_t z = (x ^ key) * MIX_1;
    z ^= z >> 32;
    return (z * MIX_2) >> 32;
}

static inline uint64_t next_row(uint64_t row, uint64_t column, uint64_t key, uint64_t rows)
{
    uint64_t sum = row + (scramble(column, key) * rows >> 32);
    return sum >= rows ? sum - rows : sum;
}

static inline uint64_t next_column(uint64_t column, uint64_t row, uint64_t key, uint64_t mask)
{
    return (column + scramble(row, key)) & mask;
}

static uint64_t pass(const struct ydl_permutation *permutation, uint64_t x)
{
    uint64_t row = x >> permutation->column_bits;
    uint64_t column = x & permutation->column_mask;
    for (int i = 0; i < YDL_PERMUTATION_ROUNDS; i += 2) {
        row = next_row(row, column, permutation->keys[i], permutation->rows);
        column = next_column(column, row, permutation->keys[i + 1], permutation->column_mask);
    }
    return row << permutation->column_bits | column;
}

static void pass_lanes(const struct ydl_permutation *permutation, uint64_t values[LANES])
{
    const uint64_t rows = permutation->rows;
    const uint64_t mask = permutation->column_mask;
    uint64_t row[LANES], column[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        row[lane] = values[lane] >> permutation->column_bits;
        column[lane] = values[lane] & mask;
    }
    for (int i = 0; i < YDL_PERMUTATION_ROUNDS; i += 2) {
        const uint64_t row_key = permutation->keys[i];
        const uint64_t column_key = permutation->keys[i + 1];
        for (int lane = 0; lane < LANES; lane++)
            row[lane] = next_row(row[lane], column[lane], row_key, rows);
        for (int lane = 0; lane < LANES; lane++)
            column[lane] = next_column(column[lane], row[lane], column_key, mask);
    }
    for (int lane = 0; lane < LANES; lane++)
        values[lane] = row[lane] << permutation->column_bits | column[lane];
}

uint64_t ydl_permutation_at(const struct ydl_permutation *permutation, uint64_t place)
{
    assert(place < permutation->n);
    /* Ends: a walk is the part of a cycle between two numbers below n. */
    uint64_t x = pass(permutation, place);
    while (x >= permutation->n)
        x = pass(permutation, x);
    return x;
}

/* One more pass for values that are still beyond n, until none is. */
static void walk(const struct ydl_permutation *permutation, uint64_t values[BLOCK], uint32_t count)
{
    uint32_t beyond[BLOCK];
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        beyond[left] = i; /* overwritten by the next one where this one is done */
        left += values[i] >= permutation->n;
    }
    while (left > 0) {
        const uint32_t walking = left;
        left = 0;
        for (uint32_t k = 0; k < walking; k++) {
            const uint32_t i = beyond[k];
            values[i] = pass(permutation, values[i]);
            beyond[left] = i;
            left += values[i] >= permutation->n;
        }
    }
}

void ydl_permutation_copy(const struct ydl_permutation *permutation, uint64_t first, uint64_t step,
                          uint64_t count, uint64_t *out)
{
    uint64_t values[BLOCK];
    for (uint64_t done = 0; done < count; done += BLOCK) {
        const uint32_t size = count - done < BLOCK ? (uint32_t)(count - done) : BLOCK;
        const uint32_t padded = (size + LANES - 1) / LANES * LANES;
        for (uint32_t i = 0; i < padded; i++)
            values[i] = i < size ? first + (done + i) * step : 0;
        for (uint32_t i = 0; i < padded; i += LANES)
            pass_lanes(permutation, values + i);
        walk(permutation, values, size);
        for (uint32_t i = 0; i < size; i++)
            out[done + i] = values[i];
    }
}
