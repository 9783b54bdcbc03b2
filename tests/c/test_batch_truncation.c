/* A file that is cut while readers, gathers and loaders have it open: whole batches of true records
 * before, an error that says what happened after, no signal ever. */
#include "batch_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "batch/loader.h"

enum { RECORDS = 2000, BATCH = 50, LONG_MS = 60 * 1000 };
static const enum ydl_access accesses[] = {YDL_ACCESS_MMAP, YDL_ACCESS_PREAD};

/* The build's only part. */
struct target {
    struct open_build open;
    struct ydl_part_info info;
};

static void target_init(struct target *target, bool varying, enum ydl_access access,
                        enum ydl_verify verify)
{
    open_build_init(&target->open, varying, RECORDS, 1 << 20, access, verify);
    target->info = build_info(&target->open.build, 0);
    assert_int_equal(target->info.records, RECORDS);
}

static void target_clear(struct target *target)
{
    free(target->info.path);
    open_build_clear(&target->open);
}

static void cut(const struct target *target, uint64_t bytes)
{
    assert_int_equal(truncate(target->info.path, (off_t)bytes), 0);
}

static void assert_says_cut(const struct target *target, enum ydl_access access, uint64_t left,
                            const struct ydl_error *err)
{
    char expected[160];
    assert_int_equal(err->status, YDL_CORRUPT_CACHE);
    assert_string_equal(err->path, target->info.path);
    assert_non_null(strstr(err->text, target->info.path));
    if (access == YDL_ACCESS_PREAD)
        return; /* the kernel knows the file's end, and io.c names it */
    snprintf(expected, sizeof expected,
             "was truncated while it was open: %llu bytes are missing, expected %llu and found "
             "%llu",
             (unsigned long long)(target->info.bytes - left),
             (unsigned long long)target->info.bytes, (unsigned long long)left);
    if (!strstr(err->text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, err->text);
}

/* Gathers all records, batch by batch; stops at the first error. */
static enum ydl_status gather_all(struct target *target, struct ydl_finder *finder,
                                  struct ydl_error *err)
{
    for (uint64_t start = 0; start < RECORDS; start += BATCH) {
        uint64_t numbers[BATCH];
        struct ydl_batch *batch;
        for (uint64_t i = 0; i < BATCH; i++)
            numbers[i] = (start + i) * 7 % RECORDS;
        enum ydl_status status =
            ydl_gather(finder, target->open.pool, numbers, BATCH, false, &batch, err);
        if (status != YDL_OK)
            return status;
        check_batch(batch, target->open.make, numbers, BATCH);
        ydl_batch_free(batch);
    }
    return YDL_OK;
}

static void cut_between_gathers(bool varying, enum ydl_access access, enum ydl_verify verify,
                                uint64_t (*left_of)(uint64_t bytes))
{
    struct target target;
    struct ydl_error err;
    struct ydl_finder *finder;
    target_init(&target, varying, access, verify);
    uint64_t left = left_of(target.info.bytes);
    assert_status(YDL_OK, ydl_finder_new(target.open.reader, &finder, &err), &err);
    assert_status(YDL_OK, gather_all(&target, finder, &err), &err); /* all rows are verified */
    cut(&target, left);
    enum ydl_status status = gather_all(&target, finder, &err);
    /* Without a map, what is missing is found when it is read: rows may all be there still. */
    if (access == YDL_ACCESS_MMAP || status != YDL_OK || left + 4096 < target.info.bytes) {
        assert_status(YDL_CORRUPT_CACHE, status, &err);
        assert_says_cut(&target, access, left, &err);
        assert_status(YDL_CORRUPT_CACHE, gather_all(&target, finder, &err), &err);
    }
    ydl_finder_free(finder);
    target_clear(&target);
}

static uint64_t nothing(uint64_t bytes)
{
    return bytes * 0;
}

static uint64_t one_byte(uint64_t bytes)
{
    return bytes * 0 + 1;
}

static uint64_t half(uint64_t bytes)
{
    return bytes / 2;
}

static uint64_t half_a_page(uint64_t bytes)
{
    return bytes / 2 / 4096 * 4096;
}

static uint64_t all_but_one(uint64_t bytes)
{
    return bytes - 1;
}

static void test_cut_between_gathers(void **state)
{
    (void)state;
    test_handle_cut_maps();
    static uint64_t (*const cuts[])(uint64_t) = {nothing, one_byte, half, half_a_page, all_but_one};
    static const enum ydl_verify verifies[] = {YDL_VERIFY_FIRST, YDL_VERIFY_ALWAYS,
                                               YDL_VERIFY_NEVER};
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
        for (int v = 0; v < 3; v++)
            for (int a = 0; a < 2; a++)
                for (int varying = 0; varying < 2; varying++)
                    cut_between_gathers(varying, accesses[a], verifies[v], cuts[c]);
}

static void test_open_part(void **state)
{
    (void)state;
    test_handle_cut_maps();
    for (int varying = 0; varying < 2; varying++) {
        static uint64_t (*const cuts[])(uint64_t) = {nothing, half, all_but_one};
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            struct target target;
            struct ydl_error err;
            struct ydl_part *part;
            const uint8_t *bytes;
            uint64_t n;
            target_init(&target, varying, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
            assert_status(YDL_OK,
                          ydl_part_open(&target.info, &target.open.build.layout, YDL_ACCESS_MMAP,
                                        &part, &err),
                          &err);
            assert_status(YDL_OK, ydl_part_check_whole(part, &err), &err);
            uint64_t left = cuts[c](target.info.bytes);
            cut(&target, left);
            assert_status(YDL_CORRUPT_CACHE, ydl_part_verify(part, &err), &err);
            assert_says_cut(&target, YDL_ACCESS_MMAP, left, &err);
            assert_status(YDL_CORRUPT_CACHE, ydl_part_check_whole(part, &err), &err);
            assert_says_cut(&target, YDL_ACCESS_MMAP, left, &err);
            assert_status(YDL_CORRUPT_CACHE, ydl_part_fail_row(part, 3, &err), &err);
            assert_says_cut(&target, YDL_ACCESS_MMAP, left, &err);
            if (varying && left == 0) {
                assert_status(YDL_CORRUPT_CACHE, ydl_part_row(part, 3, NULL, &bytes, &n, &err),
                              &err);
                assert_says_cut(&target, YDL_ACCESS_MMAP, left, &err);
            }
            cut(&target, target.info.bytes); /* the bytes do not come back */
            assert_status(YDL_CORRUPT_CACHE, ydl_part_check_whole(part, &err), &err);
            assert_non_null(strstr(err.text, "could not be read while it was open"));
            assert_int_equal(unlink(target.info.path), 0);
            assert_status(YDL_CORRUPT_CACHE, ydl_part_check_whole(part, &err), &err);
            assert_non_null(strstr(err.text, "was cut short while it was open, and removed"));
            ydl_part_close(part);
            target_clear(&target);
        }
    }
}

/* Another part stays readable. */
static void test_other_parts(void **state)
{
    (void)state;
    test_handle_cut_maps();
    struct open_build open;
    struct ydl_error err;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    open_build_init(&open, false, 200, 4096, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    assert_status(YDL_OK, ydl_finder_new(open.reader, &finder, &err), &err);
    struct ydl_part_info info = build_info(&open.build, 1);
    const uint64_t first[] = {0, 1};
    const uint64_t second[] = {info.first_record};
    const uint64_t both[] = {0, info.first_record};
    assert_status(YDL_OK, ydl_gather(finder, open.pool, both, 2, false, &batch, &err), &err);
    ydl_batch_free(batch);
    assert_int_equal(truncate(info.path, 0), 0);
    assert_status(YDL_CORRUPT_CACHE, ydl_gather(finder, open.pool, both, 2, false, &batch, &err),
                  &err);
    assert_string_equal(err.path, info.path);
    assert_status(YDL_CORRUPT_CACHE, ydl_gather(finder, open.pool, second, 1, false, &batch, &err),
                  &err);
    assert_status(YDL_OK, ydl_gather(finder, open.pool, first, 2, false, &batch, &err), &err);
    check_batch(batch, open.make, first, 2);
    ydl_batch_free(batch);
    ydl_finder_free(finder);
    free(info.path);
    open_build_clear(&open);
}

/* A loader with threads in full run: true batches, then the error, and it stays. */
static void cut_under_loader(bool varying, enum ydl_access access, unsigned threads,
                             uint64_t (*left_of)(uint64_t bytes))
{
    struct target target;
    struct ydl_error err;
    struct ydl_loader *loader;
    struct ydl_batch *batch;
    target_init(&target, varying, access, YDL_VERIFY_FIRST);
    const struct ydl_order order = {
        .records = RECORDS, .num_shards = 1, .shuffle = true, .seed = 3};
    const struct ydl_loader_config config = {
        .orders = new_orders(&order),
        .batch_records = BATCH,
        .endless = true,
        .threads = threads,
        .depth = 4,
    };
    struct ydl_indices indices = fill_indices(&order, 0);
    assert_status(YDL_OK, ydl_loader_new(target.open.reader, &config, &loader, &err), &err);
    ydl_orders_release(config.orders);
    enum ydl_status status;
    uint64_t position = 0;
    uint64_t batches = 0;
    for (;;) {
        uint64_t numbers[BATCH];
        status = ydl_loader_next(loader, LONG_MS, &batch, &err);
        if (status != YDL_OK)
            break;
        for (int i = 0; i < BATCH; i++)
            numbers[i] = ydl_indices_at(&indices, position++ % RECORDS);
        check_batch(batch, target.open.make, numbers, BATCH);
        ydl_batch_free(batch);
        if (++batches == RECORDS / BATCH + 5) /* in the second epoch: nothing is verified again */
            cut(&target, left_of(target.info.bytes));
        assert_true(batches < 4 * RECORDS / BATCH);
    }
    assert_status(YDL_CORRUPT_CACHE, status, &err);
    assert_says_cut(&target, access, left_of(target.info.bytes), &err);
    assert_status(YDL_CORRUPT_CACHE, ydl_loader_next(loader, LONG_MS, &batch, &err), &err);
    ydl_loader_free(loader);
    free(indices.values);
    target_clear(&target);
}

static void test_cut_under_loaders(void **state)
{
    (void)state;
    test_handle_cut_maps();
    for (unsigned threads = 0; threads <= 4; threads += 2) {
        for (int varying = 0; varying < 2; varying++) {
            for (int a = 0; a < 2; a++) {
                cut_under_loader(varying, accesses[a], threads, nothing);
                cut_under_loader(varying, accesses[a], threads, half);
            }
            cut_under_loader(varying, YDL_ACCESS_MMAP, threads, all_but_one);
        }
    }
}

/* Threads that gather as fast as they can while the file is cut somewhere. */
struct racer {
    struct target *target;
    pthread_t thread;
    struct ydl_error err;
};
static atomic_uint running;

static void *race(void *argument)
{
    struct racer *racer = argument;
    struct ydl_finder *finder;
    if (ydl_finder_new(racer->target->open.reader, &finder, &racer->err) != YDL_OK)
        abort();
    atomic_fetch_add(&running, 1);
    while (gather_all(racer->target, finder, &racer->err) == YDL_OK)
        ;
    ydl_finder_free(finder);
    return NULL;
}

static void test_cut_in_the_middle(void **state)
{
    (void)state;
    test_handle_cut_maps();
    enum { RACERS = 3, ROUNDS = 24 };
    struct test_random random = test_random_init(7);
    for (int round = 0; round < ROUNDS; round++) {
        struct target target;
        struct racer racers[RACERS];
        target_init(&target, round % 2, YDL_ACCESS_MMAP,
                    round % 4 < 2 ? YDL_VERIFY_FIRST : YDL_VERIFY_NEVER);
        uint64_t left = test_random_below(&random, target.info.bytes);
        atomic_store(&running, 0);
        for (int i = 0; i < RACERS; i++) {
            racers[i].target = &target;
            assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        while (atomic_load(&running) < RACERS)
            usleep(100);
        usleep((useconds_t)test_random_below(&random, 3000));
        cut(&target, left);
        for (int i = 0; i < RACERS; i++) {
            assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
            assert_int_equal(racers[i].err.status, YDL_CORRUPT_CACHE);
        }
        target_clear(&target);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_between_gathers), cmocka_unit_test(test_open_part),
        cmocka_unit_test(test_other_parts),         cmocka_unit_test(test_cut_under_loaders),
        cmocka_unit_test(test_cut_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
