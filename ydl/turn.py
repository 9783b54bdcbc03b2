"""Whose turn it is to build a dataset: processes that need it together build it once.

The lease that decides is advisory. Should two processes build all the same, both results are whole
and the manifest log takes one of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from ydl import _core, log, text
from ydl.errors import BuildFailedError, NestedBuildError, WaitTimeoutError
from ydl.manifest import Manifest
from ydl.store import LocalStore

_FIRST_POLL_S = 0.05
_LAST_POLL_S = 0.5
_LINE_INTERVAL_S = 30.0
# Failed builds that a waiter watches before it takes the next one's failure for granted.
_MAX_FAILURES = 2

# Directories that this thread builds in, in `building.directories`.
_building = threading.local()


@contextmanager
def mark_building(store: LocalStore) -> Iterator[None]:
    """While a thread builds a dataset, check_nested() in it refuses to wait for that dataset."""
    directories = vars(_building).setdefault("directories", set())
    directories.add(store.directory)
    try:
        yield
    finally:
        directories.discard(store.directory)


def check_nested(store: LocalStore) -> None:
    if store.directory in vars(_building).get("directories", ()):
        raise NestedBuildError(
            f"the function that builds {store.name} in {store.directory} asks for {store.name} "
            "itself, which would wait for its own end: give one of the two another id or version"
        )


class Waiter:
    """Waits until this process may build, or need not."""

    def __init__(self, store: LocalStore, lease: _core.Lease, timeout_s: Optional[float]) -> None:
        self._store = store
        self._lease = lease
        self._timeout_s = timeout_s
        self._start = time.monotonic()
        self._next_line = self._start
        self._failures_before: Optional[int] = None  # in a row, when the wait began

    def wait(self) -> Optional[Manifest]:
        """The dataset, published meanwhile by somebody else, or None: the lease is held now.

        BuildFailedError where two builds of others failed while this one waited;
        WaitTimeoutError, which names the holder.
        """
        poll_s = _FIRST_POLL_S
        while True:
            if self._failures_before is not None:
                # Before trying: what is to be given up must not be taken.
                self._check_failures(self._lease.peek())
            holder = self._lease.try_acquire()
            if holder is None:
                return self._store.current()
            published = self._store.current()
            if published is not None:
                return published
            if self._failures_before is None:
                self._failures_before = int(holder["failures"])
            self._tell(holder)
            time.sleep(poll_s)
            poll_s = min(poll_s * 1.5, _LAST_POLL_S)

    def _check_failures(self, view: dict[str, Any]) -> None:
        failures = int(view["failures"]) - (self._failures_before or 0)
        if view["failed"] and failures >= _MAX_FAILURES:
            raise BuildFailedError(
                f"{failures} builds of {self._store.name} in a row failed while this process "
                f"waited for one, the last on host {text.printable(view['host'])} (process "
                f"{view['pid']}): {text.printable(view['text'])}. Not trying here as well: correct "
                "the cause and start again"
            )

    def _tell(self, holder: dict[str, Any]) -> None:
        now = time.monotonic()
        waited = now - self._start
        who = (
            f"process {holder['pid']} on host {text.printable(holder['host'])} builds it since "
            f"{text.local_time(holder['since'])} ({holder['progress']} records so far)"
        )
        if self._timeout_s is not None and waited >= self._timeout_s:
            raise WaitTimeoutError(
                f"waited {waited:.1f} s for {self._store.name} in {self._store.directory}, and "
                f"wait_timeout_s is {self._timeout_s:g}: {who}. Wait longer, or look what that "
                "process does"
            )
        if now >= self._next_line:
            self._next_line = now + _LINE_INTERVAL_S
            log.info("waiting for %s (%.0f s so far): %s", self._store.name, waited, who)
