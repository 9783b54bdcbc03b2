"""One rank's share of a dataset, epoch after epoch, as iterators over the core's loader."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from ydl import _core, log
from ydl.epochs import EpochCounter, Position
from ydl.errors import CorruptCacheError
from ydl.handle import AnyHandle
from ydl.schema import Schema, TensorNode

# Records that are handed out one by one are gathered this many bytes at a time: large enough that
# a gather's fixed cost vanishes, small enough to stay in a core's cache.
_RECORD_CHUNK_BYTES = 256 * 1024
_RECORD_CHUNK_MAX = 1024
_MAX_THREADS = 4
_ENDLESS = 2**63 - 1  # batches
_SHARED_ROW_BYTES = 1024
_SHARED_ROWS = 16


@dataclass(frozen=True)
class Order:
    """Which records come when (csrc/order/order.h)."""

    rank: int
    num_shards: int
    drop_shard_remainder: bool
    shuffle: bool
    reshuffle: bool  # another order each epoch
    seed: int

    def shard_len(self, records: int) -> int:
        return _core.shard_len(records, self.rank, self.num_shards, self.drop_shard_remainder)


class ShardReader:
    """Makes iterators. They are generators, so that each takes its epoch at its first pull and
    ends its threads when it is exhausted, closed or dropped."""

    def __init__(self, handle: AnyHandle, order: Order, epochs: EpochCounter) -> None:
        self._handle = handle
        self._order = order
        self.epochs = epochs
        self.records = order.shard_len(handle.files.manifest.records)

    @property
    def schema(self) -> Schema:
        return self._handle.files.schema

    @property
    def mean_record_bytes(self) -> int:
        return self._handle.files.manifest.mean_record_bytes

    def detached(self) -> ShardReader:
        """Shares the epochs, and keeps nothing open between iterations."""
        return ShardReader(self._handle.detached(), self._order, self.epochs)

    def record_numbers(self, epoch: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        return _core.record_numbers(
            self._handle.files.manifest.records,
            **vars(self._order),
            epoch=epoch,
            start=start,
            count=count,
        )

    def iterate_records(self) -> Generator[Any, None, None]:
        """The next epoch's records, nested like the dataset's elements."""
        mean = max(self.mean_record_bytes, 1)
        rows = min(max(_RECORD_CHUNK_BYTES // mean, 1), _RECORD_CHUNK_MAX)
        if isinstance(self.schema.root, TensorNode):
            return self.iterate("values", rows)
        pack = None if self.schema.is_flat_tuple else self.schema.packer()
        return self.iterate("records", rows, pack=pack)

    def iterate(
        self,
        form: str,
        batch_records: int,
        drop_remainder: bool = False,
        endless: bool = False,
        pack: Optional[Callable[[tuple[Any, ...]], Any]] = None,
    ) -> Generator[Any, None, None]:
        """The next epoch in one of _core.Loader's forms, each item through `pack`.

        endless: from the resume point on, for ever; does not count as an epoch of the stream.
        """
        with self._loading(form, batch_records, drop_remainder, endless) as loader:
            # No Python code of ours runs per item unless pack is some.
            yield from loader if pack is None else map(pack, loader)

    def lend(
        self, form: str, batch_records: int, drop_remainder: bool = False, endless: bool = False
    ) -> Generator[tuple[int, int, int], None, None]:
        """As iterate(), but for TensorFlow's op: one item, (two numbers that the op wants, how
        many batches it may ask for). The batches are there until this generator goes on."""
        with self._loading(form, batch_records, drop_remainder, endless) as loader:
            left = self.records - loader.position
            count = left // batch_records if drop_remainder else -(-left // batch_records)
            note_damage = functools.partial(self._note_damage_of_lent, loader)
            atexit.register(note_damage)  # TensorFlow keeps its iterators to the very end
            try:
                yield (*loader.lend(), _ENDLESS if endless and self.records else count)
            finally:
                atexit.unregister(note_damage)
                note_damage()

    @contextlib.contextmanager
    def _loading(
        self, form: str, batch_records: int, drop_remainder: bool, endless: bool
    ) -> Iterator[_core.Loader]:
        start = self.epochs.start if endless else self.epochs.take()
        loader = self._open_loader(form, batch_records, drop_remainder, endless, start)
        try:
            yield loader
        except GeneratorExit:
            unserved = self.records - loader.position if loader.epoch == start.epoch else 0
            if not endless and unserved >= (batch_records if drop_remainder else 1):
                self.epochs.leave(Position(loader.epoch, loader.position))
            raise
        except CorruptCacheError as error:
            self._handle.files.note_damage(error)
            raise
        finally:
            loader.close()

    def _note_damage_of_lent(self, loader: _core.Loader) -> None:
        """TensorFlow tells nobody but its caller of what went wrong in the op."""
        try:
            loader.check()
        except CorruptCacheError as error:
            self._handle.files.note_damage(error)
            log.warning("%s", error)
        except Exception:  # its reader has got it
            return

    def _open_loader(
        self, form: str, batch_records: int, drop_remainder: bool, endless: bool, start: Position
    ) -> _core.Loader:
        threads = _prefetch_threads(form, batch_records, self.mean_record_bytes)
        if not endless and self.records - start.record <= batch_records:
            threads = 0  # one gather: nothing to do ahead
        return _core.Loader(
            self._handle.reader(),
            **vars(self._order),
            epoch=start.epoch,
            position=start.record,
            batch_records=batch_records,
            drop_remainder=drop_remainder,
            endless=endless,
            form=form,
            threads=threads,
            depth=threads + 2,
        )


def _prefetch_threads(form: str, batch_records: int, mean_record_bytes: int) -> int:
    if form in ("records", "values"):
        # They are made in the consumer's thread. For long rows it pays that another thread finds
        # them and brings them into the cache that the two share (1.3 KB: 6.1 against 4.2 million
        # records a second); for short ones there is little to bring, and of very long ones
        # only a few fit.
        is_worth_it = mean_record_bytes >= _SHARED_ROW_BYTES and batch_records >= _SHARED_ROWS
        return 1 if is_worth_it else 0
    return min(len(os.sched_getaffinity(0)), _MAX_THREADS)
