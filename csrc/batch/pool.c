#include "batch/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

enum {
    /* Blocks are sized in pages, so that batches of nearly equal size share them. */
    BLOCK_GRAIN_BYTES = 4096,
    /* From this size on in huge pages, where the system has some: a new block of 19 MB costs 10
     * page faults then instead of 4,700, which take longer than filling it. */
    HUGE_BLOCK_BYTES = 4 << 20,
    HUGE_PAGE_BYTES = 2 << 20,
};

struct ydl_pool {
    pthread_mutex_t lock;
    pid_t pid; /* of the process that made the pool */
    /* Under lock: */
    size_t max_idle_bytes;
    size_t refs; /* the owner's, and one per block that is out */
    size_t idle_bytes;
    struct ydl_block *idle; /* owned, most recently used first */
};

struct ydl_pool *ydl_pool_new(size_t max_idle_bytes)
{
    struct ydl_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->max_idle_bytes = max_idle_bytes;
    pool->pid = getpid();
    pool->refs = 1;
    return pool;
}

static void free_block(struct ydl_block *block)
{
    free(block->data);
    free(block);
}

static void free_pool(struct ydl_pool *pool)
{
    while (pool->idle) {
        struct ydl_block *block = pool->idle;
        pool->idle = block->next;
        free_block(block);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static void unref_pool(struct ydl_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool last = --pool->refs == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        free_pool(pool);
}

void ydl_pool_release(struct ydl_pool *pool)
{
    unref_pool(pool);
}

void ydl_pool_keep(struct ydl_pool *pool, size_t max_idle_bytes)
{
    pthread_mutex_lock(&pool->lock);
    if (max_idle_bytes > pool->max_idle_bytes)
        pool->max_idle_bytes = max_idle_bytes;
    pthread_mutex_unlock(&pool->lock);
}

static struct ydl_block *take_idle_locked(struct ydl_pool *pool, size_t bytes)
{
    for (struct ydl_block **at = &pool->idle; *at; at = &(*at)->next) {
        struct ydl_block *block = *at;
        /* Not a much larger one: it would be missing where it is needed. */
        if (block->capacity < bytes || block->capacity / 2 > bytes + BLOCK_GRAIN_BYTES)
            continue;
        *at = block->next;
        pool->idle_bytes -= block->capacity;
        return block;
    }
    return NULL;
}

static struct ydl_block *new_block(struct ydl_pool *pool, size_t bytes)
{
    uint64_t capacity;
    const size_t grain = bytes >= HUGE_BLOCK_BYTES ? HUGE_PAGE_BYTES : BLOCK_GRAIN_BYTES;
    if (!ydl_align_u64(bytes ? bytes : 1, grain, &capacity))
        return NULL;
    struct ydl_block *block = malloc(sizeof *block);
    if (!block)
        return NULL;
    *block = (struct ydl_block){.capacity = capacity, .pool = pool};
    const bool is_huge = capacity >= HUGE_BLOCK_BYTES;
    block->data = aligned_alloc(is_huge ? HUGE_PAGE_BYTES : YDL_BLOCK_ALIGNMENT, capacity);
    if (!block->data) {
        free(block);
        return NULL;
    }
    if (is_huge)
        (void)madvise(block->data, capacity, MADV_HUGEPAGE); /* a hint */
    return block;
}

enum ydl_status ydl_pool_take(struct ydl_pool *pool, size_t bytes, struct ydl_block **out,
                              struct ydl_error *err)
{
    pthread_mutex_lock(&pool->lock);
    struct ydl_block *block = take_idle_locked(pool, bytes);
    pool->refs++;
    pthread_mutex_unlock(&pool->lock);

    if (!block)
        block = new_block(pool, bytes);
    if (!block) {
        unref_pool(pool);
        return ydl_fail_memory(err, "a batch buffer", bytes);
    }
    *out = block;
    return YDL_OK;
}

void ydl_block_release(struct ydl_block *block)
{
    if (!block)
        return;
    struct ydl_pool *pool = block->pool;
    if (pool->pid != getpid()) {
        /* In a forked child a thread that is not there may hold the lock for ever. */
        free_block(block);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    bool keep = block->capacity <= pool->max_idle_bytes - pool->idle_bytes;
    if (keep) {
        block->next = pool->idle;
        pool->idle = block;
        pool->idle_bytes += block->capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        free_block(block);
    unref_pool(pool);
}
