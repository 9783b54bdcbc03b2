#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

void ydl_buf_init(struct ydl_buf *buf, size_t max)
{
    *buf = (struct ydl_buf){.max = max};
}

void ydl_buf_clear(struct ydl_buf *buf)
{
    free(buf->data);
    ydl_buf_init(buf, buf->max);
}

enum ydl_status ydl_buf_reserve(struct ydl_buf *buf, size_t more, struct ydl_error *err)
{
    if (more <= buf->capacity - buf->len)
        return YDL_OK;
    if (more > buf->max - buf->len)
        return ydl_fail(err, YDL_INVALID,
                        "a buffer of %zu bytes cannot grow by %zu: its limit is %zu", buf->len,
                        more, buf->max);

    size_t wanted = buf->len + more;
    size_t capacity = buf->capacity <= buf->max / 2 ? buf->capacity * 2 : buf->max;
    if (capacity < wanted)
        capacity = wanted;
    uint8_t *grown = realloc(buf->data, capacity);
    if (!grown)
        return ydl_fail_memory(err, "a buffer", capacity);
    buf->data = grown;
    buf->capacity = capacity;
    return YDL_OK;
}

enum ydl_status ydl_buf_append(struct ydl_buf *buf, const void *bytes, size_t n,
                               struct ydl_error *err)
{
    if (n == 0)
        return YDL_OK;
    enum ydl_status status = ydl_buf_reserve(buf, n, err);
    if (status != YDL_OK)
        return status;
    memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
    return YDL_OK;
}

enum ydl_status ydl_buf_append_u32(struct ydl_buf *buf, uint32_t value, struct ydl_error *err)
{
    uint8_t bytes[4];
    ydl_store_u32(bytes, value);
    return ydl_buf_append(buf, bytes, sizeof bytes, err);
}

enum ydl_status ydl_buf_append_u64(struct ydl_buf *buf, uint64_t value, struct ydl_error *err)
{
    uint8_t bytes[8];
    ydl_store_u64(bytes, value);
    return ydl_buf_append(buf, bytes, sizeof bytes, err);
}
