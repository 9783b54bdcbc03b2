#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

/* The files have a page at most, but for memory.stat of many-node machines, whose first keys are
 * those that are wanted. */
enum { FILE_BYTES = 8192, PATH_BYTES = 4096 };

/* The names that the two versions of cgroups have for the same. */
struct names {
    const char *limit, *usage;
    const char *file_keys[2]; /* of memory.stat: pages of files */
};
static const struct names names_v2 = {
    "memory.max", "memory.current", {"inactive_file", "active_file"}};
static const struct names names_v1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

/* The file's beginning as a string; false where there is none. */
static bool read_file(const char *dir, const char *name, char out[FILE_BYTES])
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    int fd = ydl_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    size_t len = 0;
    while (len < FILE_BYTES - 1) {
        ssize_t got = read(fd, out + len, FILE_BYTES - 1 - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    out[len] = '\0';
    close(fd);
    return len > 0;
}

/* A number at the start of the text; false for cgroup's "max" and whatever else is none. */
static bool parse_number(const char *text, uint64_t *out)
{
    while (*text == ' ' || *text == '\t')
        text++;
    if (!isdigit((unsigned char)*text))
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

static bool read_number(const char *dir, const char *name, uint64_t *out)
{
    char text[FILE_BYTES];
    return read_file(dir, name, text) && parse_number(text, out);
}

/* The number behind `key` at the start of a line. */
static bool find_number(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == ':'))
            return parse_number(line + n + 1, out);
    }
    return false;
}

/* What is left in one cgroup; UINT64_MAX where it has no limit, or is none. */
static uint64_t left_in(const char *dir, const struct names *names)
{
    uint64_t limit;
    uint64_t usage;
    char stat[FILE_BYTES];
    if (!read_number(dir, names->limit, &limit) || !read_number(dir, names->usage, &usage))
        return UINT64_MAX;
    for (int i = 0; read_file(dir, "memory.stat", stat) && i < 2; i++) {
        uint64_t pages;
        if (find_number(stat, names->file_keys[i], &pages))
            usage -= pages < usage ? pages : usage;
    }
    return usage < limit ? limit - usage : 0;
}

/* The least of the cgroup below `root` and its parents. Inside a container the path may be that of
 * the host, which is not there; then the root is the container's own. */
static uint64_t left_in_path(const char *root, const char *path, int path_len,
                             const struct names *names)
{
    char dir[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    int n = snprintf(dir, sizeof dir, "%s%.*s", root, path_len, path);
    if (n < 0 || (size_t)n >= sizeof dir)
        return left;
    for (;;) {
        uint64_t here = left_in(dir, names);
        if (here < left)
            left = here;
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + strlen(root))
            return left;
        *slash = '\0';
    }
}

/* "memory" among the controllers of a line of /proc/self/cgroup. */
static bool names_memory(const char *controllers, size_t n)
{
    static const char memory[] = "memory";
    size_t len = sizeof memory - 1;
    for (size_t at = 0; at + len <= n; at++) {
        if (strncmp(controllers + at, memory, len) == 0 &&
            (at == 0 || controllers[at - 1] == ',') &&
            (at + len == n || controllers[at + len] == ','))
            return true;
    }
    return false;
}

/* Lines are "id:controllers:path", with no controllers for version 2. */
static uint64_t left_in_cgroups(const char *proc_dir, const char *cgroup_dir)
{
    char text[FILE_BYTES];
    char memory_dir[PATH_BYTES];
    uint64_t left = UINT64_MAX;
    if (!read_file(proc_dir, "self/cgroup", text) ||
        snprintf(memory_dir, sizeof memory_dir, "%s/memory", cgroup_dir) >= (int)sizeof memory_dir)
        return left;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        const char *controllers = memchr(line, ':', n);
        const char *path =
            controllers ? memchr(controllers + 1, ':', n - (size_t)(controllers + 1 - line)) : NULL;
        if (path) {
            size_t controllers_len = (size_t)(path - controllers) - 1;
            int path_len = (int)(line + n - (path + 1));
            uint64_t here = UINT64_MAX;
            if (controllers_len == 0)
                here = left_in_path(cgroup_dir, path + 1, path_len, &names_v2);
            else if (names_memory(controllers + 1, controllers_len))
                here = left_in_path(memory_dir, path + 1, path_len, &names_v1);
            if (here < left)
                left = here;
        }
        line += n + (line[n] == '\n');
    }
    return left;
}

uint64_t ydl_memory_available_in(const char *proc_dir, const char *cgroup_dir)
{
    char text[FILE_BYTES];
    uint64_t kib;
    if (!read_file(proc_dir, "meminfo", text) || !find_number(text, "MemAvailable", &kib) ||
        kib > UINT64_MAX / 1024)
        return 0;
    uint64_t left = left_in_cgroups(proc_dir, cgroup_dir);
    return kib * 1024 < left ? kib * 1024 : left;
}

uint64_t ydl_memory_available(void)
{
    return ydl_memory_available_in("/proc", "/sys/fs/cgroup");
}
