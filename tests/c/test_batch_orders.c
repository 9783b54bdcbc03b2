/* Orders of epochs: the numbers of order/, whoever makes them and when; how many there are at once;
 * threads that come and go; forks. */
#include "batch_support.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 1 << 17, HUGE = 1 << 26, PATIENCE_MS = 60 * 1000 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct ydl_order large = {
    .records = LARGE, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};
static const struct ydl_order small = {
    .records = 1000, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};
/* Takes seconds, and more under a sanitizer. */
static const struct ydl_order huge = {
    .records = HUGE, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};

static const struct ydl_indices *take(struct ydl_orders *orders, uint64_t epoch)
{
    struct ydl_error err;
    const struct ydl_indices *indices = NULL;
    assert_status(YDL_OK, ydl_orders_take(orders, epoch, &indices, &err), &err);
    return indices;
}

static struct ydl_orders_look look(struct ydl_orders *orders)
{
    struct ydl_orders_look seen;
    ydl_orders_look(orders, &seen);
    return seen;
}

static void wait_until_made(struct ydl_orders *orders)
{
    for (int ms = 0; look(orders).is_making_ahead; ms++) {
        assert_true(ms < PATIENCE_MS);
        usleep(1000);
    }
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2;
}

/* A thread that has ended is still listed for a moment. */
static void assert_threads_come_down_to(int expected)
{
    for (int ms = 0; count_threads() > expected; ms++) {
        assert_true(ms < PATIENCE_MS);
        usleep(1000);
    }
}

static void check(const struct ydl_order *order, uint64_t epoch, const struct ydl_indices *indices)
{
    struct ydl_indices expected = fill_indices(order, epoch);
    assert_int_equal(indices->len, expected.len);
    for (uint64_t i = 0; i < expected.len; i++)
        if (ydl_indices_at(indices, i) != ydl_indices_at(&expected, i))
            fail_msg("epoch %d differs at %d", (int)epoch, (int)i);
    free(expected.values);
}

static void test_the_numbers_are_those_of_the_order(void **state)
{
    (void)state;
    struct ydl_order kinds[16];
    for (unsigned kind = 0; kind < 16; kind++)
        kinds[kind] = (struct ydl_order){
            .records = kind & 1 ? 3 * LARGE + 1 : 31,
            .rank = 1,
            .num_shards = 3,
            .shuffle = kind & 2,
            .reshuffle = kind & 4,
            .scope = kind & 8 ? YDL_SCOPE_GLOBAL : YDL_SCOPE_SHARD,
            .seed = UINT32_MAX,
        };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct ydl_orders *orders = new_orders(&kinds[k]);
        assert_int_equal(ydl_orders_len(orders), ydl_order_len(&kinds[k]));
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            const struct ydl_indices *indices = take(orders, epoch);
            check(&kinds[k], epoch, indices);
            ydl_orders_make_ahead(orders, epoch + 1);
            if (epoch % 2)
                wait_until_made(orders);
            ydl_orders_give_back(orders, indices);
        }
        ydl_orders_release(orders);
    }
}

/* 64-bit numbers, and shards without an order to speak of. */
static void test_few_records_of_many(void **state)
{
    (void)state;
    static const struct ydl_order kinds[] = {
        {.records = (UINT64_C(1) << 40) + 6, .num_shards = UINT64_C(1) << 36, .shuffle = true},
        {.records = (UINT64_C(1) << 50),
         .num_shards = UINT64_C(1) << 33,
         .shuffle = true,
         .reshuffle = true},
        {.records = 3, .rank = 4, .num_shards = 5, .shuffle = true, .reshuffle = true},
        {.records = 3, .rank = 1, .num_shards = 5, .shuffle = true, .reshuffle = true},
        {.num_shards = 1},
    };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct ydl_orders *orders = new_orders(&kinds[k]);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            const struct ydl_indices *indices = take(orders, epoch);
            check(&kinds[k], epoch, indices);
            ydl_orders_make_ahead(orders, epoch + 1);
            ydl_orders_give_back(orders, indices);
        }
        ydl_orders_release(orders);
    }
}

static void test_takers_of_an_epoch_share_its_order(void **state)
{
    (void)state;
    static const struct ydl_order *const kinds[] = {&small, &large};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct ydl_orders *orders = new_orders(kinds[k]);
        struct ydl_orders *other = ydl_orders_acquire(orders);
        const struct ydl_indices *first = take(orders, 7);
        assert_ptr_equal(take(other, 7), first);
        const struct ydl_indices *next = take(other, 8);
        assert_ptr_not_equal(next, first);
        assert_int_equal(look(orders).held, 2);
        assert_int_equal(look(orders).made, 2);
        ydl_orders_give_back(orders, first);
        check(kinds[k], 7, first); /* still with the other one */
        ydl_orders_give_back(other, first);
        assert_int_equal(look(orders).held, 1);
        ydl_orders_release(orders);
        ydl_orders_give_back(other, next);
        ydl_orders_give_back(other, NULL);
        assert_int_equal(look(other).held, 0);
        ydl_orders_release(other);
    }
    ydl_orders_release(NULL);
}

static void test_the_only_order_is_kept(void **state)
{
    (void)state;
    struct ydl_order order = large;
    order.reshuffle = false;
    struct ydl_orders *orders = new_orders(&order);
    const void *values = NULL;
    for (uint64_t epoch = 3; epoch < 6; epoch++) {
        const struct ydl_indices *indices = take(orders, epoch);
        if (values)
            assert_ptr_equal(indices->values, values);
        values = indices->values;
        ydl_orders_make_ahead(orders, epoch + 1);
        ydl_orders_give_back(orders, indices);
    }
    assert_int_equal(look(orders).made, 1);
    assert_int_equal(look(orders).held, 1);
    assert_false(look(orders).is_waiting);
    ydl_orders_release(orders);
}

static void test_an_order_is_made_ahead_once_and_taken(void **state)
{
    (void)state;
    const int threads = count_threads();
    struct ydl_orders *orders = new_orders(&large);
    const struct ydl_indices *indices = take(orders, 0);
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        assert_int_equal(look(orders).held, 1);
        ydl_orders_make_ahead(orders, epoch + 1);
        ydl_orders_make_ahead(orders, epoch + 1);
        assert_true(look(orders).is_waiting);
        if (epoch % 2) { /* else the next taker comes while it is made */
            wait_until_made(orders);
            assert_int_equal(look(orders).made, epoch + 2);
            assert_threads_come_down_to(threads);
            ydl_orders_make_ahead(orders, epoch + 1);
            ydl_orders_make_ahead(orders, epoch + 2);
            assert_false(look(orders).is_making_ahead);
        }
        assert_int_equal(look(orders).held, 2);
        ydl_orders_give_back(orders, indices);
        assert_int_equal(look(orders).held, 1);
        indices = take(orders, epoch + 1);
        assert_false(look(orders).is_waiting);
        check(&large, epoch + 1, indices);
        assert_int_equal(look(orders).made, epoch + 2);
    }
    ydl_orders_give_back(orders, indices);
    assert_int_equal(look(orders).held, 0);
    assert_threads_come_down_to(threads);
    ydl_orders_release(orders);
}

static void test_small_orders_need_no_thread(void **state)
{
    (void)state;
    struct ydl_orders *orders = new_orders(&small);
    ydl_orders_make_ahead(orders, 0);
    assert_int_equal(look(orders).held, 0);
    ydl_orders_release(orders);
}

static void test_what_waits_goes_when_others_are_taken(void **state)
{
    (void)state;
    struct ydl_error err;
    struct ydl_orders *orders = new_orders(&large);
    ydl_orders_make_ahead(orders, 4);
    wait_until_made(orders);
    ydl_orders_give_back(orders, take(orders, 3));
    assert_true(look(orders).is_waiting);

    uint64_t numbers[5];
    struct ydl_indices expected = fill_indices(&large, 9);
    assert_status(YDL_OK, ydl_orders_copy(orders, 9, 100, 5, numbers, &err), &err);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(numbers[i], ydl_indices_at(&expected, 100 + i));
    free(expected.values);
    assert_status(YDL_OK, ydl_orders_copy(orders, 4, LARGE, 0, numbers, &err), &err);
    assert_true(look(orders).is_waiting);
    assert_int_equal(look(orders).made, 3);

    ydl_orders_give_back(orders, take(orders, 5));
    assert_false(look(orders).is_waiting);
    assert_int_equal(look(orders).held, 0);
    ydl_orders_release(orders);
}

/* Tried until the taker is faster than the thread: a thread that nobody could stop would always
 * make a second order. */
static void test_what_nobody_wants_is_not_made_to_its_end(void **state)
{
    (void)state;
    bool was_stopped = false;
    for (int tries = 0; tries < 50 && !was_stopped; tries++) {
        struct ydl_order order = large;
        order.records = 1 << 20;
        struct ydl_orders *orders = new_orders(&order);
        ydl_orders_make_ahead(orders, 1);
        const struct ydl_indices *indices = take(orders, 5);
        wait_until_made(orders);
        was_stopped = look(orders).made == 1;
        assert_int_equal(look(orders).held, 1);
        check(&order, 5, indices);
        ydl_orders_make_ahead(orders, 6); /* and the next one is */
        ydl_orders_give_back(orders, indices);
        indices = take(orders, 6);
        check(&order, 6, indices);
        ydl_orders_give_back(orders, indices);
        ydl_orders_release(orders);
    }
    assert_true(was_stopped);
}

static void test_may_be_released_while_an_order_is_made(void **state)
{
    (void)state;
    for (useconds_t us = 0; us < 5000; us = 2 * us + 1) {
        struct ydl_orders *orders = new_orders(us % 2 ? &huge : &large);
        ydl_orders_make_ahead(orders, 1);
        usleep(us);
        ydl_orders_release(orders);
    }
}

static void test_an_order_beyond_memory_is_the_takers_error(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_C(1) << 58};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        struct ydl_order order = large;
        order.records = sizes[s];
        struct ydl_error err;
        const struct ydl_indices *indices;
        struct ydl_orders *orders = new_orders(&order);
        ydl_orders_make_ahead(orders, 1);
        wait_until_made(orders);
        assert_false(look(orders).is_waiting);
        for (int again = 0; again < 2; again++) {
            assert_status(YDL_NO_MEMORY, ydl_orders_take(orders, 1, &indices, &err), &err);
            assert_non_null(strstr(err.text, "record numbers of epoch 1"));
            ydl_orders_make_ahead(orders, 1);
        }
        ydl_orders_release(orders);
    }
}

static void test_a_forked_child_waits_for_nothing(void **state)
{
    (void)state;
    struct ydl_orders *orders = new_orders(&huge);
    ydl_orders_make_ahead(orders, 1);
    pid_t child = fork();
    if (child == 0) {
        struct ydl_error err;
        const struct ydl_indices *indices = NULL;
        uint64_t number = 0;
        bool refused = ydl_orders_take(orders, 1, &indices, &err) == YDL_FORKED &&
                       ydl_orders_copy(orders, 1, 0, 1, &number, &err) == YDL_FORKED;
        ydl_orders_make_ahead(orders, 2);
        ydl_orders_release(ydl_orders_acquire(orders));
        ydl_orders_release(orders);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ydl_orders_release(orders);
}

enum { WALKERS = 8, STEPS = 60, EPOCHS = 5 };

struct walker {
    struct ydl_orders *orders;
    const struct ydl_indices *expected; /* [EPOCHS] */
    struct test_random random;
    uint64_t wrong;
    pthread_t thread;
};

/* No asserts: cmocka's are for the thread that runs the test. */
static void *walk(void *argument)
{
    struct walker *walker = argument;
    struct ydl_error err;
    for (int step = 0; step < STEPS; step++) {
        const uint64_t epoch = test_random_below(&walker->random, EPOCHS);
        const struct ydl_indices *expected = &walker->expected[epoch];
        const struct ydl_indices *indices;
        uint64_t numbers[4];
        if (test_random_below(&walker->random, 4) == 0) {
            walker->wrong += ydl_orders_copy(walker->orders, epoch, 9, 4, numbers, &err) != YDL_OK;
            for (uint64_t i = 0; i < 4; i++)
                walker->wrong += numbers[i] != ydl_indices_at(expected, 9 + i);
            continue;
        }
        if (ydl_orders_take(walker->orders, epoch, &indices, &err) != YDL_OK) {
            walker->wrong++;
            continue;
        }
        ydl_orders_make_ahead(walker->orders, epoch + 1);
        for (uint64_t i = 0; i < indices->len; i += 1 + indices->len / 100)
            walker->wrong += ydl_indices_at(indices, i) != ydl_indices_at(expected, i);
        ydl_orders_give_back(walker->orders, indices);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    (void)state;
    struct test_random random = test_random_init(11);
    static const struct ydl_order *const kinds[] = {&small, &large};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct ydl_orders *orders = new_orders(kinds[k]);
        struct ydl_indices expected[EPOCHS];
        struct walker walkers[WALKERS];
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            expected[epoch] = fill_indices(kinds[k], epoch);
        for (int w = 0; w < WALKERS; w++) {
            walkers[w] = (struct walker){.orders = ydl_orders_acquire(orders),
                                         .expected = expected,
                                         .random = {1 + test_random_below(&random, 1000)}};
            assert_int_equal(pthread_create(&walkers[w].thread, NULL, walk, &walkers[w]), 0);
        }
        for (int w = 0; w < WALKERS; w++) {
            assert_int_equal(pthread_join(walkers[w].thread, NULL), 0);
            assert_int_equal(walkers[w].wrong, 0);
            ydl_orders_release(walkers[w].orders);
        }
        wait_until_made(orders);
        assert_true(look(orders).held <= 1);
        ydl_orders_release(orders);
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            free(expected[epoch].values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_numbers_are_those_of_the_order),
        cmocka_unit_test(test_few_records_of_many),
        cmocka_unit_test(test_takers_of_an_epoch_share_its_order),
        cmocka_unit_test(test_the_only_order_is_kept),
        cmocka_unit_test(test_an_order_is_made_ahead_once_and_taken),
        cmocka_unit_test(test_small_orders_need_no_thread),
        cmocka_unit_test(test_what_waits_goes_when_others_are_taken),
        cmocka_unit_test(test_what_nobody_wants_is_not_made_to_its_end),
        cmocka_unit_test(test_may_be_released_while_an_order_is_made),
        cmocka_unit_test(test_an_order_beyond_memory_is_the_takers_error),
        cmocka_unit_test(test_a_forked_child_waits_for_nothing),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
