/* An order is held as long as somebody counts as its holder: those it is lent to, the thread while
 * it makes it, and the orders themselves where it waits for a taker (`kept`). */
#include "batch/orders.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"

/* From here on making one takes longer than starting a thread does. */
enum { LARGE_RECORDS = 1 << 16 };

enum progress { UNMADE, BEING_MADE, MADE };

struct entry {
    struct ydl_indices indices; /* where MADE; its values are owned. First: it is what is lent */
    struct entry *next;
    uint64_t epoch;
    unsigned holders;
    enum progress progress;
};

struct ydl_orders {
    struct ydl_order order;
    uint64_t len;
    uint64_t bytes; /* of an order's values */
    bool differ;    /* from epoch to epoch */
    bool is_large;
    pid_t pid; /* of the process whose thread and lock these are */
    atomic_size_t refs;
    atomic_bool stop; /* the thread is to leave its order unfinished */

    pthread_mutex_t lock;
    pthread_cond_t tried; /* an order was made, or could not be */
    /* Under lock: */
    struct entry *entries; /* one an epoch; owned */
    struct entry *kept;    /* that waits; or NULL */
    struct entry *ahead;   /* the thread's; or NULL: it has ended, or is about to */
    bool is_started;       /* the thread is to be joined */
    pthread_t thread;
    uint64_t made;
};

/* Large ones are mapped: what malloc is given back it may keep, in each arena. */
static void *new_values(const struct ydl_orders *orders)
{
    if (orders->bytes > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    if (!orders->is_large)
        return malloc((size_t)orders->bytes);
    void *values = mmap(NULL, (size_t)orders->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return values == MAP_FAILED ? NULL : values;
}

static void free_values(const struct ydl_orders *orders, void *values)
{
    if (orders->is_large && values)
        munmap(values, (size_t)orders->bytes);
    else
        free(values);
}

static enum ydl_status make(const struct ydl_orders *orders, uint64_t epoch,
                            const struct ydl_stop *stop, struct ydl_indices *out,
                            struct ydl_error *err)
{
    void *values = NULL;
    if (orders->bytes > 0) {
        values = new_values(orders);
        if (!values)
            return ydl_fail_os(err, errno, "",
                               "cannot get the %llu bytes for the record numbers of epoch %llu",
                               (unsigned long long)orders->bytes, (unsigned long long)epoch);
    }
    if (ydl_order_fill(&orders->order, epoch, values, stop, out))
        return YDL_OK;
    free_values(orders, values);
    return ydl_fail(err, YDL_CLOSED, "nobody wants the order of epoch %llu any more",
                    (unsigned long long)epoch);
}

/* An UNMADE one; lets go of the lock meanwhile. */
static enum ydl_status make_locked(struct ydl_orders *orders, struct entry *entry,
                                   const struct ydl_stop *stop, struct ydl_error *err)
{
    struct ydl_indices made;
    entry->progress = BEING_MADE;
    pthread_mutex_unlock(&orders->lock);
    enum ydl_status status = make(orders, entry->epoch, stop, &made, err);
    pthread_mutex_lock(&orders->lock);
    if (status == YDL_OK) {
        entry->indices = made;
        orders->made++;
    }
    entry->progress = status == YDL_OK ? MADE : UNMADE;
    pthread_cond_broadcast(&orders->tried);
    return status;
}

static struct entry *find_locked(const struct ydl_orders *orders, uint64_t epoch)
{
    struct entry *entry = orders->entries;
    while (entry && entry->epoch != epoch)
        entry = entry->next;
    return entry;
}

/* Without holders; NULL without memory. */
static struct entry *add_locked(struct ydl_orders *orders, uint64_t epoch)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    entry->epoch = epoch;
    entry->next = orders->entries;
    orders->entries = entry;
    return entry;
}

static void drop_locked(struct ydl_orders *orders, struct entry *entry)
{
    entry->holders--;
    if (entry == orders->ahead && entry->holders == 1)
        atomic_store(&orders->stop, true);
    if (entry->holders > 0)
        return;
    struct entry **at = &orders->entries;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    free_values(orders, entry->indices.values);
    free(entry);
}

static void stop_keeping_locked(struct ydl_orders *orders)
{
    struct entry *kept = orders->kept;
    orders->kept = NULL;
    drop_locked(orders, kept);
}

/* One more holder of the epoch's order, which is made then. */
static enum ydl_status hold_locked(struct ydl_orders *orders, uint64_t epoch, struct entry **out,
                                   struct ydl_error *err)
{
    struct entry *entry = find_locked(orders, epoch);
    if (!entry)
        entry = add_locked(orders, epoch);
    if (!entry)
        return ydl_fail_memory(err, "an epoch's order", sizeof *entry);
    entry->holders++;
    while (entry->progress == BEING_MADE)
        pthread_cond_wait(&orders->tried, &orders->lock);
    enum ydl_status status = YDL_OK;
    if (entry->progress == UNMADE)
        status = make_locked(orders, entry, NULL, err);
    if (status == YDL_OK)
        *out = entry;
    else
        drop_locked(orders, entry);
    return status;
}

static enum ydl_status check_process(const struct ydl_orders *orders, struct ydl_error *err)
{
    if (orders->pid == getpid())
        return YDL_OK;
    return ydl_fail(err, YDL_FORKED,
                    "cannot read the order of process %ld in process %ld. Make a new one after "
                    "the fork",
                    (long)orders->pid, (long)getpid());
}

enum ydl_status ydl_orders_take(struct ydl_orders *orders, uint64_t epoch,
                                const struct ydl_indices **out, struct ydl_error *err)
{
    enum ydl_status status = check_process(orders, err);
    if (status != YDL_OK)
        return status;
    if (!orders->differ)
        epoch = 0;
    struct entry *entry = NULL;
    pthread_mutex_lock(&orders->lock);
    if (orders->differ && orders->kept && orders->kept->epoch != epoch &&
        orders->kept->epoch != epoch + 1)
        stop_keeping_locked(orders);
    status = hold_locked(orders, epoch, &entry, err);
    if (orders->differ && orders->kept && orders->kept->epoch == epoch)
        stop_keeping_locked(orders);
    if (status == YDL_OK && !orders->differ && !orders->kept) {
        entry->holders++;
        orders->kept = entry;
    }
    pthread_mutex_unlock(&orders->lock);
    if (status == YDL_OK)
        *out = &entry->indices;
    return status;
}

void ydl_orders_give_back(struct ydl_orders *orders, const struct ydl_indices *indices)
{
    if (!indices || orders->pid != getpid())
        return;
    pthread_mutex_lock(&orders->lock);
    /* Lent as const; it is an entry's first member. */
    drop_locked(orders, (struct entry *)(uintptr_t)indices);
    pthread_mutex_unlock(&orders->lock);
}

enum ydl_status ydl_orders_copy(struct ydl_orders *orders, uint64_t epoch, uint64_t start,
                                uint64_t n, uint64_t *out, struct ydl_error *err)
{
    enum ydl_status status = check_process(orders, err);
    if (status != YDL_OK)
        return status;
    struct entry *entry;
    pthread_mutex_lock(&orders->lock);
    status = hold_locked(orders, orders->differ ? epoch : 0, &entry, err);
    pthread_mutex_unlock(&orders->lock);
    if (status != YDL_OK)
        return status;
    ydl_indices_copy(&entry->indices, start, n, out);
    ydl_orders_give_back(orders, &entry->indices);
    return YDL_OK;
}

static bool is_stop_asked(void *argument)
{
    const struct ydl_orders *orders = argument;
    return atomic_load_explicit(&orders->stop, memory_order_relaxed);
}

static void *run(void *argument)
{
    struct ydl_orders *orders = argument;
    const struct ydl_stop stop = {is_stop_asked, orders};
    pthread_mutex_lock(&orders->lock);
    struct entry *entry = orders->ahead;
    enum ydl_status status = YDL_OK;
    struct ydl_error ignored;
    if (entry->progress == UNMADE) /* no taker was faster */
        status = make_locked(orders, entry, &stop, &ignored);
    orders->ahead = NULL;
    if (status != YDL_OK && entry == orders->kept)
        stop_keeping_locked(orders);
    drop_locked(orders, entry);
    pthread_mutex_unlock(&orders->lock);
    return NULL;
}

/* The thread that has ended, or is about to and wants no lock any more. */
static void join_locked(struct ydl_orders *orders)
{
    if (orders->is_started)
        pthread_join(orders->thread, NULL);
    orders->is_started = false;
}

static void start_locked(struct ydl_orders *orders, uint64_t epoch)
{
    join_locked(orders);
    struct entry *entry = add_locked(orders, epoch);
    if (!entry)
        return;
    entry->holders = 2; /* the thread, and what waits */
    orders->kept = entry;
    orders->ahead = entry;
    atomic_store(&orders->stop, false);
    orders->is_started = ydl_thread_start(&orders->thread, run, orders) == 0;
    if (!orders->is_started) {
        orders->ahead = NULL;
        stop_keeping_locked(orders);
        drop_locked(orders, entry);
    }
}

void ydl_orders_make_ahead(struct ydl_orders *orders, uint64_t epoch)
{
    if (!orders->differ || !orders->is_large || orders->pid != getpid())
        return;
    pthread_mutex_lock(&orders->lock);
    if (!orders->kept && !orders->ahead && !find_locked(orders, epoch))
        start_locked(orders, epoch);
    pthread_mutex_unlock(&orders->lock);
}

void ydl_orders_look(struct ydl_orders *orders, struct ydl_orders_look *out)
{
    pthread_mutex_lock(&orders->lock);
    *out = (struct ydl_orders_look){
        .is_waiting = orders->differ && orders->kept,
        .is_making_ahead = orders->ahead != NULL,
        .made = orders->made,
    };
    for (const struct entry *entry = orders->entries; entry; entry = entry->next)
        out->held++;
    pthread_mutex_unlock(&orders->lock);
}

const struct ydl_order *ydl_orders_order(const struct ydl_orders *orders)
{
    return &orders->order;
}

uint64_t ydl_orders_len(const struct ydl_orders *orders)
{
    return orders->len;
}

enum ydl_status ydl_orders_new(const struct ydl_order *order, struct ydl_orders **out,
                               struct ydl_error *err)
{
    struct ydl_orders *orders = calloc(1, sizeof *orders);
    if (!orders)
        return ydl_fail_memory(err, "the orders of a stream", sizeof *orders);
    orders->order = *order;
    orders->len = ydl_order_len(order);
    orders->bytes = ydl_order_bytes(order);
    orders->differ = order->shuffle && order->reshuffle;
    orders->is_large = orders->bytes > 0 && orders->len >= LARGE_RECORDS;
    orders->pid = getpid();
    atomic_init(&orders->refs, 1);
    atomic_init(&orders->stop, false);
    pthread_mutex_init(&orders->lock, NULL);
    pthread_cond_init(&orders->tried, NULL);
    *out = orders;
    return YDL_OK;
}

struct ydl_orders *ydl_orders_acquire(struct ydl_orders *orders)
{
    atomic_fetch_add_explicit(&orders->refs, 1, memory_order_relaxed);
    return orders;
}

void ydl_orders_release(struct ydl_orders *orders)
{
    /* In a forked child the memory is left to the process's end. */
    if (!orders || orders->pid != getpid() ||
        atomic_fetch_sub_explicit(&orders->refs, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_lock(&orders->lock);
    if (orders->kept)
        stop_keeping_locked(orders);
    pthread_mutex_unlock(&orders->lock);
    if (orders->is_started)
        pthread_join(orders->thread, NULL);
    assert(!orders->entries); /* all were given back */
    pthread_cond_destroy(&orders->tried);
    pthread_mutex_destroy(&orders->lock);
    free(orders);
}
