/* The orders of a stream's epochs, shared by its loaders.
 *
 * Loaders of the same epoch share one order. A large one (2^16 records or more, shuffled in shard
 * scope: 10^7 take 0.1 s, 10^9 15 s) is made ahead where the loader of the epoch before asks for
 * it, by a thread that lives only while it makes it. Whoever takes an order that is being made
 * waits for it; nothing is made twice at a time.
 *
 * Memory: ydl_order_bytes for each order that is lent, and for at most one that is not. Without
 * reshuffling that is the only one there is, from its first taker on as long as this object lives.
 * With reshuffling it is the one that was made ahead, until it is taken, or until an epoch is taken
 * that is neither its own nor the one before. Loaders ask for the next epoch's when half of their
 * own is planned, and give theirs back when all of it is. So a stream that one loader reads at a
 * time holds one order in the first half of an epoch, two in the second, and one when it is idle
 * after it.
 *
 * Counted; thread-safe; belongs to the process that made it. A forked child has neither the thread
 * nor a lock that it could trust: there ydl_orders_release only lets go, and the others refuse
 * (YDL_FORKED) or do nothing. */
#ifndef YDL_BATCH_ORDERS_H
#define YDL_BATCH_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "order/order.h"

struct ydl_orders;

/* Makes no order yet. */
YDL_MUST_CHECK enum ydl_status ydl_orders_new(const struct ydl_order *order,
                                              struct ydl_orders **out, struct ydl_error *err);
struct ydl_orders *ydl_orders_acquire(struct ydl_orders *orders);
/* NULL-safe. The last one ends the thread, which soon stops, whatever it is making. */
void ydl_orders_release(struct ydl_orders *orders);

const struct ydl_order *ydl_orders_order(const struct ydl_orders *orders);
/* Records of each epoch. */
uint64_t ydl_orders_len(const struct ydl_orders *orders);

/* The epoch's order, lent until it is given back (NULL-safe). Makes it where nobody has (again
 * where that failed in the background), which is not interrupted. YDL_NO_MEMORY. */
YDL_MUST_CHECK enum ydl_status ydl_orders_take(struct ydl_orders *orders, uint64_t epoch,
                                               const struct ydl_indices **out,
                                               struct ydl_error *err);
void ydl_orders_give_back(struct ydl_orders *orders, const struct ydl_indices *indices);

/* The numbers at [start, start + n), which lie within the epoch, into out[n]: as if it were taken,
 * but what was made ahead waits on. */
YDL_MUST_CHECK enum ydl_status ydl_orders_copy(struct ydl_orders *orders, uint64_t epoch,
                                               uint64_t start, uint64_t n, uint64_t *out,
                                               struct ydl_error *err);

/* Has a large order made by the thread, unless it is there or another one waits or is being made.
 * Never waits for it. Where it cannot be made, its taker will say so. */
void ydl_orders_make_ahead(struct ydl_orders *orders, uint64_t epoch);

/* What there is at the moment, for tests and measurements. */
struct ydl_orders_look {
    unsigned held;   /* orders, also those that are being made */
    bool is_waiting; /* one of them was made ahead and is not taken */
    bool is_making_ahead;
    uint64_t made; /* so far */
};
void ydl_orders_look(struct ydl_orders *orders, struct ydl_orders_look *out);

#endif
