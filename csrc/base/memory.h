/* How much memory could still be filled before something has to make room.
 *
 * The least of the machine's MemAvailable and, for each memory cgroup that this process is in (both
 * versions, parents included), what is left below its limit. Pages of files count as free, since
 * they are given up first. Thread-safe; costs a few reads of /proc and /sys, about 0.1 ms. */
#ifndef YDL_BASE_MEMORY_H
#define YDL_BASE_MEMORY_H

#include <stdint.h>

/* 0 where the system does not tell. */
uint64_t ydl_memory_available(void);

/* The same with other directories in the place of /proc and /sys/fs/cgroup. */
uint64_t ydl_memory_available_in(const char *proc_dir, const char *cgroup_dir);

#endif
