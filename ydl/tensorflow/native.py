"""The native feed: TensorFlow pulls batches out of the C core through an op, without Python.

    GeneratorDataset(init: Python opens a feed; next: the op; finalize: Python closes the feed)

It is the dataset op that tf.data.Dataset.from_generator is made of, which runs init for each pass
and finalize at its end, or when TensorFlow lets go of the iterator. from_generator itself, with
the flat_map that would make its feeds into batches, costs 15 ms more for each pass.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Generator, Sequence
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ydl import _core
from ydl.tensorflow.routes import Column

# An attribute of TensorFlow's module that holds the op's Python function: another copy of ydl in
# the same process uses it too, because TensorFlow lets nobody register an op twice.
_KEPT = "_ydl_next_batch_v1"


def batches(
    open_feed: Callable[[], Generator[tuple[int, int], None, None]],
    columns: Sequence[Column],
    order: Sequence[int],
    rows: int,
    group: int,
) -> tf.data.Dataset:
    """A dataset of flat tuples: the op's outputs, which are these columns, in this order.

    open_feed: for each pass, a new iterator such as RecordStream.lend gives, for batches of `rows`
    records, `group` of them at once.
    """
    op, _ = _load()
    assert op is not None, "asked why_not() before"
    feeds = _Feeds(open_feed)
    shapes = [column.shape if group == 1 else (None, *_shape_of(column)) for column in columns]
    specs = tuple(tf.TensorSpec(shapes[at], columns[at].dtype) for at in order)

    @_graph_function()
    def init() -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(feeds.open, [], tf.int64), [2])

    @_graph_function(_FEED)
    def pull(feed: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = op(feed=feed, Tout=[column.dtype for column in columns])
        if group > 1:
            tensors = [_split(tensor, rows, column) for tensor, column in zip(tensors, columns)]
        for tensor, shape in zip(tensors, shapes):
            tensor.set_shape(shape)
        return tuple(tensors[at] for at in order)

    @_graph_function(_FEED)
    def finalize(feed: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(feeds.close, [feed], tf.int64)

    with tf.device("CPU:0"):
        variant = tf.raw_ops.GeneratorDataset(
            init_func_other_args=[],
            next_func_other_args=[],
            finalize_func_other_args=[],
            init_func=init,
            next_func=pull,
            finalize_func=finalize,
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
    dataset = tf.data.experimental.from_variant(variant, specs)
    dataset.ydl_functions = (init, pull, finalize)  # TensorFlow knows them by name only
    return dataset if group == 1 else dataset.unbatch()


_FEED = tf.TensorSpec([2], tf.int64)


def _graph_function(*signature: tf.TensorSpec) -> Callable[[Callable[..., Any]], Any]:
    def trace(function: Callable[..., Any]) -> Any:
        traced = tf.function(function, input_signature=signature, autograph=False)
        return traced.get_concrete_function()

    return trace


class _Feeds:
    """Those that are open, of one dataset: one for each iterator over it."""

    def __init__(self, open_feed: Callable[[], Generator[tuple[int, int], None, None]]) -> None:
        self._open_feed = open_feed
        self._open: dict[int, Generator[tuple[int, int], None, None]] = {}

    def open(self) -> npt.NDArray[np.int64]:
        feed = self._open_feed()
        api, number = next(feed)
        self._open[number] = feed
        return np.array([api, number], np.int64)

    def close(self, feed: npt.NDArray[np.int64]) -> np.int64:
        self._open.pop(int(feed[1])).close()
        return np.int64(0)


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
            return list(op(feed=_core.sample_feed(), Tout=[tf.int64, tf.string]))

    with tf.init_scope():
        if tf.executing_eagerly():
            numbers, strings = (tensor.numpy() for tensor in sample())
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                numbers, strings = session.run(sample())
    if list(numbers) != [1, 2, 3] or list(strings) != [b"a", b"", b"b" * 100]:
        raise ValueError(f"a sample batch arrived as {numbers!r}, {strings!r:.200}")
