#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct ydl_error *err, const char *fmt, va_list args)
{
    if (vsnprintf(err->text, sizeof err->text, fmt, args) < 0)
        err->text[0] = '\0';
}

enum ydl_status ydl_fail(struct ydl_error *err, enum ydl_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    err->status = status;
    err->sys_errno = 0;
    err->path[0] = '\0';
    set_text(err, fmt, args);
    va_end(args);
    return status;
}

enum ydl_status ydl_fail_os(struct ydl_error *err, int sys_errno, const char *path, const char *fmt,
                            ...)
{
    va_list args;
    va_start(args, fmt);
    err->status = sys_errno == ENOMEM ? YDL_NO_MEMORY : YDL_OS;
    err->sys_errno = sys_errno;
    set_text(err, fmt, args);
    va_end(args);

    char buffer[128] = "";
    size_t used = strlen(err->text);
#ifdef __GLIBC__ /* returns a string, which need not be in the buffer */
    const char *reason = strerror_r(sys_errno, buffer, sizeof buffer);
#else
    const char *reason = strerror_r(sys_errno, buffer, sizeof buffer) == 0 ? buffer : "";
#endif
    snprintf(err->text + used, sizeof err->text - used, ": %s", reason);
    return ydl_fail_at(err, path);
}

enum ydl_status ydl_fail_memory(struct ydl_error *err, const char *what, unsigned long long bytes)
{
    return ydl_fail(err, YDL_NO_MEMORY, "no memory for %s (%llu bytes)", what, bytes);
}

enum ydl_status ydl_fail_at(struct ydl_error *err, const char *path)
{
    /* Longer paths are cut: they only help a reader, nothing opens them. */
    size_t n = strnlen(path, sizeof err->path - 1);
    memcpy(err->path, path, n);
    err->path[n] = '\0';
    return err->status;
}

const char *ydl_status_text(enum ydl_status status)
{
    static const char *const texts[] = {
#define YDL_STATUS_TEXT(code, text, python_class) [YDL_##code] = text,
        YDL_STATUS_TABLE(YDL_STATUS_TEXT)
#undef YDL_STATUS_TEXT
    };
    return texts[status];
}
