/* The parser of lease files. Law: what it read, written again, is read again as the same. */
#include "fuzz.h"

#include "base/hash.h"
#include "store/lease_record.h"

static void lease_record_one(const uint8_t *bytes, size_t n)
{
    struct ydl_lease_record first;
    struct ydl_lease_record second;
    char *exact = fuzz_copy(bytes, n);
    if (ydl_lease_record_parse(exact, n, &first)) {
        char again[YDL_LEASE_RECORD_BYTES];
        FUZZ_CHECK(memchr(first.holder, 0, sizeof first.holder));
        FUZZ_CHECK(memchr(first.error, 0, sizeof first.error));
        FUZZ_CHECK(memchr(first.process.host, 0, sizeof first.process.host));
        FUZZ_CHECK(memchr(first.process.boot, 0, sizeof first.process.boot));
        ydl_lease_record_format(&first, again);
        FUZZ_CHECK(ydl_lease_record_parse(again, sizeof again, &second));
        FUZZ_CHECK(first.state == second.state && first.beat == second.beat);
        FUZZ_CHECK(first.since == second.since && first.progress == second.progress);
        FUZZ_CHECK(first.failures == second.failures);
        FUZZ_CHECK(first.process.pid == second.process.pid);
        FUZZ_CHECK(strcmp(first.holder, second.holder) == 0);
        FUZZ_CHECK(strcmp(first.error, second.error) == 0);
        FUZZ_CHECK(strcmp(first.process.host, second.process.host) == 0);
    }
    free(exact);
}

/* A whole record's size, and a check that is right. */
static size_t lease_record_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    if (seed % 8 == 0 || max < YDL_LEASE_RECORD_BYTES)
        return n;
    for (size_t i = n; i < YDL_LEASE_RECORD_BYTES; i++)
        bytes[i] = ' ';
    n = YDL_LEASE_RECORD_BYTES;
    for (size_t line = 0; line + 23 <= n;) {
        if (memcmp(bytes + line, "check=", 6) == 0) {
            char check[32];
            snprintf(check, sizeof check, "check=%016llx\n",
                     (unsigned long long)ydl_hash(bytes, line));
            memcpy(bytes + line, check, 23);
            break;
        }
        const uint8_t *end = memchr(bytes + line, '\n', n - line);
        if (!end)
            break;
        line = (size_t)(end - bytes) + 1;
    }
    return n;
}

FUZZ_TARGET(lease_record);
