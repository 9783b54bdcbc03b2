#include "batch/sweep.h"

#include "base/memory.h"
#include "base/thread.h"

/* Asked for before they are there: enough to keep fast disks busy, and little to wait for when the
 * sweep has to stop. */
#define AHEAD_BYTES ((uint64_t)8 << 20)
#define STEP_BYTES ((uint64_t)128 << 10)
/* How often to look whether there is still enough memory. */
#define CHECK_BYTES ((uint64_t)64 << 20)

bool ydl_sweep_fits(uint64_t bytes, uint64_t available)
{
    return bytes <= available / 4 * 3;
}

static bool has_memory(const struct ydl_reader *reader)
{
    /* All of it, also later: what was read already counts as available. */
    return ydl_sweep_fits(reader->file_bytes, ydl_memory_available());
}

/* From *offset to the end. False where it has to stop. */
static bool sweep_part(struct ydl_sweep *sweep, const struct ydl_part *part, uint64_t *offset)
{
    uint64_t bytes = ydl_part_bytes(part);
    uint64_t wanted = *offset;
    while (*offset < bytes) {
        if (atomic_load_explicit(&sweep->stop, memory_order_relaxed))
            return false;
        if (*offset % CHECK_BYTES == 0 && !has_memory(sweep->reader))
            return false;
        while (wanted < bytes && wanted - *offset < AHEAD_BYTES) {
            uint64_t n = bytes - wanted < STEP_BYTES ? bytes - wanted : STEP_BYTES;
            ydl_part_want(part, wanted, n);
            wanted += n;
        }
        uint64_t step = bytes - *offset < STEP_BYTES ? bytes - *offset : STEP_BYTES;
        ydl_part_await(part, *offset + step - 1);
        *offset += step;
    }
    return true;
}

static void *run(void *argument)
{
    struct ydl_sweep *sweep = argument;
    struct ydl_reader *reader = sweep->reader;
    struct ydl_source *source = reader->source;
    struct ydl_warmth *warmth = &reader->warmth;
    bool goes_on = true;
    while (goes_on && warmth->swept_parts < reader->part_count) {
        struct ydl_error err;
        struct ydl_part *part;
        size_t i = warmth->swept_parts;
        /* A part that is still on its way from elsewhere comes fresh from the writing. */
        if (source->ops->wait(source, i, 0, &err) == YDL_OK) {
            if (source->ops->view(source, i, &part, &err) != YDL_OK)
                break;
            goes_on = sweep_part(sweep, part, &warmth->swept_bytes);
            source->ops->release(source, i);
        }
        if (goes_on) {
            warmth->swept_parts++;
            warmth->swept_bytes = 0;
        }
    }
    atomic_store(&warmth->is_sweeping, false);
    return NULL;
}

void ydl_sweep_start(struct ydl_sweep *sweep, struct ydl_reader *reader)
{
    struct ydl_warmth *warmth = &reader->warmth;
    if (sweep->started || !has_memory(reader) || atomic_exchange(&warmth->is_sweeping, true))
        return;
    sweep->reader = reader;
    if (warmth->swept_parts < reader->part_count)
        sweep->started = ydl_thread_start(&sweep->thread, run, sweep) == 0;
    if (!sweep->started)
        atomic_store(&warmth->is_sweeping, false);
}

bool ydl_sweep_is_running(const struct ydl_reader *reader)
{
    return atomic_load_explicit(&reader->warmth.is_sweeping, memory_order_acquire);
}

void ydl_sweep_stop(struct ydl_sweep *sweep)
{
    atomic_store_explicit(&sweep->stop, true, memory_order_relaxed);
    if (sweep->started)
        pthread_join(sweep->thread, NULL);
    sweep->started = false;
}
