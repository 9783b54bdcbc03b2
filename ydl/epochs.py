"""Which epoch the next iterator of a stream takes."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple, Optional

from ydl import log

# One lock for all counters, so that one pair of hooks makes them safe to use after a fork.
_lock = threading.Lock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class Position(NamedTuple):
    """A place in a shard's endless sequence of records."""

    epoch: int
    record: int  # of the shard's epoch, below its length


class EpochCounter:
    """Of one stream and of what shares its epochs: each iterator is the next epoch, and the first
    one begins at the resume point.

    An iterator takes its epoch at its first pull, so that one which nobody pulls uses none up.
    Thread-safe; a copy or a pickle counts on for itself.
    """

    def __init__(self, start: Position, length: int) -> None:
        """start: where the first iterator begins; length: records of that epoch."""
        self.start = start
        self._length = length
        self._next = start
        self._left_at: Optional[int] = None  # record where an iterator of the first epoch ended

    def take(self) -> Position:
        with _lock:
            taken = self._next
            self._next = Position(taken.epoch + 1, 0)
            left_at, self._left_at = self._left_at, None
        if left_at is not None:
            self._warn_of_skipped(left_at)
        return taken

    def leave(self, position: Position) -> None:
        """An iterator was dropped where `position` would have come next."""
        # No lock: garbage collection may call this anywhere, also while take() holds it.
        if position.epoch == self.start.epoch and self.start != (0, 0):
            self._left_at = position.record

    def _warn_of_skipped(self, left_at: int) -> None:
        epoch, record = self.start
        log.warning(
            "the resumed epoch %d began at record %d of this shard's %d, and its iterator was "
            "dropped before record %d: records %d to %d of it are skipped, and the iterator that "
            "opens now begins epoch %d. To look at a resumed dataset, look at another one (call "
            "the decorated function again); for fit(steps_per_epoch=...) use repeat=True",
            epoch,
            record,
            self._length,
            left_at,
            left_at,
            self._length - 1,
            epoch + 1,
        )
