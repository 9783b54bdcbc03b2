/* ydl._core: the module, its state and its types. */
#define YDL_IMPORTS_NUMPY
#include "py/module.h"

struct module_state *ydl_state_of_type(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (!*out)
        return -1;
    return PyModule_AddType(module, *out);
}

static int exec_module(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    if (PyArray_ImportNumPyAPI() < 0 || ydl_errors_init(state) != 0)
        return -1;
    if (add_type(module, &ydl_writer_spec, &state->writer_type) != 0 ||
        add_type(module, &ydl_reader_spec, &state->reader_type) != 0 ||
        add_type(module, &ydl_order_spec, &state->order_type) != 0 ||
        add_type(module, &ydl_loader_spec, &state->loader_type) != 0 ||
        add_type(module, &ydl_lease_spec, &state->lease_type) != 0)
        return -1;
    return PyModule_AddIntConstant(module, "MAX_RANK", YDL_MAX_RANK);
}

static int traverse_state(PyObject *module, visitproc visit, void *arg)
{
    struct module_state *state = PyModule_GetState(module);
    Py_VISIT(state->writer_type);
    Py_VISIT(state->reader_type);
    Py_VISIT(state->order_type);
    Py_VISIT(state->loader_type);
    Py_VISIT(state->lease_type);
    for (int i = 0; i < YDL_STATUS_COUNT; i++)
        Py_VISIT(state->exceptions[i]);
    return 0;
}

static int clear_state(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->writer_type);
    Py_CLEAR(state->reader_type);
    Py_CLEAR(state->order_type);
    Py_CLEAR(state->loader_type);
    Py_CLEAR(state->lease_type);
    for (int i = 0; i < YDL_STATUS_COUNT; i++)
        Py_CLEAR(state->exceptions[i]);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, exec_module},
    {0, NULL},
};

static struct PyModuleDef ydl_core_module = {
    PyModuleDef_HEAD_INIT,      .m_name = "ydl._core",   .m_size = sizeof(struct module_state),
    .m_methods = ydl_functions, .m_slots = module_slots, .m_traverse = traverse_state,
    .m_clear = clear_state,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&ydl_core_module);
}
