/* Which file systems are mapped. */
#include "support.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include "record/access.h"

static void test_types(void **state)
{
    (void)state;
    static const unsigned long local[] = {
        EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC,    TMPFS_MAGIC,
        F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, 0x2FC12FC1 /* ZFS */, 0};
    static const unsigned long remote[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC,  0xFF534D42,
                                           0xFE534D42,      FUSE_SUPER_MAGIC, CEPH_SUPER_MAGIC,
                                           V9FS_MAGIC,      0x0BD00BD0,       0x47504653,
                                           AFS_SUPER_MAGIC, AFS_FS_MAGIC,     0x19830326};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        assert_int_equal(ydl_access_for_type(local[i]), YDL_ACCESS_MMAP);
    for (size_t i = 0; i < sizeof remote / sizeof remote[0]; i++)
        assert_int_equal(ydl_access_for_type(remote[i]), YDL_ACCESS_PREAD);
    assert_int_equal(ydl_access_for_type((unsigned long)(int32_t)0xFF534D42), YDL_ACCESS_PREAD);
}

static void test_paths(void **state)
{
    (void)state;
    struct statfs fs;
    assert_int_equal(ydl_access_for("/nowhere/at/all"), YDL_ACCESS_PREAD);
    assert_int_equal(ydl_access_for("/proc/self"), YDL_ACCESS_MMAP); /* no disk, but local */
    char *dir = test_make_dir();
    assert_int_equal(statfs(dir, &fs), 0);
    assert_int_equal(ydl_access_for(dir), ydl_access_for_type((unsigned long)fs.f_type));
    test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
