"""Damage in what is stored: noticed, withdrawn, and left to be built anew.

To withdraw entry N of the log is to publish a tombstone as N + 1. That number is free only as long
as N is what readers get, so whoever comes late, with damage that somebody else has replaced,
changes nothing. The damaged files stay where they are until they are collected (collect.py).

An operating system's error is no damage: a disk or a server that cannot be read now may be well
again tomorrow. Neither is a newer version's file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Union

from ydl import log
from ydl.dataref import CachedDataRef
from ydl.errors import CacheReplacedError, CorruptCacheError
from ydl.manifest import Manifest
from ydl.store import LocalStore

# How often the directory may be removed between two steps of one look.
_LOOKS = 5


class Finder:
    """Finds the published dataset, whole, for one call that can build it anew."""

    def __init__(self, store: LocalStore, open_ref: Callable[[Manifest], CachedDataRef]) -> None:
        self._store = store
        self._open_ref = open_ref
        self._has_healed = False
        # The log's last entry at the last look; 0: none. What is built because that look found
        # nothing is entry `number` + 1: whoever published since then is met there.
        self.number = 0

    def find(self) -> Optional[CachedDataRef]:
        """None where there is none, or no longer any: a damaged one is withdrawn, with a warning.

        CorruptCacheError where it cannot be withdrawn, or where this call meets damage again.
        """
        looks = 0
        while True:
            self.number = number = self._store.latest_number()
            if number == 0:
                return None
            try:
                entry = self._store.read(number)
                if entry.is_tombstone:
                    return None
                ref = self._open_ref(entry)
                ref.check()
                return ref
            except FileNotFoundError:  # somebody removed the dataset's directory just now
                looks += 1
                if looks == _LOOKS:
                    raise
            except (CorruptCacheError, CacheReplacedError) as error:
                self._withdraw(number, error)

    def _withdraw(self, number: int, damage: Union[CorruptCacheError, CacheReplacedError]) -> None:
        store = self._store
        if store.latest_number() != number:
            return  # what is damaged was replaced meanwhile
        if self._has_healed:
            raise _with(
                damage,
                f"It is the second damage that one call found in {store.name}, and it is not built "
                "yet another time: look after the disk, or after who else writes there",
            )
        try:
            store.withdraw(number, str(damage))
        except Exception as error:
            raise _with(
                damage,
                f"{store.name} should be built anew, but cannot be withdrawn: {error}. Make "
                f"{store.directory} writable for this process, or remove it",
            ) from error
        self._has_healed = True
        log.warning(
            "%s is damaged: %s. It was withdrawn by entry %d of %s and is built anew; its files "
            "stay until `ydl gc` or a later build collects them",
            store.name,
            damage,
            number + 1,
            store.directory,
        )


def _with(damage: Union[CorruptCacheError, CacheReplacedError], advice: str) -> CorruptCacheError:
    error = CorruptCacheError(f"{damage}. {advice}")
    error.filename = damage.filename
    return error
