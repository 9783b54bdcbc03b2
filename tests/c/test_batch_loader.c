/* The loader: every batch once and in order, whatever the number of threads; ends, errors, early
 * stops, forks. */
#include "batch_support.h"

#include <sys/wait.h>
#include <unistd.h>

#include "batch/loader.h"

enum { RECORDS = 103, PART_BYTES = 2048, LONG_MS = 60 * 1000 };

static const struct ydl_order plain_order = {
    .records = RECORDS, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};

static const struct ydl_loader_config plain = {
    .batch_records = 8,
    .threads = 2,
    .depth = 3,
};

/* config: without orders. */
static struct ydl_loader *load(struct open_build *open, const struct ydl_order *order,
                               const struct ydl_loader_config *config)
{
    struct ydl_error err;
    struct ydl_loader *loader;
    struct ydl_loader_config whole = *config;
    whole.orders = new_orders(order);
    assert_status(YDL_OK, ydl_loader_new(open->reader, &whole, &loader, &err), &err);
    ydl_orders_release(whole.orders);
    return loader;
}

/* Walks positions of a stream, epoch after epoch. */
struct walk {
    const struct ydl_order *order;
    struct ydl_cursor at;
    struct ydl_indices indices;
    uint64_t len;
};

static uint64_t walk_next(struct walk *walk)
{
    if (walk->at.position == walk->len) {
        walk->at.epoch++;
        walk->at.position = 0;
    }
    if (walk->at.position == 0 || walk->indices.len == 0) {
        free(walk->indices.values);
        walk->indices = fill_indices(walk->order, walk->at.epoch);
    }
    return ydl_indices_at(&walk->indices, walk->at.position++);
}

/* The next batch; returns its records, 0 at the end. */
static uint64_t check_next(struct open_build *open, struct ydl_loader *loader, struct walk *walk,
                           uint64_t max_records)
{
    struct ydl_error err;
    struct ydl_batch *batch;
    uint64_t numbers[64];
    enum ydl_status status = ydl_loader_next(loader, LONG_MS, &batch, &err);
    if (status == YDL_END)
        return 0;
    assert_status(YDL_OK, status, &err);
    assert_true(batch->records <= max_records);
    for (uint64_t i = 0; i < batch->records; i++)
        numbers[i] = walk_next(walk);
    check_batch(batch, open->make, numbers, batch->records);
    const uint64_t records = batch->records;
    ydl_batch_free(batch);
    return records;
}

/* Takes up to max_batches and compares all; returns the records seen. */
static uint64_t check_batches(struct open_build *open, const struct ydl_order *order,
                              const struct ydl_loader_config *config, uint64_t max_batches)
{
    struct ydl_loader *loader = load(open, order, config);
    struct walk walk = {order, config->start, {0}, ydl_order_len(order)};
    uint64_t seen = 0;
    uint64_t records = 1;
    for (uint64_t b = 0; b < max_batches && records > 0; b++) {
        records = check_next(open, loader, &walk, config->batch_records);
        seen += records;
    }
    free(walk.indices.values);
    ydl_loader_free(loader);
    return seen;
}

static void test_whole_batches_come_in_groups(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    for (unsigned threads = 0; threads < 3; threads++) {
        struct ydl_loader_config config = plain;
        config.threads = threads;
        config.group = 3;
        config.start.position = 1; /* 102 left: 4 groups of 3 batches of 8, no batch, 6 records */
        struct ydl_loader *loader = load(&open, &plain_order, &config);
        struct walk walk = {&plain_order, config.start, {0}, ydl_order_len(&plain_order)};
        static const uint64_t expected[] = {24, 24, 24, 24, 6, 0};
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
            assert_int_equal(check_next(&open, loader, &walk, 24), expected[i]);
        free(walk.indices.values);
        ydl_loader_free(loader);

        config.start.position = 20; /* 83: 3 groups, a batch, 3 records that are dropped */
        config.drop_remainder = true;
        loader = load(&open, &plain_order, &config);
        walk = (struct walk){&plain_order, config.start, {0}, ydl_order_len(&plain_order)};
        static const uint64_t dropped[] = {24, 24, 24, 8, 0};
        for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
            assert_int_equal(check_next(&open, loader, &walk, 24), dropped[i]);
        free(walk.indices.values);
        ydl_loader_free(loader);
    }
    open_build_clear(&open);
}

static void test_delivers_an_epoch_in_order(void **state)
{
    (void)state;
    for (int varying = 0; varying < 2; varying++) {
        struct open_build open;
        open_build_init(&open, varying, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
        for (unsigned threads = 0; threads < 5; threads++) {
            struct ydl_order order = plain_order;
            struct ydl_loader_config config = plain;
            config.threads = threads;
            config.depth = 1 + threads % 3;
            assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), RECORDS);
            config.drop_remainder = true;
            assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), RECORDS / 8 * 8);
            config.start = (struct ydl_cursor){.epoch = 2, .position = 50};
            config.drop_remainder = false;
            assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), RECORDS - 50);
            order.num_shards = 4;
            order.rank = 3;
            config.start.position = 0;
            assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), 25);
            config.batch_records = 1;
            assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), 25);
        }
        open_build_clear(&open);
    }
}

static void test_rows_come_in_the_same_order(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct open_build open;
        struct ydl_error err;
        const struct ydl_row *rows;
        uint64_t n;
        uint64_t seen = 0;
        open_build_init(&open, kind % 2, RECORDS, PART_BYTES,
                        kind / 2 ? YDL_ACCESS_MMAP : YDL_ACCESS_PREAD, YDL_VERIFY_FIRST);
        for (int again = 0; again < 2; again++) { /* then all are verified, and used in place */
            struct ydl_loader_config config = plain;
            config.threads = 0;
            config.endless = true;
            struct ydl_loader *loader = load(&open, &plain_order, &config);
            struct walk walk = {&plain_order, config.start, {0}, RECORDS};
            for (int b = 0; b < 20; b++) {
                assert_status(YDL_OK, ydl_loader_next_rows(loader, &rows, &n, &err), &err);
                assert_int_equal(n, 8);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t record = walk_next(&walk);
                    assert_int_equal(rows[i].record, record);
                    check_row(&open.reader->layout, open.make, record, rows[i].bytes, rows[i].n);
                    assert_status(YDL_OK, ydl_part_check_whole(rows[i].part, &err), &err);
                    seen++;
                }
            }
            free(walk.indices.values);
            ydl_loader_free(loader); /* with parts still lent to the last rows */
        }
        assert_int_equal(seen, 2 * 20 * 8);

        struct ydl_loader_config config = plain;
        config.threads = 0;
        config.batch_records = RECORDS;
        struct ydl_loader *loader = load(&open, &plain_order, &config);
        assert_status(YDL_OK, ydl_loader_next_rows(loader, &rows, &n, &err), &err);
        assert_status(YDL_END, ydl_loader_next_rows(loader, &rows, &n, &err), &err);
        ydl_loader_free(loader);
        open_build_clear(&open);
    }
}

static void test_endless_batches_cross_epochs(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, true, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    for (unsigned threads = 0; threads < 4; threads++) {
        struct ydl_order order = plain_order;
        struct ydl_loader_config config = plain;
        config.threads = threads;
        config.endless = true;
        config.start = (struct ydl_cursor){.epoch = 1, .position = 100};
        assert_int_equal(check_batches(&open, &order, &config, 60), 60 * 8);
        order.num_shards = 50; /* epochs of 3 records, shorter than a batch */
        config.start.position = 2;
        assert_int_equal(check_batches(&open, &order, &config, 20), 20 * 8);
        order.reshuffle = false;
        assert_int_equal(check_batches(&open, &order, &config, 20), 20 * 8);
        order.num_shards = 200;
        order.rank = 150; /* a shard without records */
        config.start.position = 0;
        assert_int_equal(check_batches(&open, &order, &config, 20), 0);
    }
    open_build_clear(&open);
}

/* Enough for orders to be made ahead: while the first loader's is, when the second takes it, and by
 * whichever of two loaders asks first. */
static void test_orders_made_ahead_are_the_same(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_orders_look look;
    const struct ydl_order order = {
        .records = 1 << 16, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};
    open_build_init(&open, false, order.records, 1 << 20, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    for (unsigned threads = 0; threads < 3; threads++) {
        struct ydl_loader_config config = plain;
        config.threads = threads;
        config.batch_records = 61;
        config.endless = true;
        assert_int_equal(check_batches(&open, &order, &config, 2500), 2500 * 61);

        config.endless = false;
        config.orders = new_orders(&order);
        struct ydl_loader *loaders[2];
        struct walk walks[2];
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            struct ydl_error err;
            const bool is_pair = epoch == 0;
            for (uint64_t i = 0; i <= is_pair; i++) {
                config.start.epoch = epoch + i;
                walks[i] = (struct walk){&order, config.start, {0}, order.records};
                assert_status(YDL_OK, ydl_loader_new(open.reader, &config, &loaders[i], &err),
                              &err);
            }
            for (uint64_t seen = 0; seen < order.records; seen += 61)
                for (int i = 0; i <= is_pair; i++)
                    check_next(&open, loaders[i], &walks[i], 61);
            for (int i = 0; i <= is_pair; i++) {
                struct ydl_batch *batch;
                assert_status(YDL_END, ydl_loader_next(loaders[i], LONG_MS, &batch, &err), &err);
                ydl_loader_free(loaders[i]);
                free(walks[i].indices.values);
            }
            epoch += is_pair;
            ydl_orders_look(config.orders, &look);
            assert_int_equal(look.made + look.is_making_ahead, epoch + 2);
            assert_int_equal(look.held, 1);
            assert_true(look.is_waiting);
        }
        ydl_orders_release(config.orders);
    }
    open_build_clear(&open);
}

static void test_a_huge_batch_holds_one_epoch(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_batch *batch;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader_config config = plain;
    config.batch_records = UINT64_MAX;
    struct ydl_loader *loader = load(&open, &plain_order, &config);
    assert_status(YDL_OK, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    assert_int_equal(batch->records, RECORDS);
    ydl_batch_free(batch);
    assert_status(YDL_END, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    ydl_loader_free(loader);

    config.drop_remainder = true;
    loader = load(&open, &plain_order, &config);
    assert_status(YDL_END, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

static void test_an_error_comes_in_its_place_and_stays(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, true, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    for (unsigned threads = 0; threads < 4; threads++) {
        struct ydl_error err;
        struct ydl_batch *batch;
        struct ydl_order order = plain_order;
        struct ydl_loader_config config = plain;
        config.threads = threads;
        order.shuffle = false;
        config.batch_records = 1; /* alone, every record is uniform */
        config.require_uniform = true;
        assert_int_equal(check_batches(&open, &order, &config, UINT64_MAX), RECORDS);

        config.batch_records = 13; /* records 0 and 1 differ */
        struct ydl_loader *loader = load(&open, &order, &config);
        for (int again = 0; again < 3; again++) {
            assert_status(YDL_SHAPE_MISMATCH, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
            assert_non_null(strstr(err.text, "component 1"));
        }
        ydl_loader_free(loader);
    }
    open_build_clear(&open);
}

static void test_may_be_freed_at_any_moment(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    for (int taken = 0; taken < 15; taken++) {
        struct ydl_loader *loader = load(&open, &plain_order, &plain);
        for (int i = 0; i < taken; i++) {
            struct ydl_batch *batch = NULL;
            enum ydl_status expected = i < 13 ? YDL_OK : YDL_END;
            assert_status(expected, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
            ydl_batch_free(batch);
        }
        ydl_loader_free(loader);
    }
    ydl_loader_free(NULL);
    open_build_clear(&open);
}

static void test_a_batch_outlives_its_loader(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_batch *batch;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_order order = plain_order;
    struct ydl_loader_config config = plain;
    order.shuffle = false;
    struct ydl_loader *loader = load(&open, &order, &config);
    assert_status(YDL_OK, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    ydl_loader_free(loader);
    const uint64_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    check_batch(batch, open.make, numbers, 8);
    ydl_batch_free(batch);
    open_build_clear(&open);
}

static void test_a_forked_child_is_refused_and_may_let_go(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_batch *batch;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader *loader = load(&open, &plain_order, &plain);
    assert_status(YDL_OK, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    pid_t child = fork();
    if (child == 0) {
        struct ydl_batch *none = NULL;
        bool refused = ydl_loader_next(loader, LONG_MS, &none, &err) == YDL_FORKED;
        ydl_batch_free(batch);
        ydl_loader_free(loader);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ydl_batch_free(batch);
    assert_status(YDL_OK, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    ydl_batch_free(batch);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivers_an_epoch_in_order),
        cmocka_unit_test(test_whole_batches_come_in_groups),
        cmocka_unit_test(test_rows_come_in_the_same_order),
        cmocka_unit_test(test_endless_batches_cross_epochs),
        cmocka_unit_test(test_orders_made_ahead_are_the_same),
        cmocka_unit_test(test_a_huge_batch_holds_one_epoch),
        cmocka_unit_test(test_an_error_comes_in_its_place_and_stays),
        cmocka_unit_test(test_may_be_freed_at_any_moment),
        cmocka_unit_test(test_a_batch_outlives_its_loader),
        cmocka_unit_test(test_a_forked_child_is_refused_and_may_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
