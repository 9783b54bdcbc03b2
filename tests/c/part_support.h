/* Builds of made-up records, for tests of the part file: what a record is follows from its number,
 * so that it can be written and, when read, be compared. */
#ifndef YDL_TESTS_PART_SUPPORT_H
#define YDL_TESTS_PART_SUPPORT_H

#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "record/part.h"
#include "record/row.h"
#include "record/writer.h"

enum { SAMPLE_COMPONENTS = 4, SAMPLE_BYTES = 64, SAMPLE_STRINGS = 2 };

struct sample {
    uint32_t rank;
    int64_t dims[4];
    uint64_t bytes;
    uint8_t data[SAMPLE_BYTES]; /* of strings: all of them, one after another */
    uint64_t strings_len;
    struct ydl_slice strings[SAMPLE_STRINGS];
};

typedef void sample_fn(uint64_t record, struct sample out[SAMPLE_COMPONENTS]);

static inline void sample_fill(struct sample *sample, uint64_t record, uint64_t component,
                               uint64_t bytes)
{
    assert_true(bytes <= SAMPLE_BYTES);
    sample->bytes = bytes;
    for (uint64_t i = 0; i < bytes; i++)
        sample->data[i] = i % 4 == 2 ? 0 : (uint8_t)(record * 31 + component * 7 + i * 3);
}

/* uint8 (), float32 (3,), int16 (0,), int64 (): rows of 32 bytes with padding. */
static const int64_t fixed_dims[2] = {3, 0};
static const struct ydl_component_spec fixed_specs[SAMPLE_COMPONENTS] = {
    {YDL_UINT8, 0, NULL},
    {YDL_FLOAT32, 1, &fixed_dims[0]},
    {YDL_INT16, 1, &fixed_dims[1]},
    {YDL_INT64, 0, NULL},
};

static inline void fixed_sample(uint64_t record, struct sample out[SAMPLE_COMPONENTS])
{
    memset(out, 0, SAMPLE_COMPONENTS * sizeof out[0]);
    sample_fill(&out[0], record, 0, 1);
    out[1].rank = 1;
    out[1].dims[0] = 3;
    sample_fill(&out[1], record, 1, 12);
    out[2].rank = 1;
    sample_fill(&out[3], record, 3, 8);
}

/* int64 (), float32 (?, 2), uint8 of unknown rank, string (?,). */
static const int64_t varying_dims[2] = {YDL_DIM_VARIES, 2};
static const struct ydl_component_spec varying_specs[SAMPLE_COMPONENTS] = {
    {YDL_INT64, 0, NULL},
    {YDL_FLOAT32, 2, varying_dims},
    {YDL_UINT8, YDL_RANK_VARIES, NULL},
    {YDL_STRING, 1, varying_dims},
};

static inline void varying_sample(uint64_t record, struct sample out[SAMPLE_COMPONENTS])
{
    memset(out, 0, SAMPLE_COMPONENTS * sizeof out[0]);
    sample_fill(&out[0], record, 0, 8);
    out[1].rank = 2;
    out[1].dims[0] = (int64_t)(record % 3);
    out[1].dims[1] = 2;
    sample_fill(&out[1], record, 1, 8 * (record % 3));
    out[2].rank = (uint32_t)(record % 4);
    for (uint32_t d = 0; d < out[2].rank; d++)
        out[2].dims[d] = (int64_t)((record + d) % 3);
    uint64_t elements;
    uint64_t bytes;
    assert_true(ydl_shape_size(out[2].rank, out[2].dims, 1, &elements, &bytes));
    sample_fill(&out[2], record, 2, bytes);
    out[3].rank = 1;
    out[3].strings_len = (record + 1) % (SAMPLE_STRINGS + 1);
    out[3].dims[0] = (int64_t)out[3].strings_len;
    uint64_t total = 0;
    for (uint64_t e = 0; e < out[3].strings_len; e++) {
        uint64_t len = (record + 3 * e) % 7;
        out[3].strings[e] = (struct ydl_slice){len ? out[3].data + total : NULL, len};
        total += len;
    }
    sample_fill(&out[3], record, 3, total);
}

struct build {
    char *dir;
    uint8_t uuid[YDL_UUID_BYTES];
    struct ydl_layout layout;
    struct ydl_writer *writer;
    struct ydl_error err;
};

static inline void build_init(struct build *build, const struct ydl_component_spec *specs,
                              uint32_t count, uint64_t part_bytes)
{
    memset(build, 0, sizeof *build);
    build->dir = test_make_dir();
    memcpy(build->uuid, "0123456789abcdef", YDL_UUID_BYTES);
    assert_status(YDL_OK, ydl_layout_init(&build->layout, specs, count, &build->err), &build->err);
    assert_status(YDL_OK,
                  ydl_writer_new(build->dir, build->uuid, &build->layout, part_bytes,
                                 &build->writer, &build->err),
                  &build->err);
}

static inline void build_clear(struct build *build)
{
    ydl_writer_free(build->writer);
    ydl_layout_clear(&build->layout);
    test_remove_dir(build->dir);
}

static inline void build_append(struct build *build, sample_fn *make)
{
    struct sample samples[SAMPLE_COMPONENTS];
    struct ydl_input inputs[SAMPLE_COMPONENTS];
    make(ydl_writer_records(build->writer), samples);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++) {
        bool is_string = build->layout.components[i].dtype == YDL_STRING;
        inputs[i] = (struct ydl_input){
            .rank = samples[i].rank,
            .dims = samples[i].rank ? samples[i].dims : NULL,
            .data = is_string || samples[i].bytes == 0 ? NULL : samples[i].data,
            .strings = is_string && samples[i].strings_len ? samples[i].strings : NULL,
        };
    }
    assert_status(YDL_OK, ydl_writer_append(build->writer, 1, inputs, &build->err), &build->err);
}

static inline void build_finish(struct build *build)
{
    assert_status(YDL_OK, ydl_writer_finish(build->writer, &build->err), &build->err);
}

/* Writes records 0 .. records - 1 one by one. */
static inline void build_write(struct build *build, sample_fn *make, uint64_t records)
{
    for (uint64_t i = 0; i < records; i++)
        build_append(build, make);
    build_finish(build);
}

/* What a manifest would say about part i; the path is freed by the caller. */
static inline struct ydl_part_info build_info(const struct build *build, size_t i)
{
    size_t count;
    const struct ydl_written_part *part = &ydl_writer_parts(build->writer, &count)[i];
    assert_true(i < count);
    struct ydl_part_info info = {
        .path = ydl_join_path(build->dir, part->name),
        .number = i,
        .first_record = part->first_record,
        .records = part->records,
        .bytes = part->bytes,
    };
    assert_non_null(info.path);
    memcpy(info.build_uuid, build->uuid, YDL_UUID_BYTES);
    return info;
}

/* The row holds exactly the record that `make` makes. */
static inline void check_row(const struct ydl_layout *layout, sample_fn *make, uint64_t record,
                             const uint8_t *row, uint64_t n)
{
    struct ydl_error err;
    struct ydl_field fields[SAMPLE_COMPONENTS];
    struct sample samples[SAMPLE_COMPONENTS];
    make(record, samples);
    assert_status(YDL_OK, ydl_row_parse(layout, row, n, fields, &err), &err);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++) {
        assert_int_equal(fields[i].rank, samples[i].rank);
        for (uint32_t d = 0; d < fields[i].rank; d++)
            assert_int_equal(fields[i].dims[d], samples[i].dims[d]);
        assert_int_equal(fields[i].bytes, samples[i].bytes);
        assert_memory_equal(fields[i].data, samples[i].data, samples[i].bytes);
        for (uint64_t e = 0; e < samples[i].strings_len; e++)
            assert_int_equal(ydl_load_u32(fields[i].lengths + 4 * e), samples[i].strings[e].len);
    }
}

/* Every row of the part is valid and holds its record. */
static inline void check_part(const struct ydl_part *part, const struct ydl_layout *layout,
                              sample_fn *make, uint64_t first_record)
{
    struct ydl_error err;
    struct ydl_buf scratch;
    ydl_buf_init(&scratch, SIZE_MAX);
    for (uint64_t row = 0; row < ydl_part_records(part); row++) {
        const uint8_t *bytes;
        uint64_t n;
        assert_status(YDL_OK, ydl_part_row(part, row, &scratch, &bytes, &n, &err), &err);
        assert_true(ydl_part_row_is_valid(part, row, bytes, n));
        check_row(layout, make, first_record + row, bytes, n);
    }
    assert_status(YDL_OK, ydl_part_verify(part, &err), &err);
    ydl_buf_clear(&scratch);
}

/* Opens every part of a finished build in both ways and compares all records. */
static inline void check_build(struct build *build, sample_fn *make, uint64_t records)
{
    static const enum ydl_access accesses[] = {YDL_ACCESS_MMAP, YDL_ACCESS_PREAD};
    size_t count;
    uint64_t seen = 0;
    (void)ydl_writer_parts(build->writer, &count);
    for (size_t i = 0; i < count; i++) {
        struct ydl_part_info info = build_info(build, i);
        assert_int_equal(info.first_record, seen);
        for (int a = 0; a < 2; a++) {
            struct ydl_part *part;
            assert_status(YDL_OK,
                          ydl_part_open(&info, &build->layout, accesses[a], &part, &build->err),
                          &build->err);
            assert_string_equal(ydl_part_path(part), info.path);
            check_part(part, &build->layout, make, seen);
            ydl_part_close(part);
        }
        seen += info.records;
        free(info.path);
    }
    assert_int_equal(seen, records);
    assert_int_equal(ydl_writer_records(build->writer), records);
}

#endif
