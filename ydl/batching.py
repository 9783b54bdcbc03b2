"""NumPy batches in a record's nesting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn, Union

import numpy as np
import numpy.typing as npt

from ydl.errors import CorruptCacheError, ShapeMismatchError
from ydl.schema import (
    Component,
    RaggedNode,
    RaggedValue,
    Schema,
    SparseNode,
    SparseValue,
    TensorNode,
    component_count,
)

Array = npt.NDArray[Any]


Sizes = Union[Sequence[int], Array]


def fail_shapes(component: int, first: Sizes, index: int, other: Sizes) -> NoReturn:
    """In tf.data's words, which a user finds help for."""
    raise ShapeMismatchError(
        f"Cannot batch tensors with different shapes in component {component}. First element had "
        f"shape {_format_shape(first)} and element {index} had shape {_format_shape(other)}."
    )


def _format_shape(shape: Sizes) -> str:
    return "[" + ",".join(str(int(size)) for size in shape) + "]"


# ---- batches of records that somebody else's iterator gives ----


def stack_batches(records: Iterable[Any], batch_size: int, drop_remainder: bool) -> Iterator[Any]:
    iterator = iter(records)
    while True:
        batch = list(islice(iterator, batch_size))
        if not batch or (drop_remainder and len(batch) < batch_size):
            return
        yield _stack(batch, iter(range(2**31)))


def _stack(records: list[Any], component: Iterator[int]) -> Any:
    """records: equally nested. Tuples and dicts are structure, anything else is a tensor."""
    first = records[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: _stack([record[key] for record in records], component) for key in first}
    if isinstance(first, tuple):
        columns = [_stack(list(column), component) for column in zip(*records)]
        make = getattr(first, "_make", tuple)  # a namedtuple's own
        return make(columns)

    number = next(component)
    arrays = [_as_array(record) for record in records]
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            fail_shapes(number, arrays[0].shape, index, array.shape)
    return np.stack(arrays)


def _as_array(value: Any) -> Array:
    if isinstance(value, (bytes, str)):
        # NumPy's own string types would cut NULs at the end.
        array = np.empty((), object)
        array[()] = value
        return array
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "SU" else array


# ---- batches of ragged and sparse records, from the core's chunks ----


def chunk_packer(schema: Schema) -> Callable[[tuple[Array, ...]], Any]:
    """A function that makes a nested batch of an item in the loader's form "chunks"."""
    leaves = list(schema.leaves())

    def pack(chunk: tuple[Array, ...]) -> Any:
        columns = chunk_columns(schema.components, chunk)
        values = []
        for leaf in leaves:
            values.append(join_leaf(leaf, columns[: component_count(leaf)]))
            columns = columns[component_count(leaf) :]
        following = iter(values)
        return schema.map_leaves(lambda leaf: next(following))

    return pack


class Varying:
    """A component whose shape varies: all records' elements, and where each record's are."""

    def __init__(self, component: int, parts: Sequence[Array]) -> None:
        self.component = component
        self.values, self.splits, self.ranks, self.shapes = parts

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Elements of each record."""
        return np.diff(self.splits)

    def common_shape(self, skip: int = 0) -> tuple[int, ...]:
        """All records' shape, without the first `skip` dimensions, in which they may differ."""
        equal = (self.ranks == self.ranks[0]) & (
            self.shapes[:, skip:] == self.shapes[0, skip:]
        ).all(axis=1)
        if not equal.all():
            other = int(np.argmin(equal))
            fail_shapes(self.component, self._shape(0), other, self._shape(other))
        return tuple(int(size) for size in self._shape(0)[skip:])

    def _shape(self, record: int) -> Array:
        shape: Array = self.shapes[record, : self.ranks[record]]
        return shape


Column = Union[Varying, Array]


def chunk_columns(components: Sequence[Component], chunk: tuple[Array, ...]) -> list[Column]:
    columns: list[Column] = []
    at = 0
    for index, component in enumerate(components):
        if component.has_static_shape:
            columns.append(chunk[at])
            at += 1
        else:
            columns.append(Varying(index, chunk[at : at + 4]))
            at += 4
    return columns


def join_leaf(leaf: Union[TensorNode, RaggedNode, SparseNode], columns: list[Column]) -> Any:
    if isinstance(leaf, RaggedNode) and leaf.ragged_rank == 0:
        return _ragged_rows(columns[0], np.dtype(leaf.row_splits_dtype))
    if isinstance(leaf, RaggedNode):
        return _ragged(columns)
    if isinstance(leaf, SparseNode):
        return _sparse(columns)
    return _dense(columns[0])


def _dense(column: Column) -> Array:
    """[n, *shape]"""
    if not isinstance(column, Varying):
        return column
    return column.values.reshape(len(column.ranks), *column.common_shape())


def _ragged(columns: list[Column]) -> RaggedValue:
    """Joins n ragged values under one more, outer, ragged dimension."""
    flat, *splits = columns
    if not isinstance(flat, Varying):  # a hostile schema cannot: flat_values always vary
        raise CorruptCacheError("the stored ragged values have a fixed size")
    inner = flat.common_shape(skip=1)
    flat_values = flat.values.reshape(int(flat.shapes[:, 0].sum()), *inner)
    nested: list[Array] = []
    for column in splits:
        if not isinstance(column, Varying):
            raise CorruptCacheError("the stored row splits have a fixed size")
        sizes = column.sizes
        if (sizes < 1).any():
            raise CorruptCacheError("a stored ragged value has row splits without elements")
        if not nested:
            nested.append(_cumulate(sizes - 1, column.values.dtype))
        nested.append(_join_splits(column.values, column.splits, sizes))
    return RaggedValue(flat_values, tuple(nested))


def _ragged_rows(column: Column, splits_dtype: np.dtype[Any]) -> RaggedValue:
    """Joins n tensors, the rows of a ragged one, whose first dimension may differ."""
    if isinstance(column, Varying):
        inner = column.common_shape(skip=1)
        rows = column.shapes[:, 0]
        values = column.values.reshape(int(rows.sum()), *inner)
    else:
        rows = np.full(len(column), column.shape[1])
        values = column.reshape(-1, *column.shape[2:])
    return RaggedValue(values, (_cumulate(rows, splits_dtype),))


def _cumulate(sizes: Array, dtype: np.dtype[Any]) -> Array:
    """[0, sizes[0], sizes[0] + sizes[1], ...]"""
    splits = np.zeros(len(sizes) + 1, dtype)
    np.cumsum(sizes, out=splits[1:])
    return splits


def _join_splits(values: Array, ends: Array, sizes: Array) -> Array:
    """The row splits of all records' rows: each record's, moved behind those before it."""
    last = values[ends[1:] - 1]
    base = _cumulate(last, values.dtype)[:-1]
    moved = values + np.repeat(base, sizes)
    keep = np.ones(len(values), bool)
    keep[ends[1:-1]] = False  # each record's leading 0 is the end of the one before
    joined: Array = moved[keep]
    return joined


def _sparse(columns: list[Column]) -> SparseValue:
    """Joins n sparse values of rank r to one of rank r + 1, as large as the largest of each
    dimension."""
    indices, values, dense_shape = columns
    if not isinstance(indices, Varying) or not isinstance(values, Varying):
        raise CorruptCacheError("the stored sparse indices or values have a fixed size")
    shapes = _dense(dense_shape)
    rank = shapes.shape[1]
    entries = values.sizes
    flat = indices.values.reshape(-1, rank) if rank else np.zeros((int(entries.sum()), 0), np.int64)
    record = np.repeat(np.arange(len(entries), dtype=np.int64), entries)
    return SparseValue(
        np.concatenate([record[:, None], flat], axis=1),
        values.values,
        np.concatenate([[len(entries)], shapes.max(axis=0)]).astype(np.int64),
    )
