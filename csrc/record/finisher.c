#include "record/finisher.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/io.h"
#include "base/thread.h"
#include "record/part.h"

struct ydl_finisher {
    const struct ydl_layout *layout; /* borrowed */
    uint8_t build_uuid[YDL_UUID_BYTES];
    unsigned forks; /* of the process whose thread it is */
    pthread_t thread;
    bool has_thread; /* the owner's */
    atomic_bool stop;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* what is below, or stop */
    /* Under lock: */
    bool is_working;
    bool has_waiting;
    struct ydl_part_file waiting; /* owned while has_waiting */
    enum ydl_status status;       /* the first error's */
    struct ydl_error err;
};

enum ydl_status ydl_finisher_new(const struct ydl_layout *layout,
                                 const uint8_t build_uuid[YDL_UUID_BYTES],
                                 struct ydl_finisher **out, struct ydl_error *err)
{
    struct ydl_finisher *finisher = calloc(1, sizeof *finisher);
    *out = finisher;
    if (!finisher)
        return ydl_fail_memory(err, "a finisher of parts", sizeof *finisher);
    finisher->layout = layout;
    memcpy(finisher->build_uuid, build_uuid, YDL_UUID_BYTES);
    finisher->forks = ydl_fork_count();
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&finisher->lock, NULL);
    pthread_cond_init(&finisher->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return YDL_OK;
}

static enum ydl_status verify(const struct ydl_finisher *finisher, struct ydl_part_file *file,
                              struct ydl_error *err)
{
    struct ydl_part *part = NULL;
    struct ydl_part_info info = {
        .path = file->path,
        .number = file->number,
        .first_record = file->part.first_record,
        .records = file->part.records,
        .bytes = file->part.bytes,
    };
    memcpy(info.build_uuid, finisher->build_uuid, YDL_UUID_BYTES);
    /* Not mapped: a disk that fails to read gives an error then, no signal. */
    enum ydl_status status = ydl_part_open(&info, finisher->layout, YDL_ACCESS_PREAD, &part, err);
    if (status == YDL_OK)
        status = ydl_part_verify(part, err);
    ydl_part_close(part);
    return status;
}

/* Takes the file. */
static enum ydl_status finish_file(struct ydl_finisher *finisher, struct ydl_part_file *file,
                                   struct ydl_error *err)
{
    enum ydl_status status = ydl_fsync(file->fd, file->path, err);
    if (status == YDL_OK) {
        int fd = file->fd;
        file->fd = -1;
        status = ydl_close(fd, file->path, err);
    }
    if (status == YDL_OK && !atomic_load(&finisher->stop))
        status = verify(finisher, file, err);
    ydl_part_file_clear(file);
    return status;
}

static void note_error_locked(struct ydl_finisher *finisher, enum ydl_status status,
                              const struct ydl_error *err)
{
    if (status == YDL_OK || finisher->status != YDL_OK)
        return;
    finisher->status = status;
    finisher->err = *err;
}

static void *work(void *argument)
{
    struct ydl_finisher *finisher = argument;
    pthread_mutex_lock(&finisher->lock);
    while (!atomic_load(&finisher->stop) && finisher->status == YDL_OK) {
        if (!finisher->has_waiting) {
            pthread_cond_wait(&finisher->changed, &finisher->lock);
            continue;
        }
        struct ydl_part_file file = finisher->waiting;
        struct ydl_error err;
        finisher->has_waiting = false;
        finisher->is_working = true;
        pthread_cond_broadcast(&finisher->changed);
        pthread_mutex_unlock(&finisher->lock);
        enum ydl_status status = finish_file(finisher, &file, &err);
        pthread_mutex_lock(&finisher->lock);
        finisher->is_working = false;
        note_error_locked(finisher, status, &err);
        pthread_cond_broadcast(&finisher->changed);
    }
    pthread_mutex_unlock(&finisher->lock);
    return NULL;
}

static enum ydl_status status_locked(const struct ydl_finisher *finisher, struct ydl_error *err)
{
    if (finisher->status != YDL_OK)
        *err = finisher->err;
    return finisher->status;
}

enum ydl_status ydl_finisher_put(struct ydl_finisher *finisher, struct ydl_part_file *file,
                                 struct ydl_error *err)
{
    if (!finisher->has_thread)
        finisher->has_thread = ydl_thread_start(&finisher->thread, work, finisher) == 0;

    pthread_mutex_lock(&finisher->lock);
    while (finisher->has_waiting && finisher->status == YDL_OK)
        pthread_cond_wait(&finisher->changed, &finisher->lock);
    enum ydl_status status = status_locked(finisher, err);
    bool is_given = status == YDL_OK && finisher->has_thread;
    if (is_given) {
        finisher->waiting = *file;
        finisher->has_waiting = true;
        pthread_cond_broadcast(&finisher->changed);
    }
    pthread_mutex_unlock(&finisher->lock);

    if (is_given) {
        *file = YDL_PART_FILE_NONE;
    } else if (status != YDL_OK) {
        ydl_part_file_clear(file);
    } else {
        status = finish_file(finisher, file, err);
        pthread_mutex_lock(&finisher->lock);
        note_error_locked(finisher, status, err);
        pthread_mutex_unlock(&finisher->lock);
    }
    return status;
}

enum ydl_status ydl_finisher_wait(struct ydl_finisher *finisher, unsigned most, uint64_t timeout_ms,
                                  struct ydl_error *err)
{
    struct timespec deadline = ydl_deadline_in(timeout_ms);
    enum ydl_status status;
    int rc = 0;
    pthread_mutex_lock(&finisher->lock);
    for (;;) {
        status = status_locked(finisher, err);
        unsigned left = (unsigned)finisher->has_waiting + (unsigned)finisher->is_working;
        if (status != YDL_OK || left <= most)
            break;
        status = YDL_PENDING;
        if (timeout_ms == 0 || rc == ETIMEDOUT)
            break;
        rc = pthread_cond_timedwait(&finisher->changed, &finisher->lock, &deadline);
    }
    pthread_mutex_unlock(&finisher->lock);
    return status;
}

void ydl_finisher_free(struct ydl_finisher *finisher)
{
    if (!finisher || finisher->forks != ydl_fork_count())
        return; /* a child: its memory is a copy of what the thread was changing */
    if (finisher->has_thread) {
        pthread_mutex_lock(&finisher->lock);
        atomic_store(&finisher->stop, true);
        pthread_cond_broadcast(&finisher->changed);
        pthread_mutex_unlock(&finisher->lock);
        pthread_join(finisher->thread, NULL);
    }
    if (finisher->has_waiting)
        ydl_part_file_clear(&finisher->waiting);
    pthread_cond_destroy(&finisher->changed);
    pthread_mutex_destroy(&finisher->lock);
    free(finisher);
}
