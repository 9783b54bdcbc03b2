#include "store/lease_look.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "store/numbered.h"

enum { LOOKS = 4 }; /* at a file that vanishes or is being rewritten while we read */

_Static_assert(YDL_LEASE_HELD == 0, "an unreadable record is one that is held");

/* Fills out->record. YDL_PENDING: look again, the file is changing. */
static enum ydl_status read_record(const char *dir, struct ydl_lease_sight *out,
                                   struct ydl_error *err)
{
    int fd;
    struct stat st;
    /* Opened anew each time: over NFS that is what fetches the newest bytes. */
    enum ydl_status status =
        ydl_numbered_open(dir, out->generation, YDL_LEASE_SUFFIX, O_RDONLY, &fd, &st, err);
    if (status == YDL_OS && (err->sys_errno == ENOENT || err->sys_errno == ESTALE))
        return YDL_PENDING;
    /* Something planted, or another user's file: it ages like any holder that shows no life. */
    if (status == YDL_CORRUPT_CACHE || (status == YDL_OS && err->sys_errno == EACCES))
        return YDL_OK;
    if (status != YDL_OK)
        return status;

    char bytes[YDL_LEASE_RECORD_BYTES];
    if (st.st_size == YDL_LEASE_RECORD_BYTES)
        status = ydl_pread_all(fd, bytes, sizeof bytes, 0, dir, err);
    else
        status = YDL_CORRUPT_CACHE;
    close(fd);
    if (status == YDL_OS && err->sys_errno != ESTALE)
        return status;
    out->readable = status == YDL_OK && ydl_lease_record_parse(bytes, sizeof bytes, &out->record);
    return out->readable ? YDL_OK : YDL_PENDING;
}

enum ydl_status ydl_lease_look(const char *dir, struct ydl_lease_sight *out, struct ydl_error *err)
{
    for (int i = 0; i < LOOKS; i++) {
        *out = (struct ydl_lease_sight){0};
        enum ydl_status status = ydl_numbered_latest(dir, YDL_LEASE_SUFFIX, &out->generation, err);
        if (status != YDL_OK || out->generation == 0)
            return status;
        status = read_record(dir, out, err);
        if (status != YDL_PENDING)
            return status;
    }
    /* A creator that was killed before it wrote leaves such a file, too. */
    out->record = (struct ydl_lease_record){0};
    return YDL_OK;
}

void ydl_lease_fill_view(const struct ydl_lease_sight *sight, bool stale,
                         struct ydl_lease_view *out)
{
    const struct ydl_lease_record *record = &sight->record;
    *out = (struct ydl_lease_view){
        .generation = sight->generation,
        .held = sight->generation > 0 && record->state == YDL_LEASE_HELD,
        .failed = record->state == YDL_LEASE_FAILED,
        .stale = stale,
        .pid = record->process.pid,
        .since = record->since,
        .progress = record->progress,
        .failures = record->failures,
    };
    _Static_assert(sizeof out->host == sizeof record->process.host, "copied whole");
    memcpy(out->host, record->process.host, sizeof out->host);
    memcpy(out->text, record->error, sizeof out->text);
}
