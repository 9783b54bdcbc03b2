"""How a leaf of the element travels from the C core into TensorFlow's records or batches.

The core gives chunks of records. Where all records have one shape, a chunk is one array
[rows, ...], which `unbatch()` takes apart. Where the shape varies, a chunk holds all values in one
vector. Ragged and sparse leaves are joined from it in NumPy to one ragged or sparse batch, which
`unbatch()` takes apart too. Only dense tensors of varying shape need a TensorFlow function once per
record, which costs some 30 us; a generator call per record would cost ten times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ydl import batching
from ydl.batching import Varying
from ydl.schema import (
    Component,
    RaggedNode,
    RaggedValue,
    Schema,
    Shape,
    SparseNode,
    SparseValue,
    TensorNode,
    component_count,
    element_count,
)
from ydl.tensorflow.spec import Leaf, leaf_value

Arrays = Sequence[npt.NDArray[Any]]
# Tensors, ragged tensors or sparse tensors.
Values = Sequence[Any]


class Column(NamedTuple):
    """An array that crosses from NumPy to TensorFlow; shape[0] is not the record in all of them."""

    dtype: tf.DType
    shape: Shape


class Route(NamedTuple):
    """One leaf's way, or one component's."""

    columns: tuple[Column, ...]
    # NumPy, per chunk: from the core's columns of the leaf to the arrays that cross.
    arrays: Callable[[list[batching.Column]], Arrays]
    # Graph, per chunk: from the columns to values whose first dimension is the record; None: as is.
    rows: Optional[Callable[[Values], Values]]
    # Graph, per record: from these, unbatched, to the leaf as a map's result.
    record: Callable[[Values], Any]
    row_parts: int = 1
    # Unbatched rows are the leaf already; `record` is needed only where other leaves need a map.
    is_row: bool = True


def batch_routes(schema: Schema, rows: Optional[int]) -> list[Route]:
    """To batches. rows: their static size, if they have one."""
    return [_batch_route(leaf, rows) for leaf in schema.leaves()]


def record_routes(schema: Schema) -> list[Route]:
    """To chunks that are to be unbatched."""
    routes = []
    at = 0
    for leaf in schema.leaves():
        components = schema.components[at : at + component_count(leaf)]
        routes.append(_record_route(leaf, components))
        at += len(components)
    return routes


def _batch_route(leaf: Leaf, rows: Optional[int]) -> Route:
    if isinstance(leaf, RaggedNode):
        return _joined_ragged(leaf)
    if isinstance(leaf, SparseNode):
        return _joined_sparse(leaf)
    shape = None if leaf.shape is None else (rows, *leaf.shape)
    return Route((Column(tf.as_dtype(leaf.dtype), shape),), _joiner(leaf), None, _first)


def _record_route(leaf: Leaf, components: Sequence[Component]) -> Route:
    if isinstance(leaf, TensorNode):
        return _component_route(components[0])
    # Joined only where records cannot differ in what a batch has to have in common.
    if isinstance(leaf, RaggedNode) and leaf.shape is not None:
        inner = leaf.shape[leaf.ragged_rank + 1 :]
        if None not in inner:
            return _joined_ragged(leaf)
    if isinstance(leaf, SparseNode) and leaf.shape is not None and None not in leaf.shape:
        return _joined_sparse(leaf)
    return _by_components(leaf, components)


def _joiner(leaf: Leaf) -> Callable[[list[batching.Column]], Arrays]:
    def join(columns: list[batching.Column]) -> Arrays:
        joined = batching.join_leaf(leaf, columns)
        if isinstance(joined, RaggedValue):
            return (joined.flat_values, *joined.nested_row_splits)
        return joined if isinstance(joined, SparseValue) else (joined,)

    return join


def _joined_ragged(leaf: RaggedNode) -> Route:
    ragged_rank = leaf.ragged_rank + 1
    shape = None if leaf.shape is None else (None, *leaf.shape[ragged_rank:])
    splits = Column(tf.as_dtype(leaf.row_splits_dtype), (None,))
    columns = (Column(tf.as_dtype(leaf.dtype), shape), *[splits] * ragged_rank)

    def rows(values: Values) -> Values:
        flat_values, *row_splits = values
        return [tf.RaggedTensor.from_nested_row_splits(flat_values, row_splits, validate=False)]

    return Route(columns, _joiner(leaf), rows, _first if leaf.ragged_rank else _ragged_row)


def _joined_sparse(leaf: SparseNode) -> Route:
    rank = None if leaf.shape is None else len(leaf.shape) + 1
    columns = (
        Column(tf.int64, (None, rank)),
        Column(tf.as_dtype(leaf.dtype), (None,)),
        Column(tf.int64, (rank,)),
    )
    return Route(columns, _joiner(leaf), lambda values: [tf.SparseTensor(*values)], _first)


def _by_components(leaf: Leaf, components: Sequence[Component]) -> Route:
    """A leaf that is put together record by record."""
    parts = [_component_route(component) for component in components]

    def arrays(columns: list[batching.Column]) -> Arrays:
        return [array for part, own in zip(parts, columns) for array in part.arrays([own])]

    def rows(values: Values) -> Values:
        result: list[Any] = []
        at = 0
        for part in parts:
            own = values[at : at + len(part.columns)]
            result.extend(own if part.rows is None else part.rows(own))
            at += len(part.columns)
        return result

    def record(values: Values) -> Any:
        tensors = []
        at = 0
        for part in parts:
            own = values[at : at + part.row_parts]
            tensors.append(part.record(own))
            at += part.row_parts
        if isinstance(leaf, RaggedNode) and leaf.ragged_rank == 0:
            return _ragged_row(tensors)
        return leaf_value(leaf, tensors)

    columns = tuple(column for part in parts for column in part.columns)
    row_parts = sum(part.row_parts for part in parts)
    return Route(columns, arrays, rows, record, row_parts, is_row=False)


def _component_route(component: Component) -> Route:
    """A dense tensor, to single records."""
    dtype = tf.as_dtype(component.dtype)
    shape = component.shape
    if shape is not None and 0 in shape and None not in shape:
        return _empty(dtype, shape)
    if shape is not None and None not in shape:
        return Route((Column(dtype, (None, *shape)),), _only, None, _first)
    if shape and None not in shape[1:] and element_count(_known(shape[1:])):
        return _leading(dtype, shape)
    return _any_shape(dtype, shape)


def _empty(dtype: tf.DType, shape: tuple[Optional[int], ...]) -> Route:
    """All records have no element here. TensorFlow 2.15 to 2.21 crash where unbatch() meets such
    an array (its issue 108489), so that a byte per record stands for it on the way."""

    def arrays(columns: list[batching.Column]) -> Arrays:
        return [np.zeros(len(_only(columns)[0]), np.uint8)]

    def record(values: Values) -> tf.Tensor:
        return tf.zeros(shape, dtype)

    return Route((Column(tf.uint8, (None,)),), arrays, None, record, is_row=False)


def _leading(dtype: tf.DType, shape: tuple[Optional[int], ...]) -> Route:
    """Only the first dimension varies: the rows of a ragged tensor have the records' shapes."""
    inner = _known(shape[1:])
    elements = element_count(inner)
    columns = (Column(dtype, (None, *inner)), Column(tf.int64, (None,)))

    def arrays(column: list[batching.Column]) -> Arrays:
        varying = _varying(column)
        return varying.values.reshape(-1, *inner), varying.splits // elements

    def rows(values: Values) -> Values:
        return [tf.RaggedTensor.from_row_splits(*values, validate=False)]

    # tf.data holds these rows in a form of its own, until any map turns them into tensors.
    return Route(columns, arrays, rows, _first, is_row=False)


def _any_shape(dtype: tf.DType, shape: Shape) -> Route:
    rank = None if shape is None else len(shape)
    columns = [Column(dtype, (None,)), Column(tf.int64, (None,)), Column(tf.int64, (None, rank))]
    if shape is None:
        columns.append(Column(tf.int64, (None,)))

    def arrays(column: list[batching.Column]) -> Arrays:
        varying = _varying(column)
        shapes = varying.shapes
        if shapes.shape[1] == 0:  # all are scalars: as in _empty, no row may be without elements
            shapes = np.zeros((len(shapes), 1), shapes.dtype)
        if shape is None:
            return varying.values, varying.splits, shapes, varying.ranks
        return varying.values, varying.splits, shapes

    def rows(values: Values) -> Values:
        flat, row_splits, *shapes = values
        return [tf.RaggedTensor.from_row_splits(flat, row_splits, validate=False), *shapes]

    def record(values: Values) -> tf.Tensor:
        dims = values[1] if shape is not None else values[1][: values[2]]
        tensor = tf.reshape(values[0], dims)
        tensor.set_shape(shape)
        return tensor

    return Route(tuple(columns), arrays, rows, record, len(columns) - 1, is_row=False)


def _first(values: Values) -> Any:
    return values[0]


def _ragged_row(values: Values) -> tf.Tensor:
    """A tensor in the form in which tf.data holds an element whose spec is a RaggedTensorSpec."""
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[], rt_dense_values=values[0], batched_input=False
    )


def _only(columns: list[batching.Column]) -> Arrays:
    assert isinstance(columns[0], np.ndarray)
    return [columns[0]]


def _varying(columns: list[batching.Column]) -> Varying:
    assert isinstance(columns[0], Varying)
    return columns[0]


def _known(shape: Sequence[Optional[int]]) -> list[int]:
    return [size for size in shape if size is not None]
