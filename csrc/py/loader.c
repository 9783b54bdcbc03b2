/* _core.Loader: an iterator over batches, chunks or records. */
#include "py/module.h"

#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/prefetch.h"
#include "batch/feed.h"
#include "batch/loader.h"

/* How long next() waits before it looks for Ctrl-C and for a close() by another thread. */
enum { WAIT_MS = 100 };

/* Rows are brought into the cache this many ahead. */
enum { PREFETCH_ROWS = 3 };

enum form { FORM_RECORDS, FORM_VALUES, FORM_BATCHES, FORM_CHUNKS, FORM_COUNT };

struct py_loader {
    PyObject_HEAD struct py_reader *reader; /* strong */
    unsigned forks;                         /* in the process that made it: ydl_fork_count */
    struct ydl_loader *loader;              /* owned; NULL once closed */
    uint64_t feed;                          /* somebody else pulls from the loader; or 0 */
    enum form form;
    /* FORM_RECORDS, FORM_VALUES: made from rows instead of batches. */
    const struct ydl_row *rows; /* [row_count], borrowed from the loader */
    uint64_t row_count;
    uint64_t next_row;
    struct ydl_field *fields; /* [components], owned: one row taken apart */
    struct ydl_cursor start;
    uint64_t epoch_len;
    uint64_t delivered; /* records handed out since start */
    bool busy;          /* a thread is in next() without the GIL */
    bool closed;        /* no more batches; a busy next() frees the loader */
};

static int form_from_name(const char *name, enum form *out)
{
    static const char *const names[] = {[FORM_RECORDS] = "records",
                                        [FORM_VALUES] = "values",
                                        [FORM_BATCHES] = "batches",
                                        [FORM_CHUNKS] = "chunks"};
    for (int i = 0; i < FORM_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum form)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "form is 'records', 'values', 'batches' or 'chunks', not '%s'",
                 name);
    return -1;
}

static bool is_made_from_rows(enum form form)
{
    return form == FORM_RECORDS || form == FORM_VALUES;
}

static int config_from_python(PyObject *args, PyObject *kwargs, PyObject **out_reader,
                              PyObject **out_order, struct ydl_loader_config *config,
                              enum form *form)
{
    static char *names[] = {"reader",        "order",          "epoch",   "position",
                            "batch_records", "drop_remainder", "endless", "form",
                            "threads",       "depth",          "group",   NULL};
    unsigned long long epoch, position, batch_records;
    unsigned long long group;
    int drop_remainder, endless;
    unsigned int threads, depth;
    const char *form_name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO$KKKppsIIK:Loader", names, out_reader,
                                     out_order, &epoch, &position, &batch_records, &drop_remainder,
                                     &endless, &form_name, &threads, &depth, &group) ||
        form_from_name(form_name, form) != 0)
        return -1;
    unsigned long long at_once;
    if (batch_records == 0 || depth == 0 || group == 0 ||
        __builtin_mul_overflow(batch_records, group, &at_once)) {
        PyErr_Format(PyExc_ValueError, "cannot load batches of %llu, %llu at once, %u ahead",
                     batch_records, group, depth);
        return -1;
    }
    *config = (struct ydl_loader_config){
        .start = {.epoch = epoch, .position = position},
        .batch_records = batch_records,
        .group = group,
        .drop_remainder = drop_remainder,
        .endless = endless,
        .require_uniform = *form == FORM_BATCHES,
        .threads = threads,
        .depth = depth,
    };
    return 0;
}

static int loader_init(struct py_loader *self, PyObject *args, PyObject *kwargs)
{
    const struct module_state *state = ydl_state_of_type(Py_TYPE(self));
    PyObject *reader_arg, *order_arg;
    struct ydl_loader_config config;
    struct ydl_error err = {0};
    if (config_from_python(args, kwargs, &reader_arg, &order_arg, &config, &self->form) != 0)
        return -1;
    if (!Py_IS_TYPE(reader_arg, state->reader_type) || !Py_IS_TYPE(order_arg, state->order_type)) {
        PyErr_Format(PyExc_TypeError, "expected a Reader and an Order, not %R and %R", reader_arg,
                     order_arg);
        return -1;
    }
    self->forks = ydl_fork_count();
    self->reader = (struct py_reader *)Py_NewRef(reader_arg);
    if (self->reader->pid != getpid()) {
        ydl_fail(&err, YDL_FORKED, "cannot load in process %ld with the reader of process %ld",
                 (long)getpid(), (long)self->reader->pid);
        ydl_raise(state, &err);
        return -1;
    }
    struct ydl_reader *reader = self->reader->reader;
    struct py_order *order = (struct py_order *)order_arg;
    if (order->order.records != reader->records) {
        PyErr_Format(PyExc_ValueError, "the order is one of %llu records, and the reader has %llu",
                     (unsigned long long)order->order.records, (unsigned long long)reader->records);
        return -1;
    }
    config.orders = ydl_orders_here(order);
    if (!config.orders)
        return -1;
    self->epoch_len = ydl_orders_len(config.orders);
    self->start = config.start;
    if (self->start.position > self->epoch_len) {
        PyErr_Format(PyExc_ValueError, "cannot start at record %llu of an epoch of %llu records",
                     (unsigned long long)self->start.position, (unsigned long long)self->epoch_len);
        return -1;
    }
    if (self->form == FORM_VALUES && reader->layout.count != 1) {
        PyErr_Format(PyExc_ValueError, "form 'values' is for one component, and there are %u",
                     (unsigned)reader->layout.count);
        return -1;
    }
    if (is_made_from_rows(self->form) && config.threads) {
        PyErr_Format(PyExc_ValueError, "records are made in the consumer's thread, not in %u",
                     config.threads);
        return -1;
    }
    self->fields = PyMem_Calloc(reader->layout.count, sizeof *self->fields);
    if (!self->fields) {
        PyErr_NoMemory();
        return -1;
    }
    if (ydl_loader_new(reader, &config, &self->loader, &err) != YDL_OK) {
        ydl_raise(state, &err);
        return -1;
    }
    return 0;
}

static void loader_dealloc(struct py_loader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    /* Joins threads that are at most a batch, or an order, away from their end and never want the
     * GIL. */
    if (self->feed)
        ydl_feed_close(self->feed);
    ydl_loader_free(self->loader);
    PyMem_Free(self->fields);
    Py_XDECREF(self->reader);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *loader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct py_loader *self = (struct py_loader *)type->tp_alloc(type, 0);
    if (self && loader_init(self, args, kwargs) != 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void free_loader(struct py_loader *self)
{
    struct ydl_loader *loader = self->loader;
    uint64_t feed = self->feed;
    self->loader = NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (feed)
        ydl_feed_close(feed);
    ydl_loader_free(loader);
    Py_END_ALLOW_THREADS;
}

static PyObject *loader_close(struct py_loader *self, PyObject *ignored)
{
    (void)ignored;
    self->closed = true;
    if (!self->busy)
        free_loader(self);
    Py_RETURN_NONE;
}

static PyObject *loader_lend(struct py_loader *self, PyObject *ignored)
{
    (void)ignored;
    struct ydl_error err;
    if (self->closed || self->feed || self->delivered || is_made_from_rows(self->form)) {
        PyErr_SetString(PyExc_ValueError,
                        "only a new loader of batches or chunks can be lent, and only once");
        return NULL;
    }
    if (ydl_feed_open(self->loader, &self->feed, &err) != YDL_OK)
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    return Py_BuildValue("LK", (long long)(intptr_t)&ydl_feed_api, (unsigned long long)self->feed);
}

/* Notes how far a feed has come; -1 with an exception where an error ended it. */
static int look_at_feed(struct py_loader *self)
{
    struct ydl_error err;
    if (self->feed == 0 || self->closed ||
        ydl_feed_look(self->feed, &self->delivered, &err) == YDL_OK)
        return 0;
    ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    return -1;
}

static PyObject *loader_check(struct py_loader *self, PyObject *ignored)
{
    (void)ignored;
    if (look_at_feed(self) != 0)
        return NULL;
    Py_RETURN_NONE;
}

/* One step of the loader without the GIL: a batch, or rows. */
static enum ydl_status step(struct py_loader *self, struct ydl_batch **out, struct ydl_error *err)
{
    if (!is_made_from_rows(self->form))
        return ydl_loader_next(self->loader, WAIT_MS, out, err);
    self->next_row = 0;
    self->row_count = 0;
    return ydl_loader_next_rows(self->loader, &self->rows, &self->row_count, err);
}

/* Waits for the next batch (or rows). 1: there; 0: the end; -1: an exception. */
static int advance(struct py_loader *self, struct ydl_batch **out)
{
    const struct module_state *state = ydl_state_of_type(Py_TYPE(self));
    enum ydl_status status = YDL_PENDING;
    struct ydl_error err = {0};
    bool interrupted = false;
    self->busy = true;
    while (status == YDL_PENDING && !interrupted && !self->closed) {
        Py_BEGIN_ALLOW_THREADS;
        status = step(self, out, &err);
        Py_END_ALLOW_THREADS;
        interrupted = status == YDL_PENDING && PyErr_CheckSignals() != 0;
    }
    self->busy = false;
    if (self->closed) {
        ydl_batch_free(*out);
        *out = NULL;
        free_loader(self);
        if (!interrupted && status != YDL_END)
            ydl_fail(&err, YDL_CLOSED, "the iterator was closed while a batch was awaited");
        status = status == YDL_END ? YDL_END : YDL_CLOSED;
    }
    if (interrupted)
        return -1;
    if (status != YDL_OK && status != YDL_END) {
        ydl_raise(state, &err);
        return -1;
    }
    return status == YDL_OK;
}

static PyObject *next_of_rows(struct py_loader *self)
{
    if (self->next_row == self->row_count) {
        struct ydl_batch *none = NULL;
        if (advance(self, &none) <= 0)
            return NULL;
    }
    if (self->next_row + PREFETCH_ROWS < self->row_count) {
        const struct ydl_row *ahead = &self->rows[self->next_row + PREFETCH_ROWS];
        ydl_prefetch(ahead->bytes, ahead->n);
    }
    const struct ydl_row *row = &self->rows[self->next_row++];
    return self->form == FORM_VALUES ? ydl_row_to_value(self->reader, row, self->fields)
                                     : ydl_row_to_tuple(self->reader, row, self->fields);
}

static PyObject *next_of_batches(struct py_loader *self, uint64_t *out_records)
{
    struct ydl_batch *batch = NULL;
    if (advance(self, &batch) <= 0)
        return NULL;
    PyObject *item = ydl_batch_to_tuple(self->reader, batch, self->form == FORM_CHUNKS);
    *out_records = batch->records;
    ydl_batch_free(batch);
    return item;
}

static PyObject *loader_next(struct py_loader *self)
{
    if (self->closed)
        return NULL; /* like an exhausted generator */
    if (self->forks != ydl_fork_count()) {
        struct ydl_error err;
        ydl_fail(
            &err, YDL_FORKED,
            "cannot go on in process %ld with an iterator of its parent, which goes on with it "
            "too. Make a new iterator after the fork",
            (long)getpid());
        return ydl_raise(ydl_state_of_type(Py_TYPE(self)), &err);
    }
    if (self->feed) {
        PyErr_SetString(PyExc_ValueError,
                        "the loader is lent: whoever it is lent to pulls from it");
        return NULL;
    }
    if (self->busy) {
        PyErr_SetString(PyExc_ValueError, "another thread waits for this iterator's next item: "
                                          "give each thread an iterator of its own");
        return NULL;
    }
    uint64_t records = 1;
    PyObject *item =
        is_made_from_rows(self->form) ? next_of_rows(self) : next_of_batches(self, &records);
    if (item)
        self->delivered += records;
    return item;
}

/* The record that comes next. */
static struct ydl_cursor cursor_of(const struct py_loader *self)
{
    uint64_t offset = self->start.position + self->delivered;
    /* At the end of an epoch the position is its length until the next one begins. */
    if (self->epoch_len == 0 || offset <= self->epoch_len)
        return (struct ydl_cursor){.epoch = self->start.epoch, .position = offset};
    return ydl_cursor_at(self->epoch_len, self->start.epoch, offset);
}

static PyObject *loader_epoch(struct py_loader *self, void *closure)
{
    (void)closure;
    if (look_at_feed(self) != 0)
        PyErr_Clear(); /* it has come so far all the same */
    return PyLong_FromUnsignedLongLong(cursor_of(self).epoch);
}

static PyObject *loader_position(struct py_loader *self, void *closure)
{
    (void)closure;
    if (look_at_feed(self) != 0)
        PyErr_Clear();
    return PyLong_FromUnsignedLongLong(cursor_of(self).position);
}

static PyMethodDef loader_methods[] = {
    {"close", (PyCFunction)loader_close, METH_NOARGS, NULL},
    {"lend", (PyCFunction)loader_lend, METH_NOARGS, NULL},
    {"check", (PyCFunction)loader_check, METH_NOARGS, NULL},
    {0},
};

static PyGetSetDef loader_getset[] = {
    {"epoch", (getter)loader_epoch, NULL, NULL, NULL},
    {"position", (getter)loader_position, NULL, NULL, NULL},
    {0},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_new, loader_new},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, loader_next},
    {Py_tp_methods, loader_methods},
    {Py_tp_getset, loader_getset},
    {0, NULL},
};

PyType_Spec ydl_loader_spec = {
    .name = "ydl._core.Loader",
    .basicsize = sizeof(struct py_loader),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = loader_slots,
};
