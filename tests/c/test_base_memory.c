/* Memory that could still be filled: made-up trees in the place of /proc and /sys/fs/cgroup. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

#define MIB ((uint64_t)1 << 20)
#define MEMINFO "proc/meminfo", "MemTotal:  9000000 kB\nMemFree: 1 kB\nMemAvailable:  1048576 kB\n"

/* Pairs of name and content, ended by NULL; made below a new directory. */
static uint64_t available(const char *const *files)
{
    char *dir = test_make_dir();
    char path[4096];
    for (; *files; files += 2) {
        snprintf(path, sizeof path, "%s/%s", dir, files[0]);
        for (char *slash = strchr(path + strlen(dir) + 1, '/'); slash;
             slash = strchr(slash + 1, '/')) {
            *slash = '\0';
            mkdir(path, 0777);
            *slash = '/';
        }
        test_write_file(path, files[1], strlen(files[1]));
    }
    char cgroups[4096];
    snprintf(path, sizeof path, "%s/proc", dir);
    snprintf(cgroups, sizeof cgroups, "%s/cg", dir);
    uint64_t bytes = ydl_memory_available_in(path, cgroups);
    test_remove_dir(dir);
    return bytes;
}

#define AVAILABLE(...) available((const char *const[]){__VA_ARGS__, NULL})

static void test_the_machine_alone(void **state)
{
    (void)state;
    assert_int_equal(AVAILABLE(MEMINFO), 1024 * MIB);
    assert_int_equal(AVAILABLE("proc/meminfo", "MemTotal: 9 kB\n"), 0);
    assert_int_equal(AVAILABLE("proc/meminfo", "MemAvailable: lots\n"), 0);
    assert_int_equal(AVAILABLE("proc/other", ""), 0);
}

static void test_version_2(void **state)
{
    (void)state;
#define GROUP "proc/self/cgroup", "0::/a/b\n"
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/a/b/memory.max", "max\n",
                               "cg/a/b/memory.current", "1048576\n"),
                     1024 * MIB);
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/a/b/memory.max", "104857600\n",
                               "cg/a/b/memory.current", "10485760\n"),
                     90 * MIB);
    /* Pages of files are given up first. */
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/a/b/memory.max", "104857600\n",
                               "cg/a/b/memory.current", "104857600\n", "cg/a/b/memory.stat",
                               "anon 7\nfile 9\ninactive_file 1048576\nactive_file 2097152\n"),
                     3 * MIB);
    /* A parent has less. */
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/a/b/memory.max", "104857600\n",
                               "cg/a/b/memory.current", "0\n", "cg/a/memory.max", "5242880\n",
                               "cg/a/memory.current", "1048576\n"),
                     4 * MIB);
    /* Over its limit. */
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/a/b/memory.max", "1048576\n",
                               "cg/a/b/memory.current", "2097152\n"),
                     0);
    /* Inside a container the path is not there, and the root is its own. */
    assert_int_equal(
        AVAILABLE(MEMINFO, GROUP, "cg/memory.max", "2097152\n", "cg/memory.current", "1048576\n"),
        MIB);
}

static void test_version_1(void **state)
{
    (void)state;
#undef GROUP
    static const char STAT[] = "inactive_file 5\n"
                               "total_inactive_file 1048576\n"
                               "total_active_file 1048576\n";
#define GROUP "proc/self/cgroup", "9:name=systemd:/x\n5:cpu,memory:/a\n0::/\n"
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/memory/a/memory.limit_in_bytes",
                               "9223372036854771712\n", "cg/memory/a/memory.usage_in_bytes",
                               "1048576\n"),
                     1024 * MIB);
    assert_int_equal(AVAILABLE(MEMINFO, GROUP, "cg/memory/a/memory.limit_in_bytes", "104857600\n",
                               "cg/memory/a/memory.usage_in_bytes", "103809024\n",
                               "cg/memory/a/memory.stat", STAT),
                     3 * MIB);
    assert_int_equal(AVAILABLE(MEMINFO, "proc/self/cgroup", "5:memory_other,cpu:/a\n",
                               "cg/memory/a/memory.limit_in_bytes", "1\n",
                               "cg/memory/a/memory.usage_in_bytes", "0\n"),
                     1024 * MIB);
}

static void test_this_machine(void **state)
{
    (void)state;
    assert_true(ydl_memory_available() > 0);
    assert_true(ydl_memory_available() < UINT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_machine_alone),
        cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
