#include "batch/lookahead.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "batch/sweep.h"

#define PAGE_BYTES ((uint64_t)4096)
/* Some hundred rows of 150 KB, or thousands of pages: more than any disk works on at once. */
#define AHEAD_BYTES ((uint64_t)32 << 20)
/* Reading over a gap costs a disk less than another request. */
#define MAX_GAP_BYTES ((uint64_t)16 << 10)
/* Rows so long are read in any order almost as fast as in the file's. */
#define LONG_ROW_BYTES ((uint64_t)32 << 10)
/* How often a warm cache is looked at again: less than a thousandth of the time that these take. */
#define SAMPLE_BYTES ((uint64_t)8 << 20)

enum {
    SAMPLE_RECORDS = 8192,
    /* Rows of a newly opened dataset that are asked for to see whether they are there. */
    PROBE_ROWS = 8,
    /* After a wait for the disk so many batches are read as if the cache were cold; more where
       waits are told from switches of threads alone, which hints that work prevent. */
    COLD_BATCHES = 8,
    COLD_BATCHES_READ = 64,
    /* Neighbours are found only among many. */
    LEAST_ROWS = 32,
    MOST_ROWS = 65536,
};

struct lane {
    uint64_t *numbers; /* [window.most, or an epoch's length] the records to ask for; owned */
    size_t count;
    bool is_watched; /* this batch: what the thread waits for is counted */
    uint64_t waits;  /* of this thread before it */
    uint64_t records_unwatched;
};

struct ydl_lookahead {
    struct ydl_reader *reader; /* borrowed */
    uint64_t epoch_len;
    uint64_t mean_bytes;
    uint64_t sample_records;
    bool may_sweep; /* the shard needs most of the dataset */
    struct ydl_sweep sweep;
    atomic_bool is_decided;   /* whether to sweep: by the lane that sets it */
    atomic_bool is_random;    /* decided: no sweep brings what is not asked for */
    struct ydl_window window; /* under the loader's lock */
    unsigned lane_count;
    struct lane lanes[];
};

uint64_t ydl_window_claim(struct ydl_window *window, struct ydl_cursor next, uint64_t n,
                          uint64_t len, uint64_t *out_from)
{
    uint64_t begin = next.position - (n < next.position ? n : next.position);
    if (window->epoch != next.epoch) {
        window->epoch = next.epoch;
        window->end = 0;
    }
    bool is_late = window->end < next.position; /* of the batch itself */
    uint64_t from = window->end < begin ? begin : window->end;
    uint64_t to = len - next.position < window->ahead ? len : next.position + window->ahead;
    if (from >= to)
        return 0;
    uint64_t count = to - from;
    if (count > window->most) {
        count = window->most;
        to = from + count;
    }
    if (!is_late && count < window->least && to < len)
        return 0;
    window->end = to;
    *out_from = from;
    return count;
}

size_t ydl_spans_merge(struct ydl_span *spans, size_t n, uint64_t max_gap)
{
    size_t last = 0;
    for (size_t i = 1; i < n; i++) {
        uint64_t end = spans[last].offset + spans[last].bytes;
        uint64_t next_end = spans[i].offset + spans[i].bytes;
        if (spans[i].offset <= end || spans[i].offset - end <= max_gap) {
            if (next_end > end)
                spans[last].bytes = next_end - spans[last].offset;
        } else {
            spans[++last] = spans[i];
        }
    }
    return n ? last + 1 : 0;
}

/* At least half of the pages hold something of the shard's. */
static bool needs_most(const struct ydl_order *order, uint64_t mean_bytes)
{
    return order->num_shards <= 2 * (mean_bytes + PAGE_BYTES) / (mean_bytes + 1);
}

struct ydl_lookahead *ydl_lookahead_new(struct ydl_reader *reader, const struct ydl_order *order,
                                        uint64_t batch_records, unsigned lanes)
{
    struct ydl_lookahead *lookahead =
        calloc(1, sizeof *lookahead + lanes * sizeof lookahead->lanes[0]);
    if (!lookahead)
        return NULL;
    uint64_t mean = ydl_reader_mean_record_bytes(reader);
    uint64_t batch = batch_records < MOST_ROWS / 2 ? batch_records : MOST_ROWS / 2;
    uint64_t rows = AHEAD_BYTES / (mean < PAGE_BYTES ? PAGE_BYTES : mean);
    uint64_t sample = SAMPLE_BYTES / (mean + 1) + 1;
    lookahead->reader = reader;
    lookahead->epoch_len = ydl_order_len(order);
    lookahead->mean_bytes = mean;
    lookahead->sample_records = sample < SAMPLE_RECORDS ? sample : SAMPLE_RECORDS;
    lookahead->may_sweep = needs_most(order, mean);
    lookahead->window = (struct ydl_window){
        .ahead = rows > batch ? rows : batch,
        .most = 2 * batch > LEAST_ROWS ? 2 * batch : LEAST_ROWS,
        .least = batch < LEAST_ROWS ? LEAST_ROWS : batch,
    };
    uint64_t most = lookahead->window.most;
    if (most > lookahead->epoch_len)
        most = lookahead->epoch_len;
    lookahead->lane_count = lanes;
    for (unsigned i = 0; i < lanes; i++) {
        lookahead->lanes[i].numbers = calloc(most ? (size_t)most : 1, sizeof(uint64_t));
        if (!lookahead->lanes[i].numbers) {
            ydl_lookahead_free(lookahead);
            return NULL;
        }
    }
    return lookahead;
}

void ydl_lookahead_free(struct ydl_lookahead *lookahead)
{
    if (!lookahead)
        return;
    ydl_sweep_stop(&lookahead->sweep);
    for (unsigned i = 0; i < lookahead->lane_count; i++)
        free(lookahead->lanes[i].numbers);
    free(lookahead);
}

static bool is_cold(const struct ydl_lookahead *lookahead)
{
    return atomic_load_explicit(&lookahead->reader->warmth.cold_batches, memory_order_relaxed) > 0;
}

static bool is_known(const struct ydl_lookahead *lookahead)
{
    return atomic_load_explicit(&lookahead->reader->warmth.is_known, memory_order_relaxed);
}

void ydl_lookahead_plan(struct ydl_lookahead *lookahead, unsigned lane_index,
                        const struct ydl_indices *indices, struct ydl_cursor next, uint64_t n)
{
    struct lane *lane = &lookahead->lanes[lane_index];
    lane->count = 0;
    lane->records_unwatched += n;
    bool may_miss = is_cold(lookahead) || !is_known(lookahead);
    lane->is_watched = may_miss || lane->records_unwatched > lookahead->sample_records;
    if (lane->is_watched)
        lane->records_unwatched = 0;
    if (!may_miss)
        return;
    if (lookahead->mean_bytes < LONG_ROW_BYTES && ydl_sweep_is_running(lookahead->reader))
        return;
    uint64_t from;
    lane->count =
        (size_t)ydl_window_claim(&lookahead->window, next, n, lookahead->epoch_len, &from);
    for (size_t i = 0; i < lane->count; i++)
        lane->numbers[i] = ydl_indices_at(indices, from + i);
}

/* How often this thread has waited for a disk, and how much it has made one read. */
static uint64_t count_waits(const struct ydl_lookahead *lookahead)
{
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0)
        return 0;
    uint64_t waits = (uint64_t)usage.ru_inblock + (uint64_t)usage.ru_majflt;
    /* Not all file systems whose parts are read count blocks; a wait for an answer is a switch to
       another thread. */
    if (lookahead->reader->access == YDL_ACCESS_PREAD)
        waits += (uint64_t)usage.ru_nvcsw;
    return waits;
}

static void want_spans(const struct ydl_part *part, struct ydl_span *spans, size_t n)
{
    n = ydl_spans_merge(spans, n, MAX_GAP_BYTES);
    for (size_t i = 0; i < n; i++)
        ydl_part_want(part, spans[i].offset, spans[i].bytes);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Asks for sorted records, all of one part; returns how many those were, 0 where it cannot be
 * opened: who reads from it will say so. */
static size_t want_in_part(const struct ydl_lookahead *lookahead, const uint64_t *numbers, size_t n)
{
    enum { SPANS = 128 };
    struct ydl_span spans[SPANS];
    struct ydl_reader *reader = lookahead->reader;
    struct ydl_source *source = reader->source;
    struct ydl_error err;
    struct ydl_part *part;
    size_t index = ydl_reader_part_of(reader, numbers[0], 0);
    uint64_t first = index == 0 ? 0 : reader->part_ends[index - 1];
    size_t done = 0;
    source->ops->want(source, index);
    if (source->ops->wait(source, index, 0, &err) != YDL_OK) {
        while (done < n && numbers[done] < reader->part_ends[index])
            done++;
        return done; /* is on its way */
    }
    if (source->ops->view(source, index, &part, &err) != YDL_OK)
        return 0;
    if (atomic_load_explicit(&lookahead->is_random, memory_order_relaxed))
        ydl_part_expect_random(part);
    size_t count = 0;
    for (; done < n && numbers[done] < reader->part_ends[index]; done++) {
        struct ydl_span *span = &spans[count];
        if (ydl_part_row_span(part, numbers[done] - first, &span->offset, &span->bytes))
            count++;
        if (count == SPANS) {
            want_spans(part, spans, count);
            count = 0;
        }
    }
    want_spans(part, spans, count);
    source->ops->release(source, index);
    return done;
}

static void want_records(const struct ydl_lookahead *lookahead, uint64_t *numbers, size_t n)
{
    qsort(numbers, n, sizeof *numbers, compare_numbers);
    size_t parted = 1;
    for (size_t at = 0; at < n && parted > 0; at += parted)
        parted = want_in_part(lookahead, numbers + at, n - at);
}

static void note_cold(struct ydl_lookahead *lookahead)
{
    struct ydl_reader *reader = lookahead->reader;
    bool is_read = reader->access == YDL_ACCESS_PREAD;
    atomic_store_explicit(&reader->warmth.cold_batches, is_read ? COLD_BATCHES_READ : COLD_BATCHES,
                          memory_order_relaxed);
    atomic_store_explicit(&reader->warmth.is_known, true, memory_order_relaxed);
    if (atomic_exchange(&lookahead->is_decided, true))
        return;
    if (lookahead->may_sweep)
        ydl_sweep_start(&lookahead->sweep, reader);
    atomic_store_explicit(&lookahead->is_random, !ydl_sweep_is_running(reader),
                          memory_order_relaxed);
}

void ydl_lookahead_begin(struct ydl_lookahead *lookahead, unsigned lane_index)
{
    struct lane *lane = &lookahead->lanes[lane_index];
    if (!lane->is_watched)
        return;
    lane->waits = count_waits(lookahead);
    size_t probes = 0;
    if (!is_cold(lookahead) && !is_known(lookahead)) {
        probes = lane->count < PROBE_ROWS ? lane->count : PROBE_ROWS;
        want_records(lookahead, lane->numbers, probes);
        if (count_waits(lookahead) == lane->waits)
            return;
        note_cold(lookahead);
    }
    want_records(lookahead, lane->numbers + probes, lane->count - probes);
}

void ydl_lookahead_end(struct ydl_lookahead *lookahead, unsigned lane_index)
{
    struct lane *lane = &lookahead->lanes[lane_index];
    atomic_int *cold = &lookahead->reader->warmth.cold_batches;
    if (!lane->is_watched)
        return;
    if (count_waits(lookahead) == lane->waits) {
        atomic_store_explicit(&lookahead->reader->warmth.is_known, true, memory_order_relaxed);
        if (is_cold(lookahead))
            atomic_fetch_sub_explicit(cold, 1, memory_order_relaxed);
        return;
    }
    note_cold(lookahead);
}
