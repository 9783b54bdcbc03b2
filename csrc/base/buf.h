/* A growable byte buffer with a hard cap.
 *
 * Owner: whoever holds the struct; not shared between threads. A zeroed struct with a cap is a
 * valid empty buffer. Growth doubles, so appending n bytes in any pieces costs O(n). */
#ifndef YDL_BASE_BUF_H
#define YDL_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ydl_buf {
    uint8_t *data; /* owned; NULL while capacity is 0 */
    size_t len;
    size_t capacity;
    size_t max; /* growing past this fails with YDL_INVALID */
};

void ydl_buf_init(struct ydl_buf *buf, size_t max);
void ydl_buf_clear(struct ydl_buf *buf); /* frees; the buffer is empty and usable again */

/* Makes room for `more` bytes behind len without changing len. */
YDL_MUST_CHECK enum ydl_status ydl_buf_reserve(struct ydl_buf *buf, size_t more,
                                               struct ydl_error *err);
YDL_MUST_CHECK enum ydl_status ydl_buf_append(struct ydl_buf *buf, const void *bytes, size_t n,
                                              struct ydl_error *err);
YDL_MUST_CHECK enum ydl_status ydl_buf_append_u32(struct ydl_buf *buf, uint32_t value,
                                                  struct ydl_error *err);
YDL_MUST_CHECK enum ydl_status ydl_buf_append_u64(struct ydl_buf *buf, uint64_t value,
                                                  struct ydl_error *err);

#endif
