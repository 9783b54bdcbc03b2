/* _core.Writer: the part files of one build. */
#include "py/module.h"

#include <string.h>

#include "record/writer.h"

/* How long a call waits for the disk before it looks for Ctrl-C again. */
enum { SIGNAL_CHECK_MS = 50 };

struct py_writer {
    PyObject_HEAD struct ydl_writer *writer; /* owned; NULL once closed */
    struct ydl_layout layout;   /* what columns are checked against; the writer has a copy */
    bool busy;                  /* a thread is in the writer without the GIL */
    unsigned long long records; /* what the writer had counted when it was closed */
    unsigned long long bytes;
};

/* The columns of one append, converted. */
struct columns {
    struct ydl_input *inputs;      /* [count], owned array */
    int64_t (*dims)[YDL_MAX_RANK]; /* [count], owned; what inputs point to */
    struct ydl_slice **slices;     /* [count], owned arrays; NULL but for strings */
    PyArrayObject **arrays;        /* [count], strong: keep data and strings alive */
    PyArrayObject **shapes;        /* [count], strong; NULL where all shapes are equal */
    uint32_t count;
};

static void clear_columns(struct columns *columns)
{
    for (uint32_t c = 0; c < columns->count; c++) {
        if (columns->slices)
            PyMem_Free(columns->slices[c]);
        if (columns->arrays)
            Py_XDECREF(columns->arrays[c]);
        if (columns->shapes)
            Py_XDECREF(columns->shapes[c]);
    }
    PyMem_Free(columns->inputs);
    PyMem_Free(columns->dims);
    PyMem_Free(columns->slices);
    PyMem_Free(columns->arrays);
    PyMem_Free(columns->shapes);
}

static int init_columns(struct columns *columns, uint32_t count)
{
    columns->count = count;
    columns->inputs = PyMem_Calloc(count, sizeof *columns->inputs);
    columns->dims = PyMem_Calloc(count, sizeof *columns->dims);
    columns->slices = PyMem_Calloc(count, sizeof(struct ydl_slice *));
    columns->arrays = PyMem_Calloc(count, sizeof(PyArrayObject *));
    columns->shapes = PyMem_Calloc(count, sizeof(PyArrayObject *));
    if (columns->inputs && columns->dims && columns->slices && columns->arrays && columns->shapes)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int strings_from_python(struct columns *columns, uint32_t c)
{
    PyArrayObject *array = columns->arrays[c];
    npy_intp count = PyArray_SIZE(array);
    struct ydl_slice *slices = PyMem_Calloc((size_t)count + 1, sizeof *slices);
    if (!slices) {
        PyErr_NoMemory();
        return -1;
    }
    columns->slices[c] = slices;
    columns->inputs[c].strings = slices;
    PyObject **items = PyArray_DATA(array);
    for (npy_intp i = 0; i < count; i++) {
        if (!items[i] || !PyBytes_Check(items[i])) {
            PyErr_Format(PyExc_ValueError, "column %u holds %R where bytes should be", (unsigned)c,
                         items[i] ? items[i] : Py_None);
            return -1;
        }
        slices[i].data = (const uint8_t *)PyBytes_AS_STRING(items[i]);
        slices[i].len = (size_t)PyBytes_GET_SIZE(items[i]);
    }
    return 0;
}

/* Takes a reference to the elements of column c, whatever their shape. */
static int elements_from_python(struct columns *columns, uint32_t c, PyObject *item,
                                const struct ydl_component *component)
{
    if (!PyArray_Check(item)) {
        PyErr_Format(PyExc_TypeError, "column %u is %R, no NumPy array", (unsigned)c, item);
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)item;
    bool is_string = component->dtype == YDL_STRING;
    if (is_string != (PyArray_TYPE(array) == NPY_OBJECT) ||
        (!is_string && PyArray_ITEMSIZE(array) != (npy_intp)component->item_bytes) ||
        PyArray_ISBYTESWAPPED(array)) {
        PyErr_Format(PyExc_ValueError,
                     "column %u has dtype %R, which does not hold what component "
                     "%u stores (%u bytes an element, 0: bytes objects)",
                     (unsigned)c, PyArray_DESCR(array), (unsigned)c,
                     (unsigned)component->item_bytes);
        return -1;
    }
    array = PyArray_GETCONTIGUOUS(array); /* a new reference, a copy only where needed */
    if (!array)
        return -1;
    columns->arrays[c] = array;
    if (is_string)
        return strings_from_python(columns, c);
    columns->inputs[c].data = PyArray_DATA(array);
    return 0;
}

/* One array: [records, ...]. */
static int equal_shapes_from_python(struct columns *columns, uint32_t c, unsigned long long records)
{
    PyArrayObject *array = columns->arrays[c];
    int ndim = PyArray_NDIM(array);
    if (ndim < 1 || ndim - 1 > YDL_MAX_RANK ||
        (unsigned long long)PyArray_DIM(array, 0) != records) {
        PyErr_Format(PyExc_ValueError,
                     "column %u has %d dimensions, the first of %zd: wanted "
                     "[%llu, ...]",
                     (unsigned)c, ndim,
                     ndim < 1 ? (Py_ssize_t)0 : (Py_ssize_t)PyArray_DIM(array, 0), records);
        return -1;
    }
    for (int d = 1; d < ndim; d++)
        columns->dims[c][d - 1] = PyArray_DIM(array, d);
    columns->inputs[c].rank = (uint32_t)(ndim - 1);
    columns->inputs[c].dims = columns->dims[c];
    return 0;
}

/* The elements of all records, and int64 [records, rank]. */
static int shapes_from_python(struct columns *columns, uint32_t c, PyObject *item,
                              unsigned long long records)
{
    PyArrayObject *array = (PyArrayObject *)item;
    if (!PyArray_Check(item) || PyArray_NDIM(array) != 2 || PyArray_TYPE(array) != NPY_INT64 ||
        PyArray_ISBYTESWAPPED(array) || (unsigned long long)PyArray_DIM(array, 0) != records ||
        PyArray_DIM(array, 1) > YDL_MAX_RANK) {
        PyErr_Format(PyExc_ValueError,
                     "the shapes of column %u are %R: wanted an array int64 [%llu, rank]",
                     (unsigned)c, item, records);
        return -1;
    }
    columns->shapes[c] = PyArray_GETCONTIGUOUS(array);
    if (!columns->shapes[c])
        return -1;
    columns->inputs[c].rank = (uint32_t)PyArray_DIM(array, 1);
    columns->inputs[c].shapes = PyArray_DATA(columns->shapes[c]);
    columns->inputs[c].elements = (uint64_t)PyArray_SIZE(columns->arrays[c]);
    return 0;
}

static int column_from_python(struct columns *columns, uint32_t c, PyObject *item,
                              const struct ydl_component *component, unsigned long long records)
{
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2)
        return elements_from_python(columns, c, item, component) == 0
                   ? equal_shapes_from_python(columns, c, records)
                   : -1;
    return elements_from_python(columns, c, PyTuple_GET_ITEM(item, 0), component) == 0
               ? shapes_from_python(columns, c, PyTuple_GET_ITEM(item, 1), records)
               : -1;
}

static int columns_from_python(struct columns *columns, PyObject *sequence,
                               const struct ydl_layout *layout, unsigned long long records)
{
    PyObject *items = PySequence_Fast(sequence, "columns is a sequence of NumPy arrays");
    if (!items)
        return -1;
    int rc = 0;
    if (PySequence_Fast_GET_SIZE(items) != (Py_ssize_t)layout->count) {
        PyErr_Format(PyExc_ValueError, "%zd columns for %u components",
                     PySequence_Fast_GET_SIZE(items), (unsigned)layout->count);
        rc = -1;
    } else {
        rc = init_columns(columns, layout->count);
    }
    for (uint32_t c = 0; rc == 0 && c < layout->count; c++)
        rc = column_from_python(columns, c, PySequence_Fast_GET_ITEM(items, (Py_ssize_t)c),
                                &layout->components[c], records);
    Py_DECREF(items);
    return rc;
}

/* A writer that may be used now; NULL with an exception. */
static struct ydl_writer *enter(struct py_writer *self)
{
    if (self->writer && !self->busy)
        return self->writer;
    struct ydl_error err;
    ydl_fail(&err, YDL_CLOSED, "cannot use a writer that %s",
             self->writer ? "another thread uses" : "was closed");
    return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
}

static PyObject *writer_append(struct py_writer *self, PyObject *args)
{
    unsigned long long records;
    PyObject *sequence;
    struct ydl_writer *writer = enter(self);
    if (!writer || !PyArg_ParseTuple(args, "KO:append", &records, &sequence))
        return NULL;

    struct columns columns = {0};
    struct ydl_error err = {0};
    enum ydl_status status = YDL_PENDING;
    bool interrupted = false;
    int rc = columns_from_python(&columns, sequence, &self->layout, records);
    self->busy = true;
    while (rc == 0 && status == YDL_PENDING && !interrupted) {
        /* The arrays are kept alive; whoever passes string arrays must not change them meanwhile.
         */
        Py_BEGIN_ALLOW_THREADS;
        status = ydl_writer_wait(writer, SIGNAL_CHECK_MS, &err);
        if (status == YDL_OK)
            status = ydl_writer_append(writer, records, columns.inputs, &err);
        Py_END_ALLOW_THREADS;
        interrupted = status == YDL_PENDING && PyErr_CheckSignals() != 0;
    }
    self->busy = false;
    clear_columns(&columns);
    if (rc != 0 || interrupted)
        return NULL;
    if (status != YDL_OK)
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    Py_RETURN_NONE;
}

static PyObject *list_parts(const struct ydl_writer *writer)
{
    size_t count;
    const struct ydl_written_part *parts = ydl_writer_parts(writer, &count);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *part =
            Py_BuildValue("sKKK", parts[i].name, (unsigned long long)parts[i].records,
                          (unsigned long long)parts[i].bytes, (unsigned long long)parts[i].hash);
        if (part)
            PyList_SET_ITEM(list, (Py_ssize_t)i, part);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *writer_finish(struct py_writer *self, PyObject *ignored)
{
    (void)ignored;
    struct ydl_writer *writer = enter(self);
    if (!writer)
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status = YDL_PENDING;
    bool interrupted = false;
    self->busy = true;
    while (status == YDL_PENDING && !interrupted) {
        Py_BEGIN_ALLOW_THREADS;
        status = ydl_writer_try_finish(writer, SIGNAL_CHECK_MS, &err);
        Py_END_ALLOW_THREADS;
        interrupted = status == YDL_PENDING && PyErr_CheckSignals() != 0;
    }
    self->busy = false;
    if (interrupted)
        return NULL;
    if (status != YDL_OK)
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    return list_parts(writer);
}

/* It may wait for the disk. */
static void free_writer(struct py_writer *self)
{
    struct ydl_writer *writer = self->writer;
    self->writer = NULL;
    Py_BEGIN_ALLOW_THREADS;
    ydl_writer_free(writer);
    Py_END_ALLOW_THREADS;
}

static PyObject *writer_close(struct py_writer *self, PyObject *ignored)
{
    (void)ignored;
    if (!self->writer)
        Py_RETURN_NONE;
    struct ydl_writer *writer = enter(self);
    if (!writer)
        return NULL;
    self->records = ydl_writer_records(writer);
    self->bytes = ydl_writer_bytes(writer);
    free_writer(self);
    Py_RETURN_NONE;
}

static int writer_init(struct py_writer *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"directory", "build_uuid", "components", "part_bytes", NULL};
    const struct module_state *state = ydl_state_of_type(Py_TYPE(self));
    PyObject *directory, *components;
    const char *uuid;
    Py_ssize_t uuid_bytes;
    unsigned long long part_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&y#OK:Writer", names, PyUnicode_FSConverter,
                                     &directory, &uuid, &uuid_bytes, &components, &part_bytes))
        return -1;
    int rc = -1;
    if (uuid_bytes != YDL_UUID_BYTES) {
        PyErr_Format(PyExc_ValueError, "a build uuid has %d bytes, not %zd", (int)YDL_UUID_BYTES,
                     uuid_bytes);
    } else if (ydl_layout_from_python(state, components, &self->layout) == 0) {
        struct ydl_error err = {0};
        if (ydl_writer_new(PyBytes_AS_STRING(directory), (const uint8_t *)uuid, &self->layout,
                           part_bytes, &self->writer, &err) == YDL_OK)
            rc = 0;
        else
            ydl_raise(state, &err);
    }
    Py_DECREF(directory);
    return rc;
}

static void writer_dealloc(struct py_writer *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free_writer(self);
    ydl_layout_clear(&self->layout);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct py_writer *self = (struct py_writer *)type->tp_alloc(type, 0);
    if (self && writer_init(self, args, kwargs) != 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *writer_records(struct py_writer *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->writer ? ydl_writer_records(self->writer)
                                                    : self->records);
}

static PyObject *writer_bytes(struct py_writer *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->writer ? ydl_writer_bytes(self->writer) : self->bytes);
}

static PyMethodDef writer_methods[] = {
    {"append", (PyCFunction)writer_append, METH_VARARGS, NULL},
    {"finish", (PyCFunction)writer_finish, METH_NOARGS, NULL},
    {"close", (PyCFunction)writer_close, METH_NOARGS, NULL},
    {0},
};

static PyGetSetDef writer_getset[] = {
    {"records", (getter)writer_records, NULL, NULL, NULL},
    {"bytes", (getter)writer_bytes, NULL, NULL, NULL},
    {0},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getset},
    {0, NULL},
};

PyType_Spec ydl_writer_spec = {
    .name = "ydl._core.Writer",
    .basicsize = sizeof(struct py_writer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = writer_slots,
};
