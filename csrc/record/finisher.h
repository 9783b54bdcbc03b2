/* Makes part files that are completely written durable, and reads them back, while the next one is
 * written: in a thread of its own, since both wait for the disk.
 *
 * One owner hands files over, one after the other. One file is worked on and one may wait; whoever
 * hands over a third waits, so that no more than that is written and not yet on disk. The thread
 * starts with the first file; where it cannot be started, the owner does the work. An error is
 * final. In a forked child, which has no such thread, only free may be called. */
#ifndef YDL_RECORD_FINISHER_H
#define YDL_RECORD_FINISHER_H

#include <stdint.h>

#include "base/status.h"
#include "record/layout.h"
#include "record/part_writer.h"

struct ydl_finisher;

/* layout: borrowed; outlives the finisher. */
YDL_MUST_CHECK enum ydl_status ydl_finisher_new(const struct ydl_layout *layout,
                                                const uint8_t build_uuid[YDL_UUID_BYTES],
                                                struct ydl_finisher **out, struct ydl_error *err);

/* Takes the file, also where it fails; the error may be an earlier file's. */
YDL_MUST_CHECK enum ydl_status ydl_finisher_put(struct ydl_finisher *finisher,
                                                struct ydl_part_file *file, struct ydl_error *err);

/* YDL_OK once all files but `most` are durable and verified; YDL_PENDING where they are not after
 * timeout_ms; or the error of the first that failed. */
YDL_MUST_CHECK enum ydl_status ydl_finisher_wait(struct ydl_finisher *finisher, unsigned most,
                                                 uint64_t timeout_ms, struct ydl_error *err);

/* Gives up the file that waits and joins the thread, which ends the step that it is at (the flush
 * of one file, or its verification). NULL-safe; in a forked child it only lets go. */
void ydl_finisher_free(struct ydl_finisher *finisher);

#endif
