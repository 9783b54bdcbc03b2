"""One dataset's directory on a mounted file system.

    <name>.ydl/manifests/00000001.json ...   a log; the highest entry is what readers get
    <name>.ydl/builds/<uuid>/00000.ydl ...   part files
    <name>.ydl/lease/                        who builds

Creating entry N + 1 of the log is the only commit point. Reading takes no lock and writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from typing import Optional

from ydl import _core, manifest
from ydl.errors import CorruptCacheError
from ydl.ids import dataset_directory
from ydl.manifest import Manifest, Part

# What yogadl 0.1.4 keeps under the same id and version.
_YOGADL_FILE = "cache.mdb"


class LocalStore:
    """Files of one (dataset_id, dataset_version) under `root`. Holds nothing open."""

    def __init__(
        self, root: str, dataset_id: str, dataset_version: str, *, allow_weak_publish: bool = False
    ) -> None:
        self.directory = dataset_directory(root, dataset_id, dataset_version)
        self.root = root
        self.dataset_id = dataset_id
        self.dataset_version = dataset_version
        self._allow_weak_publish = allow_weak_publish

    @property
    def name(self) -> str:
        return f"{self.dataset_id}:{self.dataset_version}"

    def part_path(self, part: Part) -> str:
        return os.path.join(self._build_directory(part.build), part.name)

    # ---- the log ----

    def latest_number(self) -> int:
        """0 where nothing was ever published."""
        return _core.log_latest(self._manifests)

    def current(self) -> Optional[Manifest]:
        """What readers get now; None where nothing is published or the last entry is a
        tombstone. CorruptCacheError where the last entry is damaged or another dataset's."""
        number = self.latest_number()
        if number == 0:
            return None
        latest = self.read(number)
        return None if latest.is_tombstone else latest

    def read(self, number: int) -> Manifest:
        where = os.path.join(self._manifests, f"{number:08}.json")
        content = _core.log_read(self._manifests, number, manifest.MAX_BYTES)
        try:
            entry = manifest.from_bytes(content, where)
        except CorruptCacheError as error:
            raise CorruptCacheError(
                f"{error}. To replace {self.name}, submit() it again, or remove {self.directory}"
            ) from None
        found = (entry.dataset_id, entry.dataset_version, entry.number)
        if found != (self.dataset_id, self.dataset_version, number):
            # Also what a file system does that takes two spellings of a name for one.
            raise CorruptCacheError(
                f"{where} should be entry {number} of {self.name}, but says that it is entry "
                f"{entry.number} of {entry.dataset_id}:{entry.dataset_version}. Was it copied "
                "there, or does the file system ignore case or Unicode forms?"
            )
        return entry

    def publish(self, entry: Manifest) -> bool:
        """Makes `entry` the current one, durably; False where its number is taken already."""
        content = manifest.to_bytes(entry)
        return _core.log_append(self._manifests, entry.number, content, self._allow_weak_publish)

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
        """Durably, since an entry of the log is of no use in a directory that a crash removes."""
        _make_directories(self._manifests)
        _make_directories(self._builds)

    def lease(self, ttl_s: float) -> _core.Lease:
        """Needs create_directories() before."""
        return _core.Lease(os.path.join(self.directory, "lease"), round(ttl_s * 1000))

    def create_build(self) -> tuple[str, str]:
        """A new build: its uuid in hex digits, and its empty directory."""
        build = uuid.uuid4().hex
        path = self._build_directory(build)
        os.mkdir(path)
        return build, path

    def flush_build(self, build: str) -> None:
        _core.fsync_directory(self._build_directory(build))
        _core.fsync_directory(self._builds)

    def remove_build(self, build: str) -> None:
        shutil.rmtree(self._build_directory(build), ignore_errors=True)

    def has_yogadl_cache(self) -> bool:
        return os.path.exists(
            os.path.join(self.root, self.dataset_id, self.dataset_version, _YOGADL_FILE)
        )

    @property
    def _manifests(self) -> str:
        return os.path.join(self.directory, "manifests")

    @property
    def _builds(self) -> str:
        return os.path.join(self.directory, "builds")

    def _build_directory(self, build: str) -> str:
        return os.path.join(self._builds, build)


def _make_directories(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    _make_directories(parent)
    with contextlib.suppress(FileExistsError):  # another process at the same moment
        os.mkdir(path)
    _core.fsync_directory(parent)
