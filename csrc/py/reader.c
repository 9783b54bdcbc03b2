/* _core.Reader: an open dataset. */
#include "py/module.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

struct part_list {
    struct ydl_part_info *infos; /* [count], owned, paths too */
    Py_ssize_t count;
};

static void clear_parts(struct part_list *parts)
{
    for (Py_ssize_t i = 0; parts->infos && i < parts->count; i++)
        PyMem_Free(parts->infos[i].path);
    PyMem_Free(parts->infos);
    *parts = (struct part_list){0};
}

static int part_from_python(PyObject *item, struct ydl_part_info *info)
{
    PyObject *path;
    const char *uuid;
    Py_ssize_t uuid_bytes;
    unsigned long long number, first_record, records, bytes;
    if (!PyArg_ParseTuple(item, "O&y#KKKK:part", PyUnicode_FSConverter, &path, &uuid, &uuid_bytes,
                          &number, &first_record, &records, &bytes))
        return -1;

    int rc = -1;
    if (uuid_bytes != YDL_UUID_BYTES) {
        PyErr_Format(PyExc_ValueError, "a build uuid has %d bytes, not %zd", (int)YDL_UUID_BYTES,
                     uuid_bytes);
        goto done;
    }
    size_t path_bytes = (size_t)PyBytes_GET_SIZE(path) + 1;
    info->path = PyMem_Malloc(path_bytes);
    if (!info->path) {
        PyErr_NoMemory();
        goto done;
    }
    memcpy(info->path, PyBytes_AS_STRING(path), path_bytes);
    memcpy(info->build_uuid, uuid, YDL_UUID_BYTES);
    info->number = number;
    info->first_record = first_record;
    info->records = records;
    info->bytes = bytes;
    rc = 0;
done:
    Py_DECREF(path);
    return rc;
}

static int parts_from_python(PyObject *sequence, struct part_list *out)
{
    PyObject *items = PySequence_Fast(sequence, "parts is a sequence of tuples");
    if (!items)
        return -1;
    int rc = 0;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    out->infos = PyMem_Calloc((size_t)count + 1, sizeof *out->infos);
    if (!out->infos) {
        PyErr_NoMemory();
        rc = -1;
    }
    for (; rc == 0 && out->count < count; out->count++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, out->count);
        if (!PyTuple_Check(item)) {
            PyErr_Format(PyExc_TypeError, "a part is a tuple, not %R", item);
            rc = -1;
            break;
        }
        rc = part_from_python(item, &out->infos[out->count]);
    }
    Py_DECREF(items);
    return rc;
}

static void clear_dtypes(PyArray_Descr **dtypes, uint32_t count)
{
    for (uint32_t i = 0; dtypes && i < count; i++)
        Py_XDECREF(dtypes[i]);
    PyMem_Free(dtypes);
}

static PyArray_Descr **dtypes_from_python(PyObject *sequence, const struct ydl_layout *layout)
{
    PyArray_Descr **dtypes = NULL;
    PyObject *items = PySequence_Fast(sequence, "dtypes is a sequence of NumPy dtypes");
    if (!items)
        return NULL;
    if (PySequence_Fast_GET_SIZE(items) != (Py_ssize_t)layout->count) {
        PyErr_Format(PyExc_ValueError, "%zd dtypes for %u components",
                     PySequence_Fast_GET_SIZE(items), (unsigned)layout->count);
        goto fail;
    }
    dtypes = PyMem_Calloc(layout->count, sizeof(PyArray_Descr *));
    if (!dtypes) {
        PyErr_NoMemory();
        goto fail;
    }
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct ydl_component *component = &layout->components[i];
        PyObject *item = PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i);
        if (!PyArray_DescrCheck(item)) {
            PyErr_Format(PyExc_TypeError, "dtype %u is %R, no NumPy dtype", (unsigned)i, item);
            goto fail;
        }
        dtypes[i] = (PyArray_Descr *)Py_NewRef(item);
        if (component->dtype != YDL_STRING &&
            PyDataType_ELSIZE(dtypes[i]) != (npy_intp)component->item_bytes) {
            PyErr_Format(PyExc_ValueError, "component %u has elements of %u bytes, but dtype %R",
                         (unsigned)i, (unsigned)component->item_bytes, item);
            goto fail;
        }
    }
    Py_DECREF(items);
    return dtypes;

fail:
    clear_dtypes(dtypes, layout->count);
    Py_DECREF(items);
    return NULL;
}

static int verify_from_name(const char *name, enum ydl_verify *out)
{
    static const char *const names[] = {
        [YDL_VERIFY_FIRST] = "first",
        [YDL_VERIFY_ALWAYS] = "always",
        [YDL_VERIFY_NEVER] = "never",
    };
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum ydl_verify)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "verify is 'first', 'always' or 'never', not '%s'", name);
    return -1;
}

static int access_from_name(const char *name, enum ydl_access *out)
{
    bool mmap = strcmp(name, "mmap") == 0;
    if (!mmap && strcmp(name, "pread") != 0) {
        PyErr_Format(PyExc_ValueError, "access is 'mmap' or 'pread', not '%s'", name);
        return -1;
    }
    *out = mmap ? YDL_ACCESS_MMAP : YDL_ACCESS_PREAD;
    return 0;
}

/* Called by tp_new alone, so self is empty. */
static int reader_init(struct py_reader *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"parts", "components", "dtypes", "verify", "access", NULL};
    const struct module_state *state = ydl_state_of_type(Py_TYPE(self));
    PyObject *parts_arg, *components, *dtypes;
    const char *verify_name, *access_name;
    enum ydl_verify verify;
    enum ydl_access access;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOss:Reader", names, &parts_arg, &components,
                                     &dtypes, &verify_name, &access_name) ||
        verify_from_name(verify_name, &verify) != 0 || access_from_name(access_name, &access) != 0)
        return -1;
    int rc = -1;
    struct ydl_error err = {0};
    struct part_list parts = {0};
    struct ydl_layout layout = {0};
    if (parts_from_python(parts_arg, &parts) != 0 ||
        ydl_layout_from_python(state, components, &layout) != 0)
        goto done;
    uint32_t count = layout.count;
    PyArray_Descr **descrs = dtypes_from_python(dtypes, &layout);
    if (!descrs) {
        ydl_layout_clear(&layout);
        goto done;
    }
    if (ydl_reader_open_local(&layout, parts.infos, (size_t)parts.count, access, verify,
                              &self->reader, &err) != YDL_OK) {
        clear_dtypes(descrs, count);
        ydl_raise(state, &err);
        goto done;
    }
    self->dtypes = descrs;
    self->pid = getpid();
    rc = 0;
done:
    clear_parts(&parts);
    return rc;
}

static void reader_dealloc(struct py_reader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->reader) {
        clear_dtypes(self->dtypes, self->reader->layout.count);
        /* In a forked child the parent's threads may have held its locks: let the copy go. */
        if (self->pid == getpid())
            ydl_reader_release(self->reader);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* Record numbers as an owned array of u64. NULL with an exception. */
static uint64_t *numbers_from_python(PyObject *sequence, Py_ssize_t *out_count)
{
    PyObject *items = PySequence_Fast(sequence, "numbers is a sequence of record numbers");
    if (!items)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    uint64_t *numbers = PyMem_Calloc((size_t)count + 1, sizeof *numbers);
    if (!numbers)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; numbers && i < count; i++) {
        PyObject *index = PyNumber_Index(PySequence_Fast_GET_ITEM(items, i));
        numbers[i] = index ? PyLong_AsUnsignedLongLong(index) : 0;
        Py_XDECREF(index);
        if (PyErr_Occurred()) {
            PyMem_Free(numbers);
            numbers = NULL;
        }
    }
    Py_DECREF(items);
    *out_count = count;
    return numbers;
}

static PyObject *list_records(const struct py_reader *self, const struct ydl_row *rows,
                              Py_ssize_t count)
{
    struct ydl_field *fields = PyMem_Calloc(self->reader->layout.count, sizeof *fields);
    PyObject *list = fields ? PyList_New(count) : PyErr_NoMemory();
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *record = ydl_row_to_tuple(self, &rows[i], fields);
        if (record)
            PyList_SET_ITEM(list, i, record);
        else
            Py_CLEAR(list);
    }
    PyMem_Free(fields);
    return list;
}

/* 0, or -1 with an exception. */
static int refuse_forked(const struct py_reader *self)
{
    struct ydl_error err = {0};
    if (self->pid == getpid())
        return 0;
    ydl_fail(&err, YDL_FORKED, "cannot read with the reader of process %ld in process %ld",
             (long)self->pid, (long)getpid());
    ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    return -1;
}

static PyObject *reader_check(struct py_reader *self, PyObject *args)
{
    struct ydl_error err = {0};
    Py_ssize_t first, count;
    if (!PyArg_ParseTuple(args, "nn:check", &first, &count) || refuse_forked(self) != 0)
        return NULL;
    if (first < 0 || count < 0)
        return PyErr_Format(PyExc_ValueError, "cannot check %zd parts from %zd on", count, first);
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_reader_check(self->reader, (size_t)first, (size_t)count, &err);
    Py_END_ALLOW_THREADS;
    if (status != YDL_OK)
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    Py_RETURN_NONE;
}

static PyObject *reader_read(struct py_reader *self, PyObject *sequence)
{
    const struct module_state *state = ydl_state_of_type(Py_TYPE(self));
    struct ydl_error err = {0};
    if (refuse_forked(self) != 0)
        return NULL;
    Py_ssize_t count;
    uint64_t *numbers = numbers_from_python(sequence, &count);
    if (!numbers)
        return NULL;

    enum ydl_status status;
    struct ydl_finder *finder = NULL;
    const struct ydl_row *rows = NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_finder_new(self->reader, &finder, &err);
    if (status == YDL_OK)
        status = ydl_finder_lend(finder, numbers, (uint64_t)count, &rows, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(numbers);
    PyObject *list = NULL;
    if (status == YDL_OK)
        list = list_records(self, rows, count);
    else
        ydl_raise(state, &err);
    ydl_finder_free(finder);
    return list;
}

static PyObject *reader_records(struct py_reader *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->reader->records);
}

static PyObject *reader_mean_record_bytes(struct py_reader *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(ydl_reader_mean_record_bytes(self->reader));
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    /* Every method may rely on a reader: an object without one is never handed out. */
    struct py_reader *self = (struct py_reader *)type->tp_alloc(type, 0);
    if (self && reader_init(self, args, kwargs) != 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef reader_methods[] = {
    {"check", (PyCFunction)reader_check, METH_VARARGS, NULL},
    {"read", (PyCFunction)reader_read, METH_O, NULL},
    {0},
};

static PyGetSetDef reader_getset[] = {
    {"records", (getter)reader_records, NULL, NULL, NULL},
    {"mean_record_bytes", (getter)reader_mean_record_bytes, NULL, NULL, NULL},
    {0},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_getset},
    {0, NULL},
};

PyType_Spec ydl_reader_spec = {
    .name = "ydl._core.Reader",
    .basicsize = sizeof(struct py_reader),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = reader_slots,
};
