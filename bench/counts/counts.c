/* How many instructions the core spends on a record: gathers batches in random order under
 * callgrind, which counts only while this program says so. check.py runs it and compares.
 *
 *   counts DIRECTORY     (an empty one, for the datasets)
 *
 * For each dataset the same records are gathered three times: by a reader that checks each record
 * the first time, again by the same reader, and by one that never checks. What callgrind counted
 * of each comes as a dump labelled "<dataset> <way> <records>".
 *
 * No clock, no thread, no address in what is counted: the numbers are the same on every run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <valgrind/callgrind.h>

#include "base/io.h"
#include "batch/gather.h"
#include "batch/reader.h"
#include "record/writer.h"

enum {
    BATCH = 128,
    MAX_COMPONENTS = 2,
    MIN_TEXT_BYTES = 1000,
    MORE_TEXT_BYTES = 600,
    MAX_TEXT_BYTES = MIN_TEXT_BYTES + MORE_TEXT_BYTES,
    MAX_RECORD_BYTES = 224 * 224 * 3,
};

struct dataset {
    const char *name; /* no spaces */
    uint64_t records; /* a multiple of BATCH; a power of two */
    uint32_t count;   /* components */
    struct ydl_component_spec specs[MAX_COMPONENTS];
};

static const int64_t digit[] = {784};
static const int64_t image[] = {224, 224, 3};

static const struct dataset datasets[] = {
    {"8B", 8192, 2, {{YDL_FLOAT32, 0, NULL}, {YDL_FLOAT32, 0, NULL}}},
    {"784B", 4096, 1, {{YDL_UINT8, 1, digit}}},
    {"150KB", 128, 1, {{YDL_UINT8, 3, image}}},
    {"text", 4096, 1, {{YDL_STRING, 0, NULL}}},
};

static const struct way {
    const char *name;
    enum ydl_verify verify;
    bool again; /* count the second pass of the reader, not the first */
} ways[] = {
    {"first", YDL_VERIFY_FIRST, false},
    {"again", YDL_VERIFY_FIRST, true},
    {"never", YDL_VERIFY_NEVER, false},
};

static void must(enum ydl_status status, const struct ydl_error *err)
{
    if (status != YDL_OK) {
        fprintf(stderr, "counts: %s\n", err->text);
        exit(1);
    }
}

static void *must_have(void *memory)
{
    if (!memory) {
        fprintf(stderr, "counts: no memory\n");
        exit(1);
    }
    return memory;
}

/* The same bytes everywhere (xorshift64). */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void append_record(struct ydl_writer *writer, const struct dataset *dataset, uint8_t *bytes,
                          uint64_t *random)
{
    struct ydl_input inputs[MAX_COMPONENTS] = {0};
    struct ydl_slice text = {bytes, MIN_TEXT_BYTES + next_random(random) % MORE_TEXT_BYTES};
    bytes[0] = (uint8_t)next_random(random);
    for (uint32_t c = 0; c < dataset->count; c++) {
        inputs[c].rank = (uint32_t)dataset->specs[c].rank;
        inputs[c].dims = dataset->specs[c].dims;
        if (dataset->specs[c].dtype == YDL_STRING)
            inputs[c].strings = &text;
        else
            inputs[c].data = bytes;
    }
    struct ydl_error err;
    must(ydl_writer_append(writer, 1, inputs, &err), &err);
}

static const uint8_t uuid[YDL_UUID_BYTES] = "instructioncount";

/* One part file in `dir`. */
static void write_dataset(const struct dataset *dataset, const char *dir,
                          struct ydl_part_info *out_info)
{
    struct ydl_error err;
    struct ydl_layout layout;
    struct ydl_writer *writer;
    must(ydl_layout_init(&layout, dataset->specs, dataset->count, &err), &err);
    must(ydl_writer_new(dir, uuid, &layout, UINT64_MAX, &writer, &err), &err);
    uint8_t *bytes = must_have(calloc(1, MAX_RECORD_BYTES));
    uint64_t random = 88172645463325252;
    for (uint64_t i = 0; i < dataset->records; i++)
        append_record(writer, dataset, bytes, &random);
    must(ydl_writer_finish(writer, &err), &err);

    size_t count;
    const struct ydl_written_part *part = ydl_writer_parts(writer, &count);
    *out_info = (struct ydl_part_info){
        .path = must_have(ydl_join_path(dir, part->name)),
        .records = part->records,
        .bytes = part->bytes,
    };
    memcpy(out_info->build_uuid, uuid, sizeof uuid);
    free(bytes);
    ydl_writer_free(writer);
    ydl_layout_clear(&layout);
}

/* Every record once, far from the one before: an odd step through a power of two. */
static void gather_all(struct ydl_finder *finder, struct ydl_pool *pool, uint64_t records)
{
    uint64_t numbers[BATCH];
    uint64_t step = records / 3 | 1;
    for (uint64_t at = 0; at < records; at += BATCH) {
        for (uint64_t i = 0; i < BATCH; i++)
            numbers[i] = (at + i) * step % records;
        struct ydl_error err;
        struct ydl_batch *batch;
        must(ydl_gather(finder, pool, numbers, BATCH, true, &batch, &err), &err);
        ydl_batch_free(batch);
    }
}

static void count(const struct dataset *dataset, const struct ydl_part_info *info,
                  const struct way *way)
{
    struct ydl_error err;
    struct ydl_layout layout;
    struct ydl_reader *reader;
    struct ydl_finder *finder;
    must(ydl_layout_init(&layout, dataset->specs, dataset->count, &err), &err);
    must(ydl_reader_open_local(&layout, info, 1, YDL_ACCESS_MMAP, way->verify, &reader, &err),
         &err);
    must(ydl_reader_check(reader, 0, 1, &err), &err); /* opens the part */
    must(ydl_finder_new(reader, &finder, &err), &err);
    struct ydl_pool *pool = must_have(ydl_pool_new(SIZE_MAX));
    if (way->again)
        gather_all(finder, pool, dataset->records);

    char label[64];
    snprintf(label, sizeof label, "%s %s %" PRIu64, dataset->name, way->name, dataset->records);
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    gather_all(finder, pool, dataset->records);
    CALLGRIND_DUMP_STATS_AT(label);
    CALLGRIND_STOP_INSTRUMENTATION;

    ydl_pool_release(pool);
    ydl_finder_free(finder);
    ydl_reader_release(reader);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: counts DIRECTORY\n");
        return 2;
    }
    for (size_t d = 0; d < sizeof datasets / sizeof datasets[0]; d++) {
        char *dir = must_have(ydl_join_path(argv[1], datasets[d].name));
        struct ydl_part_info info;
        if (mkdir(dir, 0777) != 0) {
            perror(dir);
            return 1;
        }
        write_dataset(&datasets[d], dir, &info);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            count(&datasets[d], &info, &ways[w]);
        free(info.path);
        free(dir);
    }
    return 0;
}
