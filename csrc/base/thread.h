/* Threads of ours inside somebody else's program. */
#ifndef YDL_BASE_THREAD_H
#define YDL_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked, so that they stay with the threads that know what to do
 * about them; except those that a thread raises by its own fault (SIGBUS and its like): blocked,
 * they would end the process without asking a handler, base/map.h's among them.
 *
 * Returns what pthread_create returns: 0 or an error number. */
int ydl_thread_start(pthread_t *out, void *(*run)(void *), void *argument);

#endif
