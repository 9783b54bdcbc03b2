#include "batch/loader.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "batch/gather.h"
#include "batch/lookahead.h"

/* What became of one batch of the sequence. Until it is ready it belongs to the lane that has its
 * ticket. */
struct slot {
    bool ready;
    enum ydl_status status;  /* YDL_OK: a batch; else err */
    struct ydl_batch *batch; /* owned until handed out */
    struct ydl_error err;
};

/* A thread that gathers: a worker, or the consumer where there are no workers. */
struct lane {
    struct ydl_loader *loader;
    struct ydl_finder *finder; /* owned */
    uint64_t *numbers;         /* [batch_records * group], owned */
    pthread_t thread;
};

struct ydl_loader {
    struct ydl_loader_config config;
    struct ydl_reader *reader; /* counted; as config's orders are */
    pid_t pid;                 /* of the process whose threads these are */
    uint64_t epoch_len;
    struct lane *lanes;              /* [max(threads, 1)], owned */
    struct ydl_lookahead *lookahead; /* owned */

    pthread_mutex_t lock;
    pthread_cond_t filled;  /* the slot that the consumer waits for may be ready */
    pthread_cond_t emptied; /* a slot was handed out, is_loading ended, or stop was set */
    /* Under lock: */
    bool stop;
    unsigned started;         /* threads that run */
    bool exhausted;           /* no batch comes after `planned` */
    uint64_t planned;         /* batches whose numbers were given to a lane */
    uint64_t taken;           /* batches handed out */
    struct ydl_cursor cursor; /* the next record to plan */
    struct slot *slots;       /* [depth], batch b in slot b % depth; owned */
    /* The order of epoch indices_epoch, lent by config's orders; or NULL. */
    const struct ydl_indices *indices;
    uint64_t indices_epoch;
    bool is_loading;        /* the lane that plans takes an order, without the lock */
    bool is_next_asked_for; /* the order of the epoch after */
};

/* Lets go of the lock, since an order may take long; nobody else plans meanwhile. */
static enum ydl_status load_epoch_locked(struct ydl_loader *loader, struct ydl_error *err)
{
    const uint64_t epoch = loader->cursor.epoch;
    if (loader->indices && loader->indices_epoch == epoch)
        return YDL_OK;
    const struct ydl_indices *before = loader->indices;
    const struct ydl_indices *indices = NULL;
    loader->indices = NULL;
    loader->is_loading = true;
    pthread_mutex_unlock(&loader->lock);
    ydl_orders_give_back(loader->config.orders, before);
    enum ydl_status status = ydl_orders_take(loader->config.orders, epoch, &indices, err);
    pthread_mutex_lock(&loader->lock);
    loader->indices = indices;
    loader->indices_epoch = epoch;
    loader->is_loading = false;
    loader->is_next_asked_for = false;
    pthread_cond_broadcast(&loader->emptied);
    return status;
}

static void ask_for_next_locked(struct ydl_loader *loader)
{
    const struct ydl_cursor *cursor = &loader->cursor;
    if (loader->is_next_asked_for || cursor->position < loader->epoch_len - cursor->position)
        return;
    ydl_orders_make_ahead(loader->config.orders, cursor->epoch + 1);
    loader->is_next_asked_for = true;
}

/* What is to be given back once nothing more will be planned; or NULL. */
static const struct ydl_indices *last_indices_locked(struct ydl_loader *loader)
{
    if (!loader->exhausted || loader->is_loading)
        return NULL;
    const struct ydl_indices *indices = loader->indices;
    loader->indices = NULL;
    return indices;
}

/* Records of the next batch, or group of batches, unless the epoch ends before. */
static uint64_t next_size_locked(const struct ydl_loader *loader)
{
    const struct ydl_loader_config *config = &loader->config;
    const uint64_t left = loader->epoch_len - loader->cursor.position;
    const bool has_group = config->endless || left / config->batch_records >= config->group;
    return has_group ? config->batch_records * config->group : config->batch_records;
}

/* Writes the next batch's record numbers; fewer than batch_records only at the end. */
static enum ydl_status plan_locked(struct ydl_loader *loader, uint64_t *numbers, uint64_t *out_n,
                                   struct ydl_error *err)
{
    const uint64_t size = next_size_locked(loader);
    uint64_t n = 0;
    while (n < size) {
        if (loader->cursor.position == loader->epoch_len) {
            if (!loader->config.endless || loader->epoch_len == 0)
                break;
            loader->cursor.epoch++;
            loader->cursor.position = 0;
        }
        enum ydl_status status = load_epoch_locked(loader, err);
        if (status != YDL_OK)
            return status;
        uint64_t left = loader->epoch_len - loader->cursor.position;
        uint64_t wanted = size - n;
        uint64_t take = left < wanted ? left : wanted;
        ydl_indices_copy(loader->indices, loader->cursor.position, take, numbers + n);
        n += take;
        loader->cursor.position += take;
        ask_for_next_locked(loader);
    }
    if (n < size) {
        loader->exhausted = true;
        if (loader->config.drop_remainder)
            n = 0;
    }
    *out_n = n;
    return n == 0 ? YDL_END : YDL_OK;
}

static unsigned lane_index(const struct lane *lane)
{
    return (unsigned)(lane - lane->loader->lanes);
}

/* The next batch's numbers for a lane, or the reason why there is none: YDL_END at the end. */
static enum ydl_status next_numbers_locked(struct lane *lane, uint64_t *out_n,
                                           struct ydl_error *err)
{
    struct ydl_loader *loader = lane->loader;
    if (loader->exhausted)
        return YDL_END;
    enum ydl_status status = plan_locked(loader, lane->numbers, out_n, err);
    if (status == YDL_OK)
        ydl_lookahead_plan(loader->lookahead, lane_index(lane), loader->indices, loader->cursor,
                           *out_n);
    else
        loader->exhausted = true;
    return status;
}

static void *work(void *argument)
{
    struct lane *lane = argument;
    struct ydl_loader *loader = lane->loader;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop && !loader->exhausted &&
               (loader->is_loading || loader->planned - loader->taken >= loader->config.depth))
            pthread_cond_wait(&loader->emptied, &loader->lock);
        if (loader->stop || loader->exhausted)
            break;

        struct ydl_error err = {0};
        uint64_t n = 0;
        enum ydl_status status = next_numbers_locked(lane, &n, &err);
        if (status == YDL_END)
            break;
        struct slot *slot = &loader->slots[loader->planned++ % loader->config.depth];
        slot->status = status;
        if (status == YDL_OK) {
            pthread_mutex_unlock(&loader->lock);
            ydl_lookahead_begin(loader->lookahead, lane_index(lane));
            slot->status = ydl_gather(lane->finder, loader->reader->pool, lane->numbers, n,
                                      loader->config.require_uniform, &slot->batch, &err);
            ydl_lookahead_end(loader->lookahead, lane_index(lane));
            pthread_mutex_lock(&loader->lock);
        }
        slot->err = err;
        slot->ready = true;
        status = slot->status;
        if (status != YDL_OK)
            loader->exhausted = true;
        pthread_cond_broadcast(&loader->filled);
    }
    /* The consumer may wait for a batch that will not come; others for room that is not needed. */
    pthread_cond_broadcast(&loader->filled);
    pthread_cond_broadcast(&loader->emptied);
    const struct ydl_indices *last = last_indices_locked(loader);
    pthread_mutex_unlock(&loader->lock);
    ydl_orders_give_back(loader->config.orders, last);
    return NULL;
}

static enum ydl_status init_lane(struct ydl_loader *loader, struct lane *lane,
                                 struct ydl_error *err)
{
    /* However large the batches are, one epoch never gives more numbers than it has. */
    uint64_t n = loader->config.batch_records * loader->config.group;
    if (!loader->config.endless && n > loader->epoch_len)
        n = loader->epoch_len ? loader->epoch_len : 1;
    lane->loader = loader;
    lane->numbers = calloc((size_t)n, sizeof *lane->numbers);
    if (!lane->numbers)
        return ydl_fail_memory(err, "a batch's record numbers", n * sizeof *lane->numbers);
    return ydl_finder_new(loader->reader, &lane->finder, err);
}

static void init_sync(struct ydl_loader *loader)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->filled, &monotonic);
    pthread_cond_init(&loader->emptied, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static unsigned lane_count(const struct ydl_loader_config *config)
{
    return config->threads ? config->threads : 1;
}

/* An epoch's buffers are the next one's: of large batches, too, as many as are ready at once. */
static void keep_buffers(const struct ydl_loader *loader)
{
    size_t bytes;
    /* An eighth more, since blocks are rounded up. */
    if (!__builtin_mul_overflow(ydl_reader_mean_record_bytes(loader->reader),
                                loader->config.batch_records, &bytes) &&
        !__builtin_mul_overflow(bytes + bytes / 8, loader->config.depth, &bytes))
        ydl_pool_keep(loader->reader->pool, bytes);
}

enum ydl_status ydl_loader_new(struct ydl_reader *reader, const struct ydl_loader_config *config,
                               struct ydl_loader **out, struct ydl_error *err)
{
    assert(config->batch_records >= 1 && config->depth >= 1);
    struct ydl_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return ydl_fail_memory(err, "a loader", sizeof *loader);
    loader->config = *config;
    if (loader->config.group == 0)
        loader->config.group = 1;
    loader->config.orders = ydl_orders_acquire(config->orders);
    loader->reader = ydl_reader_acquire(reader);
    loader->pid = getpid();
    loader->epoch_len = ydl_orders_len(config->orders);
    loader->cursor = config->start;
    init_sync(loader);

    enum ydl_status status = YDL_OK;
    loader->slots = calloc(config->depth, sizeof *loader->slots);
    loader->lanes = calloc(lane_count(config), sizeof *loader->lanes);
    loader->lookahead = ydl_lookahead_new(reader, ydl_orders_order(config->orders),
                                          config->batch_records, lane_count(config));
    if (!loader->slots || !loader->lanes || !loader->lookahead)
        status = ydl_fail_memory(err, "a loader's slots", config->depth * sizeof *loader->slots);
    for (unsigned i = 0; status == YDL_OK && i < lane_count(config); i++)
        status = init_lane(loader, &loader->lanes[i], err);

    if (status == YDL_OK) {
        keep_buffers(loader);
        *out = loader;
    } else {
        ydl_loader_free(loader);
    }
    return status;
}

/* Threads start with the first batch, so that an iterator nobody pulls costs none. */
static enum ydl_status start_threads_locked(struct ydl_loader *loader, struct ydl_error *err)
{
    int rc = 0;
    while (rc == 0 && loader->started < loader->config.threads) {
        struct lane *lane = &loader->lanes[loader->started];
        rc = ydl_thread_start(&lane->thread, work, lane);
        if (rc == 0)
            loader->started++;
    }
    if (rc != 0 && loader->started == 0)
        return ydl_fail_os(err, rc, "", "cannot start a prefetch thread");
    return YDL_OK; /* fewer threads than wanted are only slower */
}

/* The slot that comes next, once it is ready. YDL_OK: it holds a batch or rows. */
static enum ydl_status wait_locked(struct ydl_loader *loader, uint64_t timeout_ms,
                                   struct slot **out, struct ydl_error *err)
{
    struct timespec deadline = ydl_deadline_in(timeout_ms);
    enum ydl_status status = YDL_OK;
    if (loader->started == 0)
        status = start_threads_locked(loader, err);
    struct slot *slot = &loader->slots[loader->taken % loader->config.depth];
    while (status == YDL_OK && !slot->ready) {
        if (loader->exhausted && loader->taken == loader->planned)
            status = YDL_END;
        else if (pthread_cond_timedwait(&loader->filled, &loader->lock, &deadline) == ETIMEDOUT)
            status = YDL_PENDING;
    }
    if (slot->ready && slot->status != YDL_OK) {
        *err = slot->err; /* stays in its slot: an error is final */
        status = slot->status;
    }
    *out = slot;
    return status;
}

static enum ydl_status take_batch(struct ydl_loader *loader, uint64_t timeout_ms,
                                  struct ydl_batch **out, struct ydl_error *err)
{
    struct slot *slot;
    pthread_mutex_lock(&loader->lock);
    enum ydl_status status = wait_locked(loader, timeout_ms, &slot, err);
    if (status == YDL_OK) {
        *out = slot->batch;
        slot->ready = false;
        slot->batch = NULL;
        loader->taken++;
        pthread_cond_signal(&loader->emptied);
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

/* The consumer gathers itself: a batch where out_batch is given, else rows. */
static enum ydl_status take_alone(struct ydl_loader *loader, struct ydl_batch **out_batch,
                                  const struct ydl_row **out_rows, uint64_t *out_n,
                                  struct ydl_error *err)
{
    struct lane *lane = &loader->lanes[0];
    struct slot *last = &loader->slots[0]; /* only keeps a final error here */
    if (last->ready) {
        *err = last->err;
        return last->status;
    }
    uint64_t n = 0;
    pthread_mutex_lock(&loader->lock);
    enum ydl_status status = next_numbers_locked(lane, &n, err);
    const struct ydl_indices *last_indices = last_indices_locked(loader);
    pthread_mutex_unlock(&loader->lock);
    ydl_orders_give_back(loader->config.orders, last_indices);
    bool is_planned = status == YDL_OK;
    if (is_planned)
        ydl_lookahead_begin(loader->lookahead, 0);
    if (status == YDL_OK && out_batch)
        status = ydl_gather(lane->finder, loader->reader->pool, lane->numbers, n,
                            loader->config.require_uniform, out_batch, err);
    else if (status == YDL_OK)
        status = ydl_finder_lend(lane->finder, lane->numbers, n, out_rows, err);
    if (is_planned)
        ydl_lookahead_end(loader->lookahead, 0);
    if (status == YDL_END)
        ydl_finder_release(lane->finder);
    else if (status != YDL_OK)
        *last = (struct slot){.ready = true, .status = status, .err = *err};
    if (out_n)
        *out_n = n;
    return status;
}

static enum ydl_status check_process(const struct ydl_loader *loader, struct ydl_error *err)
{
    if (getpid() == loader->pid)
        return YDL_OK;
    return ydl_fail(err, YDL_FORKED,
                    "cannot go on with an iterator in process %ld: its prefetch threads belong to "
                    "process %ld. Make a new iterator after the fork",
                    (long)getpid(), (long)loader->pid);
}

enum ydl_status ydl_loader_next(struct ydl_loader *loader, uint64_t timeout_ms,
                                struct ydl_batch **out, struct ydl_error *err)
{
    enum ydl_status status = check_process(loader, err);
    if (status != YDL_OK)
        return status;
    if (loader->config.threads == 0)
        return take_alone(loader, out, NULL, NULL, err);
    return take_batch(loader, timeout_ms, out, err);
}

enum ydl_status ydl_loader_next_rows(struct ydl_loader *loader, const struct ydl_row **out_rows,
                                     uint64_t *out_n, struct ydl_error *err)
{
    assert(loader->config.threads == 0);
    enum ydl_status status = check_process(loader, err);
    return status == YDL_OK ? take_alone(loader, NULL, out_rows, out_n, err) : status;
}

void ydl_loader_free(struct ydl_loader *loader)
{
    if (!loader)
        return;
    /* In a forked child the threads are missing and the lock may be held by one of them for ever:
       the memory is left to the process's end. */
    if (loader->pid != getpid())
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->emptied);
    unsigned started = loader->started;
    pthread_mutex_unlock(&loader->lock);
    for (unsigned i = 0; i < started; i++)
        pthread_join(loader->lanes[i].thread, NULL);
    ydl_lookahead_free(loader->lookahead);

    for (unsigned i = 0; loader->lanes && i < lane_count(&loader->config); i++) {
        ydl_finder_free(loader->lanes[i].finder);
        free(loader->lanes[i].numbers);
    }
    free(loader->lanes);
    for (unsigned i = 0; loader->slots && i < loader->config.depth; i++)
        ydl_batch_free(loader->slots[i].batch);
    free(loader->slots);
    ydl_orders_give_back(loader->config.orders, loader->indices);
    ydl_orders_release(loader->config.orders);
    ydl_reader_release(loader->reader);
    pthread_cond_destroy(&loader->filled);
    pthread_cond_destroy(&loader->emptied);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
