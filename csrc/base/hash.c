#include "base/hash.h"

#include "base/hash_avx2.h"

/* Its own hints go beyond the end, into rows that nobody wants: 17 ns of a row of 784 B. */
#define XXH_NO_PREFETCH
#define XXH_INLINE_ALL
#if defined(__has_include)
#if !__has_include(<xxhash.h>)
#error                                                                                             \
    "ydl needs xxhash.h >= 0.8: apt-get install libxxhash-dev (Debian) or dnf install xxhash-devel (Fedora)"
#endif
#endif
#include <xxhash.h>
#if XXH_VERSION_NUMBER < 800
#error "ydl needs xxhash.h >= 0.8 (stable XXH3): update libxxhash-dev or xxhash-devel"
#endif

uint64_t ydl_hash(const void *bytes, size_t n)
{
    if (n >= YDL_HASH_AVX2_LEAST && ydl_hash_avx2_works())
        return ydl_hash_avx2(bytes, n);
    return XXH3_64bits(bytes, n);
}

struct ydl_hasher *ydl_hasher_new(void)
{
    /* The state wants 64-byte alignment, which only its own allocator gives. */
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return NULL;
    (void)XXH3_64bits_reset(state);
    return (struct ydl_hasher *)state;
}

void ydl_hasher_update(struct ydl_hasher *hasher, const void *bytes, size_t n)
{
    (void)XXH3_64bits_update((XXH3_state_t *)hasher, bytes, n);
}

uint64_t ydl_hasher_digest(const struct ydl_hasher *hasher)
{
    return XXH3_64bits_digest((const XXH3_state_t *)hasher);
}

void ydl_hasher_free(struct ydl_hasher *hasher)
{
    XXH3_freeState((XXH3_state_t *)hasher);
}
