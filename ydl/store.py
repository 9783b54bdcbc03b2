"""One dataset's directory on a mounted file system.

    <name>.ydl/manifests/00000001.json ...   a log; the highest entry is what readers get
    <name>.ydl/builds/<uuid>/00000.ydl ...   part files
    <name>.ydl/lease/                        who builds

Creating entry N + 1 of the log is the only commit point. Reading takes no lock and writes nothing.
No symbolic link is followed below the root (beneath.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import unicodedata
import uuid
from collections.abc import Iterable
from typing import Any, Optional

from ydl import _core, beneath, builds, manifest
from ydl.errors import CorruptCacheError, SharedDirectoryError
from ydl.ids import dataset_directory
from ydl.manifest import Manifest, Part

# What yogadl 0.1.4 keeps under the same id and version.
_YOGADL_FILE = "cache.mdb"


class LocalStore:
    """Files of one (dataset_id, dataset_version) under `root`. Holds nothing open."""

    def __init__(
        self, root: str, dataset_id: str, dataset_version: str, *, allow_weak_publish: bool = False
    ) -> None:
        self._given_root = root
        # The core follows no link anywhere; those that lead to the root are the user's own.
        self.root = os.path.realpath(root)
        self.directory = dataset_directory(self.root, dataset_id, dataset_version)
        self.dataset_id = dataset_id
        self.dataset_version = dataset_version
        self._allow_weak_publish = allow_weak_publish
        # Of the directory, below the root.
        self._names = os.path.relpath(self.directory, self.root).split(os.sep)

    def __reduce__(self) -> tuple[Any, ...]:
        # Where the root's links lead is looked up again: elsewhere it may be somewhere else.
        make = functools.partial(LocalStore, allow_weak_publish=self._allow_weak_publish)
        return make, (self._given_root, self.dataset_id, self.dataset_version)

    @property
    def name(self) -> str:
        return f"{self.dataset_id}:{self.dataset_version}"

    def part_path(self, part: Part) -> str:
        return os.path.join(self._build_directory(part.build), part.name)

    # ---- the log ----

    def latest_number(self) -> int:
        """0 where nothing was ever published."""
        self._check("manifests")
        return _core.log_latest(self._manifests)

    def current(self) -> Optional[Manifest]:
        """What readers get now; None where nothing is published or the last entry is a
        tombstone. CorruptCacheError where the last entry is damaged or another dataset's."""
        latest = self.latest()
        return None if latest is None or latest.is_tombstone else latest

    def latest(self) -> Optional[Manifest]:
        """The last entry, which may be a tombstone."""
        number = self.latest_number()
        return self.read(number) if number else None

    def read(self, number: int) -> Manifest:
        where = self.manifest_path(number)
        content = _core.log_read(self._manifests, number, manifest.MAX_BYTES)
        entry = manifest.from_bytes(content, where)
        if entry.number != number or not self._is_of_this_dataset(entry):
            raise CorruptCacheError(
                f"{where} should be entry {number} of {self.name}, but says that it is entry "
                f"{entry.number} of {entry.dataset_id}:{entry.dataset_version}: was it copied "
                "there?"
            )
        return entry

    def publish(self, entry: Manifest) -> bool:
        """Makes `entry` the current one, durably; False where its number is taken already."""
        if entry.number > manifest.MAX_NUMBER:
            path = self.manifest_path(entry.number - 1)
            raise CorruptCacheError(
                f"cannot publish {self.name} as entry {entry.number}: {path} has the last number "
                "that there is, and no builder counts so far. Remove that file, whoever put it "
                "there, and start again"
            )
        self._check("manifests")
        content = manifest.to_bytes(entry)
        return _core.log_append(self._manifests, entry.number, content, self._allow_weak_publish)

    def withdraw(self, number: int, reason: str) -> bool:
        """Publishes a tombstone behind entry `number`; False where that is not the last one."""
        stone = Manifest(
            dataset_id=self.dataset_id,
            dataset_version=self.dataset_version,
            number=number + 1,
            schema=None,
            records=0,
            parts=(),
            source=None,
            per_slot_batch_size=None,
            reason=reason[: manifest.MAX_TEXT],
            **manifest.made_here(),
        )
        return self.latest_number() == number and self.publish(stone)

    def manifest_path(self, number: int) -> str:
        return os.path.join(self._manifests, f"{number:08}.json")

    def is_certainly_unpublished(self, number: int, build: str) -> bool:
        """After a failed publish(): no manifest names `build`, so that it may be removed. A doubt
        counts as published."""
        with contextlib.suppress(Exception):
            if self.latest_number() < number:
                return True
            return all(part.build != build for part in self.read(number).parts)
        return False

    # ---- building ----

    def create_directories(self) -> None:
        for name in ("manifests", "builds"):
            beneath.make_directories(self.root, [*self._names, name])

    def lease(self, ttl_s: float) -> _core.Lease:
        """Needs create_directories() before."""
        beneath.make_directories(self.root, [*self._names, "lease"])
        return _core.Lease(os.path.join(self.directory, "lease"), round(ttl_s * 1000))

    def create_build(self) -> tuple[str, str]:
        """A new build: its uuid in hex digits, and its empty directory."""
        build = uuid.uuid4().hex
        fd = self._open_builds(os.O_PATH)
        try:
            os.mkdir(build, dir_fd=fd)
        finally:
            os.close(fd)
        return build, self._build_directory(build)

    def flush_build(self, build: str) -> None:
        for names in (["builds", build], ["builds"]):
            fd = beneath.open_directory(self.root, [*self._names, *names])
            try:
                beneath.flush(fd)
            finally:
                os.close(fd)

    def has_build(self, build: str) -> bool:
        """Whether its directory is there."""
        return self._check("builds", build)

    def check_builds(self, uuids: Iterable[str]) -> None:
        """CorruptCacheError where a symbolic link is in the place of one of their directories."""
        for build in uuids:
            self._check("builds", build)

    def remove_build(self, build: str) -> None:
        """As far as that is possible."""
        with contextlib.suppress(OSError):
            fd = self._open_builds(os.O_RDONLY)
            try:
                builds.remove(fd, build)
            finally:
                os.close(fd)

    def has_yogadl_cache(self) -> bool:
        return os.path.exists(
            os.path.join(self.root, self.dataset_id, self.dataset_version, _YOGADL_FILE)
        )

    @property
    def _manifests(self) -> str:
        return os.path.join(self.directory, "manifests")

    def _check(self, *names: str) -> bool:
        return beneath.check_directory(self.root, [*self._names, *names])

    def _open_builds(self, flags: int) -> int:
        return beneath.open_directory(self.root, [*self._names, "builds"], flags=flags)

    def _build_directory(self, build: str) -> str:
        return os.path.join(self.directory, "builds", build)

    def _is_of_this_dataset(self, entry: Manifest) -> bool:
        if (entry.dataset_id, entry.dataset_version) == (self.dataset_id, self.dataset_version):
            return True
        if _folded(entry.dataset_id) == _folded(self.dataset_id) and _folded(
            entry.dataset_version
        ) == _folded(self.dataset_version):
            # Not damage, which the one would heal by withdrawing the other's dataset, in turns.
            raise SharedDirectoryError(
                f"{self.directory} holds {entry.dataset_id}:{entry.dataset_version}, and "
                f"{self.name} would lie there too: the file system takes the two names for one "
                "(it ignores case or Unicode forms), or the directory was renamed. Give one of "
                "the two another id or version, or remove the directory"
            )
        return False


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
