#include "base/thread.h"

#include <signal.h>

int ydl_thread_start(pthread_t *out, void *(*run)(void *), void *argument)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    sigset_t blocked;
    sigset_t before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    /* A new thread inherits the mask of the one that starts it. */
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int rc = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
