/* Status to exception: the only place where the two meet. The table is in base/status.h. */
#include "py/module.h"

#include <string.h>

static const char *const class_names[YDL_STATUS_COUNT] = {
#define YDL_STATUS_CLASS(code, text, python_class) [YDL_##code] = python_class,
    YDL_STATUS_TABLE(YDL_STATUS_CLASS)
#undef YDL_STATUS_CLASS
};

int ydl_errors_init(struct module_state *state)
{
    PyObject *errors = PyImport_ImportModule("ydl.errors");
    PyObject *builtins = errors ? PyImport_ImportModule("builtins") : NULL;
    int rc = builtins ? 0 : -1;
    for (int i = 0; rc == 0 && i < YDL_STATUS_COUNT; i++) {
        const char *name = class_names[i];
        if (name[0] == '\0')
            continue;
        PyObject *home = PyObject_HasAttrString(errors, name) ? errors : builtins;
        state->exceptions[i] = PyObject_GetAttrString(home, name);
        if (!state->exceptions[i])
            rc = -1;
    }
    Py_XDECREF(builtins);
    Py_XDECREF(errors);
    return rc;
}

static PyObject *text_of(const char *bytes)
{
    /* Paths need not be UTF-8. */
    return PyUnicode_DecodeFSDefault(bytes);
}

void *ydl_raise(const struct module_state *state, const struct ydl_error *err)
{
    PyObject *text = NULL;
    PyObject *path = NULL;
    PyObject *error = NULL;
    PyObject *cls = state->exceptions[err->status];
    if (!cls) {
        PyErr_Format(PyExc_SystemError, "outcome %d is no error", (int)err->status);
        return NULL;
    }
    text = text_of(err->text);
    path = err->path[0] ? text_of(err->path) : Py_NewRef(Py_None);
    if (!text || !path)
        goto done;

    if (err->status == YDL_OS) {
        /* Three arguments let Python pick FileNotFoundError and its like. */
        error = PyObject_CallFunction(cls, "iOO", err->sys_errno, text, path);
    } else {
        error = PyObject_CallFunctionObjArgs(cls, text, NULL);
        if (error && path != Py_None && PyObject_IsInstance(error, PyExc_OSError) == 1 &&
            PyObject_SetAttrString(error, "filename", path) != 0)
            Py_CLEAR(error);
    }
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
done:
    Py_XDECREF(error);
    Py_XDECREF(path);
    Py_XDECREF(text);
    return NULL;
}
