/* Batches of the core as NumPy arrays and records. */
#include "py/module.h"

#include <string.h>

#include "record/dtype.h"

static const char BLOCK_CAPSULE[] = "ydl.block";

static void release_block_capsule(PyObject *capsule)
{
    ydl_block_release(PyCapsule_GetPointer(capsule, BLOCK_CAPSULE));
}

/* An array over *block, which is taken (and *block set to NULL) once the array owns it. */
static PyObject *array_over_block(PyArray_Descr *dtype, int rank, npy_intp *dims,
                                  struct ydl_block **block)
{
    PyObject *capsule = PyCapsule_New(*block, BLOCK_CAPSULE, release_block_capsule);
    if (!capsule)
        return NULL;
    uint8_t *data = (*block)->data;
    *block = NULL;

    Py_INCREF(dtype); /* stolen by the call below */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, dtype, rank, dims, NULL, data,
                                           NPY_ARRAY_CARRAY, NULL);
    if (!array) {
        Py_DECREF(capsule);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) != 0) { /* steals capsule */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

static PyObject *int64_array_over_block(int rank, npy_intp *dims, struct ydl_block **block)
{
    PyArray_Descr *dtype = PyArray_DescrFromType(NPY_INT64);
    PyObject *array = dtype ? array_over_block(dtype, rank, dims, block) : NULL;
    Py_XDECREF(dtype);
    return array;
}

static PyObject *bytes_of_element(const struct ydl_column *column, uint64_t element)
{
    const uint64_t *ends = (const uint64_t *)(const void *)column->string_ends->data;
    uint64_t begin = element == 0 ? 0 : ends[element - 1];
    return PyBytes_FromStringAndSize((const char *)column->data->data + begin,
                                     (Py_ssize_t)(ends[element] - begin));
}

/* An object array of the bytes of elements [first, first + its size). */
static PyObject *string_array(const struct ydl_column *column, uint64_t first, int rank,
                              npy_intp *dims)
{
    PyObject *array = PyArray_SimpleNew(rank, dims, NPY_OBJECT);
    if (!array)
        return NULL;
    PyObject **items = PyArray_DATA((PyArrayObject *)array);
    npy_intp count = PyArray_SIZE((PyArrayObject *)array);
    for (npy_intp i = 0; i < count; i++) {
        PyObject *bytes = bytes_of_element(column, first + (uint64_t)i);
        if (!bytes) {
            Py_DECREF(array);
            return NULL;
        }
        Py_XSETREF(items[i], bytes); /* a new object array holds NULL or None, as NumPy likes */
    }
    return array;
}

static PyObject *column_array(const struct py_reader *reader, uint32_t c, struct ydl_column *column,
                              int rank, npy_intp *dims)
{
    if (column->string_ends)
        return string_array(column, 0, rank, dims);
    return array_over_block(reader->dtypes[c], rank, dims, &column->data);
}

/* Puts a new reference (or NULL: an error) into a tuple under construction. */
static int put(PyObject *tuple, Py_ssize_t *at, PyObject *item)
{
    if (!item)
        return -1;
    PyTuple_SET_ITEM(tuple, (*at)++, item);
    return 0;
}

static int put_uniform(PyObject *tuple, Py_ssize_t *at, const struct py_reader *reader, uint32_t c,
                       struct ydl_batch *batch)
{
    struct ydl_column *column = &batch->columns[c];
    npy_intp dims[1 + YDL_MAX_RANK] = {(npy_intp)batch->records};
    for (uint32_t d = 0; d < column->rank; d++)
        dims[1 + d] = (npy_intp)column->dims[d];
    return put(tuple, at, column_array(reader, c, column, (int)column->rank + 1, dims));
}

/* values, row_splits, ranks, shapes */
static int put_split(PyObject *tuple, Py_ssize_t *at, const struct py_reader *reader, uint32_t c,
                     struct ydl_batch *batch)
{
    struct ydl_column *column = &batch->columns[c];
    npy_intp elements = (npy_intp)column->elements;
    npy_intp records = (npy_intp)batch->records;
    npy_intp splits = records + 1;
    npy_intp shapes[2] = {records, (npy_intp)column->rank};
    if (put(tuple, at, column_array(reader, c, column, 1, &elements)) != 0 ||
        put(tuple, at, int64_array_over_block(1, &splits, &column->record_splits)) != 0 ||
        put(tuple, at, int64_array_over_block(1, &records, &column->record_ranks)) != 0)
        return -1;
    return put(tuple, at, int64_array_over_block(2, shapes, &column->record_dims));
}

PyObject *ydl_batch_to_tuple(const struct py_reader *reader, struct ydl_batch *batch, bool split)
{
    Py_ssize_t count = 0;
    for (uint32_t c = 0; c < batch->count; c++)
        count += split && batch->columns[c].record_splits ? 4 : 1;
    PyObject *tuple = PyTuple_New(count);
    if (!tuple)
        return NULL;
    Py_ssize_t at = 0;
    for (uint32_t c = 0; c < batch->count; c++) {
        int rc = split && batch->columns[c].record_splits
                     ? put_split(tuple, &at, reader, c, batch)
                     : put_uniform(tuple, &at, reader, c, batch);
        if (rc != 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

int ydl_record_cursor_init(struct record_cursor *cursor, uint32_t components)
{
    *cursor = (struct record_cursor){0};
    cursor->columns = PyMem_Calloc(components, sizeof *cursor->columns);
    if (cursor->columns)
        return 0;
    PyErr_NoMemory();
    return -1;
}

void ydl_record_cursor_clear(struct record_cursor *cursor)
{
    ydl_batch_free(cursor->batch);
    PyMem_Free(cursor->columns);
    *cursor = (struct record_cursor){0};
}

void ydl_record_cursor_start(struct record_cursor *cursor, struct ydl_batch *batch)
{
    cursor->batch = batch;
    cursor->next = 0;
    memset(cursor->columns, 0, batch->count * sizeof *cursor->columns);
}

bool ydl_record_cursor_is_empty(const struct record_cursor *cursor)
{
    return !cursor->batch;
}

/* The shape of one record; returns its number of elements. */
static uint64_t record_shape(const struct ydl_column *column, uint64_t record, int *out_rank,
                             npy_intp dims[YDL_MAX_RANK])
{
    uint32_t rank = column->rank;
    const int64_t *from = column->dims;
    if (!column->uniform) {
        rank = (uint32_t)((const int64_t *)(const void *)column->record_ranks->data)[record];
        from = (const int64_t *)(const void *)column->record_dims->data + record * column->rank;
    }
    uint64_t elements = 1;
    for (uint32_t d = 0; d < rank; d++) {
        dims[d] = (npy_intp)from[d];
        elements *= (uint64_t)from[d];
    }
    *out_rank = (int)rank;
    return elements;
}

/* One component of the cursor's next record. A batch's only record keeps its buffer; others are
 * copied, so that a record that is kept does not keep its neighbours. */
static PyObject *component_of_record(struct record_cursor *cursor, uint32_t c,
                                     const struct py_reader *reader)
{
    struct ydl_column *column = &cursor->batch->columns[c];
    PyArray_Descr *dtype = reader->dtypes[c];
    uint64_t data_at = cursor->columns[c].data_at;
    uint64_t element_at = cursor->columns[c].element_at;
    int rank;
    npy_intp dims[YDL_MAX_RANK];
    uint64_t elements = record_shape(column, cursor->next, &rank, dims);
    cursor->columns[c].element_at += elements;

    if (column->string_ends)
        return rank == 0 ? bytes_of_element(column, element_at)
                         : string_array(column, element_at, rank, dims);

    uint64_t bytes = elements * (uint64_t)PyDataType_ELSIZE(dtype);
    cursor->columns[c].data_at += bytes;
    if (rank == 0)
        return PyArray_Scalar(column->data->data + data_at, dtype, NULL);
    if (cursor->batch->records == 1)
        return array_over_block(dtype, rank, dims, &column->data);
    Py_INCREF(dtype); /* stolen by the call below */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, dtype, rank, dims, NULL, NULL, 0, NULL);
    if (array && bytes)
        memcpy(PyArray_DATA((PyArrayObject *)array), column->data->data + data_at, (size_t)bytes);
    return array;
}

PyObject *ydl_record_cursor_next(struct record_cursor *cursor, const struct py_reader *reader)
{
    struct ydl_batch *batch = cursor->batch;
    PyObject *record = PyTuple_New(batch->count);
    if (!record)
        return NULL;
    Py_ssize_t at = 0;
    for (uint32_t c = 0; c < batch->count; c++) {
        if (put(record, &at, component_of_record(cursor, c, reader)) != 0) {
            Py_DECREF(record);
            return NULL;
        }
    }
    if (++cursor->next == batch->records) {
        ydl_batch_free(batch);
        cursor->batch = NULL;
    }
    return record;
}
