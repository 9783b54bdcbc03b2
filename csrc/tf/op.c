/* The op that hands a feed's batches (batch/feed.h) to TensorFlow: a shared library of its own,
 * which tf.load_op_library loads, and which is linked against neither TensorFlow nor the core.
 *
 *   YdlNextBatchV1(feed: int64 [2]) -> batch: the types of Tout
 *
 * feed: the address of the ydl_feed_api that the core of this process has, and the feed's number.
 * Behind the last batch it fails with OutOfRange, which ends a GeneratorDataset.
 * One output per component of the batch, or, where the caller asks for that many, four (values, row
 * splits, ranks, shapes) for each component whose shape varies.
 *
 * The version in the name is that of its meaning: where another copy of this library is loaded
 * already, its op does the same, and this copy must not be loaded, since TensorFlow ends a process
 * that registers an op twice (ydl/tensorflow/native.py sees to that). The op counts as stateful, so
 * that TensorFlow neither runs calls at once (map_parallelization) nor folds or merges them.
 * Numbers cross without a copy: TensorFlow's tensor lies over the core's block, and releases it. */
#include <stdio.h>
#include <string.h>

#include "batch/feed.h"
#include "tf/c_api.h"

#define OP_NAME "YdlNextBatchV1"

static struct tf_api tf;

/* ---- outputs ---- */

/* One run of the kernel. */
struct run {
    const struct ydl_feed_api *api;
    struct tf_context *context;
    struct tf_status *status;
    struct ydl_batch *batch; /* owned; blocks that were handed out are NULL in it */
    int output;              /* the next one */
};

static bool is_ok(const struct run *run)
{
    return tf.TF_GetCode(run->status) == TF_OK;
}

static void fail(struct run *run, int code, const char *text)
{
    tf.TF_SetStatus(run->status, code, text);
}

/* Numbers; *block is taken. */
static void put_block(struct run *run, int rank, const int64_t *dims, uint64_t elements,
                      struct ydl_block **block)
{
    int dtype = tf.TF_ExpectedOutputDataType(run->context, run->output);
    uint64_t bytes = elements * tf.TF_DataTypeSize(dtype);
    if (dtype == TF_STRING || bytes > (*block)->capacity) {
        fail(run, TF_INVALID_ARGUMENT, "an output of " OP_NAME " has another type than its batch");
        return;
    }
    struct ydl_block *taken = *block;
    *block = NULL;
    struct tf_tensor *tensor = tf.TF_NewTensor(dtype, dims, rank, taken->data, (size_t)bytes,
                                               run->api->release_data, taken);
    if (!tensor) { /* it has released the data */
        fail(run, TF_RESOURCE_EXHAUSTED, "cannot make a tensor of a batch");
        return;
    }
    tf.TF_SetOutput(run->context, run->output++, tensor, run->status);
    tf.TF_DeleteTensor(tensor);
}

static void put_strings(struct run *run, int rank, const int64_t *dims,
                        const struct ydl_column *column)
{
    if (tf.TF_ExpectedOutputDataType(run->context, run->output) != TF_STRING) {
        fail(run, TF_INVALID_ARGUMENT, "an output of " OP_NAME " should have been of strings");
        return;
    }
    struct tf_tensor *tensor =
        tf.TF_AllocateOutput(run->context, run->output++, TF_STRING, dims, rank,
                             (size_t)column->elements * TF_TSTRING_BYTES, run->status);
    if (!tensor)
        return;
    if (is_ok(run)) {
        uint8_t *strings = tf.TF_TensorData(tensor);
        const uint64_t *ends = (const uint64_t *)(const void *)column->string_ends->data;
        uint64_t begin = 0;
        for (uint64_t i = 0; i < column->elements; i++) {
            tf.TF_StringCopy(strings + i * TF_TSTRING_BYTES,
                             (const char *)column->data->data + begin, (size_t)(ends[i] - begin));
            begin = ends[i];
        }
    }
    tf.TF_DeleteTensor(tensor);
}

static void put_column(struct run *run, int rank, const int64_t *dims, struct ydl_column *column)
{
    if (column->string_ends)
        put_strings(run, rank, dims, column);
    else
        put_block(run, rank, dims, column->elements, &column->data);
}

static void put_uniform(struct run *run, struct ydl_column *column)
{
    int64_t dims[1 + YDL_MAX_RANK] = {(int64_t)run->batch->records};
    memcpy(dims + 1, column->dims, column->rank * sizeof *dims);
    put_column(run, (int)column->rank + 1, dims, column);
}

static void put_split(struct run *run, struct ydl_column *column)
{
    const uint64_t records = run->batch->records;
    const int64_t elements = (int64_t)column->elements;
    const int64_t splits = (int64_t)records + 1;
    const int64_t shapes[2] = {(int64_t)records, column->rank};
    put_column(run, 1, &elements, column);
    if (is_ok(run))
        put_block(run, 1, &splits, records + 1, &column->record_splits);
    if (is_ok(run))
        put_block(run, 1, shapes, records, &column->record_ranks);
    if (is_ok(run))
        put_block(run, 2, shapes, records * column->rank, &column->record_dims);
}

static void put_batch(struct run *run)
{
    struct ydl_batch *batch = run->batch;
    uint64_t split_outputs = 0;
    for (uint32_t c = 0; c < batch->count; c++)
        split_outputs += batch->columns[c].record_splits ? 4 : 1;
    const uint64_t outputs = (uint64_t)tf.TF_NumOutputs(run->context);
    if (outputs != batch->count && outputs != split_outputs) {
        fail(run, TF_INVALID_ARGUMENT, OP_NAME " has another number of outputs than its batch");
        return;
    }
    const bool is_split = outputs != batch->count;
    for (uint32_t c = 0; c < batch->count && is_ok(run); c++) {
        if (is_split && batch->columns[c].record_splits)
            put_split(run, &batch->columns[c]);
        else
            put_uniform(run, &batch->columns[c]);
    }
}

/* ---- the kernel ---- */

/* What Python's errors become on their way through a generator, so that both feeds fail alike. */
static int code_of(enum ydl_status status)
{
    switch (status) {
    case YDL_END:
        return TF_OUT_OF_RANGE;
    case YDL_INVALID:
    case YDL_UNSUPPORTED:
    case YDL_SHAPE_MISMATCH:
        return TF_INVALID_ARGUMENT;
    case YDL_NO_MEMORY:
        return TF_RESOURCE_EXHAUSTED;
    default:
        return TF_UNKNOWN;
    }
}

static const char *class_of(enum ydl_status status)
{
    static const char *const classes[] = {
#define YDL_CLASS(code, text, python_class) [YDL_##code] = python_class,
        YDL_STATUS_TABLE(YDL_CLASS)
#undef YDL_CLASS
    };
    return classes[status];
}

static void fail_as(struct run *run, enum ydl_status status, const struct ydl_error *err)
{
    char text[sizeof err->text + 64];
    snprintf(text, sizeof text, "%s: %s", class_of(status),
             status == YDL_END ? "no more batches" : err->text);
    fail(run, code_of(status), text);
}

/* The int64 values of an input; false where it has not exactly n of them. */
static bool read_input(struct run *run, int i, int64_t *out, int64_t n)
{
    struct tf_tensor *tensor = NULL;
    tf.TF_GetInput(run->context, i, &tensor, run->status);
    if (!is_ok(run))
        return false;
    bool fits = tf.TF_TensorType(tensor) == TF_INT64 && tf.TF_TensorElementCount(tensor) == n;
    if (fits)
        memcpy(out, tf.TF_TensorData(tensor), (size_t)n * sizeof *out);
    else
        fail(run, TF_INVALID_ARGUMENT, "an input of " OP_NAME " has another shape than it should");
    tf.TF_DeleteTensor(tensor);
    return fits;
}

static void next_batch(struct run *run)
{
    int64_t feed[2];
    if (!read_input(run, 0, feed, 2))
        return;
    run->api = (const struct ydl_feed_api *)(intptr_t)feed[0];
    if (!run->api || run->api->version != YDL_FEED_API_VERSION) {
        fail(run, TF_INVALID_ARGUMENT, OP_NAME " belongs to another version of ydl._core");
        return;
    }
    struct ydl_error err;
    enum ydl_status status = run->api->next((uint64_t)feed[1], &run->batch, &err);
    if (status == YDL_OK)
        put_batch(run);
    else
        fail_as(run, status, &err);
    if (run->batch)
        run->api->free_batch(run->batch);
}

static void compute(void *kernel, struct tf_context *context)
{
    (void)kernel;
    struct run run = {.context = context, .status = tf.TF_NewStatus()};
    next_batch(&run);
    if (!is_ok(&run))
        tf.TF_OpKernelContext_Failure(context, run.status);
    tf.TF_DeleteStatus(run.status);
}

static void *create(struct tf_construction *construction)
{
    (void)construction;
    return NULL;
}

static void destroy(void *kernel)
{
    (void)kernel;
}

/* ---- registration ---- */

/* Python, which knows more, sets the static shapes. */
static void infer_shapes(struct tf_shape_context *context, struct tf_status *status)
{
    tf.TF_ShapeInferenceContextSetUnknownShape(context, status);
}

/* What fails here leaves the op absent, which Python notices. */
__attribute__((constructor)) static void register_op(void)
{
    if (ydl_tf_find(&tf) != NULL)
        return;
    struct tf_status *status = tf.TF_NewStatus();
    struct tf_op_builder *op = tf.TF_NewOpDefinitionBuilder(OP_NAME);
    tf.TF_OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 1");
    tf.TF_OpDefinitionBuilderAddInput(op, "feed: int64");
    tf.TF_OpDefinitionBuilderAddOutput(op, "batch: Tout");
    tf.TF_OpDefinitionBuilderSetIsStateful(op, true);
    tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(op, infer_shapes);
    tf.TF_RegisterOpDefinition(op, status);
    if (tf.TF_GetCode(status) == TF_OK)
        tf.TF_RegisterKernelBuilder(
            OP_NAME, tf.TF_NewKernelBuilder(OP_NAME, "CPU", create, compute, destroy), status);
    tf.TF_DeleteStatus(status);
}
