/* The corpus of the fuzz targets, replayed with real files: each input as it is, and repaired in
 * every way that the mutator knows. A finding of a fuzzer becomes a file there. */
#include "support.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

#include "../fuzz/layout.c"
#include "../fuzz/lease_record.c"
#include "../fuzz/log_name.c"
#include "../fuzz/part.c"
#include "../fuzz/row.c"
#include "../fuzz/write.c"

#define CORPUS "tests/fuzz/corpus"

enum { MAX_INPUT_BYTES = 1 << 16, REPAIRS = 8 };

static char *dir; /* where files are made */

const char *fuzz_real_file(const uint8_t *bytes, size_t n)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/part", dir);
    test_write_file(path, bytes, n);
    return path;
}

const char *fuzz_directory(void)
{
    return dir;
}

void fuzz_check_listing(const char *names, uint64_t latest)
{
    struct ydl_error err;
    uint64_t found;
    char *log = ydl_join_path(dir, "log");
    assert_non_null(log);
    assert_int_equal(mkdir(log, 0777), 0);
    for (const char *at = names; *at;) {
        int len = (int)strcspn(at, "\n");
        char name[256];
        bool is_name = len > 0 && len < 256 && !memchr(at, '/', (size_t)len);
        snprintf(name, sizeof name, "%.*s", len, at);
        if (is_name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            char *path = ydl_join_path(log, name);
            test_write_file(path, "", 0);
            free(path);
        }
        at += len + (at[len] != '\0');
    }
    assert_status(YDL_OK, ydl_log_latest(log, &found, &err), &err);
    assert_int_equal(found, latest);
    test_remove_dir(log);
}

static int replay(const struct fuzz_target *target)
{
    char corpus[256];
    snprintf(corpus, sizeof corpus, CORPUS "/%s", target->name);
    DIR *listing = opendir(corpus);
    if (!listing)
        fail_msg("%s is missing: run from the repository's root", corpus);
    uint8_t *changed = malloc(MAX_INPUT_BYTES);
    assert_non_null(changed);
    int inputs = 0;
    const struct dirent *entry;
    while ((entry = readdir(listing))) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = ydl_join_path(corpus, entry->d_name);
        size_t n;
        uint8_t *bytes = test_read_file(path, &n);
        assert_true(n <= MAX_INPUT_BYTES);
        target->one(bytes, n);
        for (unsigned seed = 1; seed < REPAIRS; seed++) {
            memcpy(changed, bytes, n);
            target->one(changed, target->repair(changed, n, MAX_INPUT_BYTES, seed));
        }
        free(bytes);
        free(path);
        inputs++;
    }
    closedir(listing);
    free(changed);
    print_message("%s: %d inputs\n", target->name, inputs);
    return inputs;
}

static void test_corpus(void **state)
{
    (void)state;
    static const struct fuzz_target *const targets[] = {
        &fuzz_part, &fuzz_layout, &fuzz_row, &fuzz_write, &fuzz_lease_record, &fuzz_log_name};
    dir = test_make_dir();
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        assert_true(replay(targets[i]) >= 3);
    test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
