#include "base/hash_avx2.h"

#ifdef __x86_64__

/* Before the pragma, which is for what follows it. */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR XXH_AVX2
#define XXH_NO_PREFETCH /* see hash.c */
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ydl_hash_avx2(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

#ifdef __clang__
#pragma clang attribute pop
#endif

#else

typedef int ydl_no_avx2; /* a file is not empty */

#endif
