#include "store/process_id.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

/* One read gives a whole file of /proc this small; false where it cannot be had. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = ydl_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    ssize_t n;
    do {
        n = read(fd, out, size - 1);
    } while (n < 0 && errno == EINTR);
    close(fd);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

struct proc_stat { /* proc(5), /proc/<pid>/stat */
    int pid;
    char state;
    long num_threads;
    unsigned long long start;
};

static bool read_stat(const char *path, struct proc_stat *out)
{
    char text[1024];
    if (!read_small(path, text, sizeof text) || sscanf(text, "%d", &out->pid) != 1)
        return false;
    /* The second field, the command in parentheses, holds whatever the process likes. */
    const char *rest = strrchr(text, ')');
    return rest && sscanf(rest + 1,
                          " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld "
                          "%*s %llu",
                          &out->state, &out->num_threads, &out->start) == 3;
}

void ydl_process_id_self(struct ydl_process_id *out)
{
    *out = (struct ydl_process_id){.pid = (uint64_t)getpid()};
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        out->host[0] = '\0';

    struct proc_stat stat_self;
    struct stat namespace;
    /* A /proc that was mounted for another pid namespace knows us under another number, or not. */
    if (!read_stat("/proc/self/stat", &stat_self) || stat_self.pid != getpid() ||
        stat("/proc/self/ns/pid", &namespace) != 0)
        return;
    if (!read_small("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot)) {
        out->boot[0] = '\0';
        return;
    }
    out->boot[strcspn(out->boot, "\n")] = '\0';
    out->pidns = (uint64_t)namespace.st_ino;
    out->start = stat_self.start;
}

bool ydl_process_is_gone(const struct ydl_process_id *self, const struct ydl_process_id *other)
{
    if (self->boot[0] == '\0' || strcmp(self->boot, other->boot) != 0)
        return false;
    if (self->pidns == 0 || self->pidns != other->pidns)
        return false;
    if (self->start == 0 || other->start == 0 || other->pid == 0 || other->pid > INT_MAX)
        return false;

    /* Not from the absence of /proc/<pid>: hidepid= hides other users' processes there. */
    if (kill((pid_t)other->pid, 0) != 0)
        return errno == ESRCH;

    char path[64];
    struct proc_stat now;
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)other->pid);
    if (!read_stat(path, &now))
        return false;
    if (now.start != other->start)
        return true; /* the pid was given out again */
    /* A main thread that has ended while others go on looks like a zombie, too. */
    return (now.state == 'Z' || now.state == 'X') && now.num_threads <= 1;
}
