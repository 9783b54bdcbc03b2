/* The lease's text record: what is written comes back, and whatever else is there is refused. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/lease_record.h"

static struct ydl_lease_record sample(void)
{
    return (struct ydl_lease_record){
        .state = YDL_LEASE_FAILED,
        .holder = "0123456789abcdef0123456789abcdef",
        .process =
            {.host = "node-7", .boot = "b-o-o-t", .pidns = 4026531836, .pid = 42, .start = 99},
        .beat = 7,
        .since = 1700000000,
        .progress = UINT64_MAX,
        .failures = UINT32_MAX,
        .error = "ValueError: a=b in record 3",
    };
}

static void assert_same(const struct ydl_lease_record *a, const struct ydl_lease_record *b)
{
    assert_int_equal(a->state, b->state);
    assert_string_equal(a->holder, b->holder);
    assert_string_equal(a->process.host, b->process.host);
    assert_string_equal(a->process.boot, b->process.boot);
    assert_int_equal(a->process.pidns, b->process.pidns);
    assert_int_equal(a->process.pid, b->process.pid);
    assert_int_equal(a->process.start, b->process.start);
    assert_int_equal(a->beat, b->beat);
    assert_int_equal(a->since, b->since);
    assert_int_equal(a->progress, b->progress);
    assert_int_equal(a->failures, b->failures);
    assert_string_equal(a->error, b->error);
}

/* Any text as a record with a right check: the hash finds damage, it keeps nobody out. */
static bool parse_text(const char *lines, struct ydl_lease_record *out)
{
    char bytes[YDL_LEASE_RECORD_BYTES];
    memset(bytes, ' ', sizeof bytes);
    size_t len = strlen(lines);
    memcpy(bytes, lines, len);
    int n = snprintf(bytes + len, sizeof bytes - len, "check=%016llx\n",
                     (unsigned long long)ydl_hash(lines, len));
    bytes[len + (size_t)n] = ' ';
    return ydl_lease_record_parse(bytes, sizeof bytes, out);
}

static void test_record_comes_back(void **state)
{
    (void)state;
    char bytes[YDL_LEASE_RECORD_BYTES];
    struct ydl_lease_record parsed;
    struct ydl_lease_record record = sample();
    ydl_lease_record_format(&record, bytes);
    assert_int_equal(bytes[sizeof bytes - 1], '\n');
    assert_true(ydl_lease_record_parse(bytes, sizeof bytes, &parsed));
    assert_same(&record, &parsed);

    record = (struct ydl_lease_record){.state = YDL_LEASE_HELD};
    ydl_lease_record_format(&record, bytes);
    assert_true(ydl_lease_record_parse(bytes, sizeof bytes, &parsed));
    assert_same(&record, &parsed);
}

static void test_longest_record_fits(void **state)
{
    (void)state;
    struct ydl_lease_record record = sample();
    record.state = YDL_LEASE_RELEASED;
    memset(record.holder, 'h', sizeof record.holder - 1);
    memset(record.process.host, 'n', sizeof record.process.host - 1);
    memset(record.process.boot, 'b', sizeof record.process.boot - 1);
    memset(record.error, 'e', sizeof record.error - 1);
    record.process.pidns = record.process.pid = record.process.start = UINT64_MAX;
    record.beat = record.since = UINT64_MAX;
    char bytes[YDL_LEASE_RECORD_BYTES];
    struct ydl_lease_record parsed;
    ydl_lease_record_format(&record, bytes);
    assert_true(ydl_lease_record_parse(bytes, sizeof bytes, &parsed));
    assert_same(&record, &parsed);
}

static void test_texts_cannot_forge_lines(void **state)
{
    (void)state;
    struct ydl_lease_record record = sample();
    struct ydl_lease_record parsed;
    strcpy(record.error, "one\nstate=released\n\x1b[31m\x7f two");
    strcpy(record.process.host, "a\nbeat=9");
    char bytes[YDL_LEASE_RECORD_BYTES];
    ydl_lease_record_format(&record, bytes);
    assert_true(ydl_lease_record_parse(bytes, sizeof bytes, &parsed));
    assert_int_equal(parsed.state, YDL_LEASE_FAILED);
    assert_int_equal(parsed.beat, 7);
    assert_string_equal(parsed.error, "one state=released  [31m  two");
    assert_string_equal(parsed.process.host, "a beat=9");
}

static void test_text_is_cut_between_characters(void **state)
{
    (void)state;
    char out[6];
    ydl_lease_copy_text(out, sizeof out, "abcdefgh", 8);
    assert_string_equal(out, "abcde");
    ydl_lease_copy_text(out, sizeof out, "abc\xe2\x82\xac", 6); /* a euro sign */
    assert_string_equal(out, "abc");
    ydl_lease_copy_text(out, sizeof out, "ab\xe2\x82\xac", 5);
    assert_string_equal(out, "ab\xe2\x82\xac");
    ydl_lease_copy_text(out, sizeof out, "\x80\x80\x80\x80\x80\x80\x80", 7);
    assert_string_equal(out, "");
    ydl_lease_copy_text(out, 1, "abc", 3);
    assert_string_equal(out, "");
}

static void test_half_of_a_rewrite_is_refused(void **state)
{
    (void)state;
    struct ydl_lease_record record = sample();
    struct ydl_lease_record parsed;
    char old[YDL_LEASE_RECORD_BYTES];
    char new[YDL_LEASE_RECORD_BYTES];
    ydl_lease_record_format(&record, old);
    record.state = YDL_LEASE_RELEASED;
    record.beat = 1234;
    record.error[0] = '\0';
    ydl_lease_record_format(&record, new);
    for (size_t cut = 0; cut <= sizeof old; cut++) {
        char torn[YDL_LEASE_RECORD_BYTES];
        memcpy(torn, new, cut);
        memcpy(torn + cut, old + cut, sizeof torn - cut);
        bool whole = memcmp(torn, old, sizeof torn) == 0 || memcmp(torn, new, sizeof torn) == 0;
        if (ydl_lease_record_parse(torn, sizeof torn, &parsed))
            /* Behind the check only padding may differ. */
            assert_true(whole || parsed.beat == 1234);
        else
            assert_false(whole);
    }
}

#define HEAD "state=held\nholder=h\nhost=n\nboot=b\npidns=1\npid=2\nstart=3\n"
#define TAIL "since=5\nprogress=6\nfailures=7\nerror=\n"

static void test_odd_texts(void **state)
{
    (void)state;
    struct ydl_lease_record parsed;
    assert_true(parse_text(HEAD "beat=4\n" TAIL, &parsed));
    assert_int_equal(parsed.beat, 4);
    assert_true(parse_text("beat=18446744073709551615\n" HEAD "colour=red\n" TAIL, &parsed));
    assert_int_equal(parsed.beat, UINT64_MAX);
    static const char *const bad[] = {
        "",
        "\n",
        "=\n",
        HEAD TAIL,                    /* a field is missing */
        HEAD "beat=4\nbeat=4\n" TAIL, /* one is there twice */
        HEAD "beat=\n" TAIL,
        HEAD "beat=-1\n" TAIL,
        HEAD "beat=+1\n" TAIL,
        HEAD "beat= 1\n" TAIL,
        HEAD "beat=0x1\n" TAIL,
        HEAD "beat=18446744073709551616\n" TAIL,
        HEAD "beat=99999999999999999999999999\n" TAIL,
        HEAD "beat=4\nno equals sign\n" TAIL,
        HEAD "beat=4\nfailures=4294967296\nsince=5\nprogress=6\nerror=\n",
        "state=hel\n" HEAD "beat=4\n" TAIL,
        "state=\nholder=h\nhost=n\nboot=b\npidns=1\npid=2\nstart=3\nbeat=4\n" TAIL,
        "state=heldd\nholder=h\nhost=n\nboot=b\npidns=1\npid=2\nstart=3\nbeat=4\n" TAIL,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(parse_text(bad[i], &parsed));
}

static void test_damage_and_wrong_sizes_are_refused(void **state)
{
    (void)state;
    struct ydl_lease_record record = sample();
    struct ydl_lease_record parsed;
    char bytes[YDL_LEASE_RECORD_BYTES + 1];
    ydl_lease_record_format(&record, bytes);
    bytes[sizeof bytes - 1] = ' ';
    assert_false(ydl_lease_record_parse(bytes, sizeof bytes, &parsed));
    assert_false(ydl_lease_record_parse(bytes, sizeof bytes - 2, &parsed));
    assert_false(ydl_lease_record_parse(bytes, 0, &parsed));

    const char *check = memmem(bytes, sizeof bytes, "check=", strlen("check="));
    assert_non_null(check);
    const char *end = check + strlen("check=0123456789abcdef\n");
    for (char *at = bytes; at < end; at++) {
        *at ^= 1;
        assert_false(ydl_lease_record_parse(bytes, YDL_LEASE_RECORD_BYTES, &parsed));
        *at ^= 1;
    }
}

/* Noise over a valid record, with the check made right again: no crash, and strings that end. */
static void test_noise(void **state)
{
    (void)state;
    struct test_random random = test_random_init(20240607);
    struct ydl_lease_record record = sample();
    char clean[YDL_LEASE_RECORD_BYTES];
    ydl_lease_record_format(&record, clean);
    const char *check = memmem(clean, sizeof clean, "check=", strlen("check="));
    assert_non_null(check);
    size_t len = (size_t)(check - clean);
    for (int i = 0; i < 20000; i++) {
        char bytes[YDL_LEASE_RECORD_BYTES];
        memcpy(bytes, clean, sizeof bytes);
        for (uint64_t k = test_random_below(&random, 8); k > 0; k--)
            bytes[test_random_below(&random, len)] = (char)test_random_below(&random, 256);
        char check[32];
        snprintf(check, sizeof check, "check=%016llx\n", (unsigned long long)ydl_hash(bytes, len));
        memcpy(bytes + len, check, strlen(check));
        struct ydl_lease_record parsed;
        if (ydl_lease_record_parse(bytes, sizeof bytes, &parsed)) {
            assert_true(strnlen(parsed.error, sizeof parsed.error) < sizeof parsed.error);
            assert_true(strnlen(parsed.holder, sizeof parsed.holder) < sizeof parsed.holder);
            assert_in_range(parsed.state, YDL_LEASE_HELD, YDL_LEASE_FAILED);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_comes_back),
        cmocka_unit_test(test_longest_record_fits),
        cmocka_unit_test(test_texts_cannot_forge_lines),
        cmocka_unit_test(test_text_is_cut_between_characters),
        cmocka_unit_test(test_half_of_a_rewrite_is_refused),
        cmocka_unit_test(test_odd_texts),
        cmocka_unit_test(test_damage_and_wrong_sizes_are_refused),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
