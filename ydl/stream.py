"""Streams of records: a user's own, and those that the core reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ydl import arguments, batching
from ydl.epochs import Position
from ydl.schema import Schema, numpy_dtype
from ydl.shard import ShardReader


class Stream:
    """Records of one rank, to be iterated over as often as there are epochs.

    iterator_fn: gives a new iterator over NumPy records in the dataset's nesting.
    length: records of a full epoch; what the iterators yield is the caller's promise.
    output_types, output_shapes: nested dtypes and shapes, such as
    tf.data.Dataset.from_generator takes.
    """

    def __init__(
        self,
        iterator_fn: Callable[[], Any],
        length: int,
        output_types: Any = None,
        output_shapes: Any = None,
    ) -> None:
        self.iterator_fn = iterator_fn
        self.length = length
        self.output_types = output_types
        self.output_shapes = output_shapes

    def __iter__(self) -> Any:
        return self.iterator_fn()

    def __len__(self) -> int:
        return self.length

    def batches(self, batch_size: int, drop_remainder: bool = False) -> Iterator[Any]:
        """The next iterator's records in batches: arrays [batch_size, ...] in the records'
        nesting, strings as object arrays of bytes. The last one may be smaller, unless
        drop_remainder.

        ShapeMismatchError where records of one batch differ in shape.
        """
        size = arguments.integer("batch_size", batch_size, minimum=1)
        return batching.stack_batches(self, size, bool(drop_remainder))


class RecordStream(Stream):
    """What DataRef.stream gives: records read by the C core.

    Each iterator, whether of records or of batches, is the next epoch, taken at its first pull;
    the first one begins at the resume point. Iterators do not disturb each other. Records are
    NumPy: numbers as NumPy scalars, strings as bytes, string arrays as object arrays of bytes,
    ragged and sparse tensors as ydl.schema.RaggedValue and SparseValue.

    Pickles and copies, which go on with the epoch that this stream would take next; in a forked
    child it opens its files again.
    """

    def __init__(self, shard: ShardReader) -> None:
        schema = shard.schema
        # Bound to the shard, not to this object: a cycle would keep files open until the garbage
        # collector runs.
        super().__init__(
            iterator_fn=shard.iterate_records,
            length=shard.records,
            output_types=schema.map_leaves(lambda leaf: numpy_dtype(leaf.dtype, "the element")),
            output_shapes=schema.map_leaves(lambda leaf: leaf.shape),
        )
        self._shard = shard

    @property
    def schema(self) -> Schema:
        return self._shard.schema

    @property
    def mean_record_bytes(self) -> int:
        """Bytes of a stored record on average; 0 for an empty dataset."""
        return self._shard.mean_record_bytes

    @property
    def start(self) -> Position:
        """Where the first iterator begins: (epoch, record of this shard within it)."""
        return self._shard.epochs.start

    @property
    def starts_at_epoch_begin(self) -> bool:
        """The resume point is no place inside an epoch, so that all epochs have len() records."""
        return self._shard.begins_with_whole_epoch

    def batches(self, batch_size: int, drop_remainder: bool = False) -> Iterator[Any]:
        """The next epoch in batches: arrays [batch_size, ...], 64-byte aligned, in the records'
        nesting. The last one may be smaller, unless drop_remainder.

        Strings come as object arrays of bytes. A RaggedValue gets outer row splits, a SparseValue
        a first column of indices and the largest dense shape.

        ShapeMismatchError where other records of one batch differ in shape.
        """
        size = arguments.integer("batch_size", batch_size, minimum=1)
        schema = self.schema
        if not schema.is_plain:
            return self._shard.iterate(
                "chunks", size, bool(drop_remainder), pack=batching.chunk_packer(schema)
            )
        pack = None if schema.is_flat_tuple else schema.packer()
        return self._shard.iterate("batches", size, bool(drop_remainder), pack=pack)

    def iterate(
        self, form: str, batch_records: int, drop_remainder: bool = False, endless: bool = False
    ) -> Generator[tuple[Any, ...], None, None]:
        """The next epoch as flat tuples of components, in a form of _core.Loader: "records",
        "batches" or "chunks".

        endless: from the resume point on, epoch after epoch, for ever. Such an iterator uses up
        no epoch of the stream.
        """
        return self._shard.iterate(form, batch_records, drop_remainder, endless)

    def lend(
        self,
        batch_records: int,
        drop_remainder: bool = False,
        endless: bool = False,
        group: int = 1,
    ) -> Generator[tuple[int, int], None, None]:
        """iterate("batches", ...) for TensorFlow's op instead of Python: see ShardReader.lend."""
        return self._shard.lend(batch_records, drop_remainder, endless, group)

    def detached(self) -> RecordStream:
        """A stream that shares this one's epochs, but neither keeps files open between iterations
        nor keeps this stream alive."""
        return RecordStream(self._shard.detached())

    def record_numbers(self, epoch: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        """Which records of the dataset come at positions [start, start + count) of an epoch of
        this shard; fewer where the epoch ends. Reads nothing and uses no epoch up."""
        return self._shard.record_numbers(
            arguments.integer("epoch", epoch),
            arguments.integer("start", start),
            arguments.integer("count", count),
        )
