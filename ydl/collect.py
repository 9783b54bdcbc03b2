"""Removes what no dataset needs any more: `ydl gc`, and each builder in its own dataset.

Collected in a dataset's directory, once it is older than the grace time:

- builds that the log's last entry does not name: replaced ones, counted from when they were
  replaced, and unfinished ones, counted from the last change of their files;
- temporary files, and records of the lease before the last one.

Entries of the log stay, and so does what is not ydl's. While somebody who looks alive holds the
lease, unfinished builds stay too: one of them is theirs. A `submit` holds none; its build is young.

The grace time is for streams that still read a replaced build, and for builders that are paused.
For data it does not matter: a build is renamed first, to a name of this collector's own, and the
log is read after that, so that a build which was published in between is put back
(caching._publish has the other half).

Ages are those of the file system's own clock: a file made there now tells what time it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from ydl import _core, beneath, builds, log, manifest
from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.manifest import Manifest
from ydl.store import LocalStore

DEFAULT_GRACE_S = 7 * 86400.0
# No lease may have a longer time to live than a day (csrc/store/lease.c); a holder that did not
# write for 1.5 times as long is dead, whatever its own is.
_LONGEST_SILENCE_S = 1.5 * 86400

_TEMPORARY = re.compile(r"\.[0-9A-Za-z.]{1,40}\.[0-9a-f]{16}\.tmp")
_ENTRY = re.compile(r"([0-9]{8})\.json")
_LEASE_RECORD = re.compile(r"([0-9]{8})\.lease")
# A build that is being removed, by the collector with this token.
_GONE = re.compile(r"\.([0-9a-f]{32})\.[0-9a-f]{16}\.gone")
# Between a file under a temporary name and the name it is made for lie a few system calls, and so
# between a collector's rename and its removal. Whatever the grace time, what somebody else is about
# to name, or to put back, is left to them for so long.
_LEFTOVER_AGE_S = 3600.0


class Removed(NamedTuple):
    path: str
    bytes: int
    what: str


@dataclass
class Report:
    """What was removed (in a dry run: would be), and what stays although it looks superfluous."""

    removed: list[Removed] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # sentences

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.removed)


def after_publication(store: LocalStore, *, holds_lease: bool) -> None:
    """What a builder does for its own dataset. Its errors are nobody's concern."""
    try:
        names = os.path.relpath(store.directory, store.root).split(os.sep)
        report = collect(store.root, names, DEFAULT_GRACE_S, holds_lease=holds_lease)
    except Exception as error:
        log.debug("could not collect old builds in %s: %s", store.directory, error)
        return
    if report.removed:
        log.info(
            "removed %d old files and builds of %s (%d bytes)",
            len(report.removed),
            store.name,
            report.bytes,
        )


def datasets(path: str) -> Iterator[tuple[str, list[str]]]:
    """(root, names below it) of each dataset's directory at or below `path`."""
    if _is_dataset(path):
        yield path, []
        return
    for parent, names, _ in os.walk(path, onerror=_raise):
        names[:] = sorted(n for n in names if not os.path.islink(os.path.join(parent, n)))
        below = [] if parent == path else os.path.relpath(parent, path).split(os.sep)
        for name in [n for n in names if _is_dataset(os.path.join(parent, n))]:
            names.remove(name)
            yield path, [*below, name]


def collect(
    root: str, names: list[str], grace_s: float, *, dry_run: bool = False, holds_lease: bool = False
) -> Report:
    """Of the dataset in the directory <root>/<names...>. holds_lease: by this process.

    OSError where its directory cannot be read or written.
    """
    return _Collector(root, names, grace_s, dry_run, holds_lease).run()


class _Collector:
    def __init__(
        self, root: str, names: list[str], grace_s: float, dry_run: bool, holds_lease: bool
    ) -> None:
        self._root = root
        self._names = names
        self._directory = os.path.join(root, *names)
        self._grace_s = grace_s
        self._dry_run = dry_run
        self._holds_lease = holds_lease
        self._now = 0.0
        self._token = secrets.token_hex(8)
        self._report = Report()

    def run(self) -> Report:
        with self._open("builds") as fd:
            if fd is not None:
                self._now = time.time() if self._dry_run else _clock_of(fd)
                self._collect_builds(fd)
                self._collect_files(fd, "builds", _TEMPORARY)
        if self._now:  # else it is nothing that a builder has ever come to write into
            for name in ("manifests", "lease"):
                with self._open(name) as fd:
                    if fd is not None:
                        self._collect_files(fd, name, _TEMPORARY)
                    if fd is not None and name == "lease":
                        self._collect_files(fd, name, _LEASE_RECORD, but=_last(fd, _LEASE_RECORD))
        return self._report

    # ---- builds ----

    def _collect_builds(self, fd: int) -> None:
        there = os.listdir(fd)
        candidates = [name for name in there if builds.NAME.fullmatch(name)]
        leftovers = [name for name in there if _GONE.fullmatch(name)]
        if not candidates and not leftovers:
            return
        history = _History(os.path.join(self._directory, "manifests"))
        try:
            current = history.last_builds()
        except (CorruptCacheError, UnsupportedError) as error:
            self._report.kept.append(
                f"builds of {self._directory}: what it needs is unknown, as {error}"
            )
            return
        for name in leftovers:
            self._finish(fd, name, current)
        candidates = [name for name in candidates if name not in current]
        if not candidates:
            return
        replaced = history.replacement_times()
        is_held = self._is_held()
        for name in sorted(candidates):
            self._consider(fd, name, replaced.get(name), history.doubt, is_held)

    def _consider(
        self, fd: int, name: str, replaced: Optional[float], doubt: float, is_held: bool
    ) -> None:
        path = os.path.join(self._directory, "builds", name)
        try:
            size, changed = builds.measure(fd, name)
        except OSError:  # no directory, or none that can be read: not ydl's work
            self._report.kept.append(f"{path}: it is no directory of a build that can be read")
            return
        since = max(changed, doubt if replaced is None else replaced)
        if self._now - since < self._grace_s:
            return
        if replaced is None and is_held:
            self._report.kept.append(f"{path}: somebody builds this dataset now")
            return
        what = "unfinished build" if replaced is None else "replaced build"
        if self._dry_run or self._remove_build(fd, name, path):
            self._report.removed.append(Removed(path, size, what))

    def _remove_build(self, fd: int, name: str, path: str) -> bool:
        if name in self._last_builds():
            return False  # published since the log was read
        gone = f".{name}.{self._token}.gone"
        try:
            os.rename(name, gone, src_dir_fd=fd, dst_dir_fd=fd)
        except FileNotFoundError:
            return False  # another collector was faster
        # Only now, with the files out of reach: see the module's docstring. Until the log has said
        # that nobody needs the build, whatever goes wrong puts it back.
        is_needed = True
        try:
            is_needed = self._is_needed(name)
        finally:
            if is_needed:
                os.rename(gone, name, src_dir_fd=fd, dst_dir_fd=fd)
        if is_needed:
            return False
        if not builds.remove(fd, gone):
            self._report.kept.append(f"{path}: there are files in it that are not ydl's")
            return False
        return True

    def _is_needed(self, build: str) -> bool:
        """The last entry names it. Flushed before: an entry that a power loss takes back would make
        an earlier one, which may name this build, the last again."""
        with self._open("manifests") as fd:
            if fd is not None:
                beneath.flush(fd)
        return build in self._last_builds()

    def _finish(self, fd: int, gone: str, current: frozenset[str]) -> None:
        """What a collector that was killed has left. Where the log names it, that collector had
        looked at the log too early: then readers have noticed, or will, that it is not there."""
        match = _GONE.fullmatch(gone)
        assert match is not None
        path = os.path.join(self._directory, "builds", gone)
        with contextlib.suppress(OSError):
            renamed = os.stat(gone, dir_fd=fd, follow_symlinks=False).st_ctime
            is_old = self._now - renamed >= max(self._grace_s, _LEFTOVER_AGE_S)
            if match[1] not in current and is_old:
                size, _ = builds.measure(fd, gone)
                if self._dry_run or builds.remove(fd, gone):
                    self._report.removed.append(Removed(path, size, "rest of a build"))

    def _last_builds(self) -> frozenset[str]:
        return _History(os.path.join(self._directory, "manifests")).last_builds()

    def _is_held(self) -> bool:
        """Somebody who may be alive holds the lease. A doubt counts as yes."""
        if self._holds_lease:
            return False
        with self._open("lease") as fd:
            if fd is None:
                return False
            last = _last(fd, _LEASE_RECORD)
            if last is None:
                return False
            with contextlib.suppress(OSError):
                written = os.stat(last, dir_fd=fd, follow_symlinks=False).st_mtime
                if self._now - written >= max(self._grace_s, _LONGEST_SILENCE_S):
                    return False
                view = _core.Lease(os.path.join(self._directory, "lease"), 60_000).peek()
                return bool(view["held"]) and not view["stale"]
            return True

    # ---- files ----

    def _collect_files(
        self, fd: int, directory: str, pattern: re.Pattern[str], but: Optional[str] = None
    ) -> None:
        is_temporary = pattern is _TEMPORARY
        age_s = max(self._grace_s, _LEFTOVER_AGE_S) if is_temporary else self._grace_s
        for name in sorted(os.listdir(fd)):
            if not pattern.fullmatch(name) or name == but:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if self._now - status.st_mtime < age_s:
                    continue
                if not self._dry_run:
                    os.unlink(name, dir_fd=fd)
                path = os.path.join(self._directory, directory, name)
                what = "temporary file" if is_temporary else "old record of the lease"
                self._report.removed.append(Removed(path, status.st_size, what))

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[Optional[int]]:
        """None where it is absent."""
        try:
            fd = beneath.open_directory(self._root, [*self._names, name])
        except FileNotFoundError:
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)


class _History:
    """The log, read for which builds its entries name."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        # When the last entry that cannot be read was replaced: until then anything may have been
        # in use. Known after replacement_times().
        self.doubt = 0.0

    def last_builds(self) -> frozenset[str]:
        """What the last entry names."""
        last = _core.log_latest(self._directory)
        return frozenset() if last == 0 else _builds_of(self._read(last))

    def replacement_times(self) -> dict[str, float]:
        """Of each build that an earlier entry names: when the entry behind that one came."""
        times: dict[str, float] = {}
        numbers = sorted(
            int(match[1]) for match in map(_ENTRY.fullmatch, os.listdir(self._directory)) if match
        )
        for number, following in zip(numbers, numbers[1:]):
            with contextlib.suppress(FileNotFoundError):
                when = os.lstat(os.path.join(self._directory, f"{following:08}.json")).st_mtime
                try:
                    for build in _builds_of(self._read(number)):
                        times[build] = max(times.get(build, 0.0), when)
                except (CorruptCacheError, UnsupportedError):
                    self.doubt = max(self.doubt, when)
        return times

    def _read(self, number: int) -> Manifest:
        where = os.path.join(self._directory, f"{number:08}.json")
        return manifest.from_bytes(
            _core.log_read(self._directory, number, manifest.MAX_BYTES), where
        )


def _builds_of(entry: Manifest) -> frozenset[str]:
    return frozenset(part.build for part in entry.parts)


def _clock_of(fd: int) -> float:
    """The time that the file system gives a file made in this directory now."""
    name = f".clock.{secrets.token_hex(8)}.tmp"
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=fd)
    try:
        return os.fstat(made).st_mtime
    finally:
        os.close(made)
        os.unlink(name, dir_fd=fd)


def _last(fd: int, pattern: re.Pattern[str]) -> Optional[str]:
    return max(filter(pattern.fullmatch, os.listdir(fd)), default=None)


def _is_dataset(path: str) -> bool:
    return path.endswith(".ydl") and os.path.isdir(os.path.join(path, "builds"))


def _raise(error: OSError) -> None:
    raise error
