#include "store/lease_record.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static const char *const state_names[] = {
    [YDL_LEASE_HELD] = "held",
    [YDL_LEASE_RELEASED] = "released",
    [YDL_LEASE_FAILED] = "failed",
};
enum { STATES = sizeof state_names / sizeof state_names[0] };

enum field_kind { STATE, TEXT, NUMBER, COUNT };

#define FIELD(key, kind, member)                                                                   \
    {key, kind, offsetof(struct ydl_lease_record, member),                                         \
     sizeof(((struct ydl_lease_record *)0)->member)}

/* In the order of the lines. All of them are required. */
static const struct field {
    const char *key;
    enum field_kind kind;
    size_t offset, size; /* of the member */
} fields[] = {
    FIELD("state", STATE, state),          FIELD("holder", TEXT, holder),
    FIELD("host", TEXT, process.host),     FIELD("boot", TEXT, process.boot),
    FIELD("pidns", NUMBER, process.pidns), FIELD("pid", NUMBER, process.pid),
    FIELD("start", NUMBER, process.start), FIELD("beat", NUMBER, beat),
    FIELD("since", NUMBER, since),         FIELD("progress", NUMBER, progress),
    FIELD("failures", COUNT, failures),    FIELD("error", TEXT, error),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

void ydl_lease_copy_text(char *out, size_t size, const char *from, size_t n)
{
    assert(size > 0);
    if (n > size - 1) {
        n = size - 1;
        while (n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80) /* a character's later byte */
            n--;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)from[i];
        out[i] = byte < 0x20 || byte == 0x7f ? ' ' : from[i];
    }
    out[n] = '\0';
}

/* One line into out, which has room; says how many bytes. */
static size_t format_field(const struct field *field, const void *member, char *out, size_t room)
{
    int n = 0;
    switch (field->kind) {
    case STATE:
        n = snprintf(out, room, "%s=%s\n", field->key,
                     state_names[*(const enum ydl_lease_state *)member]);
        break;
    case TEXT: {
        char text[YDL_LEASE_TEXT_BYTES];
        assert(field->size <= sizeof text);
        ydl_lease_copy_text(text, sizeof text, member, strnlen(member, field->size));
        n = snprintf(out, room, "%s=%s\n", field->key, text);
        break;
    }
    case NUMBER:
        n = snprintf(out, room, "%s=%llu\n", field->key,
                     (unsigned long long)*(const uint64_t *)member);
        break;
    case COUNT:
        n = snprintf(out, room, "%s=%u\n", field->key, *(const uint32_t *)member);
        break;
    }
    assert(n > 0 && (size_t)n < room); /* the longest texts and numbers fill two thirds */
    return (size_t)n;
}

void ydl_lease_record_format(const struct ydl_lease_record *record,
                             char out[YDL_LEASE_RECORD_BYTES])
{
    char text[YDL_LEASE_RECORD_BYTES];
    size_t len = 0;
    for (int i = 0; i < FIELDS; i++)
        len += format_field(&fields[i], (const char *)record + fields[i].offset, text + len,
                            sizeof text - len);
    int n = snprintf(text + len, sizeof text - len, "check=%016llx\n",
                     (unsigned long long)ydl_hash(text, len));
    len += (size_t)n;

    memset(out, ' ', YDL_LEASE_RECORD_BYTES);
    memcpy(out, text, len);
    out[YDL_LEASE_RECORD_BYTES - 1] = '\n';
}

/* Not strtoull, which takes signs, spaces and what does not fit. */
static bool parse_number(const char *text, size_t n, uint64_t max, uint64_t *out)
{
    if (n == 0)
        return false;
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (number > (max - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *out = number;
    return true;
}

static bool parse_field(const struct field *field, const char *value, size_t n, void *member)
{
    uint64_t number;
    switch (field->kind) {
    case STATE:
        for (int i = 0; i < STATES; i++) {
            if (n == strlen(state_names[i]) && memcmp(value, state_names[i], n) == 0) {
                *(enum ydl_lease_state *)member = (enum ydl_lease_state)i;
                return true;
            }
        }
        return false;
    case TEXT:
        ydl_lease_copy_text(member, field->size, value, n);
        return true;
    case NUMBER:
        return parse_number(value, n, UINT64_MAX, member);
    case COUNT:
        if (!parse_number(value, n, UINT32_MAX, &number))
            return false;
        *(uint32_t *)member = (uint32_t)number;
        return true;
    }
    return false;
}

/* One line without its newline; marks its field in *seen. */
static bool parse_line(const char *line, size_t n, struct ydl_lease_record *out, unsigned *seen)
{
    const char *equals = memchr(line, '=', n);
    if (!equals)
        return false;
    size_t key_len = (size_t)(equals - line);
    for (int i = 0; i < FIELDS; i++) {
        if (strlen(fields[i].key) != key_len || memcmp(line, fields[i].key, key_len) != 0)
            continue;
        if (*seen & 1u << i)
            return false;
        *seen |= 1u << i;
        return parse_field(&fields[i], equals + 1, n - key_len - 1, (char *)out + fields[i].offset);
    }
    return true;
}

static bool check_matches(const char *bytes, size_t before, const char *line, size_t n)
{
    char expected[32];
    int len = snprintf(expected, sizeof expected, "check=%016llx",
                       (unsigned long long)ydl_hash(bytes, before));
    return n == (size_t)len && memcmp(line, expected, n) == 0;
}

bool ydl_lease_record_parse(const char *bytes, size_t n, struct ydl_lease_record *out)
{
    if (n != YDL_LEASE_RECORD_BYTES)
        return false;
    *out = (struct ydl_lease_record){0};
    unsigned seen = 0;
    size_t at = 0;
    while (at < n) {
        const char *line = bytes + at;
        const char *end = memchr(line, '\n', n - at);
        if (!end)
            return false;
        size_t len = (size_t)(end - line);
        if (len >= 6 && memcmp(line, "check=", 6) == 0)
            return check_matches(bytes, at, line, len) && seen == (1u << FIELDS) - 1;
        if (!parse_line(line, len, out, &seen))
            return false;
        at += len + 1;
    }
    return false;
}
