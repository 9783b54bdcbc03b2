/* Batches of the core as NumPy arrays and records. */
#include "py/module.h"

#include <string.h>

#include "base/bytes.h"
#include "record/row.h"

PyObject *ydl_new_u64_array(uint64_t n)
{
    npy_intp dim = (npy_intp)n;
    return PyArray_SimpleNew(1, &dim, NPY_UINT64);
}

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
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, dtype, rank, dims, NULL, data, NPY_ARRAY_CARRAY, NULL);
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

/* The string that begins at *at, which is moved behind it. The lengths are read from a row that
 * somebody may be writing to, hence once and within bounds. */
static PyObject *take_string(const struct ydl_field *field, uint64_t element, uint64_t *at)
{
    uint64_t left = field->bytes - *at;
    uint64_t length = ydl_load_u32(field->lengths + 4 * element);
    if (length > left)
        length = left;
    PyObject *bytes =
        PyBytes_FromStringAndSize((const char *)field->data + *at, (Py_ssize_t)length);
    *at += length;
    return bytes;
}

static PyObject *strings_of_field(const struct ydl_field *field, npy_intp *dims)
{
    uint64_t at = 0;
    if (field->rank == 0)
        return take_string(field, 0, &at);
    PyObject *array = PyArray_SimpleNew((int)field->rank, dims, NPY_OBJECT);
    if (!array)
        return NULL;
    PyObject **items = PyArray_DATA((PyArrayObject *)array);
    for (uint64_t e = 0; e < field->elements; e++) {
        PyObject *bytes = take_string(field, e, &at);
        if (!bytes) {
            Py_DECREF(array);
            return NULL;
        }
        Py_XSETREF(items[e], bytes);
    }
    return array;
}

static PyObject *component_of_row(PyArray_Descr *dtype, const struct ydl_field *field)
{
    npy_intp dims[YDL_MAX_RANK];
    for (uint32_t d = 0; d < field->rank; d++)
        dims[d] = (npy_intp)field->dims[d];
    if (field->lengths)
        return strings_of_field(field, dims);
    if (field->rank == 0)
        return PyArray_Scalar((void *)field->data, dtype, NULL);
    Py_INCREF(dtype); /* stolen by the call below */
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, dtype, (int)field->rank, dims, NULL, NULL, 0, NULL);
    if (array && field->bytes)
        memcpy(PyArray_DATA((PyArrayObject *)array), field->data, (size_t)field->bytes);
    return array;
}

static PyObject *tuple_of_fields(const struct py_reader *reader, const struct ydl_field *fields)
{
    uint32_t count = reader->reader->layout.count;
    PyObject *record = PyTuple_New(count);
    Py_ssize_t at = 0;
    for (uint32_t c = 0; record && c < count; c++)
        if (put(record, &at, component_of_row(reader->dtypes[c], &fields[c])) != 0)
            Py_CLEAR(record);
    return record;
}

static PyObject *record_of_row(const struct py_reader *reader, const struct ydl_row *row,
                               struct ydl_field *fields, bool bare)
{
    struct ydl_error err;
    PyObject *record = NULL;
    if (ydl_row_take_apart(&reader->reader->layout, row, fields, &err) != YDL_OK)
        goto fail;
    record =
        bare ? component_of_row(reader->dtypes[0], &fields[0]) : tuple_of_fields(reader, fields);
    if (record && row->part && ydl_part_check_whole(row->part, &err) != YDL_OK)
        goto fail;
    return record;

fail:
    Py_XDECREF(record);
    return ydl_raise(ydl_state_of_type(Py_TYPE(reader)), &err);
}

PyObject *ydl_row_to_tuple(const struct py_reader *reader, const struct ydl_row *row,
                           struct ydl_field *fields)
{
    return record_of_row(reader, row, fields, false);
}

PyObject *ydl_row_to_value(const struct py_reader *reader, const struct ydl_row *row,
                           struct ydl_field *fields)
{
    return record_of_row(reader, row, fields, true);
}
