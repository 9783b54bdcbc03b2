/* Little-endian loads and stores, and arithmetic that refuses to overflow.
 *
 * Sizes that come from a file or a peer are added and multiplied only through the checked
 * functions; they return false, and leave *out alone, where the result does not fit. */
#ifndef YDL_BASE_BYTES_H
#define YDL_BASE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ydl supports little-endian machines only: its files are mapped, not converted"
#endif

#define YDL_DEFINE_LOAD_STORE(bits)                                                                \
    static inline uint##bits##_t ydl_load_u##bits(const void *from)                                \
    {                                                                                              \
        uint##bits##_t value;                                                                      \
        memcpy(&value, from, sizeof value);                                                        \
        return value;                                                                              \
    }                                                                                              \
    static inline void ydl_store_u##bits(void *to, uint##bits##_t value)                           \
    {                                                                                              \
        memcpy(to, &value, sizeof value);                                                          \
    }
YDL_DEFINE_LOAD_STORE(32)
YDL_DEFINE_LOAD_STORE(64)
#undef YDL_DEFINE_LOAD_STORE

static inline bool ydl_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

static inline bool ydl_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

/* alignment: a power of two. */
static inline bool ydl_align_u64(uint64_t value, uint64_t alignment, uint64_t *out)
{
    uint64_t bumped;
    if (!ydl_add_u64(value, alignment - 1, &bumped))
        return false;
    *out = bumped & ~(alignment - 1);
    return true;
}

#endif
