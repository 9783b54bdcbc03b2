/* 64-byte-aligned buffers that are reused.
 *
 * 64, because TensorFlow takes an array without copying it only then. A block may outlive the
 * caller who got it and the pool's owner: NumPy and TensorFlow release it when they are done, about
 * two steps late, so the pool grows as needed and keeps at most max_idle_bytes of idle blocks.
 * Reuse is worth it because a fresh large block costs a page fault per 4 KiB. Thread-safe. */
#ifndef YDL_BATCH_POOL_H
#define YDL_BATCH_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { YDL_BLOCK_ALIGNMENT = 64 };

struct ydl_pool;

struct ydl_block {
    uint8_t *data; /* capacity bytes, aligned; owned by the block */
    size_t capacity;
    struct ydl_pool *pool;  /* counted */
    struct ydl_block *next; /* in the pool's idle list */
};

struct ydl_pool *ydl_pool_new(size_t max_idle_bytes); /* NULL without memory */
void ydl_pool_release(struct ydl_pool *pool); /* the owner's; lives on while blocks are out */

/* From now on keeps up to so many idle bytes, where that is more than before. */
void ydl_pool_keep(struct ydl_pool *pool, size_t max_idle_bytes);

/* At least `bytes` (0 is fine), not cleared. */
YDL_MUST_CHECK enum ydl_status ydl_pool_take(struct ydl_pool *pool, size_t bytes,
                                             struct ydl_block **out, struct ydl_error *err);
void ydl_block_release(struct ydl_block *block); /* NULL-safe; any thread */

#endif
