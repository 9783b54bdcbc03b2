"""Build a dataset once, or find it: what `cacheable`, `submit` and `YogaDL` have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, TypeVar

from ydl import _core, build, collect, fingerprint, log, manifest, text
from ydl.build import Build, Source
from ydl.dataref import CachedDataRef
from ydl.fingerprint import Fingerprint
from ydl.healing import Finder
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
    ref: CachedDataRef
    is_hit: bool  # this call did not build


def get_or_build(
    store: LocalStore,
    maker: Maker,
    options: BuildOptions,
    open_ref: Callable[[Manifest], CachedDataRef],
) -> Cached:
    """The published dataset; where there is none, or a damaged one, makes, builds and publishes
    it, unless somebody else does so first. A dataset that is there is neither locked nor written
    to, but its files are opened and validated.

    Raises what the user's function or its dataset raise, unchanged; BuildFailedError,
    WaitTimeoutError, NestedBuildError; CorruptCacheError where damage cannot be healed.
    """
    finder = Finder(store, open_ref)
    found = finder.find()
    if found is not None:
        cached = Cached(found, is_hit=True)
    else:
        check_nested(store)
        store.create_directories()
        cached = _Caller(store, maker, options, finder, open_ref).wait_or_build()
    if cached.is_hit:
        _tell_differences(store, maker, cached.ref.manifest)
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
                collect.after_publication(store, holds_lease=False)
                return entry

    return _outside_graph(run)


def describe(found: Manifest, directory: str) -> str:
    """For the log: "9 records, built 2024-05-01 12:00:00 on host7 from make (a.py:3), in ..."."""
    origin = "a submitted dataset" if found.source is None else str(found.source)
    return (
        f"{found.records} records, built {text.local_time(found.time)} on "
        f"{text.printable(found.host)} from {text.printable(origin)}, in {directory}"
    )


@dataclass(frozen=True)
class _Caller:
    """One call that found nothing it could use."""

    store: LocalStore
    maker: Maker
    options: BuildOptions
    finder: Finder
    open_ref: Callable[[Manifest], CachedDataRef]

    def wait_or_build(self) -> Cached:
        lease = self.store.lease(self.options.lease_ttl_s)
        try:
            waiter = Waiter(self.store, lease, self.options.wait_timeout_s, self.finder.find)
            found = waiter.wait()
            if found is not None:
                cached = Cached(found, is_hit=True)
            else:
                with mark_building(self.store):
                    cached = _outside_graph(lambda: self._build(lease.set_progress))
        except BaseException as error:
            _release(lease, failure=f"{type(error).__name__}: {error}")
            raise
        if not cached.is_hit:
            collect.after_publication(self.store, holds_lease=True)
        _release(lease)
        return cached

    def _build(self, on_records: Callable[[int], None]) -> Cached:
        store, maker = self.store, self.maker
        number = self.finder.number + 1
        origin = fingerprint.of_function(maker.function)
        log.info("%s (by %s, into %s)", maker.announcement, origin, store.directory)
        if store.has_yogadl_cache():
            log.info(
                "there is a cache of %s made by yogadl, which ydl does not read, as its pickles "
                "run code: building anew beside it",
                store.name,
            )
        # Opened before anything is written: it refuses what cannot be cached.
        source = maker.open_source(maker.make())
        built = _write(store, source, self.options.part_bytes, on_records)
        entry = _entry(store, number, built, origin, maker.per_slot_batch_size)
        if _publish(store, entry, built):
            return Cached(self.open_ref(entry), is_hit=False)

        # This process was taken for dead, and somebody else was faster.
        store.remove_build(built.uuid)
        winner = self.finder.find()
        if winner is None:
            raise RuntimeError(
                f"while this process built {store.name}, another one published entry {number} in "
                f"{store.directory} and withdrew it: start again"
            )
        return Cached(winner, is_hit=True)


def _release(lease: _core.Lease, failure: Optional[str] = None) -> None:
    """Where it is held. Its errors must neither hide the build's nor undo what is published, and
    a waiter gets along without: it sees the heartbeat end."""
    try:
        lease.release(failure)
    except Exception as error:
        log.debug("could not release a lease: %s", error)


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
        **manifest.made_here(),
    )


def _publish(store: LocalStore, entry: Manifest, built: Build) -> bool:
    """False where the entry's number is taken. After an error the build's files go, unless it is
    possible that they were published all the same.

    No entry names files that are not there, although a builder may be paused anywhere while
    somebody collects what looks abandoned (collect.py). The writer has just read the last file back
    by its name, so that its directory, which holds them all, was there. The collector renames that
    directory before it removes a file, looks at the log again and puts the directory back where an
    entry names it by then. So whatever the order of the two, either the collector sees the entry,
    or the look below sees no directory.
    """
    pid = os.getpid()
    try:
        is_published = store.publish(entry)
    except BaseException:
        if os.getpid() == pid and store.is_certainly_unpublished(entry.number, built.uuid):
            store.remove_build(built.uuid)
        raise
    if is_published and not store.has_build(built.uuid):
        reason = "its files were collected while its builder was about to publish it"
        store.withdraw(entry.number, reason)
        raise RuntimeError(
            f"entry {entry.number} of {store.directory} was published and withdrawn again: "
            f"{reason}, as if that had been abandoned. Was this process paused for long, or is "
            "somebody running `ydl gc` with a short --grace? Start again"
        )
    return is_published


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
