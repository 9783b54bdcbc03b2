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

#endif
