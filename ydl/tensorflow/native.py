"""The native feed: TensorFlow pulls batches out of the C core through an op, without Python.

    feeds: generator ── flat_map ──> range(batches) ── map(op) ──>

The generator runs once per pass over the dataset: it opens a loader, gives its number, and closes
it when TensorFlow asks for the next one or lets go of the iterator. The op (csrc/tf/op.c) takes
that number and an index, and waits for the batch.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from ydl import _core
from ydl.tensorflow.routes import Column
from ydl.tensorflow.spec import not_converted

# An attribute of TensorFlow's module that holds the op's Python function: another copy of ydl in
# the same process uses it too, because TensorFlow lets nobody register an op twice.
_KEPT = "_ydl_next_batch_v1"


def batches(
    open_feed: Callable[[], Iterator[tuple[int, int, int]]],
    columns: Sequence[Column],
    order: Sequence[int],
    rows: int,
    group: int,
    from_generator: Callable[..., tf.data.Dataset],
) -> tf.data.Dataset:
    """A dataset of flat tuples: the op's outputs, which are these columns, in this order.

    open_feed: for each pass, a new iterator such as RecordStream.lend gives, for batches of `rows`
    records, `group` of them at once.
    """
    op, _ = _load()
    assert op is not None, "asked why_not() before"

    def generate() -> Iterator[Any]:
        for *feed, count in open_feed():
            yield np.array(feed, np.int64), np.int64(count)

    @not_converted
    def pull(feed: tf.Tensor, index: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = op(feed=feed, index=index, Tout=[column.dtype for column in columns])
        if group > 1:
            tensors = [_split(tensor, rows, column) for tensor, column in zip(tensors, columns)]
        for tensor, column in zip(tensors, columns):
            tensor.set_shape(column.shape if group == 1 else (None, *_shape_of(column)))
        return tuple(tensors[at] for at in order)

    @not_converted
    def of_feed(feed: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(count).map(lambda index: pull(feed, index))

    shapes_of_feed = (tf.TensorShape([2]), tf.TensorShape([]))
    dataset = from_generator(generate, (tf.int64, tf.int64), shapes_of_feed).flat_map(of_feed)
    return dataset if group == 1 else dataset.unbatch()


def _split(tensor: tf.Tensor, rows: int, column: Column) -> tf.Tensor:
    """[batches, rows, ...] of the records of some whole batches, or of one that may be smaller."""
    records = tf.shape(tensor)[0]
    count = tf.maximum(records // rows, 1)
    return tf.reshape(tensor, [count, records // count, *_shape_of(column)[1:]])


def _shape_of(column: Column) -> tuple[Optional[int], ...]:
    assert column.shape is not None, "batches of such records come one by one"
    return column.shape


def why_not() -> Optional[str]:
    """None where the native feed works in this process."""
    return _load()[1]


@functools.cache
def _load() -> tuple[Optional[Callable[..., Any]], Optional[str]]:
    """The op's Python function, loaded and tried, or why there is none."""
    spec = importlib.util.find_spec("ydl._tf_op")
    if spec is None or spec.origin is None:
        return None, "ydl was built without its op"
    try:
        op = getattr(tf, _KEPT, None) or tf.load_op_library(spec.origin).ydl_next_batch_v1
        setattr(tf, _KEPT, op)
        _try(op)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    return op, None


def _try(op: Callable[..., Any]) -> None:
    """Whether the core's sample batch (csrc/batch/feed.h) arrives through this TensorFlow."""

    def sample() -> list[tf.Tensor]:
        with tf.device("CPU:0"):
            return list(op(feed=_core.sample_feed(), index=0, Tout=[tf.int64, tf.string]))

    with tf.init_scope():
        if tf.executing_eagerly():
            numbers, strings = (tensor.numpy() for tensor in sample())
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                numbers, strings = session.run(sample())
    if list(numbers) != [1, 2, 3] or list(strings) != [b"a", b"", b"b" * 100]:
        raise ValueError(f"a sample batch arrived as {numbers!r}, {strings!r:.200}")
