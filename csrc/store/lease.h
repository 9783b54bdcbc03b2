/* Who is building a dataset: advisory, it saves duplicate work. Safety is the manifest log's.
 *
 * <dir>/00000001.lease, ... is a log of generations, each created by one would-be builder and only
 * where its number is free. The highest one counts. It holds one record of text lines
 *
 *   state=held|released|failed
 *   holder=<token>
 *   host=, pid=, start=<process start time>, boot=<boot id>, pidns=<inode>
 *   beat=<number, rises while the holder lives>
 *   since=<unix seconds, for people>
 *   progress=<records so far>
 *   failures=<failed builds in a row>
 *   error=<text of a failed build>
 *
 * and is rewritten in place by its holder alone. The holder's native thread raises `beat` every
 * TTL / 6. A waiter takes over, by creating the next generation, when the state is released or
 * failed; when the holder is certainly dead (same boot id and pid namespace, and no process with
 * that pid and start time); or when beat has not changed for 1.5 TTL on the waiter's own clock.
 * No two hosts' clocks are compared. A file that is no such record counts as held by a holder that
 * shows no life. The new holder removes generations older than the one before its own.
 *
 * A lease object belongs to the process that made it: after fork the child has no heartbeat
 * thread, its calls fail with YDL_FORKED and its free leaves the files alone. Thread-safe. */
#ifndef YDL_STORE_LEASE_H
#define YDL_STORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    YDL_LEASE_DEFAULT_TTL_MS = 60 * 1000,
    YDL_LEASE_TEXT_BYTES = 512,
};

struct ydl_lease;

/* What a waiter can see of the current generation. */
struct ydl_lease_view {
    uint64_t generation; /* 0: nobody has ever held it */
    bool held;
    bool failed; /* the last holder's build raised; text says how */
    bool stale;  /* held, but takeover is allowed now */
    char host[256];
    uint64_t pid;
    uint64_t since;    /* unix seconds on the holder's clock; for people only */
    uint64_t progress; /* records */
    uint32_t failures; /* failed builds in a row up to this generation; died holders do not count */
    char text[YDL_LEASE_TEXT_BYTES]; /* error text of a failed build, or "" */
};

/* dir is created where absent (its parent exists). Takes no lease yet. ttl_ms: 6 ms to a day. */
YDL_MUST_CHECK enum ydl_status ydl_lease_new(const char *dir, uint64_t ttl_ms,
                                             struct ydl_lease **out, struct ydl_error *err);

/* Tries once, without waiting: YDL_OK: held by this object, heartbeat started. *out_view (never
 * NULL) then shows the generation before, such as whose failed build this one repeats; or our own
 * where we held it already. YDL_BUSY: somebody else holds it; *out_view says who. Call again every
 * now and then (staleness is judged from what earlier calls of this object saw). */
YDL_MUST_CHECK enum ydl_status
ydl_lease_try(struct ydl_lease *lease, struct ydl_lease_view *out_view, struct ydl_error *err);

/* The look of ydl_lease_try without the try: a waiter that is to give up after other people's
 * failures sees them here before it takes its turn. */
YDL_MUST_CHECK enum ydl_status
ydl_lease_peek(struct ydl_lease *lease, struct ydl_lease_view *out_view, struct ydl_error *err);

/* While held: what waiters are shown; written with the next heartbeat. Never
 * blocks. */
void ydl_lease_set_progress(struct ydl_lease *lease, uint64_t records);

/* False once another generation exists: this holder was taken for dead. Looks at the directory. */
bool ydl_lease_is_held(struct ydl_lease *lease);

/* Ends the lease: failure NULL: released; else failed with that text. The next waiter may go on at
 * once. Does nothing where the lease is not held. */
YDL_MUST_CHECK enum ydl_status ydl_lease_release(struct ydl_lease *lease, const char *failure,
                                                 struct ydl_error *err);

/* Releases where held. NULL-safe; no other call may run or follow. */
void ydl_lease_free(struct ydl_lease *lease);

#endif
