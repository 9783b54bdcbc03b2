#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"

void test_assert_status(enum ydl_status expected, enum ydl_status status,
                        const struct ydl_error *err, const char *file, int line)
{
    if (status == expected)
        return;
    print_error("%s:%d: \"%s\" instead of \"%s\"", file, line, ydl_status_text(status),
                ydl_status_text(expected));
    print_error(status == YDL_OK ? "\n" : ": %s\n", err->text);
    fail();
}

char *test_make_dir(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = NULL;
    assert_true(asprintf(&dir, "%s/ydl-test-XXXXXX", base ? base : "/tmp") > 0);
    assert_ptr_equal(mkdtemp(dir), dir);
    return dir;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void test_remove_dir(char *dir)
{
    assert_int_equal(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(dir);
}

uint8_t *test_read_file(const char *path, size_t *out_n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("cannot open %s: %s", path, strerror(errno));
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    size_t n = (size_t)st.st_size;
    uint8_t *bytes = malloc(n + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, n), (ssize_t)n);
    close(fd);
    *out_n = n;
    return bytes;
}

void test_write_file(const char *path, const void *bytes, size_t n)
{
    /* Cut afterwards: some file systems flush a file that was cut to nothing before. */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        fail_msg("cannot create %s: %s", path, strerror(errno));
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    assert_int_equal(ftruncate(fd, (off_t)n), 0);
    close(fd);
}

void test_handle_cut_maps(void)
{
    static struct sigaction ours;
    static bool is_known;
    if (!is_known) { /* the first map of the process installs it */
        struct ydl_error err;
        struct ydl_map *map;
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        assert_status(YDL_OK, ydl_map_new(fd, 1, "this program", &map, &err), &err);
        ydl_map_free(map);
        close(fd);
        assert_int_equal(sigaction(SIGBUS, NULL, &ours), 0);
        is_known = true;
    }
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

struct test_random test_random_init(uint64_t seed)
{
    const char *given = getenv("YDL_TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 0);
    print_message("random seed: YDL_TEST_SEED=%" PRIu64 "\n", seed);
    return (struct test_random){.state = seed ? seed : 1};
}

static uint64_t next(struct test_random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * UINT64_C(0x2545F4914F6CDD1D);
}

uint64_t test_random_below(struct test_random *random, uint64_t bound)
{
    assert_true(bound > 0);
    return next(random) % bound; /* the bias does not matter here */
}

void test_random_fill(struct test_random *random, void *bytes, size_t n)
{
    uint8_t *to = bytes;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(next(random) >> 56);
}
