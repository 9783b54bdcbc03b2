#include "store/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "store/create.h"
#include "store/numbered.h"

_Static_assert((int)YDL_LOG_MAX_NUMBER == (int)YDL_NUMBERED_MAX, "eight digits");
_Static_assert((int)YDL_LOG_NAME_BYTES == (int)YDL_NUMBERED_NAME_BYTES, "one name");

static const char suffix[] = ".json";

enum ydl_status ydl_log_latest(const char *dir, uint64_t *out_number, struct ydl_error *err)
{
    return ydl_numbered_latest(dir, suffix, out_number, err);
}

static enum ydl_status check_number(const char *dir, uint64_t number, struct ydl_error *err)
{
    if (number >= 1 && number <= YDL_LOG_MAX_NUMBER)
        return YDL_OK;
    ydl_fail(err, YDL_INVALID, "entry %llu of the log %s: the numbers are 1 to %d",
             (unsigned long long)number, dir, YDL_LOG_MAX_NUMBER);
    return ydl_fail_at(err, dir);
}

static enum ydl_status read_entry(int fd, const struct stat *st, const char *path, size_t max_bytes,
                                  struct ydl_buf *out, struct ydl_error *err)
{
    if ((uint64_t)st->st_size > max_bytes) {
        ydl_fail(err, YDL_CORRUPT_CACHE, "%s has %lld bytes, the limit is %zu", path,
                 (long long)st->st_size, max_bytes);
        return ydl_fail_at(err, path);
    }
    /* Entries never change, so that the size seen is the size there is. */
    size_t n = (size_t)st->st_size;
    if (n == 0)
        return YDL_OK;
    enum ydl_status status = ydl_buf_reserve(out, n, err);
    if (status != YDL_OK)
        return status;
    status = ydl_pread_all(fd, out->data + out->len, n, 0, path, err);
    if (status == YDL_OK)
        out->len += n;
    return status;
}

enum ydl_status ydl_log_read(const char *dir, uint64_t number, size_t max_bytes,
                             struct ydl_buf *out, struct ydl_error *err)
{
    int fd = -1;
    struct stat st;
    char name[YDL_NUMBERED_NAME_BYTES];
    char *path = NULL;

    enum ydl_status status = check_number(dir, number, err);
    if (status != YDL_OK)
        goto done;
    ydl_numbered_name(name, number, suffix);
    path = ydl_join_path(dir, name);
    if (!path) {
        status = ydl_fail_memory(err, "a path", strlen(dir) + sizeof name);
        goto done;
    }
    status = ydl_numbered_open(dir, number, suffix, O_RDONLY, &fd, &st, err);
    if (status == YDL_OK)
        status = read_entry(fd, &st, path, max_bytes, out, err);
done:
    if (fd >= 0)
        close(fd);
    free(path);
    return status;
}

enum ydl_status ydl_log_append(const char *dir, uint64_t number, const void *bytes, size_t n,
                               bool allow_weak, struct ydl_error *err)
{
    enum ydl_status status = check_number(dir, number, err);
    if (status != YDL_OK)
        return status;
    char name[YDL_NUMBERED_NAME_BYTES];
    ydl_numbered_name(name, number, suffix);
    return ydl_create_file(dir, name, bytes, n, allow_weak, err);
}
