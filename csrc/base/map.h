/* Mapped files that survive being cut short.
 *
 * Reading a page of a map that its file no longer has raises SIGBUS, which ends the process. The
 * first map installs a handler for SIGBUS: a fault inside one of our maps marks it as damaged and
 * puts zero pages in the place of the whole map, and the read goes on. So no jump ever leaves code
 * that holds a lock; instead **whoever copies out of a map asks ydl_map_is_damaged afterwards, and
 * hands nothing out where it says yes**. A disk that cannot read a page raises SIGBUS, too.
 *
 * A file cut within its last page raises nothing: what is behind its new end reads as zero. Who
 * must notice that looks at bytes near the map's end which are not zero (part.c does).
 *
 * Other faults. A SIGBUS outside our maps, or one that was sent by kill() or raise(), goes to the
 * handler that was there before ours, as its flags want it; where that was the default action,
 * the process dies as it would have without us. A handler that is installed after ours takes our
 * place; it has to pass on what it gets, with the siginfo (Python's faulthandler does not: enable
 * it before the first dataset is read). Ours stays until the end of the process, which is why a
 * module that contains it must never be unloaded (CPython unloads none).
 *
 * Threads. All calls may come from any thread; new and free are lock-free. A map is freed once
 * nobody reads it. A thread that reads must not block SIGBUS: the kernel then ends the process
 * without asking a handler (ydl_thread_start leaves it open).
 *
 * Fork. A child has the maps and the handler, and its own marks; there is no lock that a fork could
 * leave locked.
 *
 * Cost. Reading costs nothing; ydl_map_is_damaged is one atomic operation. new and free cost a walk
 * over the table of maps (at most as many entries as there ever were maps at once) beside the
 * system call. */
#ifndef YDL_BASE_MAP_H
#define YDL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ydl_map;

/* Maps the first `bytes` (> 0) of the file read-only; fd is not needed afterwards. path is for
 * error texts. */
YDL_MUST_CHECK enum ydl_status ydl_map_new(int fd, size_t bytes, const char *path,
                                           struct ydl_map **out, struct ydl_error *err);
void ydl_map_free(struct ydl_map *map); /* NULL-safe */

/* Valid until the map is freed, and never changing. */
const uint8_t *ydl_map_bytes(const struct ydl_map *map);

/* Hints to the system, which may ignore them. Neither waits for the disk, but for room among its
 * requests. Needed soon: `bytes` from `offset` on, inside the map. */
void ydl_map_want(const struct ydl_map *map, size_t offset, size_t bytes);
/* What is missing when it is read was not foreseen: fetch no more than it. */
void ydl_map_expect_random(const struct ydl_map *map);

/* Whether anything read so far, by whatever thread, may have been zeros in the place of bytes. */
bool ydl_map_is_damaged(const struct ydl_map *map);

#endif
