"""Blocks of records out of tf.data, as the columns that a writer takes.

Flat tuples of dense tensors are batched. Where a component's shape varies, the batch is ragged:
the elements of all records, one after another, and beside them each record's shape. A ragged
tensor tells the shapes only where nothing but the first dimension varies (how wide are no rows?);
elsewhere tf.shape goes along with each record. Tensors of unknown rank cannot be batched at all: a
block is one record there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ydl.build import Column
from ydl.schema import Component, element_count

# Large enough that the cost of a step (some 100 us) vanishes in the copying, small enough that the
# four blocks in flight stay far below what a training job has.
_BLOCK_BYTES = 2 << 20
_MAX_BLOCK_RECORDS = 4096
# Nothing tells how long strings are before they are read. They may be whole image files.
_STRING_BYTES_GUESS = 16 << 10
# Nor how large records are whose shapes vary. A training job has several batches of so many in its
# memory; more would save little, as each record costs tf.data some 50 us by itself.
_MAX_VARYING_RECORDS = 32
_BLOCKS_AHEAD = 2


class Blocks:
    """`dataset` gives a flat tuple of dense tensors per block; `columns` makes sense of it."""

    def __init__(self, flat: Any, components: Sequence[Component]) -> None:
        """flat: a dataset of tuples with a dense tensor for each component, in any order."""
        shapes = [tensor.shape for tensor in flat.element_spec]
        self._varying: list[tuple[int, list[int]]] = []  # components, and their known sizes
        batches_are_dense = any(shape.rank is None for shape in shapes)
        records = 1 if batches_are_dense else block_records(components)
        if not batches_are_dense:
            self._varying = [
                (i, [size or 0 for size in shape.as_list()])
                for i, shape in enumerate(shapes)
                if None in shape.as_list()
            ]
        if self._varying:
            measured = [i for i, _ in self._varying if None in shapes[i].as_list()[1:]]
            flat = flat.map(_shape_adder(measured)) if measured else flat
            batches = _ragged_batch(flat, records).map(_taker_apart(len(shapes), measured))
        else:
            batches = flat.batch(records)
        self.dataset = batches.prefetch(_BLOCKS_AHEAD)

    def columns(self, block: Sequence[npt.NDArray[Any]]) -> tuple[int, list[Column]]:
        """How many records the block has, and its components, in the order of the flat tuple."""
        records = len(block[-1])
        columns: list[Column] = list(block[: len(block) - len(self._varying)])
        for (i, sizes), known in zip(self._varying, block[len(columns) :]):
            shapes = known
            if known.ndim == 1:  # the first dimension of each record
                shapes = np.tile(np.array(sizes, np.int64), (records, 1))
                shapes[:, 0] = known
            columns[i] = (block[i], shapes)
        return records, columns


def block_records(components: Sequence[Component]) -> int:
    """How many records to read at once."""
    most = _MAX_BLOCK_RECORDS
    record_bytes = 1  # at least
    for component in components:
        if component.shape is None:
            return 1
        if None in component.shape:
            most = _MAX_VARYING_RECORDS
        item_bytes = _STRING_BYTES_GUESS
        if component.dtype != "string":
            item_bytes = tf.as_dtype(component.dtype).size
        sizes = [1 if size is None else size for size in component.shape]
        record_bytes += item_bytes * element_count(sizes)
    return max(1, min(most, _BLOCK_BYTES // record_bytes))


def _shape_adder(positions: Sequence[int]) -> Any:
    def add_shapes(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (*tensors, *(tf.shape(tensors[i], tf.int64) for i in positions))

    return add_shapes


def _taker_apart(count: int, measured: Sequence[int]) -> Any:
    """A batch's `count` components, with the elements alone of those that are ragged; then for each
    of these the first dimension of all records, [records], or their shapes, [records, rank]."""

    def take_apart(*batch: Any) -> tuple[tf.Tensor, ...]:
        shapes = dict(zip(measured, batch[count:]))
        elements, known = [], []
        for i, tensor in enumerate(batch[:count]):
            if isinstance(tensor, tf.RaggedTensor):
                known.append(shapes[i] if i in shapes else tensor.row_lengths())
                tensor = tensor.flat_values
            elements.append(tensor)
        return (*elements, *known)

    return take_apart


def _ragged_batch(dataset: Any, records: int) -> Any:
    if hasattr(dataset, "ragged_batch"):
        return dataset.ragged_batch(records)
    return dataset.apply(tf.data.experimental.dense_to_ragged_batch(records))
