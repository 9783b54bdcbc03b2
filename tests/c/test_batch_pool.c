/* The buffer pool: reuse, its limit on idle memory, blocks that outlive it. */
#include "support.h"

#include <pthread.h>
#include <string.h>

#include "batch/pool.h"

static struct ydl_block *take(struct ydl_pool *pool, size_t bytes)
{
    struct ydl_error err;
    struct ydl_block *block;
    assert_status(YDL_OK, ydl_pool_take(pool, bytes, &block, &err), &err);
    assert_true(block->capacity >= bytes);
    assert_int_equal((uintptr_t)block->data % YDL_BLOCK_ALIGNMENT, 0);
    memset(block->data, 0xa5, block->capacity);
    return block;
}

static void test_a_released_block_is_used_again(void **state)
{
    (void)state;
    struct ydl_pool *pool = ydl_pool_new(1 << 20);
    struct ydl_block *block = take(pool, 100000);
    uint8_t *data = block->data;
    ydl_block_release(block);
    block = take(pool, 99000);
    assert_ptr_equal(block->data, data);
    struct ydl_block *small = take(pool, 10);
    assert_ptr_not_equal(small->data, data);
    ydl_block_release(small);
    ydl_block_release(block);
    ydl_pool_release(pool);
}

static void test_a_small_request_leaves_a_large_block_alone(void **state)
{
    (void)state;
    struct ydl_pool *pool = ydl_pool_new(1 << 20);
    struct ydl_block *large = take(pool, 500000);
    uint8_t *data = large->data;
    ydl_block_release(large);
    struct ydl_block *small = take(pool, 10);
    large = take(pool, 500000);
    assert_ptr_equal(large->data, data);
    ydl_block_release(small);
    ydl_block_release(large);
    ydl_pool_release(pool);
}

static void test_idle_memory_is_limited(void **state)
{
    (void)state;
    struct ydl_pool *pool = ydl_pool_new(8192);
    struct ydl_block *kept = take(pool, 8192);
    struct ydl_block *freed = take(pool, 8192);
    uint8_t *data = kept->data;
    ydl_block_release(kept);
    ydl_block_release(freed); /* over the limit: ASan would see any later use */
    kept = take(pool, 8192);
    assert_ptr_equal(kept->data, data);
    ydl_block_release(kept);
    ydl_pool_release(pool);
}

static void test_blocks_outlive_the_owner(void **state)
{
    (void)state;
    struct ydl_pool *pool = ydl_pool_new(1 << 20);
    struct ydl_block *empty = take(pool, 0);
    struct ydl_block *block = take(pool, 5000);
    ydl_pool_release(pool);
    memset(block->data, 1, 5000);
    ydl_block_release(block);
    ydl_block_release(empty);
    ydl_block_release(NULL);
}

static void *churn(void *argument)
{
    struct ydl_pool *pool = argument;
    struct ydl_error err;
    for (size_t i = 0; i < 2000; i++) {
        struct ydl_block *block;
        if (ydl_pool_take(pool, 1000 + i % 7 * 3000, &block, &err) != YDL_OK)
            return NULL;
        memset(block->data, (int)i, block->capacity);
        ydl_block_release(block);
    }
    return pool;
}

static void test_threads_share_a_pool(void **state)
{
    (void)state;
    struct ydl_pool *pool = ydl_pool_new(1 << 16);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, pool), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, pool);
    }
    ydl_pool_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_released_block_is_used_again),
        cmocka_unit_test(test_a_small_request_leaves_a_large_block_alone),
        cmocka_unit_test(test_idle_memory_is_limited),
        cmocka_unit_test(test_blocks_outlive_the_owner),
        cmocka_unit_test(test_threads_share_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
