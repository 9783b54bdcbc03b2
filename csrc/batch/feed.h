/* Loaders that somebody pulls from who can neither hold Python's objects nor link against this
 * core: TensorFlow, through the op of tf/op.c, on threads of its own.
 *
 * A feed is a number, given once in a process, so that one which is closed meanwhile is an error
 * and no wild pointer. What crosses is ydl_feed_api's address and that number. */
#ifndef YDL_BATCH_FEED_H
#define YDL_BATCH_FEED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "batch/columns.h"
#include "batch/loader.h"

enum { YDL_FEED_API_VERSION = 1 };

/* Batches that no dataset holds, for trying whether they arrive: an int64 column of 1, 2, 3 and a
 * column of the strings "a", "" and 100 times "b". */
#define YDL_FEED_SAMPLE UINT64_C(0)

/* The calls that the op makes; all may come from any thread. */
struct ydl_feed_api {
    uint32_t version;

    /* The feed's next batch, owned by the caller. Blocks until it is there; YDL_INVALID while
     * another call does. YDL_END behind the last batch, and behind an error. */
    enum ydl_status (*next)(uint64_t feed, struct ydl_batch **out, struct ydl_error *err);
    void (*free_batch)(struct ydl_batch *batch);
    /* For a block that was taken out of a batch; in the form of TensorFlow's deallocators. */
    void (*release_data)(void *data, size_t bytes, void *block);
};

extern const struct ydl_feed_api ydl_feed_api;

/* From here to ydl_feed_close the loader is the feed's: nobody else pulls from it or frees it. */
YDL_MUST_CHECK enum ydl_status ydl_feed_open(struct ydl_loader *loader, uint64_t *out_feed,
                                             struct ydl_error *err);

/* Ends calls that wait for a batch, with YDL_CLOSED, and returns once none is left. */
void ydl_feed_close(uint64_t feed);

/* Records handed out so far, and YDL_OK or the error that ended it. */
YDL_MUST_CHECK enum ydl_status ydl_feed_look(uint64_t feed, uint64_t *out_records,
                                             struct ydl_error *err);

#endif
