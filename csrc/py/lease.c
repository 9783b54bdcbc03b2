/* _core.Lease: who is building. */
#include "py/module.h"

#include "store/lease.h"

struct py_lease {
    PyObject_HEAD struct ydl_lease *lease; /* owned */
    unsigned long failures;                /* seen when it was acquired */
};

static PyObject *raise_lease(struct py_lease *self, const struct ydl_error *err)
{
    return ydl_raise(ydl_state_of_type(Py_TYPE(self)), err);
}

static PyObject *view_to_dict(const struct ydl_lease_view *view)
{
    PyObject *host = PyUnicode_DecodeUTF8(view->host, (Py_ssize_t)strlen(view->host), "replace");
    PyObject *text = PyUnicode_DecodeUTF8(view->text, (Py_ssize_t)strlen(view->text), "replace");
    PyObject *dict = NULL;
    if (host && text)
        dict = Py_BuildValue(
            "{s:K,s:O,s:O,s:O,s:O,s:K,s:K,s:K,s:k,s:O}", "generation",
            (unsigned long long)view->generation, "held", view->held ? Py_True : Py_False, "failed",
            view->failed ? Py_True : Py_False, "stale", view->stale ? Py_True : Py_False, "host",
            host, "pid", (unsigned long long)view->pid, "since", (unsigned long long)view->since,
            "progress", (unsigned long long)view->progress, "failures",
            (unsigned long)view->failures, "text", text);
    Py_XDECREF(host);
    Py_XDECREF(text);
    return dict;
}

static PyObject *lease_try_acquire(struct py_lease *self, PyObject *ignored)
{
    (void)ignored;
    struct ydl_error err = {0};
    struct ydl_lease_view view;
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_lease_try(self->lease, &view, &err);
    Py_END_ALLOW_THREADS;
    if (status == YDL_BUSY)
        return view_to_dict(&view);
    if (status != YDL_OK)
        return raise_lease(self, &err);
    self->failures = view.failures;
    Py_RETURN_NONE;
}

static PyObject *lease_peek(struct py_lease *self, PyObject *ignored)
{
    (void)ignored;
    struct ydl_error err = {0};
    struct ydl_lease_view view;
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_lease_peek(self->lease, &view, &err);
    Py_END_ALLOW_THREADS;
    return status == YDL_OK ? view_to_dict(&view) : raise_lease(self, &err);
}

static PyObject *lease_set_progress(struct py_lease *self, PyObject *records)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(records);
    if (PyErr_Occurred())
        return NULL;
    ydl_lease_set_progress(self->lease, value);
    Py_RETURN_NONE;
}

static PyObject *lease_is_held(struct py_lease *self, PyObject *ignored)
{
    (void)ignored;
    bool held;
    Py_BEGIN_ALLOW_THREADS;
    held = ydl_lease_is_held(self->lease);
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(held);
}

static PyObject *lease_release(struct py_lease *self, PyObject *args)
{
    const char *failure = NULL;
    if (!PyArg_ParseTuple(args, "|z:release", &failure))
        return NULL;
    struct ydl_error err = {0};
    enum ydl_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_lease_release(self->lease, failure, &err);
    Py_END_ALLOW_THREADS;
    if (status != YDL_OK)
        return raise_lease(self, &err);
    Py_RETURN_NONE;
}

static PyObject *lease_failures(struct py_lease *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(self->failures);
}

static PyObject *lease_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"directory", "ttl_ms", NULL};
    PyObject *directory;
    unsigned long long ttl_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&K:Lease", names, PyUnicode_FSConverter,
                                     &directory, &ttl_ms))
        return NULL;
    struct ydl_error err = {0};
    struct py_lease *self = (struct py_lease *)type->tp_alloc(type, 0);
    if (self && ydl_lease_new(PyBytes_AS_STRING(directory), ttl_ms, &self->lease, &err) != YDL_OK) {
        raise_lease(self, &err);
        Py_CLEAR(self);
    }
    Py_DECREF(directory);
    return (PyObject *)self;
}

static void lease_dealloc(struct py_lease *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ydl_lease_free(self->lease);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef lease_methods[] = {
    {"try_acquire", (PyCFunction)lease_try_acquire, METH_NOARGS, NULL},
    {"peek", (PyCFunction)lease_peek, METH_NOARGS, NULL},
    {"set_progress", (PyCFunction)lease_set_progress, METH_O, NULL},
    {"is_held", (PyCFunction)lease_is_held, METH_NOARGS, NULL},
    {"release", (PyCFunction)lease_release, METH_VARARGS, NULL},
    {0},
};

static PyGetSetDef lease_getset[] = {
    {"failures", (getter)lease_failures, NULL, NULL, NULL},
    {0},
};

static PyType_Slot lease_slots[] = {
    {Py_tp_new, lease_new},
    {Py_tp_dealloc, lease_dealloc},
    {Py_tp_methods, lease_methods},
    {Py_tp_getset, lease_getset},
    {0, NULL},
};

PyType_Spec ydl_lease_spec = {
    .name = "ydl._core.Lease",
    .basicsize = sizeof(struct py_lease),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = lease_slots,
};
