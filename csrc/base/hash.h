/* XXH3-64, the hash of everything ydl stores (xxhash.h is inlined into hash.c at build time).
 *
 * It finds damage; it is no protection against somebody who wants to deceive (it has no key). */
#ifndef YDL_BASE_HASH_H
#define YDL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ydl_hash(const void *bytes, size_t n);

/* Streaming form for whole files; one owner, not shared between threads. */
struct ydl_hasher;
struct ydl_hasher *ydl_hasher_new(void); /* NULL without memory */
void ydl_hasher_update(struct ydl_hasher *hasher, const void *bytes, size_t n);
uint64_t ydl_hasher_digest(const struct ydl_hasher *hasher);
void ydl_hasher_free(struct ydl_hasher *hasher);

#endif
