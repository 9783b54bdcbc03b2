/* Arguments from Python into the core's structs. */
#include "py/module.h"

struct spec_list {
    struct ydl_component_spec *specs; /* [count], owned */
    int64_t (*dims)[YDL_MAX_RANK];    /* [count], owned; what the specs point to */
    Py_ssize_t count;
};

static int shape_from_python(PyObject *shape, const char *name, struct ydl_component_spec *spec,
                             int64_t dims[YDL_MAX_RANK])
{
    if (shape == Py_None) {
        spec->rank = YDL_RANK_VARIES;
        return 0;
    }
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > YDL_MAX_RANK) {
        PyErr_Format(PyExc_ValueError,
                     "a %s component has the shape %R: wanted None or a tuple of "
                     "at most %d dimensions",
                     name, shape, (int)YDL_MAX_RANK);
        return -1;
    }
    spec->rank = (int32_t)PyTuple_GET_SIZE(shape);
    spec->dims = dims;
    for (int32_t d = 0; d < spec->rank; d++) {
        PyObject *size = PyTuple_GET_ITEM(shape, d);
        dims[d] = YDL_DIM_VARIES;
        if (size == Py_None)
            continue;
        dims[d] = PyLong_AsLongLong(size);
        if (dims[d] < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "a %s component has a dimension of %R", name, size);
            return -1;
        }
    }
    return 0;
}

static int component_from_python(PyObject *item, struct ydl_component_spec *spec,
                                 int64_t dims[YDL_MAX_RANK])
{
    const char *name;
    PyObject *shape;
    if (!PyTuple_Check(item)) {
        PyErr_Format(PyExc_TypeError, "a component is a tuple (dtype, shape), not %R", item);
        return -1;
    }
    if (!PyArg_ParseTuple(item, "sO:component", &name, &shape))
        return -1;
    if (!ydl_dtype_by_name(name, &spec->dtype)) {
        PyErr_Format(PyExc_ValueError, "no component can have the dtype '%s'", name);
        return -1;
    }
    return shape_from_python(shape, name, spec, dims);
}

int ydl_layout_from_python(const struct module_state *state, PyObject *components,
                           struct ydl_layout *out)
{
    int rc = -1;
    struct spec_list list = {0};
    PyObject *items = PySequence_Fast(components, "components is a sequence of (dtype, shape)");
    if (!items)
        return -1;
    list.count = PySequence_Fast_GET_SIZE(items);
    list.specs = PyMem_Calloc((size_t)list.count + 1, sizeof *list.specs);
    list.dims = PyMem_Calloc((size_t)list.count + 1, sizeof *list.dims);
    if (!list.specs || !list.dims) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < list.count; i++)
        if (component_from_python(PySequence_Fast_GET_ITEM(items, i), &list.specs[i],
                                  list.dims[i]) != 0)
            goto done;

    struct ydl_error err = {0};
    if (ydl_layout_init(out, list.specs, (uint32_t)list.count, &err) == YDL_OK)
        rc = 0;
    else
        ydl_raise(state, &err);
done:
    PyMem_Free(list.specs);
    PyMem_Free(list.dims);
    Py_DECREF(items);
    return rc;
}
