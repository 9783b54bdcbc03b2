"""The C core as Python sees it. Private: the package's own modules are its only callers."""

import builtins
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

# A component: its dtype's name and its shape, in which None stands for a dimension that varies;
# a shape of None stands for a varying rank.
Component = tuple[str, Optional[tuple[Optional[int], ...]]]

# Of Writer.append: one component of some records.
Column = Union[npt.NDArray[Any], tuple[npt.NDArray[Any], npt.NDArray[Any]]]

MAX_RANK: int

class Writer:
    """Writes the part files of one build into `directory`."""

    records: int  # appended so far
    bytes: int  # encoded so far

    def __init__(
        self,
        directory: str,
        build_uuid: builtins.bytes,
        components: Sequence[Component],
        part_bytes: int,
    ) -> None: ...
    def append(self, records: int, columns: Sequence[Column]) -> None:
        """Appends records; column i has shape [records, *shape of component i]. Where records
        have different shapes, it is (elements, shapes): those of all records one after another,
        and int64 [records, rank].

        Numeric columns have the component's item size; strings are object arrays of bytes.
        ShapeMismatchError where shapes contradict the components, ValueError where types do.
        """
    def finish(self) -> list[tuple[str, int, int, int]]:
        """Completes, flushes and verifies all parts: (name, records, bytes, XXH3-64) of each.
        Ctrl-C ends it between two steps of its thread."""
    def close(self) -> None:
        """Closes what is open. Removes nothing. May be called twice."""

class Reader:
    """An open dataset. Thread-safe. Opens a part when it is first read."""

    records: int
    mean_record_bytes: int

    def __init__(
        self,
        parts: Sequence[tuple[str, bytes, int, int, int, int]],
        components: Sequence[Component],
        dtypes: Sequence[np.dtype[Any]],
        verify: str,
        access: str,
    ) -> None:
        """parts: (path, build uuid, number, first record, records, bytes).

        dtypes: what NumPy arrays of each component get (object for strings).
        verify: "first", "always" or "never". access: "mmap" or "pread".
        """
    def check(self, first: int, count: int) -> None:
        """Validates the parts [first, first + count) as far as there are such. CorruptCacheError,
        UnsupportedError, OSError; CacheReplacedError where one is gone."""
    def read(self, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
        """The records with these numbers: one tuple of components each.

        A component is a NumPy scalar (rank 0), bytes (rank-0 string), an array, or an object array
        of bytes; arrays own their memory.
        """

class Order:
    """Which records come when (csrc/order/order.h). Immutable and thread-safe; the loaders that are
    given the same one share the orders of their epochs, and have them made ahead
    (csrc/batch/orders.h). In a forked child the same, with orders of its own."""

    length: int  # records of an epoch; may exceed sys.maxsize

    def __init__(
        self,
        records: int,
        *,
        rank: int,
        num_shards: int,
        drop_shard_remainder: bool,
        shuffle: bool,
        reshuffle: bool,
        seed: int,
        shuffle_scope: str,
        cut: int,
    ) -> None: ...
    def numbers(self, epoch: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        """The record numbers at positions [start, start + count) of an epoch, cut at its end."""

class Loader:
    """An iterator over one epoch (or, endless, over all from a start on) of a stream.

    form: "records": each item is a record's tuple of components, as Reader.read gives them; they
    are made in the consumer's thread, from rows that the others find, batch_records at a time.
    "values": of a dataset with one component: as "records", but that component without a tuple.
    "batches": each item is a tuple with one array [n, ...] per component (object arrays of bytes
    for strings); records whose shapes differ raise ShapeMismatchError.
    "chunks": as "batches", but a component whose shape the dataset lets vary gives four arrays
    instead of one: values (1-D, all elements), row_splits (int64 [n + 1], in elements), ranks
    (int64 [n]) and shapes (int64 [n, largest rank], unused dimensions 0).

    group: so many whole batches come as one item, as long as the epoch has them; what is left of it
    comes batch by batch.

    Arrays of batches and chunks are 64-byte aligned and belong to the consumer.
    """

    epoch: int  # of the record that comes next
    position: int  # of the record that comes next within its epoch

    def __init__(
        self,
        reader: Reader,
        order: Order,
        *,
        epoch: int,
        position: int,
        batch_records: int,
        drop_remainder: bool,
        endless: bool,
        form: str,
        threads: int,
        depth: int,
        group: int,
    ) -> None: ...
    def __iter__(self) -> Loader: ...
    def __next__(self) -> tuple[Any, ...]: ...
    def lend(self) -> tuple[int, int]:
        """Lets TensorFlow's op (csrc/tf/op.c) pull the batches instead, until close(): what it has
        to be told for that (csrc/batch/feed.h)."""
    def check(self) -> None:
        """Raises the error that ended a lent loader, where one did."""
    def close(self) -> None:
        """Stops the threads and drops what they hold. May be called twice."""

class Lease:
    """Who builds (advisory). See csrc/store/lease.h."""

    def __init__(self, directory: str, ttl_ms: int) -> None: ...
    def try_acquire(self) -> Optional[dict[str, Any]]:
        """None: held now, the heartbeat runs. Else who holds it: generation, held, failed, stale,
        host, pid, since (unix seconds), progress (records), failures, text."""
    def peek(self) -> dict[str, Any]:
        """What try_acquire would see, without trying."""
    def set_progress(self, records: int) -> None: ...
    def is_held(self) -> bool: ...
    def release(self, failure: Optional[str] = None) -> None: ...
    failures: int  # failed builds in a row before this lease was acquired

def log_latest(directory: str) -> int:
    """The highest entry of a manifest log, 0 where there is none."""

def log_read(directory: str, number: int, max_bytes: int) -> bytes: ...
def log_append(directory: str, number: int, content: bytes, allow_weak: bool) -> bool:
    """Creates entry `number` durably; False where somebody else already has."""

def fsync_directory(path: str) -> None: ...
def access_for(path: str) -> str:
    """How to read files there: "mmap", or "pread" on a network or FUSE file system, and where the
    system does not tell."""

def hash64(content: bytes) -> int:
    """XXH3-64."""

def shuffle(n: int, seed: int) -> npt.NDArray[np.uint64]:
    """numpy.random.RandomState(seed).shuffle(list(range(n))) as an array."""

def sample_feed() -> tuple[int, int]:
    """What Loader.lend gives, for a batch that no dataset holds: an int64 column of 1, 2, 3 and a
    column of the strings "a", "" and 100 times "b"."""
