/* Time for waiting. Monotonic, so that a changed wall clock neither shortens nor stretches a wait.
 */
#ifndef YDL_BASE_CLOCK_H
#define YDL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ydl_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* For pthread_cond_timedwait with a condition of CLOCK_MONOTONIC. */
static inline struct timespec ydl_deadline_in(uint64_t timeout_ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(timeout_ms / 1000);
    at.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

#endif
