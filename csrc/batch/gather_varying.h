/* The part of gather.h for rows whose size varies; called by gather.c alone.
 *
 * Two passes, measure and copy. Rows that are used in place could change between the two (a file
 * that somebody writes to), so the second keeps to what the first has measured. */
#ifndef YDL_BATCH_GATHER_VARYING_H
#define YDL_BATCH_GATHER_VARYING_H

#include "batch/columns.h"
#include "batch/finder.h"

/* Fills the columns of `batch`, which has its records and count and is zero otherwise. */
YDL_MUST_CHECK enum ydl_status ydl_gather_varying(struct ydl_finder *finder, struct ydl_pool *pool,
                                                  const uint64_t *numbers, uint64_t n,
                                                  bool require_uniform, struct ydl_batch *batch,
                                                  struct ydl_error *err);

#endif
