"""Whose turn it is to build a dataset: processes that need it together build it once.

The lease that decides is advisory. Should two processes build all the same, both results are whole
and the manifest log takes one of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

from ydl import _core, log, text
from ydl.dataref import CachedDataRef
from ydl.errors import BuildFailedError, NestedBuildError, WaitTimeoutError
from ydl.store import LocalStore

_FIRST_POLL_S = 0.05
_LAST_POLL_S = 0.5
_LINE_INTERVAL_S = 30.0
# Failed builds that a waiter watches before it takes the next one's failure for granted.
_MAX_FAILURES = 2

# (process, directory) -> the thread that builds there. Of a fork's copy nothing is meant.
_builders: dict[tuple[int, str], int] = {}

# What runs a py_function, a numpy_function or the generator of a from_generator: TensorFlow calls
# it on threads of its own, for the thread that reads the dataset.
_TENSORFLOW_CALLBACK = os.path.join("tensorflow", "python", "ops", "script_ops.py")


@contextmanager
def mark_building(store: LocalStore) -> Iterator[None]:
    """While this process builds a dataset, check_nested() refuses to wait for that dataset in what
    the build itself runs."""
    key = (os.getpid(), store.directory)
    _builders[key] = threading.get_ident()
    try:
        yield
    finally:
        _builders.pop(key, None)


def check_nested(store: LocalStore) -> None:
    """Called in another thread than the builder's, only a callback of TensorFlow's is certainly
    part of some dataset; other threads may be strangers, which have to wait."""
    builder = _builders.get((os.getpid(), store.directory))
    if builder is None:
        return
    if builder == threading.get_ident() or _is_tensorflow_callback():
        raise NestedBuildError(
            f"the function that builds {store.name} in {store.directory} asks for {store.name} "
            "itself, which would wait for its own end: give one of the two another id or version"
        )


def _is_tensorflow_callback() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_TENSORFLOW_CALLBACK):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Waiter:
    """Waits until this process may build, or need not.

    find: gives the dataset once somebody has published it.
    """

    def __init__(
        self,
        store: LocalStore,
        lease: _core.Lease,
        timeout_s: Optional[float],
        find: Callable[[], Optional[CachedDataRef]],
    ) -> None:
        self._store = store
        self._lease = lease
        self._timeout_s = timeout_s
        self._find = find
        self._start = time.monotonic()
        self._next_line = self._start
        self._failures_before: Optional[int] = None  # in a row, when the wait began

    def wait(self) -> Optional[CachedDataRef]:
        """The dataset, published meanwhile by somebody else, or None: the lease is held now.

        BuildFailedError where two builds of others failed while this one waited;
        WaitTimeoutError, which names the holder.
        """
        poll_s = _FIRST_POLL_S
        before: Optional[dict[str, Any]] = None
        while True:
            if self._failures_before is not None:
                # Before trying: what is to be given up must not be taken.
                before = self._lease.peek()
                self._check_failures(before)
            holder = self._lease.try_acquire()
            if holder is None:
                found = self._find()
                if found is None and before is not None:
                    self._tell_takeover(before)
                return found
            published = self._find()
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
                f"waited for one, the last on {_host_and_process(view)}: "
                f"{text.printable(view['text'])}. Not trying here as well: correct the cause and "
                "start again"
            )

    def _tell_takeover(self, before: dict[str, Any]) -> None:
        if before["failed"]:
            log.warning(
                "the build of %s on %s failed, and this process tries now: %s",
                self._store.name,
                _host_and_process(before),
                text.printable(before["text"]),
            )
        elif before["held"]:
            log.warning(
                "the builder of %s on %s showed no more sign of life after %d records: building "
                "here",
                self._store.name,
                _host_and_process(before),
                before["progress"],
            )

    def _tell(self, holder: dict[str, Any]) -> None:
        now = time.monotonic()
        waited = now - self._start
        who = _describe_holder(holder, self._store)
        if self._timeout_s is not None and waited >= self._timeout_s:
            raise WaitTimeoutError(
                f"waited {waited:.1f} s for {self._store.name} in {self._store.directory}, and "
                f"wait_timeout_s is {self._timeout_s:g}: {who}. Wait longer, or look what that "
                "process does"
            )
        if now >= self._next_line:
            self._next_line = now + _LINE_INTERVAL_S
            log.info("waiting for %s (%.0f s so far): %s", self._store.name, waited, who)


def _host_and_process(view: dict[str, Any]) -> str:
    return f"host {text.printable(view['host'])} (process {view['pid']})"


def _describe_holder(holder: dict[str, Any], store: LocalStore) -> str:
    if not holder["pid"]:
        return (
            f"somebody holds {store.directory}/lease whose entry {holder['generation']} cannot be "
            "read (it is another user's, or damaged)"
        )
    who = (
        f"process {holder['pid']} on host {text.printable(holder['host'])} builds it since "
        f"{text.local_time(holder['since'])} ({holder['progress']} records so far)"
    )
    if (os.getpid(), store.directory) in _builders:
        who += (
            ", in another thread of this process: where that thread waits for this call, both wait "
            "for ever"
        )
    return who
