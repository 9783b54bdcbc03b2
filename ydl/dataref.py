"""References to cached datasets."""

from __future__ import annotations

import abc
import secrets
from collections.abc import Iterable
from typing import Any, Optional

from ydl import arguments, log, text
from ydl.errors import CorruptCacheError, NotCachedError
from ydl.handle import DatasetFiles, Handle
from ydl.manifest import Manifest
from ydl.shard import Order, ShardReader, start_at_global_offset, start_at_shard_offset
from ydl.store import LocalStore
from ydl.stream import RecordStream, Stream

SHUFFLE_SCOPES = ("shard", "global")
# Validated between two looks at signals: some 0.1 s where each part takes a few round trips.
_CHECK_PARTS = 64


class DataRef(metaclass=abc.ABCMeta):
    """Refers to a dataset, wherever it lies; its records are reached through streams.

    Users derive their own, too (examples/custom_data_ref.py).
    """

    @abc.abstractmethod
    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: Optional[int] = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
    ) -> Stream:
        """One rank's records in an order that the arguments say."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Records of the whole dataset."""


class CachedDataRef(DataRef):
    """A dataset that ydl has stored. Opens its files when they are first read from, and again in
    a forked child. Pickles and copies."""

    def __init__(
        self,
        store: LocalStore,
        manifest: Manifest,
        *,
        verify: str,
        access: str,
        is_rebuildable: bool = False,
    ) -> None:
        if manifest.schema is None:
            raise NotCachedError(f"{store.name} was removed from {store.directory}")
        files = DatasetFiles(store, manifest, manifest.schema, verify, access, is_rebuildable)
        self._handle = Handle(files)

    @property
    def manifest(self) -> Manifest:
        """What is stored: when, where and by which code it was built, part by part."""
        return self._handle.files.manifest

    @property
    def directory(self) -> str:
        return self._handle.files.store.directory

    def __len__(self) -> int:
        return self.manifest.records

    def check(self) -> None:
        """Opens and validates all files, but not the records in them.

        CorruptCacheError where one is damaged, CacheReplacedError where one is gone, OSError where
        it cannot be read.
        """
        reader = self._handle.reader()
        for first in range(0, len(self.manifest.parts), _CHECK_PARTS):
            reader.check(first, _CHECK_PARTS)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._handle.files.store.name}, {len(self)} records>"

    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: Optional[int] = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
        *,
        start_epoch: int = 0,
        shuffle_scope: str = "shard",
        global_offset: Optional[int] = None,
    ) -> RecordStream:
        """The records [shard_rank::num_shards] of the dataset, epoch after epoch.

        start_offset: records of this shard to skip from the beginning of start_epoch on: whole
        epochs, then records of one.
        shuffle: by numpy.random.RandomState(shuffle_seed + epoch), the sum mod 2**32, or, with
        skip_shuffle_at_epoch_end, by RandomState(shuffle_seed) in every epoch; there a seed of
        None is drawn once for this stream.
        drop_shard_remainder: leave out the dataset's last len(self) % num_shards records, so that
        all shards are equally long.

        shuffle_scope: "shard": each shard is shuffled, as yogadl does. "global": the whole dataset
        is, by a permutation of (shuffle_seed, epoch, len(self)) (csrc/order/permutation.h), before
        [shard_rank::num_shards] is taken of it and its last records are dropped. Place p of this
        sequence belongs to rank p % num_shards, so that all ranks together go through the same
        sequence, however many they are.
        global_offset: with "global", instead of start_offset: the place of the sequence from which
        on the ranks have every record, whatever num_shards was before; from the beginning of
        start_epoch on, where every epoch counts for len(self), dropped records included. So that
        drop_shard_remainder keeps all ranks equally long, the resumed epoch is without its last
        (len(self) - global_offset) % num_shards records, and where only such are left, the next
        epoch is the first. An endless iterator goes on through the end of the resumed epoch as it
        does through others.

        TypeError or ValueError, with the number, for what is no integer in its range;
        ValueError for shuffle with reshuffling, or with "global", and no seed.
        """
        scope = arguments.choice("shuffle_scope", shuffle_scope, SHUFFLE_SCOPES)
        offset = arguments.integer("start_offset", start_offset)
        if global_offset is not None:
            global_offset = arguments.integer("global_offset", global_offset)
            _check_global_offset(global_offset, offset, scope)
        epoch = arguments.integer("start_epoch", start_epoch)
        num_shards = arguments.integer("num_shards", num_shards, minimum=1)
        rank = arguments.integer("shard_rank", shard_rank)
        if rank >= num_shards:
            raise ValueError(
                f"shard_rank is {rank}, but num_shards is {num_shards}: ranks are 0 to "
                f"{num_shards - 1}"
            )
        order = Order(
            rank=rank,
            num_shards=num_shards,
            drop_shard_remainder=bool(drop_shard_remainder),
            shuffle=bool(shuffle),
            reshuffle=bool(shuffle and not skip_shuffle_at_epoch_end),
            seed=_seed(shuffle_seed, shuffle, skip_shuffle_at_epoch_end, scope),
            shuffle_scope=scope,
        )
        self._warn_of_empty_shards(order)
        if global_offset is None:
            start = start_at_shard_offset(order, len(self), epoch, offset)
        else:
            start = start_at_global_offset(order, len(self), epoch, global_offset)
        return RecordStream(ShardReader(self._handle, order, start))

    def read(self, numbers: Iterable[int]) -> list[Any]:
        """The records with these numbers, nested as the dataset's elements; for looking at data,
        not for training.

        IndexError where a number is not in [0, len(self)).
        """
        wanted = []
        for value in numbers:
            number = arguments.integer("a record number", value)
            if number >= len(self):
                raise IndexError(
                    f"cannot read record {number} of {self._handle.files.store.name}, which has "
                    f"{len(self)} records"
                )
            wanted.append(number)
        try:
            records = self._handle.reader().read(wanted)
        except CorruptCacheError as error:
            self._handle.files.note_damage(error)
            raise
        return list(map(self._handle.files.schema.packer(), records))

    def _warn_of_empty_shards(self, order: Order) -> None:
        """Every rank says so: the log of an empty one is not the first that somebody reads."""
        records = len(self)
        if not records:
            return
        empty = _ranks_without_records(records, order)
        if empty:
            log.warning(
                "%s of %d get%s no record of %s: it has %d records%s",
                text.rank_list(empty),
                order.num_shards,
                "s" if len(empty) == 1 else "",
                self._handle.files.store.name,
                records,
                ", and drop_shard_remainder leaves out what does not divide evenly"
                if order.drop_shard_remainder
                else "",
            )


def _ranks_without_records(records: int, order: Order) -> range:
    if records >= order.num_shards:
        return range(0)
    return range(0 if order.drop_shard_remainder else records, order.num_shards)


def _check_global_offset(global_offset: int, start_offset: int, scope: str) -> None:
    if scope != "global":
        raise ValueError(
            f"global_offset is {global_offset}, a place in the sequence that all ranks share, but "
            f"shuffle_scope is {scope!r}, which has none: give start_offset, which counts this "
            "shard's records, or shuffle_scope='global'"
        )
    if start_offset:
        raise ValueError(
            f"start_offset is {start_offset} and global_offset is {global_offset}: give one of "
            "them, start_offset for records of this shard or global_offset for a place in the "
            "sequence that all ranks share"
        )


def _seed(seed: Any, shuffle: Any, skip_shuffle_at_epoch_end: Any, scope: str) -> int:
    if seed is not None:
        return arguments.seed(seed)
    if shuffle and scope == "global":
        raise ValueError(
            "shuffle=True with shuffle_scope='global' needs a shuffle_seed, the same on all ranks, "
            "since they share one order: give one"
        )
    if shuffle and not skip_shuffle_at_epoch_end:
        raise ValueError(
            "shuffle=True needs a shuffle_seed, since each epoch's order is made from it and the "
            "epoch's number: give one, or skip_shuffle_at_epoch_end=True"
        )
    return secrets.randbelow(2**32) if shuffle else 0


# The name that users of yogadl have in their annotations.
LMDBDataRef = CachedDataRef
