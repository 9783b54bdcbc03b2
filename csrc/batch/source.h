/* Where parts come from: the one seam between records and whatever holds them.
 *
 * A source owns the parts of one dataset, numbered from 0 in the order of their records. The local
 * one (local.h) opens files of a directory; a remote one downloads first. Readers only use this
 * table, so that a stream can wait in C for parts that are still on their way.
 *
 * All calls but close may come from any thread at once. */
#ifndef YDL_BATCH_SOURCE_H
#define YDL_BATCH_SOURCE_H

#include <stdint.h>

#include "base/status.h"
#include "record/part.h"

struct ydl_source {
    const struct ydl_source_ops *ops;
};

struct ydl_source_ops {
    /* A hint that part will be needed soon. Never blocks. */
    void (*want)(struct ydl_source *source, uint64_t part);

    /* YDL_OK once view can succeed without waiting for others; YDL_PENDING after timeout_ms. */
    enum ydl_status (*wait)(struct ydl_source *source, uint64_t part, uint64_t timeout_ms,
                            struct ydl_error *err);

    /* Lends the open part until the matching release. */
    enum ydl_status (*view)(struct ydl_source *source, uint64_t part, struct ydl_part **out,
                            struct ydl_error *err);
    void (*release)(struct ydl_source *source, uint64_t part);

    /* Frees everything. No view is out, no call is running. */
    void (*close)(struct ydl_source *source);
};

#endif
