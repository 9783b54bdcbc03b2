/* What the files of csrc/py share: module state, errors, conversions. Nothing outside includes it.
 *
 * Each type has a file of its own. Methods convert their arguments, release the GIL around core
 * calls that block or copy much, and convert the result; policy is elsewhere. Native threads never
 * touch Python, and no core lock is held while Python runs. */
#ifndef YDL_PY_MODULE_H
#define YDL_PY_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL ydl_core_array_api
#ifndef YDL_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "py/compat.h"

#include <stdbool.h>

#include "base/status.h"
#include "batch/gather.h"
#include "batch/orders.h"
#include "batch/reader.h"

enum { YDL_STATUS_COUNT = YDL_FORKED + 1 };

struct module_state {
    PyTypeObject *writer_type;
    PyTypeObject *reader_type;
    PyTypeObject *order_type;
    PyTypeObject *loader_type;
    PyTypeObject *lease_type;
    PyObject *exceptions[YDL_STATUS_COUNT]; /* NULL for outcomes that are no errors */
};

struct module_state *ydl_state_of_type(PyTypeObject *type);

/* errors.c */
int ydl_errors_init(struct module_state *state);
void *ydl_raise(const struct module_state *state, const struct ydl_error *err); /* NULL */

/* Types: made by their files, added to the module by module.c. */
extern PyType_Spec ydl_writer_spec;
extern PyType_Spec ydl_reader_spec;
extern PyType_Spec ydl_order_spec;
extern PyType_Spec ydl_loader_spec;
extern PyType_Spec ydl_lease_spec;
extern PyMethodDef ydl_functions[];

struct py_reader {
    PyObject_HEAD struct ydl_reader *reader; /* counted; NULL until __init__ */
    PyArray_Descr **dtypes;                  /* [components], strong references in an owned array */
    pid_t pid;                               /* of the process that opened it */
};

struct py_order {
    PyObject_HEAD struct ydl_order order;
    struct ydl_orders *orders; /* counted; look at ydl_orders_here instead */
    pid_t pid;                 /* of the process that made `orders` */
};

/* order.c: of this process, borrowed; NULL with an exception. */
struct ydl_orders *ydl_orders_here(struct py_order *self);

/* convert.c: from Python. 0, or -1 with an exception. */
int ydl_layout_from_python(const struct module_state *state, PyObject *components,
                           struct ydl_layout *out);

/* arrays.c: to Python. What is returned is a new reference, or NULL with an exception. */

PyObject *ydl_new_u64_array(uint64_t n); /* not filled */

/* One array (or four where `split`, see _core.pyi) appended per component of the batch. Takes the
 * blocks it hands out from the batch. */
PyObject *ydl_batch_to_tuple(const struct py_reader *reader, struct ydl_batch *batch, bool split);

/* A record's components as a tuple; copies, so that the row may go. */
PyObject *ydl_row_to_tuple(const struct py_reader *reader, const struct ydl_row *row,
                           struct ydl_field *fields);
/* The component itself, where there is only one. */
PyObject *ydl_row_to_value(const struct py_reader *reader, const struct ydl_row *row,
                           struct ydl_field *fields);

#endif
