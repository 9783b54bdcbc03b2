"""Opening a published dataset: lazily, once per process, and again after a fork or a pickle."""

from __future__ import annotations

import os
import uuid
import weakref
from dataclasses import dataclass
from typing import Any, Optional, Union

from ydl import _core
from ydl.errors import CorruptCacheError
from ydl.manifest import Manifest
from ydl.schema import Schema
from ydl.store import LocalStore

# Readers of a parent process, met again in a forked child. Their locks may be held by threads that
# do not exist here, so they are neither used nor freed.
_inherited: list[_core.Reader] = []


@dataclass(frozen=True)
class DatasetFiles:
    """What it takes to open a dataset. Pickles; holds nothing open."""

    store: LocalStore
    manifest: Manifest
    schema: Schema
    verify: str
    access: str
    # Where the dataset is damaged, somebody's call can build it anew.
    is_rebuildable: bool

    def open(self) -> _core.Reader:
        """Opens no file yet: the core opens parts when it first reads from them."""
        self.store.check_builds({part.build for part in self.manifest.parts})
        parts = []
        first_record = 0
        for part in self.manifest.parts:
            path = self.store.part_path(part)
            build = uuid.UUID(hex=part.build).bytes
            parts.append((path, build, part.number, first_record, part.records, part.bytes))
            first_record += part.records
        components = [(component.dtype, component.shape) for component in self.schema.components]
        dtypes = self.schema.numpy_dtypes()
        return _core.Reader(parts, components, dtypes, self.verify, self.access)

    def note_damage(self, error: CorruptCacheError) -> None:
        """Withdraws the dataset, in which a reader met `error`, where that is right and possible,
        and completes the error's text by what to do now."""
        error.args = (f"{error}. {self._withdraw(str(error))}",)

    def _withdraw(self, reason: str) -> str:
        store, number = self.store, self.manifest.number
        if not self.is_rebuildable:
            return f"The records around it can be read; to replace {store.name}, submit it again"
        anew = "call the cached function again, which builds it anew"
        try:
            # Not by the number alone: the directory may have been removed and filled again.
            if store.latest() != self.manifest or not store.withdraw(number, reason):
                return (
                    f"{store.name} was replaced meanwhile: call the cached function (or fetch) "
                    "again"
                )
        except Exception as error:
            return (
                f"{store.name} stays published, because it cannot be withdrawn from here "
                f"({error}): remove {store.directory}, or read it where that is writable; then "
                f"{anew}"
            )
        return f"{store.name} is withdrawn by entry {number + 1} of {store.directory}: {anew}"


class Handle:
    """Opens the dataset on first use and keeps it open. Thread-safe."""

    def __init__(self, files: DatasetFiles) -> None:
        self.files = files
        self._reader: Optional[_core.Reader] = None
        self._pid = 0  # of the process that opened _reader

    def reader(self) -> _core.Reader:
        pid = os.getpid()
        reader = self._reader
        if reader is not None and self._pid == pid:
            return reader
        if reader is not None:
            _inherited.append(reader)
        # Two threads may open it twice; the one that is overwritten lives as long as it is used.
        self._pid, self._reader = pid, None
        reader = self.files.open()
        self._reader = reader
        return reader

    def detached(self) -> DetachedHandle:
        return DetachedHandle(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "_reader": None, "_pid": 0}


class DetachedHandle:
    """Uses a handle's reader while somebody else keeps that handle; later it opens the dataset
    anew each time, and keeps nothing open itself.

    For what TensorFlow keeps of a finished dataset, which is for ever.
    """

    def __init__(self, handle: Handle) -> None:
        self.files = handle.files
        self._handle: Optional[weakref.ReferenceType[Handle]] = weakref.ref(handle)

    def reader(self) -> _core.Reader:
        handle = None if self._handle is None else self._handle()
        return self.files.open() if handle is None else handle.reader()

    def detached(self) -> DetachedHandle:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "_handle": None}


AnyHandle = Union[Handle, DetachedHandle]
