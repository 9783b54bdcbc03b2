"""Reading the dataset that a user's function made, once, to cache it.

TensorFlow gives records either eagerly or, in a graph, through a session. In both ways the dataset
is first brought to a flat tuple of dense tensors and then batched (blocks.py), so that Python
handles blocks of records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeVar

import numpy as np
import tensorflow as tf

from ydl.build import Column
from ydl.errors import UnsupportedError
from ydl.schema import Schema, TupleNode
from ydl.tensorflow.blocks import Blocks
from ydl.tensorflow.spec import (
    declare_spec,
    leaf_components,
    leaf_spec,
    nest_order,
    not_converted,
    schema_from_spec,
)

_T = TypeVar("_T")


class Source:
    """A user's finished dataset, ready to be read. See open_source."""

    def __init__(self, dataset: Any, tensorflow_config: Optional[tf.compat.v1.ConfigProto]) -> None:
        self.schema: Schema = schema_from_spec(dataset.element_spec)
        self.cardinality: Optional[int] = None
        self._dataset = dataset
        self._graph = _graph_of(dataset)
        self._config = tensorflow_config

        cardinality = self._cardinality()
        if cardinality == tf.data.INFINITE_CARDINALITY:
            raise UnsupportedError(
                "cannot cache a dataset that never ends (its cardinality is infinite): call "
                ".take(n) on it, or leave out .repeat(), which belongs after the cache"
            )
        if cardinality != tf.data.UNKNOWN_CARDINALITY:
            self.cardinality = cardinality

    def batches(self) -> Iterator[tuple[int, list[Column]]]:
        """Reads the dataset from its beginning: see ydl.build.Source.

        Numeric arrays may be read-only views of TensorFlow's memory. What the dataset raises
        passes through.
        """
        if self._graph is None:
            return self._eager_batches()
        return self._session_batches(self._graph)

    def _cardinality(self) -> int:
        if self._graph is None:
            with _eager_scope():
                return int(tf.data.experimental.cardinality(self._dataset))
        with self._graph.as_default():
            count = tf.data.experimental.cardinality(self._dataset)
            with contextlib.closing(self._session(self._graph)) as session:
                return int(session.run(count))

    def _eager_batches(self) -> Iterator[tuple[int, list[Column]]]:
        with _eager_scope():
            blocks, order = self._blocks()
            iterator = iter(blocks.dataset)
        while True:
            # A scope around each step, not the loop: it must not stay while we are suspended.
            with _eager_scope():
                block = next(iterator, None)
            if block is None:
                return
            records, columns = blocks.columns([np.asarray(tensor) for tensor in block])
            yield records, [columns[i] for i in order]

    def _session_batches(self, graph: tf.Graph) -> Iterator[tuple[int, list[Column]]]:
        with graph.as_default():
            blocks, order = self._blocks()
            iterator = tf.compat.v1.data.make_initializable_iterator(blocks.dataset)
            block = iterator.get_next()
            initializers = [tf.compat.v1.tables_initializer(), iterator.initializer]
            session = self._session(graph)
        with contextlib.closing(session):
            session.run(initializers)
            while True:
                try:
                    arrays = session.run(block)
                except tf.errors.OutOfRangeError:
                    return
                records, columns = blocks.columns(arrays)
                yield records, [columns[i] for i in order]

    def _session(self, graph: tf.Graph) -> tf.compat.v1.Session:
        return tf.compat.v1.Session(graph=graph, config=self._config)

    def _blocks(self) -> tuple[Blocks, list[int]]:
        """The dataset in blocks, and where in their columns the schema's components stand."""
        schema = self.schema
        if schema.is_plain:
            # Nothing to compute: the elements are these tensors, only nested.
            leaves = list(schema.leaves())
            positions = nest_order(schema)
            flat = declare_spec(self._dataset, tuple(leaf_spec(leaves[i]) for i in positions))
            order = sorted(range(len(positions)), key=positions.__getitem__)
        else:
            flat = self._dataset.map(_flattener(schema))
            order = list(range(len(schema.components)))
        return Blocks(flat, schema.components), order


@not_converted
def open_source(
    dataset: Any, tensorflow_config: Optional[tf.compat.v1.ConfigProto] = None
) -> Source:
    """Looks at a dataset, without reading a record of it.

    `tensorflow_config` configures the session that reads a dataset made in graph mode.

    TypeError where `dataset` is no tf.data.Dataset, UnsupportedError (a ValueError) where ydl
    cannot store its elements or where it has no end.
    """
    # In compat.v1 mode tf.data.Dataset is another class: this one is the base of both.
    if not isinstance(dataset, tf.compat.v2.data.Dataset):
        raise TypeError(
            f"cannot cache {dataset!r:.200} of the type {type(dataset).__name__}: a finished "
            "tf.data.Dataset is expected (does the decorated function return it?)"
        )
    return Source(dataset, tensorflow_config)


def call_outside_function_graph(fn: Callable[[], _T]) -> _T:
    """fn(), lifted out of a tf.function that is being traced.

    What a dataset made while tracing holds exists only inside of that function.
    """
    if tf.compat.v1.get_default_graph().building_function:
        with tf.init_scope():
            return fn()
    return fn()


def session_config(local_rank: int) -> tf.compat.v1.ConfigProto:
    """For a session that sees the GPU number `local_rank` of this host and no other."""
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.visible_device_list = str(local_rank)
    return config


def _flattener(schema: Schema) -> Callable[..., tuple[tf.Tensor, ...]]:
    def flatten(*arguments: Any) -> tuple[tf.Tensor, ...]:
        # map() spreads a tuple over the function's arguments.
        element = arguments if isinstance(schema.root, TupleNode) else arguments[0]
        flat: list[tf.Tensor] = []
        for leaf in schema.flatten_leaves(element):
            flat.extend(leaf_components(leaf))
        return tuple(flat)

    return flatten


def _graph_of(dataset: Any) -> Optional[tf.Graph]:
    """The graph that a dataset was made in; None for an eager one."""
    try:
        graph = tf.data.experimental.to_variant(dataset).graph
    except AttributeError:  # how an eager tensor says that it has none
        return None
    if graph.building_function:
        raise ValueError(
            f"cannot read {dataset!r:.200}: it was made while a tf.function was being traced and "
            "exists only inside of it; make it outside, or under tf.init_scope()"
        )
    return graph


def _eager_scope() -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if tf.executing_eagerly() else tf.init_scope()
