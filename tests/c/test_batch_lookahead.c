/* What is asked for ahead: which positions, which bytes; and that hints and sweeps change nothing
 * but what lies in the page cache. */
#include "batch_support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch/loader.h"
#include "batch/lookahead.h"
#include "batch/sweep.h"

enum { PAGE_BYTES = 4096 };

/* ---- positions ---- */

static void test_window_asks_for_each_position_once_and_in_time(void **state)
{
    (void)state;
    struct test_random random = test_random_init(2301);
    for (int round = 0; round < 300; round++) {
        uint64_t len = 1 + test_random_below(&random, 500);
        uint64_t batch = 1 + test_random_below(&random, 40);
        struct ydl_window window = {
            .ahead = batch + test_random_below(&random, 100),
            .most = 2 * batch,
            .least = 1 + test_random_below(&random, batch),
        };
        uint64_t asked = 0;
        for (uint64_t at = 0; at < len;) {
            uint64_t n = len - at < batch ? len - at : batch;
            uint64_t from;
            at += n;
            uint64_t count = ydl_window_claim(&window, (struct ydl_cursor){0, at}, n, len, &from);
            assert_true(count <= window.most);
            if (count) {
                assert_int_equal(from, asked); /* no gap, nothing twice */
                asked = from + count;
            }
            assert_true(asked >= at);                /* all of the batch */
            assert_true(asked <= at + window.ahead); /* bounded */
            assert_true(asked <= len);
        }
        assert_int_equal(asked, len);
    }
}

static void test_window_begins_anew_where_it_is_not_ahead(void **state)
{
    (void)state;
    struct ydl_window window = {.ahead = 10, .most = 20, .least = 5};
    uint64_t from;
    /* A resumed epoch: not what lies before it. */
    assert_int_equal(ydl_window_claim(&window, (struct ydl_cursor){3, 108}, 8, 1000, &from), 18);
    assert_int_equal(from, 100);
    /* Batches without a claim, as in a warm cache: what they left out is past. */
    assert_int_equal(ydl_window_claim(&window, (struct ydl_cursor){3, 508}, 8, 1000, &from), 18);
    assert_int_equal(from, 500);
    /* Too few to be worth it ... */
    assert_int_equal(ydl_window_claim(&window, (struct ydl_cursor){3, 510}, 2, 1000, &from), 0);
    /* ... unless they are the last. */
    assert_int_equal(ydl_window_claim(&window, (struct ydl_cursor){3, 510}, 2, 520, &from), 2);
    assert_int_equal(from, 518);
    /* A batch across the end of the epoch. */
    assert_int_equal(ydl_window_claim(&window, (struct ydl_cursor){4, 3}, 8, 520, &from), 13);
    assert_int_equal(from, 0);
}

/* ---- bytes ---- */

static void check_merge(const struct ydl_span *spans, size_t n, uint64_t max_gap,
                        const struct ydl_span *expected, size_t expected_n)
{
    struct ydl_span merged[8];
    assert_true(n <= 8);
    memcpy(merged, spans, n * sizeof *spans);
    assert_int_equal(ydl_spans_merge(merged, n, max_gap), expected_n);
    for (size_t i = 0; i < expected_n; i++) {
        assert_int_equal(merged[i].offset, expected[i].offset);
        assert_int_equal(merged[i].bytes, expected[i].bytes);
    }
}

static void test_near_spans_are_one(void **state)
{
    (void)state;
    const struct ydl_span spans[] = {{0, 10}, {10, 10}, {25, 5}, {26, 2}, {41, 9}, {50, 1}};
    check_merge(spans, 6, 0, (struct ydl_span[]){{0, 20}, {25, 5}, {41, 10}}, 3);
    check_merge(spans, 6, 5, (struct ydl_span[]){{0, 30}, {41, 10}}, 2);
    check_merge(spans, 6, 11, (struct ydl_span[]){{0, 51}}, 1);
    check_merge(spans, 1, 0, spans, 1);
    check_merge(spans, 0, 0, spans, 0);
}

static void test_row_spans_are_where_the_rows_lie(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct build build;
        struct ydl_error err;
        struct ydl_part *part;
        bool varying = kind % 2;
        build_init(&build, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS, 1 << 20);
        build_write(&build, varying ? varying_sample : fixed_sample, 50);
        struct ydl_part_info info = build_info(&build, 0);
        assert_status(YDL_OK,
                      ydl_part_open(&info, &build.layout, (enum ydl_access)(kind / 2), &part, &err),
                      &err);
        size_t file_bytes;
        uint8_t *file = test_read_file(info.path, &file_bytes);
        assert_int_equal(ydl_part_bytes(part), file_bytes);
        struct ydl_buf scratch;
        ydl_buf_init(&scratch, 1 << 20);
        for (uint64_t row = 0; row < 50; row++) {
            const uint8_t *bytes;
            uint64_t n;
            uint64_t offset;
            uint64_t span_n;
            assert_status(YDL_OK, ydl_part_row(part, row, &scratch, &bytes, &n, &err), &err);
            assert_true(ydl_part_row_span(part, row, &offset, &span_n));
            assert_int_equal(span_n, n);
            assert_memory_equal(file + offset, bytes, n);
        }
        uint64_t ignored;
        assert_false(ydl_part_row_span(part, 50, &ignored, &ignored));
        ydl_buf_clear(&scratch);
        free(file);
        free(info.path);
        ydl_part_close(part);
        build_clear(&build);
    }
}

/* ---- the page cache ---- */

/* Pages of the file that are in memory. Opens a map of its own. */
static size_t pages_in_memory(const char *path, size_t *out_pages)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *out_pages = ((size_t)st.st_size + PAGE_BYTES - 1) / PAGE_BYTES;
    unsigned char *in = malloc(*out_pages);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_non_null(in);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mincore(map, (size_t)st.st_size, in), 0);
    size_t count = 0;
    for (size_t i = 0; i < *out_pages; i++)
        count += in[i] & 1;
    munmap(map, (size_t)st.st_size);
    free(in);
    close(fd);
    return count;
}

static bool drop_pages(const char *path)
{
    size_t pages;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)fsync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return pages_in_memory(path, &pages) == 0;
}

/* Pages come when the disk is ready. False after a minute. */
static bool wait_for_pages(const char *path, size_t at_least)
{
    size_t pages;
    for (int i = 0; i < 60 * 1000; i++) {
        if (pages_in_memory(path, &pages) >= (at_least ? at_least : pages))
            return true;
        usleep(1000);
    }
    return false;
}

enum { MANY = 40000 }; /* records: more than a megabyte */

static void test_wanted_bytes_come_into_the_cache(void **state)
{
    (void)state;
    bool is_cold = true;
    for (int access = 0; access < 2; access++) {
        struct build build;
        struct ydl_error err;
        struct ydl_part *part;
        build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 64 << 20);
        build_write(&build, fixed_sample, MANY);
        struct ydl_part_info info = build_info(&build, 0);
        is_cold = drop_pages(info.path) && is_cold;
        assert_status(YDL_OK,
                      ydl_part_open(&info, &build.layout, (enum ydl_access)access, &part, &err),
                      &err);
        ydl_part_expect_random(part);
        ydl_part_expect_random(part);
        ydl_part_want(part, 600001, 0);
        ydl_part_want(part, 600001, 300000); /* more than one hint's worth */
        assert_true(wait_for_pages(info.path, 300000 / PAGE_BYTES));
        ydl_part_want(part, 0, info.bytes);
        assert_true(wait_for_pages(info.path, 0));
        ydl_part_await(part, 0);
        ydl_part_await(part, info.bytes - 1);
        check_part(part, &build.layout, fixed_sample, 0);
        ydl_part_close(part);
        free(info.path);
        build_clear(&build);
    }
    if (!is_cold)
        skip(); /* a file system in memory: nothing was missing */
}

static char *part_path(struct open_build *open, size_t index)
{
    struct ydl_part_info info = build_info(&open->build, index);
    return info.path;
}

static void wait_for_sweep(const struct ydl_reader *reader)
{
    for (int i = 0; ydl_sweep_is_running(reader) && i < 60 * 1000; i++)
        usleep(1000);
    assert_false(ydl_sweep_is_running(reader));
}

static void test_sweep_reads_all_once(void **state)
{
    (void)state;
    for (int access = 0; access < 2; access++) {
        struct open_build open;
        open_build_init(&open, false, MANY, 300000, (enum ydl_access)access, YDL_VERIFY_FIRST);
        size_t parts = open.reader->part_count;
        assert_true(parts > 2);
        for (size_t i = 0; i < parts; i++) {
            char *path = part_path(&open, i);
            (void)drop_pages(path);
            free(path);
        }
        /* However often it is stopped, somebody else goes on. */
        for (int loader = 0; open.reader->warmth.swept_parts < parts; loader++) {
            struct ydl_sweep sweep = {0};
            ydl_sweep_start(&sweep, open.reader);
            ydl_sweep_start(&sweep, open.reader); /* has one */
            if (loader >= 3)
                wait_for_sweep(open.reader);
            ydl_sweep_stop(&sweep);
            assert_false(ydl_sweep_is_running(open.reader));
        }
        for (size_t i = 0; i < parts; i++) {
            char *path = part_path(&open, i);
            assert_true(wait_for_pages(path, 0));
            free(path);
        }
        struct ydl_sweep again = {0};
        ydl_sweep_start(&again, open.reader);
        assert_false(again.started);
        ydl_sweep_stop(&again);
        open_build_clear(&open);
    }
}

static void test_sweep_wants_room(void **state)
{
    (void)state;
    assert_true(ydl_sweep_fits(0, 0));
    assert_true(ydl_sweep_fits(3000, 4000));
    assert_false(ydl_sweep_fits(3001, 4000));
    assert_false(ydl_sweep_fits(1, 0)); /* unknown */
    assert_false(ydl_sweep_fits(UINT64_MAX, UINT64_MAX));
}

static void test_a_missing_part_ends_the_sweep(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, false, 3000, 30000, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    char *path = part_path(&open, 1);
    assert_int_equal(unlink(path), 0);
    free(path);
    struct ydl_sweep sweep = {0};
    ydl_sweep_start(&sweep, open.reader);
    assert_true(sweep.started);
    wait_for_sweep(open.reader);
    ydl_sweep_stop(&sweep);
    assert_int_equal(open.reader->warmth.swept_parts, 1);
    open_build_clear(&open);
}

/* ---- the loader ---- */

static void check_epoch(struct open_build *open, unsigned threads, uint64_t num_shards)
{
    const struct ydl_order order = {
        .records = open->reader->records, .num_shards = num_shards, .shuffle = true, .seed = 7};
    struct ydl_orders *orders = new_orders(&order);
    const struct ydl_loader_config config = {
        .orders = orders,
        .batch_records = 100,
        .threads = threads,
        .depth = 3,
    };
    struct ydl_error err;
    struct ydl_loader *loader;
    struct ydl_indices indices = fill_indices(&order, 0);
    assert_status(YDL_OK, ydl_loader_new(open->reader, &config, &loader, &err), &err);
    ydl_orders_release(orders);
    uint64_t at = 0;
    for (;;) {
        struct ydl_batch *batch;
        uint64_t numbers[100];
        enum ydl_status status = ydl_loader_next(loader, 60 * 1000, &batch, &err);
        if (status == YDL_END)
            break;
        assert_status(YDL_OK, status, &err);
        for (uint64_t i = 0; i < batch->records; i++)
            numbers[i] = ydl_indices_at(&indices, at++);
        check_batch(batch, open->make, numbers, batch->records);
        ydl_batch_free(batch);
    }
    assert_int_equal(at, indices.len);
    free(indices.values);
    ydl_loader_free(loader);
    assert_false(ydl_sweep_is_running(open->reader)); /* no thread is left */
}

static void test_cold_batches_are_the_same(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        struct open_build open;
        open_build_init(&open, kind % 2, 20000, 100000, (enum ydl_access)(kind / 2 % 2),
                        YDL_VERIFY_FIRST);
        for (unsigned round = 0; round < 3; round++) {
            for (size_t i = 0; i < open.reader->part_count; i++) {
                char *path = part_path(&open, i);
                (void)drop_pages(path);
                free(path);
            }
            /* Also where nothing can be dropped: hints all along. */
            atomic_store(&open.reader->warmth.cold_batches, 1 << 20);
            check_epoch(&open, (unsigned)kind / 4 + round, round == 1 ? 1000 : 1);
        }
        open_build_clear(&open);
    }
}

static void test_a_cold_cache_is_noticed(void **state)
{
    (void)state;
    bool is_cold = true;
    for (int kind = 0; kind < 8; kind++) {
        struct open_build open;
        struct ydl_error err;
        struct ydl_loader *loader;
        struct ydl_batch *batch;
        bool needs_all = kind / 4 == 0; /* else a shard that needs a hundredth of the pages */
        open_build_init(&open, false, MANY, 300000, (enum ydl_access)(kind / 2 % 2),
                        YDL_VERIFY_FIRST);
        const struct ydl_order order = {
            .records = MANY, .num_shards = needs_all ? 1 : 20000, .shuffle = true};
        struct ydl_orders *orders = new_orders(&order);
        const struct ydl_loader_config config = {
            .orders = orders,
            .batch_records = 1,
            .threads = (unsigned)kind % 2,
            .depth = 1,
        };
        for (size_t i = 0; i < open.reader->part_count; i++) {
            char *path = part_path(&open, i);
            is_cold = drop_pages(path) && is_cold;
            free(path);
        }
        assert_status(YDL_OK, ydl_loader_new(open.reader, &config, &loader, &err), &err);
        ydl_orders_release(orders);
        assert_status(YDL_OK, ydl_loader_next(loader, 60 * 1000, &batch, &err), &err);
        ydl_batch_free(batch);
        wait_for_sweep(open.reader);
        if (is_cold) {
            assert_true(atomic_load(&open.reader->warmth.cold_batches) > 0);
            assert_int_equal(open.reader->warmth.swept_parts,
                             needs_all ? open.reader->part_count : 0);
        }
        ydl_loader_free(loader);
        open_build_clear(&open);
    }
    if (!is_cold)
        skip();
}

static void test_a_warm_cache_is_noticed(void **state)
{
    (void)state;
    struct open_build open;
    open_build_init(&open, false, 20000, 100000, YDL_ACCESS_MMAP, YDL_VERIFY_NEVER);
    check_epoch(&open, 0, 1);
    atomic_store(&open.reader->warmth.cold_batches, 3);
    check_epoch(&open, 0, 1);
    assert_int_equal(atomic_load(&open.reader->warmth.cold_batches), 0);
    assert_int_equal(open.reader->warmth.swept_parts, 0);
    open_build_clear(&open);
}

static void test_an_iterator_that_nobody_pulls_starts_nothing(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_loader *loader;
    const struct ydl_order order = {.records = 1000, .num_shards = 1};
    struct ydl_orders *orders = new_orders(&order);
    const struct ydl_loader_config config = {
        .orders = orders,
        .batch_records = 10,
        .threads = 2,
        .depth = 3,
    };
    open_build_init(&open, false, 1000, 10000, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    atomic_store(&open.reader->warmth.cold_batches, 100);
    assert_status(YDL_OK, ydl_loader_new(open.reader, &config, &loader, &err), &err);
    ydl_orders_release(orders);
    usleep(20000);
    assert_int_equal(atomic_load(&open.reader->warmth.cold_batches), 100);
    assert_false(ydl_sweep_is_running(open.reader));
    ydl_loader_free(loader);
    open_build_clear(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_asks_for_each_position_once_and_in_time),
        cmocka_unit_test(test_window_begins_anew_where_it_is_not_ahead),
        cmocka_unit_test(test_near_spans_are_one),
        cmocka_unit_test(test_row_spans_are_where_the_rows_lie),
        cmocka_unit_test(test_wanted_bytes_come_into_the_cache),
        cmocka_unit_test(test_sweep_reads_all_once),
        cmocka_unit_test(test_sweep_wants_room),
        cmocka_unit_test(test_a_missing_part_ends_the_sweep),
        cmocka_unit_test(test_cold_batches_are_the_same),
        cmocka_unit_test(test_a_cold_cache_is_noticed),
        cmocka_unit_test(test_a_warm_cache_is_noticed),
        cmocka_unit_test(test_an_iterator_that_nobody_pulls_starts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
