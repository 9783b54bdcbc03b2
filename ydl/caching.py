"""Build a dataset once, or find it: what `cacheable`, `submit` and `YogaDL` have in common."""

from __future__ import annotations

import functools
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, TypeVar

import ydl
from ydl import _core, build, fingerprint, log, text
from ydl.build import Build, Source
from ydl.fingerprint import Fingerprint
from ydl.manifest import Manifest
from ydl.progress import Progress
from ydl.store import LocalStore
from ydl.turn import Waiter, check_nested, mark_building

Result = TypeVar("Result")


@dataclass(frozen=True)
class BuildOptions:
    part_bytes: int  # of one file at most
    wait_timeout_s: Optional[float]  # for somebody else's build; None: as long as it takes
    lease_ttl_s: float  # a holder without a sign of life for 1.5 times as long is dead


@dataclass(frozen=True)
class Maker:
    """The user's function that makes a dataset, ready to be called, and facts about it."""

    make: Callable[[], Any]
    open_source: Callable[[Any], Source]  # of what make() returns
    function: Any  # the user's own one, for the fingerprint
    has_arguments: bool
    announcement: str  # begins the builder's first log line
    per_slot_batch_size: Optional[int] = None


class Cached(NamedTuple):
    manifest: Manifest
    is_hit: bool  # this call did not build


def get_or_build(store: LocalStore, maker: Maker, options: BuildOptions) -> Cached:
    """The published dataset; where there is none, makes, builds and publishes it, unless somebody
    else does so first. A dataset that is there is neither locked nor written to.

    Raises what the user's function or its dataset raise, unchanged; BuildFailedError,
    WaitTimeoutError, NestedBuildError.
    """
    found = store.current()
    if found is not None:
        cached = Cached(found, is_hit=True)
    else:
        check_nested(store)
        store.create_directories()
        cached = _wait_or_build(store, maker, options)
    if cached.is_hit:
        _tell_differences(store, maker, cached.manifest)
    return cached


def submit(
    store: LocalStore, data: Any, open_source: Callable[[Any], Source], part_bytes: int
) -> Manifest:
    """Builds and publishes `data` in the place of what is published.

    Takes no lease: whoever submits wants their own data stored, so that it is not enough if
    somebody else publishes something. Readers get what was published last.
    """

    def run() -> Manifest:
        source = open_source(data)
        store.create_directories()
        built = _write(store, source, part_bytes, on_records=lambda records: None)
        while True:
            entry = _entry(store, store.latest_number() + 1, built)
            if _publish(store, entry, built):
                return entry

    return _outside_graph(run)


def describe(found: Manifest, directory: str) -> str:
    """For the log: "9 records, built 2024-05-01 12:00:00 on host7 from make (a.py:3), in ..."."""
    origin = "a submitted dataset" if found.source is None else str(found.source)
    return (
        f"{found.records} records, built {text.local_time(found.time)} on "
        f"{text.printable(found.host)} from {text.printable(origin)}, in {directory}"
    )


def _wait_or_build(store: LocalStore, maker: Maker, options: BuildOptions) -> Cached:
    lease = store.lease(options.lease_ttl_s)
    try:
        found = Waiter(store, lease, options.wait_timeout_s).wait()
        if found is not None:
            cached = Cached(found, is_hit=True)
        else:
            with mark_building(store):
                cached = _outside_graph(
                    functools.partial(_build, store, maker, options, lease.set_progress)
                )
    except BaseException as error:
        _release(lease, failure=f"{type(error).__name__}: {error}")
        raise
    _release(lease)
    return cached


def _release(lease: _core.Lease, failure: Optional[str] = None) -> None:
    """Where it is held. Its errors must neither hide the build's nor undo what is published, and
    a waiter gets along without: it sees the heartbeat end."""
    try:
        lease.release(failure)
    except Exception as error:
        log.debug("could not release a lease: %s", error)


def _build(
    store: LocalStore, maker: Maker, options: BuildOptions, on_records: Callable[[int], None]
) -> Cached:
    number = store.latest_number() + 1
    origin = fingerprint.of_function(maker.function)
    log.info("%s (by %s, into %s)", maker.announcement, origin, store.directory)
    if store.has_yogadl_cache():
        log.info(
            "there is a cache of %s made by yogadl, which ydl does not read, as its pickles run "
            "code: building anew beside it",
            store.name,
        )
    # Opened before anything is written: it refuses what cannot be cached.
    source = maker.open_source(maker.make())
    built = _write(store, source, options.part_bytes, on_records)
    entry = _entry(store, number, built, origin, maker.per_slot_batch_size)
    if _publish(store, entry, built):
        return Cached(entry, is_hit=False)

    # This process was taken for dead, and somebody else was faster.
    store.remove_build(built.uuid)
    winner = store.current()
    if winner is None:
        raise RuntimeError(
            f"while this process built {store.name}, another one published entry {number} in "
            f"{store.directory} and withdrew it: start again"
        )
    return Cached(winner, is_hit=True)


def _write(
    store: LocalStore, source: Source, part_bytes: int, on_records: Callable[[int], None]
) -> Build:
    progress = Progress(store.name, source.cardinality)

    def on_batch(records: int, size_bytes: int) -> None:
        progress.update(records, size_bytes)
        on_records(records)

    try:
        built = build.write(store, source, part_bytes, on_batch)
        progress.update(built.records, built.total_bytes)
    finally:
        progress.close()
    log.info("built %s: %s", store.name, progress.summary())
    return built


def _entry(
    store: LocalStore,
    number: int,
    built: Build,
    origin: Optional[Fingerprint] = None,
    per_slot_batch_size: Optional[int] = None,
) -> Manifest:
    return Manifest(
        dataset_id=store.dataset_id,
        dataset_version=store.dataset_version,
        number=number,
        schema=built.schema,
        records=built.records,
        parts=built.parts,
        source=origin,
        per_slot_batch_size=per_slot_batch_size,
        writer=f"ydl {ydl.__version__}, Python {platform.python_version()}",
        host=socket.gethostname(),
        time=int(time.time()),
    )


def _publish(store: LocalStore, entry: Manifest, built: Build) -> bool:
    """False where the entry's number is taken. After an error the build's files go, unless it is
    possible that they were published all the same."""
    pid = os.getpid()
    try:
        return store.publish(entry)
    except BaseException:
        if os.getpid() == pid and store.is_certainly_unpublished(entry.number, built.uuid):
            store.remove_build(built.uuid)
        raise


def _tell_differences(store: LocalStore, maker: Maker, found: Manifest) -> None:
    """A hit returns what is stored, even if calling the function would give something else."""
    if maker.has_arguments:
        log.info(
            "%s is cached, so that the arguments of this call have no effect: only id and version "
            "choose a dataset. Put what changes it into the version",
            store.name,
        )
    origin = fingerprint.of_function(maker.function)
    if found.source is not None and origin.differs_from(found.source):
        log.warning(
            "%s was built by other code: %s then, %s now. The stored dataset is used; if the "
            "change matters, use another version",
            store.name,
            text.printable(str(found.source)),
            origin,
        )


def _outside_graph(run: Callable[[], Result]) -> Result:
    """Inside a tf.function a dataset is a symbol; it must be read outside."""
    if "tensorflow" not in sys.modules:
        return run()
    from ydl.tensorflow import call_outside_function_graph

    result: Result = call_outside_function_graph(run)
    return result
