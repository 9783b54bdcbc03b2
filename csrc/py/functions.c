/* The module's functions: manifest log, file systems, hashing, shuffles. */
#include "py/module.h"

#include "base/directory.h"
#include "base/hash.h"
#include "base/io.h"
#include "batch/feed.h"
#include "order/order.h"
#include "record/access.h"
#include "store/log.h"

static PyObject *raise_from(PyObject *module, const struct ydl_error *err)
{
    return ydl_raise(PyModule_GetState(module), err);
}

static PyObject *log_latest(PyObject *module, PyObject *args)
{
    PyObject *directory;
    if (!PyArg_ParseTuple(args, "O&:log_latest", PyUnicode_FSConverter, &directory))
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status;
    uint64_t number = 0;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_log_latest(PyBytes_AS_STRING(directory), &number, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(directory);
    return status == YDL_OK ? PyLong_FromUnsignedLongLong(number) : raise_from(module, &err);
}

static PyObject *log_read(PyObject *module, PyObject *args)
{
    PyObject *directory;
    unsigned long long number;
    Py_ssize_t max_bytes;
    if (!PyArg_ParseTuple(args, "O&Kn:log_read", PyUnicode_FSConverter, &directory, &number,
                          &max_bytes))
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status;
    struct ydl_buf content;
    ydl_buf_init(&content, max_bytes < 0 ? 0 : (size_t)max_bytes);
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_log_read(PyBytes_AS_STRING(directory), number, content.max, &content, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(directory);
    PyObject *bytes = NULL;
    if (status == YDL_OK)
        bytes = PyBytes_FromStringAndSize((const char *)content.data, (Py_ssize_t)content.len);
    else
        raise_from(module, &err);
    ydl_buf_clear(&content);
    return bytes;
}

static PyObject *log_append(PyObject *module, PyObject *args)
{
    PyObject *directory;
    unsigned long long number;
    Py_buffer content;
    int allow_weak;
    if (!PyArg_ParseTuple(args, "O&Ky*p:log_append", PyUnicode_FSConverter, &directory, &number,
                          &content, &allow_weak))
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_log_append(PyBytes_AS_STRING(directory), number, content.buf, (size_t)content.len,
                            allow_weak, &err);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&content);
    Py_DECREF(directory);
    if (status != YDL_OK && status != YDL_BUSY)
        return raise_from(module, &err);
    return PyBool_FromLong(status == YDL_OK);
}

static PyObject *fsync_directory(PyObject *module, PyObject *args)
{
    PyObject *directory;
    if (!PyArg_ParseTuple(args, "O&:fsync_directory", PyUnicode_FSConverter, &directory))
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_fsync_dir(PyBytes_AS_STRING(directory), &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(directory);
    if (status != YDL_OK)
        return raise_from(module, &err);
    Py_RETURN_NONE;
}

static PyObject *access_for(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "O&:access_for", PyUnicode_FSConverter, &path))
        return NULL;
    enum ydl_access access;
    Py_BEGIN_ALLOW_THREADS;
    access = ydl_access_for(PyBytes_AS_STRING(path));
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    return PyUnicode_FromString(access == YDL_ACCESS_MMAP ? "mmap" : "pread");
}

static PyObject *hash64(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer content;
    if (!PyArg_ParseTuple(args, "y*:hash64", &content))
        return NULL;
    uint64_t hash = ydl_hash(content.buf, (size_t)content.len);
    PyBuffer_Release(&content);
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *shuffle(PyObject *module, PyObject *args)
{
    (void)module;
    Py_ssize_t n;
    unsigned int seed;
    if (!PyArg_ParseTuple(args, "nI:shuffle", &n, &seed))
        return NULL;
    PyObject *array = ydl_new_u64_array((uint64_t)n);
    if (!array)
        return NULL;
    uint64_t *values = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < n; i++)
        values[i] = (uint64_t)i;
    (void)ydl_shuffle_u64(values, (uint64_t)n, seed, NULL);
    Py_END_ALLOW_THREADS;
    return array;
}

static PyObject *sample_feed(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return Py_BuildValue("LK", (long long)(intptr_t)&ydl_feed_api,
                         (unsigned long long)YDL_FEED_SAMPLE);
}

PyMethodDef ydl_functions[] = {
    {"log_latest", log_latest, METH_VARARGS, NULL},
    {"log_read", log_read, METH_VARARGS, NULL},
    {"log_append", log_append, METH_VARARGS, NULL},
    {"fsync_directory", fsync_directory, METH_VARARGS, NULL},
    {"access_for", access_for, METH_VARARGS, NULL},
    {"hash64", hash64, METH_VARARGS, NULL},
    {"shuffle", shuffle, METH_VARARGS, NULL},
    {"sample_feed", sample_feed, METH_NOARGS, NULL},
    {0},
};
