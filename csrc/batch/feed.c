#include "batch/feed.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/gather.h"
#include "batch/pool.h"

/* How long a call waits before it looks whether the feed was closed. */
enum { WAIT_MS = 100 };

struct feed {
    uint64_t number;
    struct ydl_loader *loader; /* borrowed until ydl_feed_close */
    pid_t pid;                 /* of the process whose loader it is */
    struct feed *next;
    /* Under lock: */
    bool busy; /* a call is in the loader */
    bool closed;
    uint64_t records;
    enum ydl_status status; /* of the error that ended it */
    struct ydl_error err;
};

/* A leaf: nothing is called with it held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER; /* some feed is not busy any more */
static struct feed *feeds;                             /* owned list */
static uint64_t last_number = YDL_FEED_SAMPLE;

/* ---- forks: another thread may hold the lock when one happens ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    pthread_cond_init(&idle, NULL); /* the parent's waiters do not exist here */
    pthread_mutex_unlock(&lock);
}

static void install_fork_handlers(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- the owner's side ---- */

static struct feed **find_locked(uint64_t number)
{
    struct feed **at = &feeds;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

enum ydl_status ydl_feed_open(struct ydl_loader *loader, uint64_t *out_feed, struct ydl_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return ydl_fail_memory(err, "a feed", sizeof *feed);
    feed->loader = loader;
    feed->pid = getpid();
    pthread_mutex_lock(&lock);
    feed->number = ++last_number;
    feed->next = feeds;
    feeds = feed;
    pthread_mutex_unlock(&lock);
    *out_feed = feed->number;
    return YDL_OK;
}

void ydl_feed_close(uint64_t number)
{
    struct feed *feed;
    pthread_mutex_lock(&lock);
    /* Looked for again after each wait: another close may have been faster. */
    while ((feed = *find_locked(number)) != NULL) {
        feed->closed = true;
        if (!feed->busy || feed->pid != getpid()) /* a parent's call never ends here */
            break;
        pthread_cond_wait(&idle, &lock);
    }
    if (feed)
        *find_locked(number) = feed->next;
    pthread_mutex_unlock(&lock);
    free(feed);
}

enum ydl_status ydl_feed_look(uint64_t number, uint64_t *out_records, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    *out_records = 0;
    pthread_mutex_lock(&lock);
    const struct feed *feed = *find_locked(number);
    if (feed) {
        *out_records = feed->records;
        status = feed->status;
        if (status != YDL_OK)
            *err = feed->err;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- TensorFlow's side ---- */

static enum ydl_status fail_closed(uint64_t number, struct ydl_error *err)
{
    return ydl_fail(err, YDL_CLOSED,
                    "feed %llu is closed: its iterator ended, or it is one of another process",
                    (unsigned long long)number);
}

/* Marks the feed busy, unless this is not its turn. */
static enum ydl_status enter_locked(struct feed *feed, struct ydl_error *err)
{
    if (feed->pid != getpid())
        return ydl_fail(err, YDL_FORKED,
                        "cannot go on in process %ld with a dataset's iterator of process %ld. "
                        "Make a new iterator after the fork",
                        (long)getpid(), (long)feed->pid);
    if (feed->status != YDL_OK)
        return YDL_END;
    if (feed->busy)
        return ydl_fail(err, YDL_INVALID,
                        "a batch was asked for while another call waits for one: batches of one "
                        "iterator come one by one");
    feed->busy = true;
    return YDL_OK;
}

static enum ydl_status pull(struct feed *feed, struct ydl_batch **out, struct ydl_error *err)
{
    enum ydl_status status = YDL_PENDING;
    bool closed = false;
    while (status == YDL_PENDING && !closed) {
        status = ydl_loader_next(feed->loader, WAIT_MS, out, err);
        pthread_mutex_lock(&lock);
        closed = feed->closed;
        pthread_mutex_unlock(&lock);
    }
    return status == YDL_PENDING ? fail_closed(feed->number, err) : status;
}

static void leave_locked(struct feed *feed, enum ydl_status status, const struct ydl_batch *batch,
                         const struct ydl_error *err)
{
    if (status == YDL_OK) {
        feed->records += batch->records;
    } else if (status != YDL_END) {
        feed->status = status;
        feed->err = *err;
    }
    feed->busy = false;
    pthread_cond_broadcast(&idle);
}

static enum ydl_status sample(struct ydl_batch **out, struct ydl_error *err);

static enum ydl_status next(uint64_t number, struct ydl_batch **out, struct ydl_error *err)
{
    if (number == YDL_FEED_SAMPLE)
        return sample(out, err);
    pthread_mutex_lock(&lock);
    struct feed *feed = *find_locked(number);
    enum ydl_status status =
        feed && !feed->closed ? enter_locked(feed, err) : fail_closed(number, err);
    pthread_mutex_unlock(&lock);
    if (status != YDL_OK)
        return status;

    status = pull(feed, out, err);
    pthread_mutex_lock(&lock);
    leave_locked(feed, status, *out, err);
    pthread_mutex_unlock(&lock);
    return status;
}

static void release_data(void *data, size_t bytes, void *block)
{
    (void)data;
    (void)bytes;
    ydl_block_release(block);
}

const struct ydl_feed_api ydl_feed_api = {
    .version = YDL_FEED_API_VERSION,
    .next = next,
    .free_batch = ydl_batch_free,
    .release_data = release_data,
};

/* ---- the sample ---- */

enum { SAMPLE_RECORDS = 3, SAMPLE_LONG = 100 };

static enum ydl_status fill_column(struct ydl_pool *pool, struct ydl_column *column,
                                   const void *bytes, size_t n, struct ydl_error *err)
{
    column->uniform = true;
    column->elements = SAMPLE_RECORDS;
    column->data_bytes = n;
    enum ydl_status status = ydl_pool_take(pool, n, &column->data, err);
    if (status == YDL_OK)
        memcpy(column->data->data, bytes, n);
    return status;
}

static enum ydl_status fill_sample(struct ydl_pool *pool, struct ydl_batch *batch,
                                   struct ydl_error *err)
{
    static const int64_t numbers[SAMPLE_RECORDS] = {1, 2, 3};
    static const uint64_t ends[SAMPLE_RECORDS] = {1, 1, 1 + SAMPLE_LONG};
    char text[1 + SAMPLE_LONG];
    memset(text, 'b', sizeof text);
    text[0] = 'a';
    enum ydl_status status = fill_column(pool, &batch->columns[0], numbers, sizeof numbers, err);
    if (status == YDL_OK)
        status = fill_column(pool, &batch->columns[1], text, sizeof text, err);
    if (status == YDL_OK)
        status = ydl_pool_take(pool, sizeof ends, &batch->columns[1].string_ends, err);
    if (status == YDL_OK)
        memcpy(batch->columns[1].string_ends->data, ends, sizeof ends);
    return status;
}

static enum ydl_status sample(struct ydl_batch **out, struct ydl_error *err)
{
    struct ydl_pool *pool = ydl_pool_new(0);
    struct ydl_batch *batch = calloc(1, sizeof *batch + 2 * sizeof *batch->columns);
    enum ydl_status status = YDL_OK;
    if (!pool || !batch) {
        status = ydl_fail_memory(err, "a sample batch", sizeof *batch);
    } else {
        batch->records = SAMPLE_RECORDS;
        batch->count = 2;
        status = fill_sample(pool, batch, err);
    }
    if (pool)
        ydl_pool_release(pool);
    if (status == YDL_OK)
        *out = batch;
    else
        ydl_batch_free(batch);
    return status;
}
