/* What C tests share: a directory of their own, whole files, repeatable random numbers.
 *
 * Everything here fails the running test rather than returning an error. */
#ifndef YDL_TESTS_SUPPORT_H
#define YDL_TESTS_SUPPORT_H

/* cmocka.h wants these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

/* Fails with the error's text where status is not the expected one. */
#define assert_status(expected, status, err)                                                       \
    test_assert_status(expected, status, err, __FILE__, __LINE__)
void test_assert_status(enum ydl_status expected, enum ydl_status status,
                        const struct ydl_error *err, const char *file, int line);

/* A new empty directory; owned by the caller, who ends with test_remove_dir. */
char *test_make_dir(void);

/* Removes the directory with the files and directories in it, and frees the name. */
void test_remove_dir(char *dir);

/* The whole file in memory owned by the caller. */
uint8_t *test_read_file(const char *path, size_t *out_n);
void test_write_file(const char *path, const void *bytes, size_t n);

/* cmocka puts a handler of its own for SIGBUS before each test, in the place of base/map.h's: a
 * test that cuts mapped files begins with this, which puts that one back. */
void test_handle_cut_maps(void);

/* xorshift64*: the same numbers everywhere for a seed. */
struct test_random {
    uint64_t state;
};

/* Takes the seed from YDL_TEST_SEED where that is set, and prints it. */
struct test_random test_random_init(uint64_t seed);
uint64_t test_random_below(struct test_random *random, uint64_t bound);
void test_random_fill(struct test_random *random, void *bytes, size_t n);

#endif
