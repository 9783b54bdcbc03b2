#include "record/access.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/vfs.h>

/* File systems whose bytes come from another machine or process. Numbers from linux/magic.h where
 * it has them (written out: older headers lack some), else from the file system's own source; GNU
 * coreutils' stat.c lists them all as remote. Unknown ones are taken for local. */
static const uint32_t remote_types[] = {
    0x6969,     /* NFS_SUPER_MAGIC */
    0x517B,     /* SMB_SUPER_MAGIC */
    0xFF534D42, /* CIFS_SUPER_MAGIC */
    0xFE534D42, /* SMB2_SUPER_MAGIC */
    0x65735546, /* FUSE_SUPER_MAGIC: sshfs, gcsfuse, s3fs, GlusterFS, JuiceFS, virtiofs, ... */
    0x00C36400, /* CEPH_SUPER_MAGIC */
    0x01021997, /* V9FS_MAGIC: 9p, of virtual machines and WSL */
    0x5346414F, /* AFS_SUPER_MAGIC: OpenAFS */
    0x6B414653, /* AFS_FS_MAGIC: the kernel's AFS */
    0x73757245, /* CODA_SUPER_MAGIC */
    0x564C,     /* NCP_SUPER_MAGIC */
    0x7461636F, /* OCFS2_SUPER_MAGIC: shared disks, whose locks go over the network */
    0x01161970, /* GFS2_MAGIC (linux/gfs2_ondisk.h): likewise */
    0x786F4256, /* VBOXSF_SUPER_MAGIC: folders of VirtualBox's host */
    0x0BD00BD0, /* LL_SUPER_MAGIC: Lustre */
    0x47504653, /* "GPFS": IBM Storage Scale */
    0x19830326, /* BEEGFS_MAGIC (FhGFS) */
    0xAAD7AAEA, /* PANFS_SUPER_MAGIC: Panasas */
    0x20030528, /* PVFS2_SUPER_MAGIC: OrangeFS */
    0xBEEFDEAD, /* SNFS: Quantum StorNext */
    0xA501FCF5, /* VXFS: Veritas, mounted by clusters */
    0x61636673, /* ACFS: Oracle */
    0x013111A8, /* IBRIX */
    0xBACBACBC, /* VMHGFS: folders of VMware's host */
    0x7C7C6673, /* PRL_FS: folders of Parallels' host */
};

enum ydl_access ydl_access_for_type(unsigned long type)
{
    for (size_t i = 0; i < sizeof remote_types / sizeof remote_types[0]; i++) {
        if ((uint32_t)type == remote_types[i]) /* some kernels extend the sign */
            return YDL_ACCESS_PREAD;
    }
    return YDL_ACCESS_MMAP;
}

enum ydl_access ydl_access_for(const char *path)
{
    struct statfs fs;
    int rc;
    do {
        rc = statfs(path, &fs);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? ydl_access_for_type((unsigned long)fs.f_type) : YDL_ACCESS_PREAD;
}
