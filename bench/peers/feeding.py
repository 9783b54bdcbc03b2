"""From NumPy batches to TensorFlow, in the fastest portable way there is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from harness.kinds import BATCH, Columns, Kind
from peers.base import Data


def from_epochs(kind: Kind, make_epoch: Callable[[int], Iterable[Columns]]) -> tf.data.Dataset:
    """Each pass over the dataset is make_epoch(another seed)."""
    seeds = itertools.count()

    def generate() -> Any:
        for columns in make_epoch(next(seeds)):
            yield columns if len(columns) > 1 else columns[0]

    types, shapes = specs(kind)
    # output_signature would copy each array once more.
    return tf.data.Dataset.from_generator(
        generate, output_types=types, output_shapes=shapes
    ).prefetch(2)


def gathered(data: Data, gather: Callable[[tf.Tensor], tuple[tf.Tensor, ...]]) -> tf.data.Dataset:
    """Only record numbers come through the dataset; gather(128 of them) gets the records, in two
    threads of TensorFlow's."""
    seeds = itertools.count()

    # Inside the dataset: making another one for each epoch would cost more than its shuffle.
    def shuffled(_: Any) -> tf.data.Dataset:
        order = tf.numpy_function(lambda: data.order(next(seeds)), [], tf.int64, stateful=True)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(order, [data.records]))

    def get(numbers: Any) -> Any:
        columns = gather(numbers)
        return columns if len(columns) > 1 else columns[0]

    order = tf.data.Dataset.from_tensors(0).flat_map(shuffled)
    return order.batch(BATCH).map(get, num_parallel_calls=2).prefetch(2)


def specs(kind: Kind) -> tuple[Any, Any]:
    """Types and shapes of a batch."""
    types = tuple(tf.as_dtype(component.dtype) for component in kind.components)
    shapes = tuple(tf.TensorShape([None, *component.shape]) for component in kind.components)
    return (types, shapes) if len(types) > 1 else (types[0], shapes[0])


def shuffle_buffer(kind: Kind, records: int) -> int:
    """Records in tf.data's shuffle buffer, for those who cannot seek: as many as a user would
    spend memory on (256 MB), which makes it a true shuffle of small datasets only."""
    return max(1, min(records, 10_000, (256 << 20) // kind.record_bytes))


def shuffled_batches(dataset: tf.data.Dataset, kind: Kind, records: int) -> tf.data.Dataset:
    return dataset.shuffle(shuffle_buffer(kind, records)).batch(BATCH).prefetch(2)
