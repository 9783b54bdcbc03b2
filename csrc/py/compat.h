/* What CPython 3.9 lacks. */
#ifndef YDL_PY_COMPAT_H
#define YDL_PY_COMPAT_H

#if PY_VERSION_HEX < 0x030A0000
static inline PyObject *Py_NewRef(PyObject *object)
{
    Py_INCREF(object);
    return object;
}
#endif

#endif
