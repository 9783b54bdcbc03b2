/* An open dataset: its layout, its source, which record lies in which part, which are verified.
 *
 * Counted and shared by loaders and gathers; thread-safe. Memory: a few words a part, and with
 * YDL_VERIFY_FIRST one bit a record. */
#ifndef YDL_BATCH_READER_H
#define YDL_BATCH_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "batch/pool.h"
#include "batch/source.h"
#include "record/layout.h"

enum ydl_verify {
    YDL_VERIFY_FIRST, /* each record the first time this reader reads it */
    YDL_VERIFY_ALWAYS,
    YDL_VERIFY_NEVER,
};

/* What its loaders know about the page cache (lookahead.h, sweep.h). */
struct ydl_warmth {
    atomic_bool is_known;    /* some batch was watched */
    atomic_int cold_batches; /* so many more are read as if the cache were cold */
    atomic_bool is_sweeping; /* by a thread that has what follows for itself */
    size_t swept_parts;      /* are through, and of the next one ... */
    uint64_t swept_bytes;
};

struct ydl_reader {
    atomic_size_t refs;
    struct ydl_layout layout;  /* owned */
    struct ydl_source *source; /* owned; NULL until ydl_reader_new returns */
    size_t part_count;
    uint64_t *part_ends; /* [part_count] record number after the part's last, owned */
    uint64_t records;
    uint64_t file_bytes; /* of all parts */
    enum ydl_access access;
    struct ydl_warmth warmth;
    enum ydl_verify verify;
    atomic_uchar *verified; /* one bit a record; NULL unless YDL_VERIFY_FIRST, owned */
    struct ydl_pool *pool;  /* for batches: an epoch's are the next one's; the owner's reference */
};

/* Opens nothing yet: parts are opened when first read. infos must join without gap or overlap from
 * record 0 (YDL_CORRUPT_CACHE). layout is taken (moved out of *layout), also on failure. */
YDL_MUST_CHECK enum ydl_status
ydl_reader_open_local(struct ydl_layout *layout, const struct ydl_part_info *infos, size_t count,
                      enum ydl_access access, enum ydl_verify verify, struct ydl_reader **out,
                      struct ydl_error *err);
struct ydl_reader *ydl_reader_acquire(struct ydl_reader *reader);
void ydl_reader_release(struct ydl_reader *reader); /* NULL-safe; the last one closes the source */

/* Opens, and so validates, the parts [first, first + count) as far as there are such; those that
 * fit the source's bound stay open. Costs 20 to 50 us a part on a local disk, and for varying rows
 * the reading of its index. Errors as of ydl_source_ops.view. */
YDL_MUST_CHECK enum ydl_status ydl_reader_check(struct ydl_reader *reader, size_t first,
                                                size_t count, struct ydl_error *err);

/* The part that holds `record` (< records). */
size_t ydl_reader_find_part(const struct ydl_reader *reader, uint64_t record);

/* Likewise; a guess of `near` is tried first. */
static inline size_t ydl_reader_part_of(const struct ydl_reader *reader, uint64_t record,
                                        size_t near)
{
    const uint64_t *ends = reader->part_ends;
    if (record < ends[near] && (near == 0 || record >= ends[near - 1]))
        return near;
    return ydl_reader_find_part(reader, record);
}

/* Average bytes of a stored record; 0 for an empty dataset. Sizes batches of varying rows. */
uint64_t ydl_reader_mean_record_bytes(const struct ydl_reader *reader);

/* Whether `record` has to be checked before it is handed out, and that it was. */
static inline bool ydl_reader_must_verify(const struct ydl_reader *reader, uint64_t record)
{
    if (reader->verify != YDL_VERIFY_FIRST)
        return reader->verify == YDL_VERIFY_ALWAYS;
    unsigned char bits = atomic_load_explicit(&reader->verified[record / 8], memory_order_relaxed);
    return !(bits >> (record % 8) & 1);
}

static inline void ydl_reader_set_verified(struct ydl_reader *reader, uint64_t record)
{
    if (reader->verify != YDL_VERIFY_FIRST)
        return;
    /* No locked instruction, for which each row's loads would wait: where two threads meet in a
       byte, a lost bit only has a row checked again. */
    atomic_uchar *byte = &reader->verified[record / 8];
    unsigned char bits = atomic_load_explicit(byte, memory_order_relaxed);
    atomic_store_explicit(byte, (unsigned char)(bits | 1u << record % 8), memory_order_relaxed);
}

#endif
