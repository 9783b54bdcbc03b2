/* Batches of one stream, gathered ahead of the consumer by native threads, in order.
 *
 * A loader serves one iteration: one epoch, or, endless, epoch after epoch with batches that cross
 * their ends. Workers take the next batch's record numbers under the lock, gather without it, and
 * put the batch into its slot of a ring; a full ring makes them wait. Half-way through an epoch the
 * next one's order is asked for (batch/orders.h). One consumer. The loader belongs to the process
 * that made it (YDL_FORKED in a child, whose threads do not exist). */
#ifndef YDL_BATCH_LOADER_H
#define YDL_BATCH_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "batch/gather.h"
#include "batch/orders.h"
#include "batch/reader.h"

struct ydl_loader_config {
    struct ydl_orders *orders; /* borrowed for the call of ydl_loader_new, which counts it */
    struct ydl_cursor start;
    uint64_t batch_records; /* >= 1 */
    uint64_t group;         /* so many whole batches come as one, as long as an epoch has them; what
                               is left of it comes batch by batch. 0: each one alone */
    bool drop_remainder;    /* a last, smaller batch is left out */
    bool endless;
    bool require_uniform;
    unsigned threads; /* 0: the consumer gathers itself */
    unsigned depth;   /* batches held ready at most, >= 1 */
};

struct ydl_loader;

YDL_MUST_CHECK enum ydl_status ydl_loader_new(struct ydl_reader *reader,
                                              const struct ydl_loader_config *config,
                                              struct ydl_loader **out, struct ydl_error *err);

/* The next batch, owned by the caller. YDL_PENDING after timeout_ms without one; YDL_END after the
 * last (an endless loader over an empty shard ends at once); an error is final. */
YDL_MUST_CHECK enum ydl_status ydl_loader_next(struct ydl_loader *loader, uint64_t timeout_ms,
                                               struct ydl_batch **out, struct ydl_error *err);

/* The next batch as rows instead (see ydl_finder_lend), valid until the next call or
 * ydl_loader_free: for a loader without threads, which would bring a row no nearer to who copies it
 * than a prefetch does. Returns what ydl_loader_next does. */
YDL_MUST_CHECK enum ydl_status ydl_loader_next_rows(struct ydl_loader *loader,
                                                    const struct ydl_row **out_rows,
                                                    uint64_t *out_n, struct ydl_error *err);

/* Stops and joins the threads; no call of next is running. NULL-safe; in a forked child it only
 * lets go. */
void ydl_loader_free(struct ydl_loader *loader);

#endif
