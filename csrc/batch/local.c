#include "batch/local.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MAX_OPEN_PARTS = 1024 };

struct slot {
    struct ydl_part_info info; /* path owned; immutable */
    /* Under the source's lock: */
    struct ydl_part *part; /* owned; NULL while closed */
    bool opening;          /* by a thread that has let go of the lock */
    size_t views;
    struct slot *older, *newer; /* in the list of idle slots, while open and not viewed */
};

struct local_source {
    struct ydl_source base;          /* first: the vtable's calls cast back */
    const struct ydl_layout *layout; /* borrowed */
    enum ydl_access access;
    size_t max_open;
    size_t count;
    struct slot *slots; /* [count], owned */

    pthread_mutex_t lock;
    pthread_cond_t opened; /* some slot stopped opening */
    /* Under lock: */
    size_t open_count;
    /* Open slots without a view, by the time of their last one: the oldest is closed first. A list,
       because datasets of 40,000 parts would be searched through at each view. */
    struct slot *oldest, *newest;
};

static struct local_source *local_of(struct ydl_source *source)
{
    return (struct local_source *)source;
}

static void local_want(struct ydl_source *source, uint64_t part)
{
    (void)source;
    (void)part; /* a mounted file is there already */
}

static enum ydl_status local_wait(struct ydl_source *source, uint64_t part, uint64_t timeout_ms,
                                  struct ydl_error *err)
{
    (void)source;
    (void)part;
    (void)timeout_ms;
    (void)err;
    return YDL_OK;
}

static void leave_idle_locked(struct local_source *local, struct slot *slot)
{
    *(slot->older ? &slot->older->newer : &local->oldest) = slot->newer;
    *(slot->newer ? &slot->newer->older : &local->newest) = slot->older;
    slot->older = slot->newer = NULL;
}

static void become_idle_locked(struct local_source *local, struct slot *slot)
{
    slot->older = local->newest;
    *(local->newest ? &local->newest->newer : &local->oldest) = slot;
    local->newest = slot;
}

static void close_oldest_locked(struct local_source *local)
{
    struct slot *oldest = local->oldest;
    if (!oldest)
        return; /* all are in use: better one over the limit than a deadlock */
    leave_idle_locked(local, oldest);
    ydl_part_close(oldest->part);
    oldest->part = NULL;
    local->open_count--;
}

static enum ydl_status open_part(const struct local_source *local, const struct slot *slot,
                                 struct ydl_part **out, struct ydl_error *err)
{
    enum ydl_status status = ydl_part_open(&slot->info, local->layout, local->access, out, err);
    if (status != YDL_OS || err->sys_errno != ENOENT)
        return status;
    ydl_fail(err, YDL_REPLACED,
             "cannot open part %s: it is gone. The dataset was replaced and its old files were "
             "removed, or somebody deleted them; call the cached function (or fetch) again",
             slot->info.path);
    return ydl_fail_at(err, slot->info.path);
}

static enum ydl_status local_view(struct ydl_source *source, uint64_t part, struct ydl_part **out,
                                  struct ydl_error *err)
{
    struct local_source *local = local_of(source);
    assert(part < local->count);
    struct slot *slot = &local->slots[part];
    enum ydl_status status = YDL_OK;

    pthread_mutex_lock(&local->lock);
    while (slot->opening)
        pthread_cond_wait(&local->opened, &local->lock);
    if (slot->part && slot->views == 0)
        leave_idle_locked(local, slot);
    if (!slot->part) {
        slot->opening = true;
        if (local->open_count >= local->max_open)
            close_oldest_locked(local);
        local->open_count++;
        pthread_mutex_unlock(&local->lock);

        struct ydl_part *opened = NULL;
        status = open_part(local, slot, &opened, err);

        pthread_mutex_lock(&local->lock);
        slot->part = opened;
        slot->opening = false;
        if (!opened)
            local->open_count--;
        pthread_cond_broadcast(&local->opened);
    }
    if (status == YDL_OK) {
        slot->views++;
        *out = slot->part;
    }
    pthread_mutex_unlock(&local->lock);
    return status;
}

static void local_release(struct ydl_source *source, uint64_t part)
{
    struct local_source *local = local_of(source);
    pthread_mutex_lock(&local->lock);
    struct slot *slot = &local->slots[part];
    assert(slot->views > 0);
    if (--slot->views == 0)
        become_idle_locked(local, slot);
    pthread_mutex_unlock(&local->lock);
}

static void local_close(struct ydl_source *source)
{
    struct local_source *local = local_of(source);
    for (size_t i = 0; i < local->count; i++) {
        ydl_part_close(local->slots[i].part);
        free(local->slots[i].info.path);
    }
    free(local->slots);
    pthread_cond_destroy(&local->opened);
    pthread_mutex_destroy(&local->lock);
    free(local);
}

static const struct ydl_source_ops local_ops = {
    .want = local_want,
    .wait = local_wait,
    .view = local_view,
    .release = local_release,
    .close = local_close,
};

enum ydl_status ydl_local_source_new(const struct ydl_part_info *infos, size_t count,
                                     const struct ydl_layout *layout, enum ydl_access access,
                                     size_t max_open, struct ydl_source **out,
                                     struct ydl_error *err)
{
    assert(max_open >= 1);
    struct local_source *local = calloc(1, sizeof *local);
    if (!local)
        return ydl_fail_memory(err, "a dataset's parts", sizeof *local);
    local->base.ops = &local_ops;
    local->layout = layout;
    local->access = access;
    local->max_open = max_open;
    pthread_mutex_init(&local->lock, NULL);
    pthread_cond_init(&local->opened, NULL);

    local->slots = calloc(count ? count : 1, sizeof *local->slots);
    if (!local->slots)
        goto no_memory;
    for (; local->count < count; local->count++) {
        struct slot *slot = &local->slots[local->count];
        slot->info = infos[local->count];
        slot->info.path = strdup(infos[local->count].path);
        if (!slot->info.path)
            goto no_memory;
    }
    *out = &local->base;
    return YDL_OK;

no_memory:
    local_close(&local->base);
    return ydl_fail_memory(err, "a dataset's parts", count * sizeof(struct slot));
}

size_t ydl_local_source_default_max_open(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur / 2 >= MAX_OPEN_PARTS)
        return MAX_OPEN_PARTS;
    return files.rlim_cur >= 2 ? (size_t)files.rlim_cur / 2 : 1;
}
