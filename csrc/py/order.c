/* _core.Order: which record comes when. What it says holds in a forked child, too, where another
 * core object takes the place of the parent's. */
#include "py/module.h"

#include <string.h>
#include <unistd.h>

/* What the core's asserts demand of an order. */
static int check_order(const struct ydl_order *order)
{
    if (order->num_shards == 0 || order->rank >= order->num_shards) {
        PyErr_Format(PyExc_ValueError, "there is no shard %llu among %llu",
                     (unsigned long long)order->rank, (unsigned long long)order->num_shards);
        return -1;
    }
    if (order->cut > order->records) {
        PyErr_Format(PyExc_ValueError, "cannot leave out %llu of %llu records",
                     (unsigned long long)order->cut, (unsigned long long)order->records);
        return -1;
    }
    return 0;
}

static int scope_from_name(const char *name, enum ydl_scope *out)
{
    if (strcmp(name, "shard") == 0) {
        *out = YDL_SCOPE_SHARD;
    } else if (strcmp(name, "global") == 0) {
        *out = YDL_SCOPE_GLOBAL;
    } else {
        PyErr_Format(PyExc_ValueError, "shuffle_scope is 'shard' or 'global', not '%s'", name);
        return -1;
    }
    return 0;
}

static int order_from_python(PyObject *args, PyObject *kwargs, struct ydl_order *out)
{
    static char *names[] = {"records", "rank",      "num_shards", "drop_shard_remainder",
                            "shuffle", "reshuffle", "seed",       "shuffle_scope",
                            "cut",     NULL};
    unsigned long long records, rank, num_shards, cut;
    int drop_remainder, shuffle, reshuffle;
    unsigned int seed;
    const char *scope;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K$KKpppIsK:Order", names, &records, &rank,
                                     &num_shards, &drop_remainder, &shuffle, &reshuffle, &seed,
                                     &scope, &cut))
        return -1;
    *out = (struct ydl_order){
        .records = records,
        .rank = rank,
        .num_shards = num_shards,
        .cut = cut,
        .drop_remainder = drop_remainder,
        .shuffle = shuffle,
        .reshuffle = reshuffle,
        .seed = seed,
    };
    if (scope_from_name(scope, &out->scope) != 0)
        return -1;
    return check_order(out);
}

struct ydl_orders *ydl_orders_here(struct py_order *self)
{
    struct ydl_error err;
    if (self->orders && self->pid == getpid())
        return self->orders;
    ydl_orders_release(self->orders); /* the parent's: only let go */
    self->orders = NULL;
    self->pid = getpid();
    if (ydl_orders_new(&self->order, &self->orders, &err) != YDL_OK)
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    return self->orders;
}

static PyObject *order_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct py_order *self = (struct py_order *)type->tp_alloc(type, 0);
    if (self && (order_from_python(args, kwargs, &self->order) != 0 || !ydl_orders_here(self)))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void order_dealloc(struct py_order *self)
{
    PyTypeObject *type = Py_TYPE(self);
    /* Ends a thread that soon stops, whatever it is making, and never wants the GIL. */
    ydl_orders_release(self->orders);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *order_numbers(struct py_order *self, PyObject *args)
{
    unsigned long long epoch, start, count;
    if (!PyArg_ParseTuple(args, "KKK:numbers", &epoch, &start, &count))
        return NULL;
    struct ydl_orders *orders = ydl_orders_here(self);
    if (!orders)
        return NULL;
    const uint64_t len = ydl_orders_len(orders);
    const uint64_t left = start < len ? len - start : 0;
    const uint64_t n = count < left ? count : left;
    PyObject *array = ydl_new_u64_array(n);
    if (!array || n == 0)
        return array;
    struct ydl_error err;
    enum ydl_status status;
    uint64_t *numbers = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS;
    status = ydl_orders_copy(orders, epoch, start, n, numbers, &err);
    Py_END_ALLOW_THREADS;
    if (status != YDL_OK) {
        Py_DECREF(array);
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    }
    return array;
}

static PyObject *order_length(struct py_order *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(ydl_order_len(&self->order));
}

static PyMethodDef order_methods[] = {
    {"numbers", (PyCFunction)order_numbers, METH_VARARGS, NULL},
    {0},
};

static PyGetSetDef order_getset[] = {
    {"length", (getter)order_length, NULL, NULL, NULL},
    {0},
};

static PyType_Slot order_slots[] = {
    {Py_tp_new, order_new},
    {Py_tp_dealloc, order_dealloc},
    {Py_tp_methods, order_methods},
    {Py_tp_getset, order_getset},
    {0, NULL},
};

PyType_Spec ydl_order_spec = {
    .name = "ydl._core.Order",
    .basicsize = sizeof(struct py_order),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = order_slots,
};
