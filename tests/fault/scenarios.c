#include "scenarios.h"

#include "batch_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "batch/loader.h"
#include "batch/sweep.h"
#include "record/access.h"
#include "store/lease.h"
#include "store/log.h"

enum { RECORDS = 24, PART_BYTES = 900, BATCH = 5 };

/* ---- writing ---- */

static enum ydl_status append_one(struct build *build, sample_fn *make, struct ydl_error *err)
{
    struct sample samples[SAMPLE_COMPONENTS];
    struct ydl_input inputs[SAMPLE_COMPONENTS];
    make(ydl_writer_records(build->writer), samples);
    for (int i = 0; i < SAMPLE_COMPONENTS; i++)
        inputs[i] = (struct ydl_input){
            .rank = samples[i].rank,
            .dims = samples[i].dims,
            .data = samples[i].data,
            .strings = build->layout.components[i].dtype == YDL_STRING ? samples[i].strings : NULL,
        };
    return ydl_writer_append(build->writer, 1, inputs, err);
}

static enum ydl_status run_write(bool varying, const struct fault_plan *plan, struct ydl_error *err)
{
    struct build build = {.uuid = "0123456789abcde"};
    sample_fn *make = varying ? varying_sample : fixed_sample;
    build.dir = test_make_dir();
    fault_begin(plan);
    enum ydl_status status = ydl_layout_init(&build.layout, varying ? varying_specs : fixed_specs,
                                             SAMPLE_COMPONENTS, err);
    if (status == YDL_OK)
        status =
            ydl_writer_new(build.dir, build.uuid, &build.layout, PART_BYTES, &build.writer, err);
    for (int i = 0; status == YDL_OK && i < RECORDS; i++)
        status = append_one(&build, make, err);
    if (status == YDL_OK)
        status = ydl_writer_finish(build.writer, err);
    fault_pause();
    if (status == YDL_OK) {
        check_build(&build, make, RECORDS);
    } else if (build.writer) { /* a writer that failed stays failed */
        struct ydl_error later;
        if (append_one(&build, make, &later) == YDL_OK)
            fail_msg("a record was appended behind one that failed");
        assert_status(YDL_CLOSED, ydl_writer_finish(build.writer, &later), &later);
    }
    fault_resume();
    ydl_writer_free(build.writer);
    ydl_layout_clear(&build.layout);
    fault_end();
    test_remove_dir(build.dir);
    return status;
}

static enum ydl_status write_fixed(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_write(false, plan, err);
}

static enum ydl_status write_varying(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_write(true, plan, err);
}

/* One row so large that the disk begins to write it before the part ends. */
static enum ydl_status write_large_row(const struct fault_plan *plan, struct ydl_error *err)
{
    static const int64_t dims[1] = {9 << 20};
    static const struct ydl_component_spec spec = {YDL_UINT8, 1, dims};
    static uint8_t row[9 << 20];
    struct build build = {.uuid = "0123456789abcde"};
    build.dir = test_make_dir();
    fault_begin(plan);
    enum ydl_status status = ydl_layout_init(&build.layout, &spec, 1, err);
    if (status == YDL_OK)
        status =
            ydl_writer_new(build.dir, build.uuid, &build.layout, PART_BYTES, &build.writer, err);
    struct ydl_input input = {.rank = 1, .dims = dims, .data = row};
    for (int i = 0; status == YDL_OK && i < 2; i++)
        status = ydl_writer_append(build.writer, 1, &input, err);
    if (status == YDL_OK)
        status = ydl_writer_finish(build.writer, err);
    ydl_writer_free(build.writer);
    ydl_layout_clear(&build.layout);
    fault_end();
    test_remove_dir(build.dir);
    return status;
}

/* ---- reading ---- */

static struct source_build {
    struct build build;
    struct ydl_part_info *infos;
    size_t count;
} builds[2]; /* of fixed-size and of varying rows */

static void setup_build(bool varying)
{
    struct source_build *source = &builds[varying];
    build_init(&source->build, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS,
               PART_BYTES);
    build_write(&source->build, varying ? varying_sample : fixed_sample, RECORDS);
    (void)ydl_writer_parts(source->build.writer, &source->count);
    assert_true(source->count > 1);
    source->infos = calloc(source->count, sizeof *source->infos);
    assert_non_null(source->infos);
    for (size_t i = 0; i < source->count; i++)
        source->infos[i] = build_info(&source->build, i);
}

static void teardown_build(bool varying)
{
    struct source_build *source = &builds[varying];
    for (size_t i = 0; i < source->count; i++)
        free(source->infos[i].path);
    free(source->infos);
    build_clear(&source->build);
}

static enum ydl_status open_reader(bool varying, enum ydl_access access, struct ydl_reader **out,
                                   struct ydl_error *err)
{
    struct ydl_layout layout;
    enum ydl_status status =
        ydl_layout_init(&layout, varying ? varying_specs : fixed_specs, SAMPLE_COMPONENTS, err);
    if (status == YDL_OK)
        status = ydl_reader_open_local(&layout, builds[varying].infos, builds[varying].count,
                                       access, YDL_VERIFY_FIRST, out, err);
    return status;
}

static enum ydl_status run_gather(bool varying, enum ydl_access access,
                                  const struct fault_plan *plan, struct ydl_error *err)
{
    static const uint64_t numbers[] = {0, RECORDS - 1, 7, 1, 12, 7};
    enum { N = sizeof numbers / sizeof numbers[0] };
    struct ydl_reader *reader = NULL;
    struct ydl_pool *pool = NULL;
    struct ydl_finder *finder = NULL;
    fault_begin(plan);
    enum ydl_status status = open_reader(varying, access, &reader, err);
    if (status == YDL_OK && !(pool = ydl_pool_new(1 << 20)))
        status = ydl_fail_memory(err, "a pool", 0);
    if (status == YDL_OK)
        status = ydl_finder_new(reader, &finder, err);
    for (int i = 0; status == YDL_OK && i < 2; i++) {
        struct ydl_batch *batch;
        status = ydl_gather(finder, pool, numbers, N, false, &batch, err);
        if (status != YDL_OK)
            break;
        fault_pause();
        check_batch(batch, varying ? varying_sample : fixed_sample, numbers, N);
        fault_resume();
        ydl_batch_free(batch);
    }
    if (finder && status != YDL_OK) { /* what failed for a moment works the next time */
        struct ydl_batch *batch;
        struct ydl_error later;
        fault_pause();
        assert_status(YDL_OK, ydl_gather(finder, pool, numbers, N, false, &batch, &later), &later);
        check_batch(batch, varying ? varying_sample : fixed_sample, numbers, N);
        ydl_batch_free(batch);
        fault_resume();
    }
    ydl_finder_free(finder);
    if (pool)
        ydl_pool_release(pool);
    ydl_reader_release(reader);
    fault_end();
    return status;
}

#define GATHER(name, varying, access)                                                              \
    static enum ydl_status name(const struct fault_plan *plan, struct ydl_error *err)              \
    {                                                                                              \
        return run_gather(varying, access, plan, err);                                             \
    }
GATHER(gather_fixed_mmap, false, YDL_ACCESS_MMAP)
GATHER(gather_fixed_pread, false, YDL_ACCESS_PREAD)
GATHER(gather_varying_mmap, true, YDL_ACCESS_MMAP)
GATHER(gather_varying_pread, true, YDL_ACCESS_PREAD)

static enum ydl_status verify_parts(const struct fault_plan *plan, struct ydl_error *err)
{
    enum ydl_status status = YDL_OK;
    fault_begin(plan);
    for (int i = 0; status == YDL_OK && i < 4; i++) {
        struct source_build *source = &builds[i % 2];
        struct ydl_part *part;
        status = ydl_part_open(&source->infos[0], &source->build.layout, (enum ydl_access)(i / 2),
                               &part, err);
        if (status == YDL_OK)
            status = ydl_part_verify(part, err);
        ydl_part_close(part);
    }
    fault_end();
    return status;
}

/* More maps at once than the first piece of their table holds. */
static enum ydl_status many_maps(const struct fault_plan *plan, struct ydl_error *err)
{
    enum { MAPS = 140 };
    static struct ydl_map *maps[MAPS];
    enum ydl_status status = YDL_OK;
    fault_begin(plan);
    int fd = ydl_open(builds[0].infos[0].path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        status = ydl_fail_os(err, errno, "", "cannot open a part");
    for (int i = 0; status == YDL_OK && i < MAPS; i++) {
        status = ydl_map_new(fd, 64, "a part", &maps[i], err);
        if (status == YDL_OK)
            assert_memory_equal(ydl_map_bytes(maps[i]), YDL_HEAD_MAGIC, 8);
    }
    for (int i = 0; i < MAPS; i++) {
        ydl_map_free(maps[i]);
        maps[i] = NULL;
    }
    if (fd >= 0)
        close(fd);
    fault_end();
    return status;
}

/* ---- loading ---- */

static void sweep_all(struct ydl_reader *reader)
{
    struct ydl_sweep sweep = {0};
    ydl_sweep_start(&sweep, reader);
    for (int i = 0; ydl_sweep_is_running(reader) && i < 60 * 1000; i++)
        usleep(1000);
    ydl_sweep_stop(&sweep);
}

/* cold: hints are given and fail, too, which is nobody's error. Else the parts are open before, so
 * that it is not a hint that opens them and leaves them to somebody's second try. */
static enum ydl_status run_loader(bool varying, unsigned threads, bool cold,
                                  const struct fault_plan *plan, struct ydl_error *err)
{
    const struct ydl_order order = {
        .records = RECORDS, .num_shards = 1, .shuffle = true, .seed = 5};
    struct ydl_loader_config config = {
        .batch_records = BATCH,
        .threads = threads,
        .depth = 2,
    };
    struct ydl_reader *reader = NULL;
    struct ydl_loader *loader = NULL;
    struct ydl_indices indices = fill_indices(&order, 0);
    uint64_t at = 0;
    fault_begin(plan);
    enum ydl_status status = open_reader(varying, YDL_ACCESS_MMAP, &reader, err);
    if (status == YDL_OK && cold) {
        atomic_store(&reader->warmth.cold_batches, 100);
        sweep_all(reader);
    } else if (status == YDL_OK) {
        status = ydl_reader_check(reader, 0, SIZE_MAX, err);
    }
    if (status == YDL_OK)
        status = ydl_orders_new(&order, &config.orders, err);
    if (status == YDL_OK)
        status = ydl_loader_new(reader, &config, &loader, err);
    while (status == YDL_OK) {
        struct ydl_batch *batch;
        uint64_t numbers[BATCH];
        status = ydl_loader_next(loader, 60 * 1000, &batch, err);
        if (status != YDL_OK)
            break;
        for (uint64_t i = 0; i < batch->records; i++)
            numbers[i] = ydl_indices_at(&indices, at++);
        check_batch(batch, varying ? varying_sample : fixed_sample, numbers, batch->records);
        ydl_batch_free(batch);
    }
    if (status == YDL_END)
        status = at == RECORDS ? YDL_OK : YDL_END;
    ydl_loader_free(loader);
    ydl_orders_release(config.orders);
    ydl_reader_release(reader);
    fault_end();
    free(indices.values);
    return status;
}

static enum ydl_status load_alone(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_loader(true, 0, false, plan, err);
}

static enum ydl_status load_threads(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_loader(false, 2, false, plan, err);
}

static enum ydl_status load_cold(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_loader(true, 1, true, plan, err);
}

/* The background's own failures are none: then the taker makes the order. */
static enum ydl_status take_orders(const struct fault_plan *plan, struct ydl_error *err)
{
    const struct ydl_order order = {
        .records = 1 << 16, .num_shards = 1, .shuffle = true, .reshuffle = true, .seed = 5};
    struct ydl_orders *orders = NULL;
    fault_begin(plan);
    enum ydl_status status = ydl_orders_new(&order, &orders, err);
    for (uint64_t epoch = 0; status == YDL_OK && epoch < 3; epoch++) {
        const struct ydl_indices *indices;
        status = ydl_orders_take(orders, epoch, &indices, err);
        if (status != YDL_OK)
            break;
        ydl_orders_make_ahead(orders, epoch + 1);
        assert_true(ydl_indices_at(indices, 0) < order.records);
        ydl_orders_give_back(orders, indices);
    }
    ydl_orders_release(orders);
    fault_end();
    return status;
}

/* ---- the store ---- */

static void check_no_temporaries(const char *dir)
{
    DIR *listing = opendir(dir);
    assert_non_null(listing);
    const struct dirent *entry;
    while ((entry = readdir(listing))) {
        if (strstr(entry->d_name, ".tmp"))
            fail_msg("a temporary file was left: %s", entry->d_name);
    }
    closedir(listing);
}

static enum ydl_status append_to_log(const struct fault_plan *plan, struct ydl_error *err)
{
    static const char content[] = "what a manifest says";
    char *dir = test_make_dir();
    struct ydl_buf found;
    struct ydl_error later;
    uint64_t latest = 0;
    ydl_buf_init(&found, 1024);
    fault_begin(plan);
    enum ydl_status status = ydl_log_latest(dir, &latest, err);
    for (uint64_t n = 1; status == YDL_OK && n <= 2; n++)
        status = ydl_log_append(dir, n, content, sizeof content, false, err);
    if (status == YDL_OK)
        status = ydl_log_read(dir, 2, 1024, &found, err);
    fault_pause();
    if (status == YDL_OK) {
        assert_int_equal(found.len, sizeof content);
        assert_memory_equal(found.data, content, sizeof content);
        assert_status(YDL_BUSY, ydl_log_append(dir, 2, "other", 5, false, &later), &later);
    } else {
        /* Every entry that exists is whole, and the next one can be made. */
        assert_status(YDL_OK, ydl_log_latest(dir, &latest, &later), &later);
        assert_true(latest <= 2);
        for (uint64_t n = 1; n <= latest; n++) {
            found.len = 0;
            assert_status(YDL_OK, ydl_log_read(dir, n, 1024, &found, &later), &later);
            assert_int_equal(found.len, sizeof content);
        }
        assert_status(YDL_OK, ydl_log_append(dir, latest + 1, content, 3, false, &later), &later);
    }
    if (!plan || plan->function != FAULT_unlinkat || plan->error == EINTR)
        check_no_temporaries(dir);
    fault_resume();
    ydl_buf_clear(&found);
    fault_end();
    test_remove_dir(dir);
    return status;
}

static enum ydl_status run_lease(uint64_t ttl_ms, unsigned held_us, const struct fault_plan *plan,
                                 struct ydl_error *err)
{
    char *parent = test_make_dir();
    char *dir = ydl_join_path(parent, "lease");
    struct ydl_lease *lease = NULL;
    struct ydl_lease_view view;
    assert_non_null(dir);
    fault_begin(plan);
    enum ydl_status status = ydl_lease_new(dir, ttl_ms, &lease, err);
    for (int i = 0; status == YDL_OK && i < 2; i++) {
        status = ydl_lease_peek(lease, &view, err);
        if (status == YDL_OK)
            status = ydl_lease_try(lease, &view, err);
        if (status != YDL_OK)
            break;
        ydl_lease_set_progress(lease, 5);
        if (held_us && i == 0)
            usleep(held_us);
        assert_true(ydl_lease_is_held(lease)); /* in doubt, too */
        status = ydl_lease_release(lease, i == 0 ? "a failure" : NULL, err);
    }
    ydl_lease_free(lease);
    fault_pause();
    if (access(dir, F_OK) == 0 &&
        (!plan || plan->function != FAULT_unlinkat || plan->error == EINTR))
        check_no_temporaries(dir);
    if (status == YDL_OK) {
        struct ydl_error later;
        struct ydl_lease *other; /* gets it at once: the file does not say "held" */
        assert_status(YDL_OK, ydl_lease_new(dir, 60 * 1000, &other, &later), &later);
        assert_status(YDL_OK, ydl_lease_try(other, &view, &later), &later);
        ydl_lease_free(other);
    }
    fault_resume();
    fault_end();
    free(dir);
    test_remove_dir(parent);
    return status;
}

static enum ydl_status lease_cycle(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_lease(60 * 1000, 0, plan, err);
}

static enum ydl_status lease_beats(const struct fault_plan *plan, struct ydl_error *err)
{
    return run_lease(12, 7000, plan, err); /* a beat every 2 ms */
}

/* ---- the list ---- */

/* What has no error to report: a descriptor that was only read from, a temporary name that could
 * not be removed, a look that was made to be sure. */
#define HARMLESS FAULT_close, FAULT_unlinkat, FAULT_fstatat, FAULT_stat
/* And what opening a part calls: where a hint cannot, the reading that it was for does. */
#define OPENING                                                                                    \
    HARMLESS, FAULT_malloc, FAULT_calloc, FAULT_strdup, FAULT_open, FAULT_read, FAULT_pread,       \
        FAULT_mmap, FAULT_fstat, FAULT_pthread_create
/* And what only helps to tell for certain that a holder has died; a doubt whether it has. */
#define LEASE                                                                                      \
    HARMLESS, FAULT_open, FAULT_openat2, FAULT_read, FAULT_fstat, FAULT_fdopendir, FAULT_readdir

const struct scenario fault_scenarios[] = {
    {"write fixed-size rows", write_fixed, {HARMLESS, FAULT_pthread_create, -1}, 0},
    {"write varying rows", write_varying, {HARMLESS, FAULT_pthread_create, -1}, 0},
    {"write large rows", write_large_row, {HARMLESS, FAULT_pthread_create, -1}, 0},
    {"gather fixed-size rows, mapped", gather_fixed_mmap, {HARMLESS, -1}, 0},
    {"gather fixed-size rows, read", gather_fixed_pread, {HARMLESS, -1}, 0},
    {"gather varying rows, mapped", gather_varying_mmap, {HARMLESS, -1}, 0},
    {"gather varying rows, read", gather_varying_pread, {HARMLESS, -1}, 0},
    {"verify parts", verify_parts, {HARMLESS, -1}, 0},
    {"load without threads", load_alone, {HARMLESS, -1}, 0},
    {"load with threads", load_threads, {HARMLESS, FAULT_pthread_create, -1}, 0},
    {"take orders",
     take_orders,
     {HARMLESS, FAULT_pthread_create, FAULT_mmap, FAULT_malloc, FAULT_calloc, -1},
     0},
    {"load with a cold cache", load_cold, {OPENING, -1}, 0},
    {"append to the log", append_to_log, {HARMLESS, FAULT_fstat, -1}, 0},
    {"lease", lease_cycle, {LEASE, -1}, 0},
    {"lease with beats", lease_beats, {LEASE, FAULT_pwrite, FAULT_fdatasync, -1}, 3},
    {"many maps", many_maps, {HARMLESS, -1}, 0},
};
const int fault_scenario_count = sizeof fault_scenarios / sizeof fault_scenarios[0];

void fault_scenarios_setup(void)
{
    setup_build(false);
    setup_build(true);
}

void fault_scenarios_teardown(void)
{
    teardown_build(false);
    teardown_build(true);
}
