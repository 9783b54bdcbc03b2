/* Outcomes of core functions, and the text that goes with a failure.
 *
 * Every core function that can fail because of a user, a file, a peer or the machine returns an
 * enum ydl_status and fills the caller's struct ydl_error, which says what was attempted, on what
 * and with which numbers. There is no thread-local last error. Programmer errors are asserts.
 *
 * YDL_STATUS_TABLE is the only list of outcomes: code, short text, Python class (csrc/py/errors.c
 * turns the one into the other; "" marks outcomes that never leave C as an exception).
 */
#ifndef YDL_BASE_STATUS_H
#define YDL_BASE_STATUS_H

#define YDL_STATUS_TABLE(X)                                                                        \
    X(OK, "ok", "")                                                                                \
    X(END, "end of the stream", "")                                                                \
    X(BUSY, "somebody else was first", "")                                                         \
    X(PENDING, "not ready yet", "")                                                                \
    X(NO_MEMORY, "out of memory", "MemoryError")                                                   \
    X(INVALID, "invalid argument", "ValueError")                                                   \
    X(OS, "operating system error", "OSError")                                                     \
    X(CORRUPT_CACHE, "damaged cache", "CorruptCacheError")                                         \
    X(CORRUPT_RECORD, "damaged record", "CorruptRecordError")                                      \
    X(UNSUPPORTED, "not supported", "UnsupportedError")                                            \
    X(SHAPE_MISMATCH, "shapes differ", "ShapeMismatchError")                                       \
    X(REPLACED, "cache was replaced", "CacheReplacedError")                                        \
    X(CLOSED, "already closed", "ClosedError")                                                     \
    X(FORKED, "used in a forked child", "ForkedError")

enum ydl_status {
#define YDL_STATUS_ENUM(code, text, python_class) YDL_##code,
    YDL_STATUS_TABLE(YDL_STATUS_ENUM)
#undef YDL_STATUS_ENUM
};

#define YDL_MUST_CHECK __attribute__((warn_unused_result))
#define YDL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

struct ydl_error {
    enum ydl_status status;
    int sys_errno;   /* errno behind YDL_OS, else 0 */
    char path[1024]; /* the file meant, or "" (cut where longer) */
    char text[1024]; /* one or two sentences without a trailing newline */
};

/* Both fill *err and return its status, so that a caller can `return ydl_fail(...)`. err is never
 * NULL. ydl_fail_os appends strerror(sys_errno); a sys_errno of ENOMEM becomes YDL_NO_MEMORY. */
enum ydl_status ydl_fail(struct ydl_error *err, enum ydl_status status, const char *fmt, ...)
    YDL_PRINTF(3, 4);
enum ydl_status ydl_fail_os(struct ydl_error *err, int sys_errno, const char *path, const char *fmt,
                            ...) YDL_PRINTF(4, 5);
enum ydl_status ydl_fail_memory(struct ydl_error *err, const char *what, unsigned long long bytes);

/* Names the file that *err is about; returns err->status. */
enum ydl_status ydl_fail_at(struct ydl_error *err, const char *path);

const char *ydl_status_text(enum ydl_status status);

#endif
