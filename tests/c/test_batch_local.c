/* The local source: opened when first viewed, closed when there are too many. */
#include "batch_support.h"

#include <pthread.h>

#include "batch/local.h"

enum { PARTS = 12, MAX_OPEN = 3 };

struct sourced {
    struct build build;
    struct ydl_source *source;
    uint64_t firsts[PARTS];
};

static void sourced_init(struct sourced *sourced)
{
    struct ydl_error err;
    struct ydl_part_info infos[PARTS];
    size_t count;
    build_init(&sourced->build, fixed_specs, SAMPLE_COMPONENTS, 1); /* each row its own part */
    build_write(&sourced->build, fixed_sample, PARTS);
    (void)ydl_writer_parts(sourced->build.writer, &count);
    assert_int_equal(count, PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        infos[i] = build_info(&sourced->build, i);
        sourced->firsts[i] = infos[i].first_record;
    }
    assert_status(YDL_OK,
                  ydl_local_source_new(infos, PARTS, &sourced->build.layout, YDL_ACCESS_MMAP,
                                       MAX_OPEN, &sourced->source, &err),
                  &err);
    for (size_t i = 0; i < PARTS; i++)
        free(infos[i].path);
}

static void sourced_clear(struct sourced *sourced)
{
    sourced->source->ops->close(sourced->source);
    build_clear(&sourced->build);
}

static struct ydl_part *view(struct sourced *sourced, uint64_t part)
{
    struct ydl_error err;
    struct ydl_part *out;
    sourced->source->ops->want(sourced->source, part);
    assert_status(YDL_OK, sourced->source->ops->wait(sourced->source, part, 10, &err), &err);
    assert_status(YDL_OK, sourced->source->ops->view(sourced->source, part, &out, &err), &err);
    return out;
}

static void test_parts_beyond_the_limit_are_reopened(void **state)
{
    (void)state;
    struct sourced sourced;
    sourced_init(&sourced);
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < PARTS; i++) {
            check_part(view(&sourced, i), &sourced.build.layout, fixed_sample, sourced.firsts[i]);
            sourced.source->ops->release(sourced.source, i);
        }
    }
    sourced_clear(&sourced);
}

static void test_parts_in_view_stay_open(void **state)
{
    (void)state;
    struct sourced sourced;
    struct ydl_part *parts[PARTS];
    sourced_init(&sourced);
    for (uint64_t i = 0; i < PARTS; i++)
        parts[i] = view(&sourced, i);
    for (uint64_t i = 0; i < PARTS; i++) {
        assert_ptr_equal(view(&sourced, i), parts[i]);
        check_part(parts[i], &sourced.build.layout, fixed_sample, sourced.firsts[i]);
        sourced.source->ops->release(sourced.source, i);
        sourced.source->ops->release(sourced.source, i);
    }
    sourced_clear(&sourced);
}

static void *view_at_random(void *argument)
{
    struct sourced *sourced = argument;
    struct test_random random = {.state = (uintptr_t)&random | 1};
    for (int i = 0; i < 500; i++) {
        struct ydl_error err;
        struct ydl_part *part;
        uint64_t number = test_random_below(&random, PARTS);
        if (sourced->source->ops->view(sourced->source, number, &part, &err) != YDL_OK ||
            ydl_part_verify(part, &err) != YDL_OK)
            return NULL;
        sourced->source->ops->release(sourced->source, number);
    }
    return sourced;
}

static void test_threads_share_a_source(void **state)
{
    (void)state;
    struct sourced sourced;
    pthread_t threads[4];
    sourced_init(&sourced);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, view_at_random, &sourced), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &sourced);
    }
    sourced_clear(&sourced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_beyond_the_limit_are_reopened),
        cmocka_unit_test(test_parts_in_view_stay_open),
        cmocka_unit_test(test_threads_share_a_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
