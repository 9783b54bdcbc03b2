/* Whether a process is the one that an object was made in, asked so often that getpid() costs too
 * much (a system call). */
#ifndef YDL_BASE_FORK_H
#define YDL_BASE_FORK_H

/* Changes in each forked child, counted from the first call on: what was noted when an object was
 * made differs in a child. Thread-safe; one load. */
unsigned ydl_fork_count(void);

#endif
