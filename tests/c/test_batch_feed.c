/* Feeds: batches in order and the loader's own, calls and closes that meet, errors, forks.
 *
 * A call is held where a test wants it by a source whose parts open only once a gate does. */
#include "batch_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batch/feed.h"
#include "batch/loader.h"

enum { RECORDS = 103, BATCH = 8, BATCHES = 13, PART_BYTES = 2048, LONG_MS = 60 * 1000 };
enum { A_MOMENT_US = 30 * 1000, TOO_LONG_S = 120 };

static const struct ydl_order shuffled = {
    .records = RECORDS, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};
static const struct ydl_order sequential = {.records = RECORDS, .num_shards = 1};

static const struct ydl_loader_config plain = {
    .batch_records = BATCH,
    .threads = 2,
    .depth = 3,
};

static struct ydl_loader *load_in(const struct ydl_order *order, struct open_build *open,
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

static struct ydl_loader *load(struct open_build *open, const struct ydl_loader_config *config)
{
    return load_in(&shuffled, open, config);
}

static uint64_t lend(struct ydl_loader *loader)
{
    struct ydl_error err;
    uint64_t feed = YDL_FEED_SAMPLE;
    assert_status(YDL_OK, ydl_feed_open(loader, &feed, &err), &err);
    assert_true(feed != YDL_FEED_SAMPLE);
    return feed;
}

static void assert_next(enum ydl_status expected, uint64_t feed, struct ydl_error *err)
{
    struct ydl_batch *batch = NULL;
    assert_status(expected, ydl_feed_api.next(feed, &batch, err), err);
    assert_int_equal(batch != NULL, expected == YDL_OK);
    ydl_feed_api.free_batch(batch);
}

/* ---- a gate before the parts ---- */

struct gate {
    struct ydl_source source;
    struct ydl_source *parts; /* owned */
    sem_t arrived;            /* one for each view that waits */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under lock: */
    bool is_open;
    unsigned failures; /* views that fail before one succeeds */
};

static struct gate *gate_of(struct ydl_source *source)
{
    return (struct gate *)(void *)source;
}

static void gate_want(struct ydl_source *source, uint64_t part)
{
    struct ydl_source *parts = gate_of(source)->parts;
    parts->ops->want(parts, part);
}

static enum ydl_status gate_wait(struct ydl_source *source, uint64_t part, uint64_t timeout_ms,
                                 struct ydl_error *err)
{
    struct ydl_source *parts = gate_of(source)->parts;
    return parts->ops->wait(parts, part, timeout_ms, err);
}

static enum ydl_status gate_view(struct ydl_source *source, uint64_t part, struct ydl_part **out,
                                 struct ydl_error *err)
{
    struct gate *gate = gate_of(source);
    pthread_mutex_lock(&gate->lock);
    if (!gate->is_open)
        sem_post(&gate->arrived);
    while (!gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    bool fails = gate->failures > 0;
    if (fails)
        gate->failures--;
    pthread_mutex_unlock(&gate->lock);
    if (fails)
        return ydl_fail(err, YDL_CORRUPT_CACHE, "part %llu failed on purpose",
                        (unsigned long long)part);
    return gate->parts->ops->view(gate->parts, part, out, err);
}

static void gate_release(struct ydl_source *source, uint64_t part)
{
    struct ydl_source *parts = gate_of(source)->parts;
    parts->ops->release(parts, part);
}

static void gate_close(struct ydl_source *source)
{
    struct gate *gate = gate_of(source);
    gate->parts->ops->close(gate->parts);
    pthread_mutex_destroy(&gate->lock);
    pthread_cond_destroy(&gate->changed);
    sem_destroy(&gate->arrived);
    free(gate);
}

static struct gate *put_gate(struct open_build *open, bool is_open, unsigned failures)
{
    static const struct ydl_source_ops ops = {gate_want, gate_wait, gate_view, gate_release,
                                              gate_close};
    struct gate *gate = calloc(1, sizeof *gate);
    assert_non_null(gate);
    gate->source.ops = &ops;
    gate->parts = open->reader->source;
    gate->is_open = is_open;
    gate->failures = failures;
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    sem_init(&gate->arrived, 0, 0);
    open->reader->source = &gate->source;
    return gate;
}

static void open_gate(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* ---- calls from other threads ---- */

struct call {
    pthread_t thread;
    uint64_t feed;
    enum ydl_status status;
    struct ydl_error err;
};

static void *call_next(void *argument)
{
    struct call *call = argument;
    struct ydl_batch *batch = NULL;
    call->status = ydl_feed_api.next(call->feed, &batch, &call->err);
    ydl_feed_api.free_batch(batch);
    return NULL;
}

static void *call_close(void *argument)
{
    struct call *call = argument;
    ydl_feed_close(call->feed);
    return NULL;
}

static void start(struct call *call, void *(*run)(void *), uint64_t feed)
{
    *call = (struct call){.feed = feed};
    assert_int_equal(pthread_create(&call->thread, NULL, run, call), 0);
}

static void join(struct call *call)
{
    assert_int_equal(pthread_join(call->thread, NULL), 0);
}

/* Returns once the call is in the loader. */
static void start_held(struct call *call, struct gate *gate, uint64_t feed)
{
    start(call, call_next, feed);
    while (sem_wait(&gate->arrived) != 0)
        continue;
}

/* ---- batches ---- */

static void assert_same_block(const struct ydl_block *a, const struct ydl_block *b, size_t bytes)
{
    assert_int_equal(a != NULL, b != NULL);
    if (a)
        assert_memory_equal(a->data, b->data, bytes);
}

static void assert_same_batch(const struct ydl_batch *a, const struct ydl_batch *b)
{
    assert_int_equal(a->records, b->records);
    assert_int_equal(a->count, b->count);
    for (uint32_t c = 0; c < a->count; c++) {
        const struct ydl_column *x = &a->columns[c];
        const struct ydl_column *y = &b->columns[c];
        assert_int_equal(x->data_bytes, y->data_bytes);
        assert_int_equal(x->elements, y->elements);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->dims, y->dims, x->rank * sizeof *x->dims);
        assert_same_block(x->data, y->data, x->data_bytes);
        assert_same_block(x->string_ends, y->string_ends, x->elements * 8);
        assert_same_block(x->record_splits, y->record_splits, (a->records + 1) * 8);
    }
}

static void test_batches_are_the_loaders_in_its_order(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 8; kind++) {
        struct open_build open;
        open_build_init(&open, kind % 2, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
        struct ydl_loader_config config = plain;
        config.threads = kind / 2;
        struct ydl_loader *lent = load(&open, &config);
        struct ydl_loader *own = load(&open, &config);
        uint64_t feed = lend(lent);
        struct ydl_error err;
        uint64_t records = 0;
        uint64_t noted;
        for (uint64_t b = 0; b < BATCHES; b++) {
            struct ydl_batch *got = NULL;
            struct ydl_batch *wanted = NULL;
            assert_status(YDL_OK, ydl_feed_api.next(feed, &got, &err), &err);
            assert_status(YDL_OK, ydl_loader_next(own, LONG_MS, &wanted, &err), &err);
            assert_same_batch(got, wanted);
            records += got->records;
            ydl_feed_api.free_batch(got);
            ydl_batch_free(wanted);
            assert_status(YDL_OK, ydl_feed_look(feed, &noted, &err), &err);
            assert_int_equal(noted, records);
        }
        assert_int_equal(records, RECORDS);
        for (int again = 0; again < 2; again++)
            assert_next(YDL_END, feed, &err);
        assert_status(YDL_OK, ydl_feed_look(feed, &noted, &err), &err);
        assert_int_equal(noted, RECORDS);
        ydl_feed_close(feed);
        ydl_loader_free(lent);
        ydl_loader_free(own);
        open_build_clear(&open);
    }
}

static void test_a_batch_outlives_its_feed(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct ydl_batch *batch = NULL;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader_config config = plain;
    struct ydl_loader *loader = load_in(&sequential, &open, &config);
    uint64_t feed = lend(loader);
    assert_status(YDL_OK, ydl_feed_api.next(feed, &batch, &err), &err);
    ydl_feed_close(feed);
    ydl_loader_free(loader);
    const uint64_t numbers[BATCH] = {0, 1, 2, 3, 4, 5, 6, 7};
    check_batch(batch, open.make, numbers, BATCH);
    open_build_clear(&open);

    /* As the op does with numbers: the block goes its own way. */
    struct ydl_block *block = batch->columns[0].data;
    batch->columns[0].data = NULL;
    ydl_feed_api.free_batch(batch);
    struct sample samples[SAMPLE_COMPONENTS];
    fixed_sample(7, samples);
    assert_memory_equal(block->data + 7, samples[0].data, 1);
    ydl_feed_api.release_data(block->data, BATCH, block);
}

/* ---- calls and closes that meet ---- */

static void test_a_second_call_at_once_is_refused(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads < 3; threads++) {
        struct open_build open;
        struct ydl_error err;
        struct call call;
        open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
        struct gate *gate = put_gate(&open, false, 0);
        struct ydl_loader_config config = plain;
        config.threads = threads;
        struct ydl_loader *loader = load(&open, &config);
        uint64_t feed = lend(loader);
        start_held(&call, gate, feed);
        for (int again = 0; again < 2; again++) {
            assert_next(YDL_INVALID, feed, &err);
            assert_non_null(strstr(err.text, "another call"));
        }
        open_gate(gate);
        join(&call);
        assert_status(YDL_OK, call.status, &call.err);
        assert_next(YDL_OK, feed, &err); /* refused calls left no mark */
        ydl_feed_close(feed);
        ydl_loader_free(loader);
        open_build_clear(&open);
    }
}

static void test_closing_ends_a_call_that_waits(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    struct call call;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct gate *gate = put_gate(&open, false, 0);
    struct ydl_loader *loader = load(&open, &plain);
    uint64_t feed = lend(loader);
    start_held(&call, gate, feed);
    ydl_feed_close(feed); /* the gate is shut: only the close can end the call */
    join(&call);
    assert_status(YDL_CLOSED, call.status, &call.err);
    assert_next(YDL_CLOSED, feed, &err);
    open_gate(gate);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

/* A call that gathers itself cannot be ended: its batch arrives, and only then the closes return.
 */
static void test_closes_at_once_wait_for_a_call(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct open_build open;
        struct call call;
        struct call closes[3];
        open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
        struct gate *gate = put_gate(&open, false, 0);
        struct ydl_loader_config config = plain;
        config.threads = 0;
        struct ydl_loader *loader = load(&open, &config);
        uint64_t other = lend(loader);
        uint64_t feed = lend(loader);
        start_held(&call, gate, feed);
        for (int i = 0; i < 3; i++)
            start(&closes[i], call_close, feed);
        usleep(A_MOMENT_US);
        open_gate(gate);
        for (int i = 0; i < 3; i++)
            join(&closes[i]);
        join(&call);
        assert_status(YDL_OK, call.status, &call.err);
        ydl_feed_close(other); /* still in the list, and alone there */
        ydl_loader_free(loader);
        open_build_clear(&open);
    }
}

static void test_a_number_that_is_none(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader *loader = load(&open, &plain);
    uint64_t feed = lend(loader);
    assert_next(YDL_OK, feed, &err);
    ydl_feed_close(feed);
    const uint64_t numbers[] = {feed, feed + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint64_t records = 99;
        ydl_feed_close(numbers[i]);
        assert_next(YDL_CLOSED, numbers[i], &err);
        assert_status(YDL_OK, ydl_feed_look(numbers[i], &records, &err), &err);
        assert_int_equal(records, 0);
    }
    uint64_t another = lend(loader);
    assert_true(another > feed); /* a number is never given twice */
    assert_next(YDL_OK, another, &err);
    ydl_feed_close(feed);
    assert_next(YDL_OK, another, &err);
    ydl_feed_close(another);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

/* ---- errors ---- */

static void test_an_error_is_final_and_can_be_looked_at(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads < 3; threads++) {
        struct open_build open;
        struct ydl_error err;
        uint64_t records;
        open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
        (void)put_gate(&open, true, 1);                    /* another try would succeed */
        atomic_store(&open.reader->warmth.is_known, true); /* no hint is the first try */
        struct ydl_loader_config config = plain;
        config.threads = threads;
        config.depth = 1; /* so that only one view has failed when it is reported */
        struct ydl_loader *loader = load(&open, &config);
        uint64_t feed = lend(loader);
        assert_next(YDL_CORRUPT_CACHE, feed, &err);
        assert_non_null(strstr(err.text, "failed on purpose"));
        for (int again = 0; again < 2; again++)
            assert_next(YDL_END, feed, &err);
        err = (struct ydl_error){0};
        assert_status(YDL_CORRUPT_CACHE, ydl_feed_look(feed, &records, &err), &err);
        assert_int_equal(err.status, YDL_CORRUPT_CACHE);
        assert_non_null(strstr(err.text, "failed on purpose"));
        assert_int_equal(records, 0);
        ydl_feed_close(feed);
        ydl_loader_free(loader);
        open_build_clear(&open);
    }
}

static void test_an_error_in_mid_stream_keeps_what_was_handed_out(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    open_build_init(&open, true, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader_config config = plain;
    config.batch_records = 1;
    config.require_uniform = true;
    struct ydl_loader *loader = load_in(&sequential, &open, &config);
    uint64_t feed = lend(loader);
    assert_next(YDL_OK, feed, &err);
    ydl_feed_close(feed);
    ydl_loader_free(loader);

    config.batch_records = 12; /* records of all shapes in the first batch */
    loader = load_in(&sequential, &open, &config);
    feed = lend(loader);
    assert_next(YDL_SHAPE_MISMATCH, feed, &err);
    uint64_t records = 99;
    assert_status(YDL_SHAPE_MISMATCH, ydl_feed_look(feed, &records, &err), &err);
    assert_int_equal(records, 0);
    ydl_feed_close(feed);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

/* ---- the sample ---- */

static void test_the_sample(void **state)
{
    (void)state;
    static const int64_t numbers[] = {1, 2, 3};
    static const uint64_t ends[] = {1, 1, 101};
    for (int again = 0; again < 3; again++) {
        struct ydl_error err;
        struct ydl_batch *batch = NULL;
        assert_status(YDL_OK, ydl_feed_api.next(YDL_FEED_SAMPLE, &batch, &err), &err);
        assert_int_equal(batch->records, 3);
        assert_int_equal(batch->count, 2);
        for (int c = 0; c < 2; c++) {
            assert_true(batch->columns[c].uniform);
            assert_int_equal(batch->columns[c].rank, 0);
            assert_int_equal(batch->columns[c].elements, 3);
        }
        assert_memory_equal(batch->columns[0].data->data, numbers, sizeof numbers);
        assert_int_equal((uintptr_t)batch->columns[0].data->data % YDL_BLOCK_ALIGNMENT, 0);
        assert_null(batch->columns[0].string_ends);
        assert_memory_equal(batch->columns[1].string_ends->data, ends, sizeof ends);
        assert_int_equal(batch->columns[1].data_bytes, 101);
        assert_memory_equal(batch->columns[1].data->data, "abbb", 4);
        assert_int_equal(batch->columns[1].data->data[100], 'b');
        ydl_feed_api.free_batch(batch);
    }
    ydl_feed_close(YDL_FEED_SAMPLE);
    assert_int_equal(ydl_feed_api.version, YDL_FEED_API_VERSION);
}

/* ---- forks ---- */

/* What a child may do with feeds of its parent; true: as it should. */
static bool child_lets_go(const uint64_t *feeds, int n)
{
    struct ydl_error err;
    struct ydl_batch *batch = NULL;
    uint64_t records;
    bool fine = ydl_feed_api.next(YDL_FEED_SAMPLE, &batch, &err) == YDL_OK;
    ydl_feed_api.free_batch(batch);
    batch = NULL;
    for (int i = 0; i < n; i++) {
        fine = fine && ydl_feed_api.next(feeds[i], &batch, &err) == YDL_FORKED && !batch;
        fine = fine && strstr(err.text, "Make a new iterator after the fork");
        fine = fine && ydl_feed_look(feeds[i], &records, &err) == YDL_OK;
        ydl_feed_close(feeds[i]);
        fine = fine && ydl_feed_api.next(feeds[i], &batch, &err) == YDL_CLOSED;
    }
    return fine;
}

static void check_child(const uint64_t *feeds, int n)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(TOO_LONG_S);
        _exit(child_lets_go(feeds, n) ? 0 : 1);
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_child_is_refused_and_may_let_go(void **state)
{
    (void)state;
    struct open_build open;
    struct ydl_error err;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader *loader = load(&open, &plain);
    uint64_t feed = lend(loader);
    assert_next(YDL_OK, feed, &err);
    check_child(&feed, 1);
    assert_next(YDL_OK, feed, &err);
    ydl_feed_close(feed);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

static void test_a_child_does_not_wait_for_a_call_of_its_parent(void **state)
{
    (void)state;
    struct open_build open;
    struct call call;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct gate *gate = put_gate(&open, false, 0);
    struct ydl_loader *loader = load(&open, &plain);
    struct ydl_loader *idle_loader = load(&open, &plain);
    uint64_t feeds[] = {lend(loader), lend(idle_loader)};
    start_held(&call, gate, feeds[0]);
    check_child(feeds, 2);

    /* Nor for a close of its parent that waits itself. */
    struct ydl_loader_config config = plain;
    config.threads = 0;
    struct ydl_loader *alone = load(&open, &config);
    uint64_t held = lend(alone);
    struct call in_loader;
    struct call close;
    start_held(&in_loader, gate, held);
    start(&close, call_close, held);
    usleep(A_MOMENT_US);
    check_child(feeds, 2);

    open_gate(gate);
    join(&close);
    join(&in_loader);
    join(&call);
    assert_status(YDL_OK, call.status, &call.err);
    for (int i = 0; i < 2; i++)
        ydl_feed_close(feeds[i]);
    ydl_loader_free(alone);
    ydl_loader_free(loader);
    ydl_loader_free(idle_loader);
    open_build_clear(&open);
}

struct churn {
    pthread_t thread;
    struct open_build *open;
    atomic_bool *stop;
    uint64_t rounds;
    bool failed;
};

/* One loader after another, each lent, pulled from in order and closed at some batch. */
static void *churn(void *argument)
{
    struct churn *churn = argument;
    for (; !churn->failed && !atomic_load(churn->stop); churn->rounds++) {
        struct ydl_error err;
        struct ydl_loader *loader = NULL;
        struct ydl_loader_config config = plain;
        config.threads = (unsigned)(churn->rounds % 3);
        uint64_t feed = 0;
        uint64_t wanted = churn->rounds % BATCHES;
        churn->failed = ydl_orders_new(&shuffled, &config.orders, &err) != YDL_OK ||
                        ydl_loader_new(churn->open->reader, &config, &loader, &err) != YDL_OK ||
                        ydl_feed_open(loader, &feed, &err) != YDL_OK;
        ydl_orders_release(config.orders);
        for (uint64_t b = 0; !churn->failed && b < wanted; b++) {
            struct ydl_batch *batch = NULL;
            churn->failed = ydl_feed_api.next(feed, &batch, &err) != YDL_OK ||
                            batch->records != (b + 1 < BATCHES ? BATCH : RECORDS % BATCH);
            ydl_feed_api.free_batch(batch);
        }
        uint64_t records = 0;
        churn->failed = churn->failed || ydl_feed_look(feed, &records, &err) != YDL_OK ||
                        records != wanted * BATCH;
        ydl_feed_close(feed);
        ydl_loader_free(loader);
    }
    return NULL;
}

enum { CHURNS = 4 };

static void start_churns(struct churn *churns, struct open_build *open, atomic_bool *stop)
{
    for (int i = 0; i < CHURNS; i++) {
        churns[i] = (struct churn){.open = open, .stop = stop, .rounds = (uint64_t)i};
        assert_int_equal(pthread_create(&churns[i].thread, NULL, churn, &churns[i]), 0);
    }
}

static void stop_churns(struct churn *churns, atomic_bool *stop)
{
    atomic_store(stop, true);
    for (int i = 0; i < CHURNS; i++) {
        assert_int_equal(pthread_join(churns[i].thread, NULL), 0);
        assert_false(churns[i].failed);
        assert_true(churns[i].rounds > (uint64_t)i);
    }
}

/* Holds the feeds' lock as much of the time as it can. */
static void *look_on(void *argument)
{
    atomic_bool *stop = argument;
    while (!atomic_load(stop)) {
        struct ydl_error err;
        uint64_t records;
        (void)!ydl_feed_look(UINT64_MAX, &records, &err);
    }
    return NULL;
}

static void test_a_fork_while_threads_are_inside(void **state)
{
    (void)state;
    struct open_build open;
    struct churn churns[CHURNS];
    pthread_t looker;
    atomic_bool stop = false;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    struct ydl_loader *loader = load(&open, &plain);
    uint64_t feed = lend(loader);
    start_churns(churns, &open, &stop);
    assert_int_equal(pthread_create(&looker, NULL, look_on, &stop), 0);
    for (int i = 0; i < 40; i++)
        check_child(&feed, 1);
    stop_churns(churns, &stop);
    assert_int_equal(pthread_join(looker, NULL), 0);
    ydl_feed_close(feed);
    ydl_loader_free(loader);
    open_build_clear(&open);
}

/* ---- many at once ---- */

static void *pull_to_the_end(void *argument)
{
    struct call *call = argument;
    while (call->status == YDL_OK) {
        struct ydl_batch *batch = NULL;
        call->status = ydl_feed_api.next(call->feed, &batch, &call->err);
        ydl_feed_api.free_batch(batch);
    }
    return NULL;
}

static void test_many_feeds_from_many_threads(void **state)
{
    (void)state;
    struct open_build open;
    struct churn churns[CHURNS];
    atomic_bool stop = false;
    open_build_init(&open, false, RECORDS, PART_BYTES, YDL_ACCESS_MMAP, YDL_VERIFY_FIRST);
    start_churns(churns, &open, &stop);
    unsigned closed = 0;
    for (unsigned round = 0; round < 60; round++) {
        /* Closed by another thread than pulls, at some moment of an endless stream. */
        struct call puller;
        struct ydl_loader_config config = plain;
        config.threads = round % 3;
        config.endless = true;
        struct ydl_loader *loader = load(&open, &config);
        start(&puller, pull_to_the_end, lend(loader));
        usleep(round % 7 * 200);
        ydl_feed_close(puller.feed);
        ydl_loader_free(loader); /* at once: no call is in it any more */
        join(&puller);
        assert_status(YDL_CLOSED, puller.status, &puller.err);
        closed++;
    }
    assert_int_equal(closed, 60);
    stop_churns(churns, &stop);
    open_build_clear(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_are_the_loaders_in_its_order),
        cmocka_unit_test(test_a_batch_outlives_its_feed),
        cmocka_unit_test(test_a_second_call_at_once_is_refused),
        cmocka_unit_test(test_closing_ends_a_call_that_waits),
        cmocka_unit_test(test_closes_at_once_wait_for_a_call),
        cmocka_unit_test(test_a_number_that_is_none),
        cmocka_unit_test(test_an_error_is_final_and_can_be_looked_at),
        cmocka_unit_test(test_an_error_in_mid_stream_keeps_what_was_handed_out),
        cmocka_unit_test(test_the_sample),
        cmocka_unit_test(test_a_child_is_refused_and_may_let_go),
        cmocka_unit_test(test_a_child_does_not_wait_for_a_call_of_its_parent),
        cmocka_unit_test(test_a_fork_while_threads_are_inside),
        cmocka_unit_test(test_many_feeds_from_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
