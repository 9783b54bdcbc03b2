/* The writer beside the bytes that it makes (test_record_part.c): the thread that makes finished
 * parts durable and reads them back, forks. */
#include "part_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/finisher.h"
#include "record/part_writer.h"

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
        cmocka_unit_test(test_finisher),
        cmocka_unit_test(test_damage_while_the_next_part_is_written),
        cmocka_unit_test(test_giving_up_at_any_time),
        cmocka_unit_test(test_bytes_are_known_at_once),
        cmocka_unit_test(test_a_forked_child_leaves_the_writer_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
