#include "base/fork.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned forks; /* written in children only, before they have a second thread */

static void count_fork(void)
{
    forks++;
}

static void install(void)
{
    /* Fails only without memory; then a child is not told apart, as if nobody had asked. */
    (void)pthread_atfork(NULL, NULL, count_fork);
}

unsigned ydl_fork_count(void)
{
    pthread_once(&once, install);
    return forks;
}
