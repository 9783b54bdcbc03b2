/* The writer, and back. Law: what was appended is what is read, however it is split into parts.
 *
 * Input: a little program: components, the largest part, then appends until it ends. */
#include "fuzz.h"

#include <unistd.h>

#include "base/io.h"
#include "batch/gather.h"
#include "batch/reader.h"
#include "record/writer.h"

enum { WRITE_COMPONENTS = 4, WRITE_RECORDS = 64, WRITE_DATA = 4096, WRITE_STRINGS = 256 };

struct program {
    const uint8_t *at;
    size_t left;
};

static unsigned take(struct program *program, unsigned below)
{
    if (program->left == 0)
        return 0;
    program->left--;
    return *program->at++ % below;
}

/* One component of what is written: how, and all that was. */
struct written {
    int64_t dims[YDL_MAX_RANK];
    struct ydl_buf bytes;
    struct ydl_buf ends; /* of strings: u64 each, in bytes */
};

struct writing {
    struct ydl_component_spec specs[WRITE_COMPONENTS];
    uint32_t count;
    struct written written[WRITE_COMPONENTS];
    struct ydl_layout layout;
    struct ydl_writer *writer;
};

static void take_specs(struct program *program, struct writing *writing)
{
    writing->count = 1 + take(program, WRITE_COMPONENTS);
    for (uint32_t c = 0; c < writing->count; c++) {
        struct ydl_component_spec *spec = &writing->specs[c];
        struct written *written = &writing->written[c];
        ydl_buf_init(&written->bytes, SIZE_MAX);
        ydl_buf_init(&written->ends, SIZE_MAX);
        spec->dtype = (enum ydl_dtype)(1 + take(program, 18));
        spec->rank = (int32_t)take(program, 5) - 1;
        spec->dims = written->dims;
        for (int32_t d = 0; d < spec->rank; d++)
            written->dims[d] = (int64_t)take(program, 4) - 1; /* -1: varies */
    }
}

/* One component of n records. Every part of it stays valid until the next call for it. */
struct column_memory {
    int64_t dims[YDL_MAX_RANK];
    uint8_t data[WRITE_DATA];
    struct ydl_slice strings[WRITE_STRINGS];
};

static bool take_column(struct program *program, const struct ydl_component_spec *spec, uint64_t n,
                        struct column_memory *memory, struct ydl_input *out,
                        struct written *written)
{
    struct ydl_error err;
    uint32_t item_bytes = ydl_dtype_info(spec->dtype)->bytes;
    uint64_t elements;
    uint64_t bytes;
    out->rank = spec->rank < 0 ? take(program, 4) : (uint32_t)spec->rank;
    for (uint32_t d = 0; d < out->rank; d++) {
        bool varies = spec->rank < 0 || spec->dims[d] < 0;
        memory->dims[d] = varies ? (int64_t)take(program, 4) : spec->dims[d];
    }
    out->dims = memory->dims;
    FUZZ_CHECK(ydl_shape_size(out->rank, memory->dims, item_bytes, &elements, &bytes));
    if (elements * n > WRITE_STRINGS || bytes * n > WRITE_DATA)
        return false;
    unsigned first = take(program, 256);
    for (size_t i = 0; i < sizeof memory->data; i++)
        memory->data[i] = (uint8_t)(first + i * 7);
    if (spec->dtype != YDL_STRING) {
        out->data = memory->data;
        return ydl_buf_append(&written->bytes, memory->data, bytes * n, &err) == YDL_OK;
    }
    out->strings = memory->strings;
    for (uint64_t e = 0; e < elements * n; e++) {
        memory->strings[e] = (struct ydl_slice){memory->data + e, take(program, 9)};
        FUZZ_CHECK(ydl_buf_append(&written->bytes, memory->strings[e].data, memory->strings[e].len,
                                  &err) == YDL_OK);
        FUZZ_CHECK(ydl_buf_append_u64(&written->ends, written->bytes.len, &err) == YDL_OK);
    }
    return true;
}

static enum ydl_status append_all(struct program *program, struct writing *writing,
                                  struct ydl_error *err)
{
    static struct column_memory memory[WRITE_COMPONENTS];
    enum ydl_status status = YDL_OK;
    while (status == YDL_OK && program->left > 0) {
        uint64_t n = 1 + take(program, 4);
        if (ydl_writer_records(writing->writer) + n > WRITE_RECORDS)
            break;
        struct ydl_input inputs[WRITE_COMPONENTS] = {{0}};
        size_t before[WRITE_COMPONENTS][2];
        bool fits = true;
        for (uint32_t c = 0; c < writing->count; c++) {
            struct written *written = &writing->written[c];
            before[c][0] = written->bytes.len;
            before[c][1] = written->ends.len;
            fits = take_column(program, &writing->specs[c], n, &memory[c], &inputs[c], written) &&
                   fits;
        }
        for (uint32_t c = 0; !fits && c < writing->count; c++) {
            writing->written[c].bytes.len = before[c][0];
            writing->written[c].ends.len = before[c][1];
        }
        if (fits && take(program, 64) == 63) { /* a shape that contradicts the layout, or not */
            if (inputs[0].rank > 0)
                memory[0].dims[0] = -5;
            else
                inputs[0].rank = YDL_MAX_RANK + 1;
        }
        if (fits)
            status = ydl_writer_append(writing->writer, n, inputs, err);
    }
    return status;
}

static void compare(const struct writing *writing, const struct ydl_batch *batch)
{
    for (uint32_t c = 0; c < writing->count; c++) {
        const struct ydl_column *column = &batch->columns[c];
        const struct written *written = &writing->written[c];
        FUZZ_CHECK(column->data_bytes == written->bytes.len);
        FUZZ_CHECK(written->bytes.len == 0 ||
                   memcmp(column->data->data, written->bytes.data, written->bytes.len) == 0);
        if (writing->specs[c].dtype != YDL_STRING)
            continue;
        FUZZ_CHECK(column->elements * 8 == written->ends.len);
        FUZZ_CHECK(written->ends.len == 0 ||
                   memcmp(column->string_ends->data, written->ends.data, written->ends.len) == 0);
    }
}

static void read_back(const struct writing *writing, const char *dir, const uint8_t *uuid,
                      enum ydl_access access)
{
    static uint64_t numbers[WRITE_RECORDS];
    struct ydl_error err;
    struct ydl_part_info infos[WRITE_RECORDS] = {{0}};
    size_t count;
    const struct ydl_written_part *parts = ydl_writer_parts(writing->writer, &count);
    FUZZ_CHECK(count <= WRITE_RECORDS);
    for (size_t i = 0; i < count; i++) {
        infos[i] = (struct ydl_part_info){.path = ydl_join_path(dir, parts[i].name),
                                          .number = i,
                                          .first_record = parts[i].first_record,
                                          .records = parts[i].records,
                                          .bytes = parts[i].bytes};
        memcpy(infos[i].build_uuid, uuid, YDL_UUID_BYTES);
    }
    uint64_t n = ydl_writer_records(writing->writer);
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = i;
    struct ydl_layout layout;
    struct ydl_reader *reader;
    struct ydl_finder *finder;
    struct ydl_batch *batch;
    struct ydl_pool *pool = ydl_pool_new(1 << 16);
    FUZZ_CHECK(pool && ydl_layout_copy(&writing->layout, &layout, &err) == YDL_OK);
    FUZZ_CHECK(ydl_reader_open_local(&layout, infos, count, access, YDL_VERIFY_ALWAYS, &reader,
                                     &err) == YDL_OK);
    FUZZ_CHECK(ydl_finder_new(reader, &finder, &err) == YDL_OK);
    FUZZ_CHECK(ydl_gather(finder, pool, numbers, n, false, &batch, &err) == YDL_OK);
    compare(writing, batch);
    ydl_batch_free(batch);
    ydl_finder_free(finder);
    ydl_reader_release(reader);
    ydl_pool_release(pool);
    for (size_t i = 0; i < count; i++)
        free(infos[i].path);
}

static void remove_parts(const char *dir)
{
    char path[1024];
    int i = 0;
    do {
        snprintf(path, sizeof path, "%s/%05d.ydl", dir, i++);
    } while (unlink(path) == 0);
}

static void write_one(const uint8_t *bytes, size_t n)
{
    static const uint8_t uuid[] = "a fuzzer's build";
    struct program program = {bytes, n};
    struct writing writing = {0};
    struct ydl_error err;
    const char *dir = fuzz_directory();
    take_specs(&program, &writing);
    FUZZ_CHECK(ydl_layout_init(&writing.layout, writing.specs, writing.count, &err) == YDL_OK);
    uint64_t part_bytes = 64 * (uint64_t)take(&program, 64);
    FUZZ_CHECK(ydl_writer_new(dir, uuid, &writing.layout, part_bytes, &writing.writer, &err) ==
               YDL_OK);
    enum ydl_status status = append_all(&program, &writing, &err);
    if (status == YDL_OK) {
        FUZZ_CHECK(ydl_writer_finish(writing.writer, &err) == YDL_OK);
        read_back(&writing, dir, uuid, YDL_ACCESS_MMAP);
        read_back(&writing, dir, uuid, YDL_ACCESS_PREAD);
    } else {
        FUZZ_CHECK(status == YDL_SHAPE_MISMATCH || status == YDL_INVALID);
        FUZZ_CHECK(ydl_writer_finish(writing.writer, &err) == YDL_CLOSED);
    }
    ydl_writer_free(writing.writer);
    remove_parts(dir);
    ydl_layout_clear(&writing.layout);
    for (uint32_t c = 0; c < writing.count; c++) {
        ydl_buf_clear(&writing.written[c].bytes);
        ydl_buf_clear(&writing.written[c].ends);
    }
}

static size_t write_repair(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    (void)bytes;
    (void)max;
    (void)seed;
    return n; /* any bytes are a program */
}

FUZZ_TARGET(write);
