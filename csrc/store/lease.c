#include "store/lease.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/thread.h"
#include "store/create.h"
#include "store/lease_look.h"
#include "store/lease_record.h"
#include "store/numbered.h"
#include "store/process_id.h"

enum {
    MAX_TTL_MS = 24 * 60 * 60 * 1000, /* a day without a sign of life is a mistake in the units */
    BEATS_PER_TTL = 6,                /* five may be lost or late before a waiter wonders */
    TRY_ROUNDS = 8,                   /* generations that others may create while we try */
};

static const char suffix[] = YDL_LEASE_SUFFIX;

struct ydl_lease {
    /* Constant. */
    char *dir; /* owned */
    uint64_t ttl_ms;
    struct ydl_process_id self;
    pid_t pid; /* who made this object; elsewhere it is a fork's copy without its thread */

    /* Held for the whole of a call, so that calls of several threads come one after another. The
     * heartbeat never takes it. */
    pthread_mutex_t calls;
    /* calls guards: */
    bool held;
    uint64_t generation;                             /* ours, while held */
    pthread_t thread;                                /* runs while held */
    uint64_t seen_generation, seen_beat, seen_at_ms; /* of somebody else's, on our clock */

    /* While held the heartbeat thread's, else guarded by calls. */
    int fd; /* our generation's file, or -1 */
    struct ydl_lease_record record;

    pthread_mutex_t wake_lock;
    pthread_cond_t wake; /* stop was set */
    bool stop;           /* guarded by wake_lock */

    atomic_bool lost; /* another generation exists; never goes back while held */
    _Atomic uint64_t progress;
};

static bool is_forked(const struct ydl_lease *lease)
{
    return lease->pid != getpid();
}

static enum ydl_status fail_forked(const struct ydl_lease *lease, struct ydl_error *err)
{
    return ydl_fail(err, YDL_FORKED, "the lease %s belongs to process %ld, this is its child %ld",
                    lease->dir, (long)lease->pid, (long)getpid());
}

/* ---- looking ---- */

/* Notes the beat and tells whether the holder is to be taken for dead. */
static bool judge_stale(struct ydl_lease *lease, const struct ydl_lease_sight *sight)
{
    const uint64_t now = ydl_now_ms();
    const bool moved = sight->generation != lease->seen_generation ||
                       (sight->readable && sight->record.beat != lease->seen_beat);
    if (moved) {
        lease->seen_generation = sight->generation;
        lease->seen_beat = sight->record.beat;
        lease->seen_at_ms = now;
    }
    if (sight->generation == 0 || sight->record.state != YDL_LEASE_HELD)
        return false;
    if (sight->readable && ydl_process_is_gone(&lease->self, &sight->record.process))
        return true;
    return now - lease->seen_at_ms >= lease->ttl_ms + lease->ttl_ms / 2;
}

static enum ydl_status look_and_judge(struct ydl_lease *lease, struct ydl_lease_sight *sight,
                                      struct ydl_lease_view *out, struct ydl_error *err)
{
    *out = (struct ydl_lease_view){0};
    enum ydl_status status = ydl_lease_look(lease->dir, sight, err);
    if (status == YDL_OK)
        ydl_lease_fill_view(sight, judge_stale(lease, sight), out);
    return status;
}

/* ---- holding ---- */

static enum ydl_status write_record(struct ydl_lease *lease, struct ydl_error *err)
{
    char bytes[YDL_LEASE_RECORD_BYTES];
    lease->record.progress = atomic_load(&lease->progress);
    ydl_lease_record_format(&lease->record, bytes);
    for (size_t done = 0; done < sizeof bytes;) {
        ssize_t n = pwrite(lease->fd, bytes + done, sizeof bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) /* a reader sees a record that does not add up */
            return ydl_fail_os(err, errno, lease->dir,
                               "cannot rewrite generation %llu of the lease %s",
                               (unsigned long long)lease->generation, lease->dir);
        done += (size_t)n;
    }
    /* Other hosts see it only then. Not fsync: the times of the file interest nobody. */
    int rc;
    do {
        rc = fdatasync(lease->fd);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return ydl_fail_os(err, errno, lease->dir, "cannot flush generation %llu of the lease %s",
                           (unsigned long long)lease->generation, lease->dir);
    return YDL_OK;
}

/* A doubt counts as still holding: safety is the manifest log's. */
static bool is_current(const struct ydl_lease *lease)
{
    struct stat st;
    if (fstat(lease->fd, &st) == 0 ? st.st_nlink == 0 : errno == ESTALE)
        return false; /* removed, so that waiters cannot see it */
    uint64_t latest;
    struct ydl_error err;
    return ydl_numbered_latest(lease->dir, suffix, &latest, &err) != YDL_OK ||
           latest <= lease->generation;
}

/* Sleeps until the next beat is due; true: stop instead. */
static bool wait_for_beat(struct ydl_lease *lease)
{
    const uint64_t interval_ms = lease->ttl_ms / BEATS_PER_TTL;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(interval_ms / 1000);
    until.tv_nsec += (long)(interval_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lease->wake_lock);
    int rc = 0;
    while (!lease->stop && rc == 0)
        rc = pthread_cond_timedwait(&lease->wake, &lease->wake_lock, &until);
    bool stop = lease->stop;
    pthread_mutex_unlock(&lease->wake_lock);
    return stop;
}

static void *run_heartbeat(void *arg)
{
    struct ydl_lease *lease = arg;
    while (!wait_for_beat(lease)) {
        if (!is_current(lease)) {
            atomic_store(&lease->lost, true);
            break;
        }
        struct ydl_error err;
        lease->record.beat++;
        /* Nobody to tell, and the next beat may succeed. If none does, waiters take over. */
        enum ydl_status ignored = write_record(lease, &err);
        (void)ignored;
    }
    return NULL;
}

static enum ydl_status start_heartbeat(struct ydl_lease *lease, struct ydl_error *err)
{
    lease->stop = false;
    int rc = ydl_thread_start(&lease->thread, run_heartbeat, lease);
    if (rc != 0)
        return ydl_fail_os(err, rc, lease->dir, "cannot start the heartbeat of the lease %s",
                           lease->dir);
    pthread_setname_np(lease->thread, "ydl-lease");
    lease->held = true;
    return YDL_OK;
}

static void stop_heartbeat(struct ydl_lease *lease)
{
    pthread_mutex_lock(&lease->wake_lock);
    lease->stop = true;
    pthread_cond_signal(&lease->wake);
    pthread_mutex_unlock(&lease->wake_lock);
    pthread_join(lease->thread, NULL);
    lease->held = false;
}

static void close_generation(struct ydl_lease *lease)
{
    if (lease->fd >= 0)
        close(lease->fd);
    lease->fd = -1;
}

/* ---- taking ---- */

static enum ydl_status new_record(struct ydl_lease *lease, const struct ydl_lease_sight *before,
                                  struct ydl_error *err)
{
    uint64_t nonce[2];
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return ydl_fail_os(err, errno, lease->dir, "cannot draw a token for the lease %s",
                           lease->dir);
    lease->record = (struct ydl_lease_record){
        .state = YDL_LEASE_HELD,
        .process = lease->self,
        .beat = 1,
        .since = (uint64_t)time(NULL),
        /* A row of failures goes on through holders that died, and ends with a success. */
        .failures = before->record.state == YDL_LEASE_RELEASED ? 0 : before->record.failures,
    };
    snprintf(lease->record.holder, sizeof lease->record.holder, "%016llx%016llx",
             (unsigned long long)nonce[0], (unsigned long long)nonce[1]);
    return YDL_OK;
}

/* Opens the generation that was just created, and makes sure that it is ours. */
static enum ydl_status open_own(struct ydl_lease *lease, struct ydl_error *err)
{
    struct stat st;
    char bytes[YDL_LEASE_RECORD_BYTES];
    struct ydl_lease_record found;
    enum ydl_status status =
        ydl_numbered_open(lease->dir, lease->generation, suffix, O_RDWR, &lease->fd, &st, err);
    if (status == YDL_OS && (err->sys_errno == ENOENT || err->sys_errno == ESTALE))
        return ydl_fail(err, YDL_BUSY, "generation %llu of the lease %s was passed and pruned",
                        (unsigned long long)lease->generation, lease->dir);
    if (status != YDL_OK)
        return status;
    status = ydl_pread_all(lease->fd, bytes, sizeof bytes, 0, lease->dir, err);
    if (status != YDL_OK)
        return status;
    if (!ydl_lease_record_parse(bytes, sizeof bytes, &found) ||
        strcmp(found.holder, lease->record.holder) != 0)
        return ydl_fail(err, YDL_BUSY, "generation %llu of the lease %s was replaced",
                        (unsigned long long)lease->generation, lease->dir);
    return YDL_OK;
}

/* Our own generation, as if it had not been tried: nobody is to wait for it. */
static void remove_own(const struct ydl_lease *lease, const char *name)
{
    int dir_fd;
    struct ydl_error err;
    if (ydl_directory_open(lease->dir, YDL_DIRECTORY_NAMES, &dir_fd, &err) != YDL_OK)
        return;
    unlinkat(dir_fd, name, 0);
    close(dir_fd);
}

/* For file systems without link: the name comes before the bytes, which a waiter takes for a
 * holder that has not beaten yet. */
static enum ydl_status create_in_place(struct ydl_lease *lease, const char *name,
                                       struct ydl_error *err)
{
    int dir_fd;
    enum ydl_status status = ydl_directory_open(lease->dir, YDL_DIRECTORY_NAMES, &dir_fd, err);
    if (status != YDL_OK)
        return status;
    lease->fd = ydl_openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int open_errno = errno;
    close(dir_fd);
    if (lease->fd < 0 && open_errno == EEXIST)
        return ydl_fail(err, YDL_BUSY, "%s/%s exists already", lease->dir, name);
    if (lease->fd < 0)
        return ydl_fail_os(err, open_errno, lease->dir, "cannot create %s/%s", lease->dir, name);
    status = write_record(lease, err);
    if (status != YDL_OK)
        remove_own(lease, name);
    return status;
}

static enum ydl_status create_generation(struct ydl_lease *lease, const char *name,
                                         struct ydl_error *err)
{
    char bytes[YDL_LEASE_RECORD_BYTES];
    ydl_lease_record_format(&lease->record, bytes);
    enum ydl_status status = ydl_create_file(lease->dir, name, bytes, sizeof bytes, false, err);
    if (status == YDL_UNSUPPORTED)
        return create_in_place(lease, name, err);
    if (status != YDL_OK)
        return status;
    status = open_own(lease, err);
    if (status != YDL_OK && status != YDL_BUSY)
        remove_own(lease, name);
    return status;
}

/* Creates the generation behind `before` and begins to hold it. YDL_BUSY: somebody else did. */
static enum ydl_status take(struct ydl_lease *lease, const struct ydl_lease_sight *before,
                            struct ydl_error *err)
{
    char name[YDL_NUMBERED_NAME_BYTES];
    enum ydl_status status;

    if (before->generation >= YDL_NUMBERED_MAX) {
        ydl_fail(err, YDL_CORRUPT_CACHE,
                 "the lease %s is at generation %llu and cannot count on: remove its files",
                 lease->dir, (unsigned long long)before->generation);
        return ydl_fail_at(err, lease->dir);
    }
    lease->generation = before->generation + 1;
    atomic_store(&lease->progress, 0);
    atomic_store(&lease->lost, false);
    ydl_numbered_name(name, lease->generation, suffix);

    status = new_record(lease, before, err);
    if (status != YDL_OK)
        goto done;
    status = create_generation(lease, name, err);
    if (status != YDL_OK)
        goto done;
    /* A slow waiter may have created a number that others had passed and pruned long ago. */
    if (!is_current(lease))
        status = ydl_fail(err, YDL_BUSY, "the lease %s went on past generation %llu", lease->dir,
                          (unsigned long long)lease->generation);
    else
        status = start_heartbeat(lease, err);
    if (status != YDL_OK)
        remove_own(lease, name);
    else
        /* The one before stays: whoever read the listing just now may still look at it. */
        ydl_numbered_prune(lease->dir, suffix, lease->generation - 1);
done:
    if (status != YDL_OK)
        close_generation(lease);
    return status;
}

/* ---- calls ---- */

static enum ydl_status init_sync(struct ydl_lease *lease, struct ydl_error *err)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0)
        return ydl_fail_os(err, rc, lease->dir, "cannot set up the lease %s", lease->dir);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&lease->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (rc != 0)
        return ydl_fail_os(err, rc, lease->dir, "cannot set up the lease %s", lease->dir);
    pthread_mutex_init(&lease->calls, NULL); /* with these attributes they cannot fail */
    pthread_mutex_init(&lease->wake_lock, NULL);
    return YDL_OK;
}

enum ydl_status ydl_lease_new(const char *dir, uint64_t ttl_ms, struct ydl_lease **out,
                              struct ydl_error *err)
{
    *out = NULL;
    if (ttl_ms < BEATS_PER_TTL || ttl_ms > MAX_TTL_MS)
        return ydl_fail(err, YDL_INVALID, "a lease lasts %d to %d ms, not %llu", BEATS_PER_TTL,
                        MAX_TTL_MS, (unsigned long long)ttl_ms);
    int rc;
    do {
        rc = mkdir(dir, 0777);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && errno != EEXIST)
        return ydl_fail_os(err, errno, dir, "cannot create directory %s", dir);

    struct ydl_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return ydl_fail_memory(err, "a lease", sizeof *lease);
    lease->fd = -1;
    lease->ttl_ms = ttl_ms;
    lease->pid = getpid();
    ydl_process_id_self(&lease->self);
    lease->dir = strdup(dir);
    enum ydl_status status =
        lease->dir ? init_sync(lease, err) : ydl_fail_memory(err, "a path", strlen(dir) + 1);
    if (status != YDL_OK) {
        free(lease->dir);
        free(lease);
        return status;
    }
    *out = lease;
    return YDL_OK;
}

static bool is_held_locked(struct ydl_lease *lease)
{
    if (!lease->held || atomic_load(&lease->lost))
        return false;
    if (is_current(lease))
        return true;
    atomic_store(&lease->lost, true);
    return false;
}

static enum ydl_status try_locked(struct ydl_lease *lease, struct ydl_lease_view *out_view,
                                  struct ydl_error *err)
{
    struct ydl_lease_sight sight;
    if (is_held_locked(lease))
        return look_and_judge(lease, &sight, out_view, err);
    if (lease->held) { /* lost */
        stop_heartbeat(lease);
        close_generation(lease);
    }
    enum ydl_status status = YDL_BUSY;
    for (int i = 0; i < TRY_ROUNDS && status == YDL_BUSY; i++) {
        status = look_and_judge(lease, &sight, out_view, err);
        if (status != YDL_OK)
            return status;
        if (out_view->held && !out_view->stale)
            return ydl_fail(err, YDL_BUSY, "the lease %s is held by process %llu of %s", lease->dir,
                            (unsigned long long)out_view->pid, out_view->host);
        status = take(lease, &sight, err);
    }
    return status;
}

enum ydl_status ydl_lease_try(struct ydl_lease *lease, struct ydl_lease_view *out_view,
                              struct ydl_error *err)
{
    *out_view = (struct ydl_lease_view){0};
    if (is_forked(lease))
        return fail_forked(lease, err);
    pthread_mutex_lock(&lease->calls);
    enum ydl_status status = try_locked(lease, out_view, err);
    pthread_mutex_unlock(&lease->calls);
    return status;
}

enum ydl_status ydl_lease_peek(struct ydl_lease *lease, struct ydl_lease_view *out_view,
                               struct ydl_error *err)
{
    *out_view = (struct ydl_lease_view){0};
    if (is_forked(lease))
        return fail_forked(lease, err);
    struct ydl_lease_sight sight;
    pthread_mutex_lock(&lease->calls);
    enum ydl_status status = look_and_judge(lease, &sight, out_view, err);
    pthread_mutex_unlock(&lease->calls);
    return status;
}

void ydl_lease_set_progress(struct ydl_lease *lease, uint64_t records)
{
    atomic_store(&lease->progress, records);
}

bool ydl_lease_is_held(struct ydl_lease *lease)
{
    if (is_forked(lease))
        return false;
    pthread_mutex_lock(&lease->calls);
    bool held = is_held_locked(lease);
    pthread_mutex_unlock(&lease->calls);
    return held;
}

static enum ydl_status release_locked(struct ydl_lease *lease, const char *failure,
                                      struct ydl_error *err)
{
    if (!lease->held)
        return YDL_OK;
    stop_heartbeat(lease);
    enum ydl_status status = YDL_OK;
    /* What a lost generation says interests nobody. */
    if (!atomic_load(&lease->lost)) {
        struct ydl_lease_record *record = &lease->record;
        record->state = failure ? YDL_LEASE_FAILED : YDL_LEASE_RELEASED;
        if (failure) {
            ydl_lease_copy_text(record->error, sizeof record->error, failure, strlen(failure));
            if (record->failures < UINT32_MAX)
                record->failures++;
        } else {
            record->failures = 0;
        }
        status = write_record(lease, err);
    }
    close_generation(lease);
    return status;
}

enum ydl_status ydl_lease_release(struct ydl_lease *lease, const char *failure,
                                  struct ydl_error *err)
{
    if (is_forked(lease))
        return fail_forked(lease, err);
    pthread_mutex_lock(&lease->calls);
    enum ydl_status status = release_locked(lease, failure, err);
    pthread_mutex_unlock(&lease->calls);
    return status;
}

void ydl_lease_free(struct ydl_lease *lease)
{
    if (!lease)
        return;
    if (is_forked(lease)) {
        /* The locks may be held by threads that do not exist here: left as they are. */
        close_generation(lease);
    } else {
        struct ydl_error err;
        /* Nobody to tell; at worst waiters wait for the beat to stop. */
        enum ydl_status ignored = release_locked(lease, NULL, &err);
        (void)ignored;
        pthread_cond_destroy(&lease->wake);
        pthread_mutex_destroy(&lease->wake_lock);
        pthread_mutex_destroy(&lease->calls);
    }
    free(lease->dir);
    free(lease);
}
