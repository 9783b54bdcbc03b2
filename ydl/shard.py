"""One rank's share of a dataset, epoch after epoch, as iterators over the core's loader."""

from __future__ import annotations

import atexit
import functools
import weakref
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from ydl import _core, cpus, log
from ydl.epochs import EpochCounter, Position
from ydl.errors import CorruptCacheError
from ydl.handle import AnyHandle, DatasetFiles
from ydl.schema import Schema, TensorNode

# Records that are handed out one by one are gathered this many bytes at a time: large enough that
# a gather's fixed cost vanishes, small enough to stay in a core's cache.
_RECORD_CHUNK_BYTES = 256 * 1024
_RECORD_CHUNK_MAX = 1024
_MAX_THREADS = 4
# A batch of mapped rows that is smaller is gathered faster than one is handed from thread to thread
# (batches of 128: of 8 B records 33 against 15 million records a second, of 784 B 8.2 against 5.8).
_SMALL_BATCH_BYTES = 256 * 1024


@dataclass(frozen=True)
class Order:
    """Which records come when (csrc/order/order.h)."""

    rank: int
    num_shards: int
    drop_shard_remainder: bool
    shuffle: bool
    reshuffle: bool  # another order each epoch
    seed: int
    shuffle_scope: str = "shard"
    cut: int = 0  # records left out at the end, before any remainder

    def core(self, records: int) -> _core.Order:
        return _core.Order(records, **vars(self))


@dataclass(frozen=True)
class Start:
    """Where a shard's iterators begin."""

    position: Position  # of the first one that ends with its epoch
    order: Order  # of that epoch
    endless: Position  # of those that never end


def start_at_shard_offset(order: Order, records: int, epoch: int, offset: int) -> Start:
    """offset: of this shard's records, from the beginning of `epoch` on."""
    length = order.core(records).length
    epochs, record = divmod(offset, length) if length else (0, 0)
    position = Position(epoch + epochs, record)
    return Start(position, order, position)


def start_at_global_offset(order: Order, records: int, epoch: int, offset: int) -> Start:
    """offset: in the sequence that all ranks go through together, of `records` an epoch.

    A place of the sequence belongs to the same rank whether it is reached by resuming or not, so
    that a rank begins with its first place from `offset` on.
    """
    epochs, offset = divmod(offset, records) if records else (0, 0)
    epoch += epochs
    length = order.core(records).length
    first = max(-((order.rank - offset) // order.num_shards), 0)
    endless = Position(epoch, min(first, length))
    if not length or not order.drop_shard_remainder:
        return Start(endless, order, endless)
    # All ranks are to be equally long in this epoch, too. It may begin inside a round of ranks, so
    # that it has to end inside one.
    left = records - offset
    if left < order.num_shards:
        return Start(Position(epoch + 1, 0), order, endless)
    order = replace(order, drop_shard_remainder=False, cut=left % order.num_shards)
    return Start(Position(epoch, first), order, endless)


class CoreOrders:
    """The orders of one shard as the core's objects, each made when first asked for and kept: the
    iterators that are given the same one share what it holds. A copy or pickle has its own."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._made: dict[Order, _core.Order] = {}

    def of(self, order: Order) -> _core.Order:
        made = self._made.get(order)
        return self._made.setdefault(order, order.core(self._records)) if made is None else made

    def detached(self) -> DetachedOrders:
        return DetachedOrders(self, self._records)

    def __getstate__(self) -> dict[str, Any]:
        return {"_records": self._records, "_made": {}}


class DetachedOrders:
    """Uses others' while somebody keeps those; later makes each anew, and keeps none (handle.py's
    DetachedHandle says for whom)."""

    def __init__(self, orders: CoreOrders, records: int) -> None:
        self._records = records
        self._orders: Optional[weakref.ReferenceType[CoreOrders]] = weakref.ref(orders)

    def of(self, order: Order) -> _core.Order:
        orders = None if self._orders is None else self._orders()
        return order.core(self._records) if orders is None else orders.of(order)

    def detached(self) -> DetachedOrders:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"_records": self._records, "_orders": None}


class ShardReader:
    """Makes iterators. They are generators, so that each takes its epoch at its first pull and
    ends its threads when it is exhausted, closed or dropped."""

    def __init__(
        self,
        handle: AnyHandle,
        order: Order,
        start: Start,
        epochs: Optional[EpochCounter] = None,
        orders: Union[CoreOrders, DetachedOrders, None] = None,
    ) -> None:
        self._handle = handle
        self._order = order
        self._start = start
        self._orders = orders or CoreOrders(handle.files.manifest.records)
        self.epochs = epochs or EpochCounter(start.position, self._length(start.order))
        self.records = self._length(order)

    def _length(self, order: Order) -> int:
        return self._orders.of(order).length

    def _order_of(self, epoch: int) -> _core.Order:
        is_first = epoch == self._start.position.epoch
        return self._orders.of(self._start.order if is_first else self._order)

    @property
    def files(self) -> DatasetFiles:
        return self._handle.files

    @property
    def schema(self) -> Schema:
        return self.files.schema

    @property
    def mean_record_bytes(self) -> int:
        return self.files.manifest.mean_record_bytes

    @property
    def begins_with_whole_epoch(self) -> bool:
        """The first iterator has as many records as the others."""
        return self._length(self._start.order) - self._start.position.record == self.records

    def detached(self) -> ShardReader:
        """Shares the epochs, and keeps nothing open between iterations."""
        return ShardReader(
            self._handle.detached(),
            self._order,
            self._start,
            self.epochs,
            self._orders.detached(),
        )

    def record_numbers(self, epoch: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        return self._order_of(epoch).numbers(epoch, start, count)

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
        with _Loading(self, form, batch_records, drop_remainder, endless) as loading:
            # No Python code of ours runs per item unless pack is some.
            yield from loading.loader if pack is None else map(pack, loading.loader)

    def lend(
        self,
        batch_records: int,
        drop_remainder: bool = False,
        endless: bool = False,
        group: int = 1,
    ) -> Generator[tuple[int, int], None, None]:
        """As iterate("batches", ...), but for TensorFlow's op: one item, the two numbers that the
        op wants. What it gets is there until this generator goes on.

        group: so many whole batches come at once, as long as an epoch has them.
        """
        with _Loading(self, "batches", batch_records, drop_remainder, endless, group) as loading:
            loader = loading.loader
            note_damage = functools.partial(self._note_damage_of_lent, loader)
            atexit.register(note_damage)  # TensorFlow keeps its iterators to the very end
            try:
                yield loader.lend()
            finally:
                note_damage()
                atexit.unregister(note_damage)

    def _note_damage_of_lent(self, loader: _core.Loader) -> None:
        """TensorFlow tells nobody but its caller of what went wrong in the op."""
        try:
            loader.check()
        except CorruptCacheError as error:
            self.files.note_damage(error)
            log.warning("%s", error)
        except Exception:  # its reader has got it
            return

    def next_start(self, endless: bool) -> tuple[Position, _core.Order]:
        """Where the next iterator begins, which uses up an epoch unless it is endless."""
        if endless:
            return self._start.endless, self._orders.of(self._order)
        start = self.epochs.take()
        return start, self._order_of(start.epoch)

    def open_loader(
        self,
        form: str,
        batch_records: int,
        drop_remainder: bool,
        group: int,
        order: _core.Order,
        start: Position,
        end: Optional[int],
    ) -> _core.Loader:
        """end: the epoch's length; None: endless."""
        access = self.files.access
        threads = _prefetch_threads(form, batch_records, self.mean_record_bytes, access)
        if end is not None and end - start.record <= batch_records:
            threads = 0  # one gather: nothing to do ahead
        return _core.Loader(
            self._handle.reader(),
            order,
            epoch=start.epoch,
            position=start.record,
            batch_records=batch_records,
            drop_remainder=drop_remainder,
            endless=end is None,
            form=form,
            threads=threads,
            depth=threads + 2,
            group=group,
        )


class _Loading:
    """One iterator's loader, from its first pull to its end.

    A class, since what contextlib.contextmanager makes leaves a cycle behind on Python 3.9 where
    the iterator is closed before its end, and files stay open until the garbage collector runs.
    """

    def __init__(
        self,
        shard: ShardReader,
        form: str,
        batch_records: int,
        drop_remainder: bool,
        endless: bool,
        group: int = 1,
    ) -> None:
        self._shard = shard
        self._start, order = shard.next_start(endless)
        self._endless = endless
        self._least = batch_records if drop_remainder else 1  # records that are still a batch
        self.length = order.length  # of an epoch
        end = None if endless else self.length
        self.loader = shard.open_loader(
            form, batch_records, drop_remainder, group, order, self._start, end
        )

    def __enter__(self) -> _Loading:
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], traceback: Any) -> None:
        try:
            if kind is GeneratorExit:
                self._note_rest()
            elif isinstance(error, CorruptCacheError):
                self._shard.files.note_damage(error)
        finally:
            self.loader.close()

    def _note_rest(self) -> None:
        position = Position(self.loader.epoch, self.loader.position)
        unserved = self.length - position.record if position.epoch == self._start.epoch else 0
        if not self._endless and unserved >= self._least:
            self._shard.epochs.leave(position)


def _prefetch_threads(form: str, batch_records: int, mean_record_bytes: int, access: str) -> int:
    if form in ("records", "values"):
        return 0  # they are made in the consumer's thread
    if access == "mmap" and batch_records * mean_record_bytes < _SMALL_BATCH_BYTES:
        return 0
    return min(cpus.usable(), _MAX_THREADS)
