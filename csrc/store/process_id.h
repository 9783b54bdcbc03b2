/* Which process this is, so that another one can tell for certain that it has died.
 *
 * A pid means something only within one boot of one kernel and one pid namespace, and only until
 * it is given out again; all four together name a process. Containers share a boot id, hosts share
 * the number of the first pid namespace. Thread-safe; costs a few reads of /proc. */
#ifndef YDL_STORE_PROCESS_ID_H
#define YDL_STORE_PROCESS_ID_H

#include <stdbool.h>
#include <stdint.h>

struct ydl_process_id {
    char host[256]; /* for people */
    char boot[64];  /* boot id of the kernel; "" where unknown */
    uint64_t pidns; /* inode of the pid namespace; 0 where unknown */
    uint64_t pid;
    uint64_t start; /* clock ticks since boot; 0 where unknown */
};

/* What /proc does not tell, or tells of another pid namespace, stays unknown. */
void ydl_process_id_self(struct ydl_process_id *out);

/* Whether `other` certainly runs no more, as seen from the process `self` is about. False where in
 * doubt: another host, another container, anything unknown. A zombie is dead. */
bool ydl_process_is_gone(const struct ydl_process_id *self, const struct ydl_process_id *other);

#endif
