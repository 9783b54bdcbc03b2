/* Copies records, in any order, into one aligned buffer per component.
 *
 * What is verified is the copy that is handed out, not the map behind it, which somebody else's
 * write could change between check and copy. */
#ifndef YDL_BATCH_GATHER_H
#define YDL_BATCH_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "batch/columns.h"
#include "batch/finder.h"
#include "batch/pool.h"

/* numbers: [n] record numbers, YDL_INVALID where one is not below records. require_uniform: records
 * whose shapes differ are YDL_SHAPE_MISMATCH, in tf.data's words. Holds no part when it returns. */
YDL_MUST_CHECK enum ydl_status ydl_gather(struct ydl_finder *finder, struct ydl_pool *pool,
                                          const uint64_t *numbers, uint64_t n, bool require_uniform,
                                          struct ydl_batch **out, struct ydl_error *err);

void ydl_batch_free(struct ydl_batch *batch); /* NULL-safe; releases the blocks still in it */

#endif
