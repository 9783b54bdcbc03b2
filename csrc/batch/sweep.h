/* Reads a whole dataset into the page cache, from its first byte to its last: a disk does that many
 * times faster than the reading of small rows in a shuffled order, which finds its pages there
 * afterwards.
 *
 * One thread, of the loader that met a cold page cache; once for an open dataset (ydl_reader): a
 * loader that ends before its sweep is through leaves the rest to the next one. Nothing here is an
 * error; where something fails, the sweep ends. */
#ifndef YDL_BATCH_SWEEP_H
#define YDL_BATCH_SWEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "batch/reader.h"

/* Zeroed: none. Belongs to one loader, whose threads do not call at once. */
struct ydl_sweep {
    struct ydl_reader *reader; /* borrowed while the thread lives */
    pthread_t thread;
    bool started;
    atomic_bool stop;
};

/* Whether so many bytes fit into `available` with room to spare: the cache may not push out what
 * the training itself needs. */
bool ydl_sweep_fits(uint64_t bytes, uint64_t available);

/* Starts unless there is not enough memory, or the dataset was or is being swept. */
void ydl_sweep_start(struct ydl_sweep *sweep, struct ydl_reader *reader);

/* Whether some loader's sweep of this dataset is under way. */
bool ydl_sweep_is_running(const struct ydl_reader *reader);

void ydl_sweep_stop(struct ydl_sweep *sweep); /* ends and joins the thread */

#endif
