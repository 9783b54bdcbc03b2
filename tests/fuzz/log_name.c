/* The names of the manifest log and the lease. Law: a name is an entry's exactly where it is the
 * name that we give its number.
 *
 * Input: a byte for the suffix, and names, one a line. */
#include "fuzz.h"

#include "store/log.h"
#include "store/numbered.h"

#ifndef YDL_LIBFUZZER
void fuzz_check_listing(const char *names, uint64_t latest); /* with a real directory */
#endif

static void log_name_one(const uint8_t *bytes, size_t n)
{
    static const char *const suffixes[] = {".json", ".lease", ""};
    if (n < 1)
        return;
    const char *suffix = suffixes[bytes[0] % 3];
    char *names = malloc(n);
    FUZZ_CHECK(names);
    memcpy(names, bytes + 1, n - 1);
    names[n - 1] = '\0';
    uint64_t latest = 0;
    for (const char *at = names; *at;) {
        size_t len = strcspn(at, "\n");
        char *name = malloc(len + 1);
        FUZZ_CHECK(name);
        memcpy(name, at, len);
        name[len] = '\0';
        uint64_t number = 0;
        char ours[YDL_NUMBERED_NAME_BYTES] = "";
        bool is_entry = ydl_numbered_parse(name, suffix, &number);
        FUZZ_CHECK(!is_entry || number <= YDL_NUMBERED_MAX);
        unsigned long long digits = 0; /* how anybody else would read it */
        if (len == 8 + strlen(suffix) && strspn(name, "0123456789") >= 8 &&
            sscanf(name, "%8llu", &digits) == 1)
            ydl_numbered_name(ours, digits, suffix);
        FUZZ_CHECK(is_entry == (ours[0] && strcmp(ours, name) == 0));
        FUZZ_CHECK(!is_entry || number == digits);
        if (is_entry && number > latest)
            latest = number;
        free(name);
        at += len + (at[len] != '\0');
    }
#ifndef YDL_LIBFUZZER
    if (bytes[0] % 3 == 0)
        fuzz_check_listing(names, latest);
#endif
    free(names);
}

/* Most digits would be lost to mutations otherwise. */
static size_t log_name_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    if (seed % 4 == 1 && n >= 1 && max >= 14) {
        char name[16];
        snprintf(name, sizeof name, "%08u.json", seed % 100000000);
        bytes[0] = 0;
        memcpy(bytes + 1, name, 13);
        if (n < 14)
            n = 14;
    }
    return n;
}

FUZZ_TARGET(log_name);
