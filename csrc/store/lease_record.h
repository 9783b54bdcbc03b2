/* What a lease file says: one record of text lines, rewritten in place by its holder.
 *
 *   state=held|released|failed
 *   holder=<token>  host=  boot=  pidns=  pid=  start=      who; one key=value a line
 *   beat=           rises while the holder lives
 *   since=  progress=  failures=  error=                    for those who wait
 *   check=<16 hex digits>                                   XXH3 of the lines before
 *   spaces up to the fixed size, and a newline
 *
 * The size is constant, so that one pwrite replaces it and nothing is ever truncated; the check
 * tells a reader that it saw half of a rewrite. Readers skip keys they do not know. Pure. */
#ifndef YDL_STORE_LEASE_RECORD_H
#define YDL_STORE_LEASE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/lease.h"
#include "store/process_id.h"

/* Half a page: the longest texts fit, and it stays one block of every file system. */
enum { YDL_LEASE_RECORD_BYTES = 2048 };

enum ydl_lease_state { YDL_LEASE_HELD, YDL_LEASE_RELEASED, YDL_LEASE_FAILED };

struct ydl_lease_record {
    enum ydl_lease_state state;
    char holder[40]; /* random, tells generations of one number apart */
    struct ydl_process_id process;
    uint64_t beat;
    uint64_t since;    /* unix seconds on the holder's clock */
    uint64_t progress; /* records */
    uint32_t failures; /* failed builds in a row, this one included */
    char error[YDL_LEASE_TEXT_BYTES];
};

void ydl_lease_record_format(const struct ydl_lease_record *record,
                             char out[YDL_LEASE_RECORD_BYTES]);

/* bytes may be anything. False, with *out unspecified, unless they are a whole record. */
YDL_MUST_CHECK bool ydl_lease_record_parse(const char *bytes, size_t n,
                                           struct ydl_lease_record *out);

/* Copies n bytes as a string: control characters become spaces, and what does not fit is cut
 * between two characters of UTF-8. */
void ydl_lease_copy_text(char *out, size_t size, const char *from, size_t n);

#endif
