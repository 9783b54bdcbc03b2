/* What is written is read: rows of both kinds, one part and many, mapped and not. And what the
 * writer and the reader refuse. Damaged files are in test_record_damage.c. */
#include "part_support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/part_writer.h"

#define LARGE_PART ((uint64_t)256 << 20)

/* What the writer says about its files is what they are. */
static void check_hashes(const struct build *build)
{
    size_t count;
    const struct ydl_written_part *parts = ydl_writer_parts(build->writer, &count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        struct ydl_part_info info = build_info(build, i);
        size_t n;
        uint8_t *bytes = test_read_file(info.path, &n);
        assert_int_equal(n, parts[i].bytes);
        assert_true(ydl_hash(bytes, n) == parts[i].hash);
        free(bytes);
        free(info.path);
    }
}

static void test_fixed_rows(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, LARGE_PART);
    build_write(&build, fixed_sample, 1000);
    check_build(&build, fixed_sample, 1000);

    struct ydl_part *part;
    struct ydl_part_info info = build_info(&build, 0);
    assert_status(YDL_OK, ydl_part_open(&info, &build.layout, YDL_ACCESS_MMAP, &part, &build.err),
                  &build.err);
    assert_true(ydl_part_is_mapped(part));
    const uint8_t *row;
    uint64_t n;
    assert_status(YDL_OK, ydl_part_row(part, 0, NULL, &row, &n, &build.err), &build.err);
    assert_int_equal((uintptr_t)row % YDL_REGION_ALIGNMENT, 0);
    ydl_part_close(part);
    assert_status(YDL_OK, ydl_part_open(&info, &build.layout, YDL_ACCESS_PREAD, &part, &build.err),
                  &build.err);
    assert_false(ydl_part_is_mapped(part));
    ydl_part_close(part);
    free(info.path);
    build_clear(&build);
}

static void test_varying_rows(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, varying_specs, SAMPLE_COMPONENTS, LARGE_PART);
    build_write(&build, varying_sample, 1000);
    check_build(&build, varying_sample, 1000);
    check_hashes(&build);
    build_clear(&build);
}

/* Appends n records of the fixed samples as columns. */
static void append_columns(struct build *build, uint64_t n)
{
    uint64_t first = ydl_writer_records(build->writer);
    struct ydl_input inputs[SAMPLE_COMPONENTS];
    uint8_t *columns[SAMPLE_COMPONENTS];
    struct sample samples[SAMPLE_COMPONENTS];
    for (int i = 0; i < SAMPLE_COMPONENTS; i++)
        columns[i] = malloc(n * SAMPLE_BYTES + 1);
    fixed_sample(0, samples);
    for (uint64_t r = 0; r < n; r++) {
        fixed_sample(first + r, samples);
        for (int i = 0; i < SAMPLE_COMPONENTS; i++)
            memcpy(columns[i] + r * samples[i].bytes, samples[i].data, samples[i].bytes);
    }
    for (int i = 0; i < SAMPLE_COMPONENTS; i++)
        inputs[i] = (struct ydl_input){
            .rank = samples[i].rank, .dims = samples[i].dims, .data = columns[i]};
    assert_status(YDL_OK, ydl_writer_append(build->writer, n, inputs, &build->err), &build->err);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++)
        free(columns[i]);
}

static void test_columns_across_blocks_and_parts(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 7, 0, 5000, 3, 9000};
    static const uint64_t part_bytes[] = {LARGE_PART, 1 << 16, 1000};
    for (size_t p = 0; p < 3; p++) {
        struct build build;
        uint64_t records = 0;
        build_init(&build, fixed_specs, SAMPLE_COMPONENTS, part_bytes[p]);
        /* 1000-byte parts mean a file for every 20 records: fewer of them will do. */
        for (size_t i = 0; i < (p == 2 ? 4 : 6); i++) {
            uint64_t n = p == 2 && sizes[i] > 700 ? 700 : sizes[i];
            append_columns(&build, n);
            records += n;
        }
        build_finish(&build);
        check_build(&build, fixed_sample, records);
        check_hashes(&build);
        build_clear(&build);
    }
}

/* Sizes of all parts are within part_bytes, or a part has one row; returns the first part. */
static struct ydl_written_part check_limit(const struct ydl_component_spec *specs, sample_fn *make,
                                           uint64_t part_bytes, uint64_t records)
{
    struct build build;
    size_t count;
    uint64_t total = 0;
    build_init(&build, specs, SAMPLE_COMPONENTS, part_bytes);
    build_write(&build, make, records);
    check_build(&build, make, records);
    const struct ydl_written_part *parts = ydl_writer_parts(build.writer, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(parts[i].records == 1 || parts[i].bytes <= part_bytes);
        total += parts[i].bytes;
    }
    assert_int_equal(ydl_writer_bytes(build.writer), total);
    struct ydl_written_part first = parts[0];
    build_clear(&build);
    return first;
}

static void check_limits(const struct ydl_component_spec *specs, sample_fn *make)
{
    assert_int_equal(check_limit(specs, make, 0, 5).records, 1);
    assert_int_equal(check_limit(specs, make, 1, 5).records, 1);
    for (uint64_t part_bytes = 400; part_bytes < 1200; part_bytes += 57) {
        struct ydl_written_part part = check_limit(specs, make, part_bytes, 25);
        if (part.records == 1 || part.records == 25)
            continue;
        /* A part is as full as it can be: exactly its size is enough, one byte less is not. */
        assert_int_equal(check_limit(specs, make, part.bytes, 25).records, part.records);
        assert_true(check_limit(specs, make, part.bytes - 1, 25).records < part.records);
    }
}

static void test_part_bytes(void **state)
{
    (void)state;
    check_limits(fixed_specs, fixed_sample);
    check_limits(varying_specs, varying_sample);
}

/* Rows larger than a part, than the writer's buffer and than what verify reads at once, between
 * small ones. */
static void test_large_varying_rows(void **state)
{
    (void)state;
    static const size_t lens[] = {3, 5 << 20, 0, 2000, 9 << 20, 1};
    static const struct ydl_component_spec spec = {YDL_STRING, 0, NULL};
    uint8_t *bytes = malloc(9 << 20);
    assert_non_null(bytes);
    for (size_t i = 0; i < 9 << 20; i++)
        bytes[i] = (uint8_t)(i * i >> 3);
    for (int large = 0; large < 2; large++) {
        struct build build;
        build_init(&build, &spec, 1, large ? LARGE_PART : 1000);
        for (size_t i = 0; i < 6; i++) {
            struct ydl_slice slice = {bytes, lens[i]};
            struct ydl_input input = {.strings = &slice};
            assert_status(YDL_OK, ydl_writer_append(build.writer, 1, &input, &build.err),
                          &build.err);
        }
        build_finish(&build);
        size_t count;
        const struct ydl_written_part *parts = ydl_writer_parts(build.writer, &count);
        check_hashes(&build);
        assert_int_equal(count, large ? 1 : 6); /* small rows do not join large ones */
        size_t record = 0;
        for (size_t i = 0; i < count; i++) {
            struct ydl_part *part;
            struct ydl_buf scratch;
            struct ydl_part_info info = build_info(&build, i);
            ydl_buf_init(&scratch, SIZE_MAX);
            assert_status(YDL_OK,
                          ydl_part_open(&info, &build.layout, YDL_ACCESS_PREAD, &part, &build.err),
                          &build.err);
            for (uint64_t row = 0; row < parts[i].records; row++, record++) {
                const uint8_t *at;
                uint64_t n;
                struct ydl_field field;
                assert_status(YDL_OK, ydl_part_row(part, row, &scratch, &at, &n, &build.err),
                              &build.err);
                assert_true(ydl_part_row_is_valid(part, row, at, n));
                assert_status(YDL_OK, ydl_row_parse(&build.layout, at, n, &field, &build.err),
                              &build.err);
                assert_int_equal(field.bytes, lens[record]);
                assert_int_equal(memcmp(field.data, bytes, lens[record]), 0);
            }
            ydl_buf_clear(&scratch);
            ydl_part_close(part);
            free(info.path);
        }
        build_clear(&build);
    }
    free(bytes);
}

static void test_large_fixed_rows(void **state)
{
    (void)state;
    enum { N = 3, BYTES = 5000001 };
    static const int64_t dims[] = {BYTES};
    static const struct ydl_component_spec spec = {YDL_UINT8, 1, dims};
    uint8_t *bytes = malloc((size_t)N * BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < (size_t)N * BYTES; i++)
        bytes[i] = (uint8_t)(i * i >> 3);
    struct build build;
    build_init(&build, &spec, 1, LARGE_PART);
    struct ydl_input input = {.rank = 1, .dims = dims, .data = bytes};
    assert_status(YDL_OK, ydl_writer_append(build.writer, N, &input, &build.err), &build.err);
    build_finish(&build);
    struct ydl_part *part;
    struct ydl_part_info info = build_info(&build, 0);
    assert_int_equal(info.records, N);
    assert_status(YDL_OK, ydl_part_open(&info, &build.layout, YDL_ACCESS_MMAP, &part, &build.err),
                  &build.err);
    for (size_t r = 0; r < N; r++) {
        const uint8_t *row;
        uint64_t n;
        assert_status(YDL_OK, ydl_part_row(part, r, NULL, &row, &n, &build.err), &build.err);
        assert_memory_equal(row, bytes + r * BYTES, BYTES);
    }
    ydl_part_close(part);
    free(info.path);
    free(bytes);
    build_clear(&build);
}

static void test_rows_without_bytes(void **state)
{
    (void)state;
    static const struct ydl_component_spec spec = {YDL_FLOAT64, 1, &fixed_dims[1]};
    struct build build;
    build_init(&build, &spec, 1, LARGE_PART);
    struct ydl_input input = {.rank = 1, .dims = &fixed_dims[1]};
    assert_status(YDL_OK, ydl_writer_append(build.writer, 100, &input, &build.err), &build.err);
    build_finish(&build);
    struct ydl_part *part;
    struct ydl_part_info info = build_info(&build, 0);
    assert_int_equal(info.records, 100);
    assert_status(YDL_OK, ydl_part_open(&info, &build.layout, YDL_ACCESS_MMAP, &part, &build.err),
                  &build.err);
    assert_status(YDL_OK, ydl_part_verify(part, &build.err), &build.err);
    ydl_part_close(part);
    free(info.path);
    build_clear(&build);
}

/* Columns of every size that has its own copy loop, and of some that have not. */
static void test_every_item_size(void **state)
{
    (void)state;
    enum { COLUMNS = 20, N = 33 };
    int64_t dims[COLUMNS];
    struct ydl_component_spec specs[COLUMNS];
    struct ydl_input inputs[COLUMNS];
    uint8_t bytes[N * COLUMNS];
    struct build build;
    for (int i = 0; i < COLUMNS; i++) {
        dims[i] = i;
        specs[i] = (struct ydl_component_spec){YDL_UINT8, 1, &dims[i]};
        inputs[i] = (struct ydl_input){.rank = 1, .dims = &dims[i], .data = bytes};
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 1);
    build_init(&build, specs, COLUMNS, LARGE_PART);
    assert_status(YDL_OK, ydl_writer_append(build.writer, N, inputs, &build.err), &build.err);
    build_finish(&build);
    struct ydl_part *part;
    struct ydl_part_info info = build_info(&build, 0);
    assert_status(YDL_OK, ydl_part_open(&info, &build.layout, YDL_ACCESS_MMAP, &part, &build.err),
                  &build.err);
    for (size_t r = 0; r < N; r++) {
        const uint8_t *row;
        uint64_t n;
        assert_status(YDL_OK, ydl_part_row(part, r, NULL, &row, &n, &build.err), &build.err);
        for (size_t i = 0; i < COLUMNS; i++)
            assert_memory_equal(row + build.layout.components[i].offset, bytes + r * i, i);
    }
    ydl_part_close(part);
    free(info.path);
    build_clear(&build);
}

static void test_no_records_no_parts(void **state)
{
    (void)state;
    struct build build;
    size_t count = 1;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, LARGE_PART);
    assert_status(YDL_OK, ydl_writer_append(build.writer, 0, NULL, &build.err), &build.err);
    build_finish(&build);
    (void)ydl_writer_parts(build.writer, &count);
    assert_int_equal(count, 0);
    assert_int_equal(rmdir(build.dir), 0); /* nothing was left in it */
    assert_int_equal(mkdir(build.dir, 0777), 0);
    build_clear(&build);
}

static void test_part_names_grow(void **state)
{
    (void)state;
    struct build build;
    struct ydl_part_writer writer;
    static const uint32_t numbers[] = {7, 99999, 100000, UINT32_MAX};
    static const char *const names[] = {"00007.ydl", "99999.ydl", "100000.ydl", "4294967295.ydl"};
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, LARGE_PART);
    assert_status(YDL_OK, ydl_part_writer_init(&writer, &build.layout, build.uuid, &build.err),
                  &build.err);
    for (int i = 0; i < 4; i++) {
        uint8_t *row;
        struct ydl_part_file file;
        assert_status(YDL_OK, ydl_part_writer_begin(&writer, build.dir, numbers[i], 0, &build.err),
                      &build.err);
        assert_status(YDL_OK,
                      ydl_part_writer_reserve(&writer, build.layout.row_bytes, &row, &build.err),
                      &build.err);
        memset(row, 0, build.layout.row_bytes);
        ydl_part_writer_push_fixed(&writer, 1);
        assert_status(YDL_OK, ydl_part_writer_finish(&writer, &file, &build.err), &build.err);
        assert_string_equal(file.part.name, names[i]);
        assert_int_equal(file.number, numbers[i]);
        ydl_part_file_clear(&file);
    }
    ydl_part_writer_clear(&writer);
    build_clear(&build);
}

/* Appends three good records, then one with this input for a component; it is refused. */
static void refuse_input(int component, struct ydl_input input, enum ydl_status expected,
                         const char *text)
{
    struct build build;
    struct sample samples[SAMPLE_COMPONENTS];
    struct ydl_input inputs[SAMPLE_COMPONENTS];
    build_init(&build, varying_specs, SAMPLE_COMPONENTS, LARGE_PART);
    for (int i = 0; i < 3; i++)
        build_append(&build, varying_sample);
    varying_sample(3, samples);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++)
        inputs[i] = (struct ydl_input){.rank = samples[i].rank,
                                       .dims = samples[i].dims,
                                       .data = samples[i].data,
                                       .strings = samples[i].strings};
    inputs[component] = input;
    assert_status(expected, ydl_writer_append(build.writer, 1, inputs, &build.err), &build.err);
    if (!strstr(build.err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, build.err.text);
    assert_status(YDL_CLOSED, ydl_writer_append(build.writer, 1, inputs, &build.err), &build.err);
    assert_status(YDL_CLOSED, ydl_writer_finish(build.writer, &build.err), &build.err);
    build_clear(&build);
}

static void test_refused_inputs(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3, 4};
    const int64_t negative[] = {-1, 2};
    const int64_t wide[] = {INT64_C(1) << 32, 2};
    const int64_t many[YDL_MAX_RANK + 1] = {0};
    const int64_t overflowing[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const int64_t one[] = {1};
    const uint8_t byte = 0;
    const struct ydl_slice long_string = {&byte, (size_t)1 << 32};
    refuse_input(0, (struct ydl_input){.rank = 1, .dims = one}, YDL_SHAPE_MISMATCH,
                 "component 0 of record 3 has shape (1,), but the dataset's element spec says ()");
    refuse_input(1, (struct ydl_input){.rank = 2, .dims = dims}, YDL_SHAPE_MISMATCH,
                 "component 1 of record 3 has shape (2, 3), but the dataset's element spec says "
                 "(?, 2)");
    refuse_input(1, (struct ydl_input){.rank = 3, .dims = dims}, YDL_SHAPE_MISMATCH, "(2, 3, 4)");
    refuse_input(1, (struct ydl_input){.rank = 2, .dims = negative}, YDL_SHAPE_MISMATCH,
                 "record 3");
    refuse_input(1, (struct ydl_input){.rank = 2, .dims = wide}, YDL_INVALID,
                 "component 1 of record 3 has a dimension of 4294967296");
    refuse_input(2, (struct ydl_input){.rank = YDL_MAX_RANK + 1, .dims = many}, YDL_INVALID,
                 "component 2 of record 3 has rank 32");
    refuse_input(2, (struct ydl_input){.rank = 3, .dims = overflowing}, YDL_INVALID,
                 "component 2 of record 3 does not fit");
    refuse_input(3, (struct ydl_input){.rank = 1, .dims = one, .strings = &long_string},
                 YDL_INVALID, "string 0 in component 3 of record 3 has 4294967296 bytes");
}

/* Something is already at the first part's place: the writer leaves it alone. */
static void test_existing_files_are_kept(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct build build;
        struct sample samples[SAMPLE_COMPONENTS];
        struct ydl_input inputs[SAMPLE_COMPONENTS];
        build_init(&build, fixed_specs, SAMPLE_COMPONENTS, LARGE_PART);
        char *path = ydl_join_path(build.dir, "00000.ydl");
        char *target = ydl_join_path(build.dir, "target");
        if (kind == 0)
            test_write_file(path, "mine", 4);
        else
            assert_int_equal(symlink(target, path), 0);
        fixed_sample(0, samples);
        for (int i = 0; i < SAMPLE_COMPONENTS; i++)
            inputs[i] = (struct ydl_input){
                .rank = samples[i].rank, .dims = samples[i].dims, .data = samples[i].data};
        assert_status(YDL_OS, ydl_writer_append(build.writer, 1, inputs, &build.err), &build.err);
        assert_int_equal(build.err.sys_errno, EEXIST);
        assert_string_equal(build.err.path, path);
        assert_non_null(strstr(build.err.text, strerror(EEXIST)));
        struct stat st;
        assert_int_equal(stat(target, &st), -1);
        free(path);
        free(target);
        build_clear(&build);
    }
}

/* A full disk, or nearly: a limit on the size of files. */
static void test_write_fails(void **state)
{
    (void)state;
    static const int64_t dims[] = {2 << 20};
    static const struct ydl_component_spec spec = {YDL_UINT8, 1, dims};
    uint8_t *bytes = calloc(2 << 20, 1);
    assert_non_null(bytes);
    struct ydl_input input = {.rank = 1, .dims = dims, .data = bytes};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    int free_fd = dup(0);
    close(free_fd);
    for (int at_finish = 0; at_finish < 2; at_finish++) {
        struct build build;
        struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
        build_init(&build, &spec, 1, LARGE_PART);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        enum ydl_status status =
            ydl_writer_append(build.writer, at_finish ? 1 : 3, &input, &build.err);
        if (at_finish) {
            assert_status(YDL_OK, status, &build.err);
            status = ydl_writer_finish(build.writer, &build.err);
        }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_status(YDL_OS, status, &build.err);
        assert_int_equal(build.err.sys_errno, EFBIG);
        assert_non_null(strstr(build.err.text, "00000.ydl"));
        assert_status(YDL_CLOSED, ydl_writer_finish(build.writer, &build.err), &build.err);
        build_clear(&build);
        int fd = dup(0);
        assert_int_equal(fd, free_fd); /* nothing stayed open */
        close(fd);
    }
    signal(SIGXFSZ, handler);
    free(bytes);
}

/* Opening with a changed expectation fails with this status. */
static void refuse_open(struct build *build, const struct ydl_part_info *info,
                        const struct ydl_layout *layout, enum ydl_status expected, int sys_errno)
{
    static const enum ydl_access accesses[] = {YDL_ACCESS_MMAP, YDL_ACCESS_PREAD};
    for (int a = 0; a < 2; a++) {
        struct ydl_part *part;
        assert_status(expected, ydl_part_open(info, layout, accesses[a], &part, &build->err),
                      &build->err);
        assert_null(part);
        assert_int_equal(build->err.sys_errno, sys_errno);
        assert_string_equal(build->err.path, info->path);
    }
}

static void test_manifest_and_part_disagree(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 1000);
    build_write(&build, fixed_sample, 50);
    const struct ydl_part_info good = build_info(&build, 1);
    for (int change = 0; change < 7; change++) {
        struct ydl_part_info info = good;
        if (change == 0)
            info.build_uuid[15] ^= 1;
        else if (change == 1)
            info.number++;
        else if (change == 2)
            info.first_record++;
        else if (change == 3)
            info.records++;
        else if (change == 4)
            info.records = 0;
        else if (change == 5)
            info.bytes++;
        else
            info.bytes = 0;
        refuse_open(&build, &info, &build.layout, YDL_CORRUPT_CACHE, 0);
    }
    for (int change = 0; change < 3; change++) {
        struct ydl_layout layout;
        struct ydl_component_spec specs[SAMPLE_COMPONENTS];
        memcpy(specs, fixed_specs, sizeof specs);
        if (change == 0)
            specs[3].dtype = YDL_UINT64;
        else if (change == 1)
            specs[3] = varying_specs[3];
        assert_status(YDL_OK, ydl_layout_init(&layout, specs, change == 2 ? 3 : 4, &build.err),
                      &build.err);
        refuse_open(&build, &good, &layout, YDL_CORRUPT_CACHE, 0);
        ydl_layout_clear(&layout);
    }
    assert_non_null(strstr(build.err.text, "has 4 components, but the dataset has 3"));
    free(good.path);
    build_clear(&build);
}

static void test_not_a_part_file(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, LARGE_PART);
    build_write(&build, fixed_sample, 1);
    struct ydl_part_info info = build_info(&build, 0);
    char *part_path = info.path;
    info.path = ydl_join_path(build.dir, "other");
    refuse_open(&build, &info, &build.layout, YDL_OS, ENOENT);
    assert_int_equal(symlink(part_path, info.path), 0);
    refuse_open(&build, &info, &build.layout, YDL_CORRUPT_CACHE, 0);
    assert_int_equal(unlink(info.path), 0);
    assert_int_equal(mkfifo(info.path, 0666), 0);
    refuse_open(&build, &info, &build.layout, YDL_CORRUPT_CACHE, 0);
    assert_int_equal(unlink(info.path), 0);
    assert_int_equal(mkdir(info.path, 0777), 0);
    refuse_open(&build, &info, &build.layout, YDL_CORRUPT_CACHE, 0);
    free(info.path);
    free(part_path);
    build_clear(&build);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_rows),
        cmocka_unit_test(test_varying_rows),
        cmocka_unit_test(test_columns_across_blocks_and_parts),
        cmocka_unit_test(test_part_bytes),
        cmocka_unit_test(test_large_varying_rows),
        cmocka_unit_test(test_large_fixed_rows),
        cmocka_unit_test(test_rows_without_bytes),
        cmocka_unit_test(test_every_item_size),
        cmocka_unit_test(test_no_records_no_parts),
        cmocka_unit_test(test_part_names_grow),
        cmocka_unit_test(test_refused_inputs),
        cmocka_unit_test(test_existing_files_are_kept),
        cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_manifest_and_part_disagree),
        cmocka_unit_test(test_not_a_part_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
