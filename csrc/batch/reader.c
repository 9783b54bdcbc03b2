#include "batch/reader.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "batch/local.h"

/* Buffers that are kept: the batches that TensorFlow gives back late, not a second cache. */
enum { POOL_IDLE_BYTES = 64 * 1024 * 1024 };

static void free_reader(struct ydl_reader *reader)
{
    if (reader->source)
        reader->source->ops->close(reader->source);
    ydl_layout_clear(&reader->layout);
    free(reader->part_ends);
    free(reader->verified);
    if (reader->pool)
        ydl_pool_release(reader->pool);
    free(reader);
}

static enum ydl_status join_parts(struct ydl_reader *reader, const struct ydl_part_info *infos,
                                  size_t count, struct ydl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct ydl_part_info *info = &infos[i];
        if (info->first_record != reader->records || info->records == 0 ||
            !ydl_add_u64(reader->records, info->records, &reader->records) ||
            !ydl_add_u64(reader->file_bytes, info->bytes, &reader->file_bytes))
            return ydl_fail(
                err, YDL_CORRUPT_CACHE,
                "part %zu of %zu (%s) is said to hold %llu records from number %llu on, "
                "but the parts before it end at %llu",
                i, count, info->path, (unsigned long long)info->records,
                (unsigned long long)info->first_record, (unsigned long long)reader->records);
        reader->part_ends[i] = reader->records;
    }
    reader->part_count = count;
    return YDL_OK;
}

enum ydl_status ydl_reader_open_local(struct ydl_layout *layout, const struct ydl_part_info *infos,
                                      size_t count, enum ydl_access access, enum ydl_verify verify,
                                      struct ydl_reader **out, struct ydl_error *err)
{
    struct ydl_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        ydl_layout_clear(layout);
        return ydl_fail_memory(err, "a reader", sizeof *reader);
    }
    atomic_init(&reader->refs, 1);
    reader->layout = *layout;
    *layout = (struct ydl_layout){0};
    reader->access = access;
    reader->verify = verify;

    enum ydl_status status;
    reader->part_ends = calloc(count ? count : 1, sizeof *reader->part_ends);
    if (!reader->part_ends) {
        status = ydl_fail_memory(err, "a part table", count * sizeof *reader->part_ends);
        goto done;
    }
    reader->pool = ydl_pool_new(POOL_IDLE_BYTES);
    if (!reader->pool) {
        status = ydl_fail_memory(err, "a pool of buffers", 0);
        goto done;
    }
    status = join_parts(reader, infos, count, err);
    if (status != YDL_OK)
        goto done;
    if (verify == YDL_VERIFY_FIRST) {
        /* calloc of a large table maps zero pages: only the bits that are set cost memory. */
        size_t bytes = (size_t)(reader->records / 8) + 1;
        reader->verified = calloc(bytes, 1);
        if (!reader->verified) {
            status = ydl_fail_memory(err, "one bit a record", bytes);
            goto done;
        }
    }
    status = ydl_local_source_new(infos, count, &reader->layout, access,
                                  ydl_local_source_default_max_open(), &reader->source, err);
done:
    if (status == YDL_OK)
        *out = reader;
    else
        free_reader(reader);
    return status;
}

struct ydl_reader *ydl_reader_acquire(struct ydl_reader *reader)
{
    atomic_fetch_add_explicit(&reader->refs, 1, memory_order_relaxed);
    return reader;
}

void ydl_reader_release(struct ydl_reader *reader)
{
    if (reader && atomic_fetch_sub_explicit(&reader->refs, 1, memory_order_acq_rel) == 1)
        free_reader(reader);
}

size_t ydl_reader_find_part(const struct ydl_reader *reader, uint64_t record)
{
    const uint64_t *ends = reader->part_ends;
    size_t low = 0;
    size_t high = reader->part_count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (record < ends[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

enum ydl_status ydl_reader_check(struct ydl_reader *reader, size_t first, size_t count,
                                 struct ydl_error *err)
{
    struct ydl_source *source = reader->source;
    enum ydl_status status = YDL_OK;
    for (size_t i = first; status == YDL_OK && i < reader->part_count && i - first < count; i++) {
        struct ydl_part *part;
        status = source->ops->view(source, i, &part, err);
        if (status == YDL_OK)
            source->ops->release(source, i);
    }
    return status;
}

uint64_t ydl_reader_mean_record_bytes(const struct ydl_reader *reader)
{
    return reader->records ? reader->file_bytes / reader->records : 0;
}
