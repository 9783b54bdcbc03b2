/* The writer beside the bytes that it makes (test_record_part.c): many records of different shapes
 * at once, the thread that makes finished parts durable and reads them back, forks. */
#include "part_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/finisher.h"
#include "record/part_writer.h"

enum { RECORDS = 60, MAX_ELEMENTS = RECORDS * SAMPLE_BYTES };

/* ---- records of different shapes in one append ---- */

/* The columns of `n` varying samples; component 2, whose rank varies too, has rank 1 in all. */
struct columns {
    struct ydl_input inputs[SAMPLE_COMPONENTS];
    uint8_t data[SAMPLE_COMPONENTS][MAX_ELEMENTS];
    int64_t shapes[SAMPLE_COMPONENTS][RECORDS * 4];
    struct ydl_slice strings[RECORDS * SAMPLE_STRINGS];
    struct sample samples[RECORDS][SAMPLE_COMPONENTS];
};

static void rank_1_sample(uint64_t record, struct sample out[SAMPLE_COMPONENTS])
{
    varying_sample(record, out);
    out[2].rank = 1;
    out[2].dims[0] = (int64_t)(record % 5);
    sample_fill(&out[2], record, 2, record % 5);
}

static void make_columns(struct columns *columns, uint64_t first, uint64_t n)
{
    static const uint64_t item_bytes[SAMPLE_COMPONENTS] = {8, 4, 1, 0};
    memset(columns, 0, sizeof *columns);
    for (int c = 0; c < SAMPLE_COMPONENTS; c++) {
        struct ydl_input *input = &columns->inputs[c];
        uint64_t bytes = 0;
        for (uint64_t r = 0; r < n; r++) {
            struct sample *sample = &columns->samples[r][c];
            if (c == 0)
                rank_1_sample(first + r, columns->samples[r]);
            input->rank = sample->rank;
            for (uint32_t d = 0; d < sample->rank; d++)
                columns->shapes[c][r * sample->rank + d] = sample->dims[d];
            for (uint64_t e = 0; c == 3 && e < sample->strings_len; e++)
                columns->strings[input->elements++] = sample->strings[e];
            if (c != 3)
                memcpy(columns->data[c] + bytes, sample->data, sample->bytes);
            bytes += sample->bytes;
        }
        if (c == 3)
            input->strings = columns->strings;
        else
            input->data = columns->data[c];
        if (c != 0)
            input->shapes = columns->shapes[c];
        if (c == 1 || c == 2)
            input->elements = bytes / item_bytes[c];
    }
}

static void compare_files(const struct build *a, const struct build *b)
{
    size_t counts[2];
    (void)ydl_writer_parts(a->writer, &counts[0]);
    (void)ydl_writer_parts(b->writer, &counts[1]);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++) {
        struct ydl_part_info infos[2] = {build_info(a, i), build_info(b, i)};
        size_t sizes[2];
        uint8_t *files[2];
        for (int k = 0; k < 2; k++)
            files[k] = test_read_file(infos[k].path, &sizes[k]);
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(files[0], files[1], sizes[0]);
        for (int k = 0; k < 2; k++) {
            free(files[k]);
            free(infos[k].path);
        }
    }
}

static void test_shapes_that_differ(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 7, 0, RECORDS, 13};
    static const uint64_t part_bytes[] = {(uint64_t)1 << 20, 1000};
    static struct columns columns;
    for (int p = 0; p < 2; p++) {
        struct build one_by_one;
        struct build at_once;
        build_init(&one_by_one, varying_specs, SAMPLE_COMPONENTS, part_bytes[p]);
        build_init(&at_once, varying_specs, SAMPLE_COMPONENTS, part_bytes[p]);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            make_columns(&columns, ydl_writer_records(at_once.writer), sizes[i]);
            assert_status(YDL_OK,
                          ydl_writer_append(at_once.writer, sizes[i], columns.inputs, &at_once.err),
                          &at_once.err);
        }
        build_finish(&at_once);
        build_write(&one_by_one, rank_1_sample, ydl_writer_records(at_once.writer));
        check_build(&at_once, rank_1_sample, ydl_writer_records(one_by_one.writer));
        compare_files(&at_once, &one_by_one);
        build_clear(&one_by_one);
        build_clear(&at_once);
    }
}

/* Shapes of a component that has one shape: they are that. */
static void test_shapes_of_fixed_rows(void **state)
{
    (void)state;
    static const int64_t shapes[] = {3, 3};
    static const int64_t others[] = {3, 4};
    static const uint8_t data[32] = {1, 2, 3};
    static const struct ydl_component_spec spec = {YDL_FLOAT32, 1, &fixed_dims[0]};
    struct ydl_input input = {.rank = 1, .data = data, .shapes = shapes, .elements = 6};
    struct build build;
    build_init(&build, &spec, 1, 1 << 20);
    assert_status(YDL_OK, ydl_writer_append(build.writer, 2, &input, &build.err), &build.err);
    input.shapes = others;
    input.elements = 7;
    assert_status(YDL_SHAPE_MISMATCH, ydl_writer_append(build.writer, 2, &input, &build.err),
                  &build.err);
    assert_non_null(strstr(build.err.text, "component 0 of record 3 has shape (4,)"));
    build_clear(&build);
}

static void refuse_shapes(const int64_t *shapes, uint64_t elements, enum ydl_status expected,
                          const char *text)
{
    static struct columns columns;
    struct build build;
    build_init(&build, varying_specs, SAMPLE_COMPONENTS, 1 << 20);
    build_append(&build, rank_1_sample);
    make_columns(&columns, 1, 3);
    columns.inputs[1].shapes = shapes;
    columns.inputs[1].elements = elements;
    assert_status(expected, ydl_writer_append(build.writer, 3, columns.inputs, &build.err),
                  &build.err);
    if (!strstr(build.err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, build.err.text);
    assert_int_equal(ydl_writer_records(build.writer), 1);
    assert_status(YDL_CLOSED, ydl_writer_finish(build.writer, &build.err), &build.err);
    build_clear(&build);
}

static void test_refused_shapes(void **state)
{
    (void)state;
    static const int64_t good[] = {1, 2, 0, 2, 2, 2};
    static const int64_t inner[] = {1, 2, 0, 3, 2, 2};
    static const int64_t negative[] = {1, 2, -2, 2, 2, 2};
    static const int64_t wide[] = {1, 2, 0, 2, INT64_C(1) << 32, 2};
    static const int64_t large[] = {UINT32_MAX, 2, UINT32_MAX, 2, UINT32_MAX, 2};
    refuse_shapes(good, 7, YDL_INVALID,
                  "component 1 of the records 1 to 3 has 7 elements, but their shapes ask for 6");
    refuse_shapes(good, 5, YDL_INVALID, "has 5 elements");
    refuse_shapes(large, 6, YDL_INVALID, "has 6 elements");
    refuse_shapes(inner, 6, YDL_SHAPE_MISMATCH,
                  "component 1 of record 2 has shape (0, 3), but the dataset's element spec says "
                  "(?, 2)");
    refuse_shapes(negative, 6, YDL_SHAPE_MISMATCH, "record 2 has shape (-2, 2)");
    refuse_shapes(wide, 6, YDL_INVALID, "component 1 of record 3 has a dimension of 4294967296");
}

/* ---- the thread ---- */

/* A complete file with three rows, as a writer hands it over. */
static struct ydl_part_file make_file(struct build *build, struct ydl_part_writer *writer,
                                      uint32_t number)
{
    uint8_t *rows;
    struct ydl_part_file file;
    uint64_t bytes = 3 * build->layout.row_bytes;
    struct ydl_error *err = &build->err;
    assert_status(YDL_OK, ydl_part_writer_begin(writer, build->dir, number, 3 * number, err), err);
    assert_status(YDL_OK, ydl_part_writer_reserve(writer, bytes, &rows, err), err);
    memset(rows, 0, bytes);
    ydl_part_writer_push_fixed(writer, 3);
    assert_status(YDL_OK, ydl_part_writer_finish(writer, &file, err), err);
    return file;
}

static enum ydl_status wait_for(struct ydl_finisher *finisher, struct ydl_error *err)
{
    enum ydl_status status;
    do {
        status = ydl_finisher_wait(finisher, 0, 10, err);
    } while (status == YDL_PENDING);
    return status;
}

/* Hands over `count` files of which `damaged` was changed behind the writer's back. */
static void run_finisher(uint32_t count, uint32_t damaged)
{
    struct build build;
    struct ydl_part_writer writer;
    struct ydl_finisher *finisher;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 1 << 20);
    struct ydl_error *err = &build.err;
    assert_status(YDL_OK, ydl_part_writer_init(&writer, &build.layout, build.uuid, err), err);
    assert_status(YDL_OK, ydl_finisher_new(&build.layout, build.uuid, &finisher, err), err);
    assert_status(YDL_OK, ydl_finisher_wait(finisher, 0, 0, err), err); /* nothing to wait for */
    char *path = NULL;
    enum ydl_status status = YDL_OK;
    for (uint32_t i = 0; i < count; i++) {
        struct ydl_part_file file = make_file(&build, &writer, i);
        if (i == damaged) {
            path = strdup(file.path);
            assert_int_equal(pwrite(file.fd, "!", 1, YDL_HEADER_BYTES + 2), 1);
        }
        status = ydl_finisher_put(finisher, &file, err);
        assert_int_equal(file.fd, -1);
        assert_null(file.path);
        assert_true(status == YDL_OK || (i > damaged && status == YDL_CORRUPT_RECORD));
    }
    status = wait_for(finisher, err);
    if (damaged < count) {
        for (int again = 0; again < 2; again++) { /* an error stays */
            assert_int_equal(status, YDL_CORRUPT_RECORD);
            assert_int_equal(err->status, YDL_CORRUPT_RECORD);
            assert_string_equal(err->path, path);
            status = wait_for(finisher, err);
        }
    } else {
        assert_status(YDL_OK, status, err);
    }
    free(path);
    ydl_finisher_free(finisher);
    ydl_part_writer_clear(&writer);
    build_clear(&build);
}

static void test_finisher(void **state)
{
    (void)state;
    run_finisher(0, 0);
    run_finisher(1, 1);
    run_finisher(20, 20);
    for (uint32_t damaged = 0; damaged < 6; damaged++)
        run_finisher(6, damaged);
    ydl_finisher_free(NULL);
}

/* A file that is damaged before it was verified: append or finish says so. */
static void test_damage_while_the_next_part_is_written(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 1 << 20);
    for (int i = 0; i < 50; i++)
        build_append(&build, fixed_sample);
    char *path = ydl_join_path(build.dir, "00000.ydl"); /* so far 0 bytes are in it */
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "somebody else's", 15, 1 << 20), 15);
    close(fd);
    assert_status(YDL_CORRUPT_CACHE, ydl_writer_finish(build.writer, &build.err), &build.err);
    assert_string_equal(build.err.path, path);
    assert_status(YDL_CLOSED, ydl_writer_finish(build.writer, &build.err), &build.err);
    free(path);
    build_clear(&build);
}

static void test_giving_up_at_any_time(void **state)
{
    (void)state;
    for (int records = 0; records < 40; records++) {
        struct build build;
        build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 0); /* a part for each record */
        for (int i = 0; i < records; i++)
            build_append(&build, fixed_sample);
        struct ydl_error err;
        enum ydl_status status =
            records % 2 ? ydl_writer_try_finish(build.writer, 0, &err) : YDL_PENDING;
        assert_true(status == YDL_OK || status == YDL_PENDING);
        if (records % 2 && status == YDL_PENDING) { /* nothing more is taken by then */
            struct ydl_input inputs[SAMPLE_COMPONENTS] = {{0}};
            assert_status(YDL_CLOSED, ydl_writer_append(build.writer, 1, inputs, &err), &err);
        }
        build_clear(&build);
    }
}

static void test_bytes_are_known_at_once(void **state)
{
    (void)state;
    struct build build;
    size_t count;
    uint64_t total = 0;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 1000);
    build_write(&build, fixed_sample, 500);
    const struct ydl_written_part *parts = ydl_writer_parts(build.writer, &count);
    for (size_t i = 0; i < count; i++)
        total += parts[i].bytes;
    assert_int_equal(total, ydl_writer_bytes(build.writer));
    build_clear(&build);
}

/* ---- forks ---- */

/* Run in a child of a writer's process: the exit status. */
static int use_in_child(struct build *build)
{
    struct ydl_error err;
    struct ydl_input inputs[SAMPLE_COMPONENTS] = {{0}};
    int wrong = 0;
    wrong |= ydl_writer_append(build->writer, 1, inputs, &err) != YDL_FORKED;
    wrong |= (strstr(err.text, build->dir) == NULL) << 1;
    wrong |= (ydl_writer_finish(build->writer, &err) != YDL_FORKED) << 2;
    ydl_writer_free(build->writer);
    return wrong;
}

static void test_a_forked_child_leaves_the_writer_alone(void **state)
{
    (void)state;
    struct build build;
    build_init(&build, fixed_specs, SAMPLE_COMPONENTS, 1000);
    for (int i = 0; i < 300; i++) {
        build_append(&build, fixed_sample);
        if (i % 30 != 7)
            continue;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(use_in_child(&build));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    build_finish(&build);
    check_build(&build, fixed_sample, 300);
    build_clear(&build);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_that_differ),
        cmocka_unit_test(test_shapes_of_fixed_rows),
        cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_finisher),
        cmocka_unit_test(test_damage_while_the_next_part_is_written),
        cmocka_unit_test(test_giving_up_at_any_time),
        cmocka_unit_test(test_bytes_are_known_at_once),
        cmocka_unit_test(test_a_forked_child_leaves_the_writer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
