"""Caches in a directory, which may be shared by many processes and hosts."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any, Optional, Union

from ydl import _core, arguments, caching, text
from ydl.caching import BuildOptions, Maker
from ydl.dataref import CachedDataRef
from ydl.errors import NotCachedError
from ydl.manifest import Manifest
from ydl.storage.base import (
    DEFAULT_PART_BYTES,
    CacheResult,
    CachingStorage,
    Submittable,
    open_source,
)
from ydl.store import LocalStore

DEFAULT_LEASE_TTL_S = 60.0
_VERIFY = ("first", "always", "never")
_ACCESS = ("auto", "mmap", "pread")


class LFSConfigurations:
    """Of an LFSStorage.

    storage_dir_path: created where absent; "~" is the home directory, and a relative path is taken
    from where the process is now.
    part_bytes: the largest file to write.
    verify: check a record's checksum the "first" time this process reads it, "always" or "never".
    access: read files by "mmap" or "pread"; "auto" decides by the file system.
    wait_timeout_s: how long to wait for another process that builds a dataset; None: for ever.
    lease_ttl_s: a builder without a sign of life for 1.5 times as many seconds is taken for dead.
    allow_weak_publish: publish also on a file system that can neither link nor rename without
    replacing, where two builders that end at the same moment may publish twice.
    """

    def __init__(
        self,
        storage_dir_path: Union[str, os.PathLike[str]],
        *,
        part_bytes: int = DEFAULT_PART_BYTES,
        verify: str = "first",
        access: str = "auto",
        wait_timeout_s: Optional[float] = None,
        lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
        allow_weak_publish: bool = False,
    ) -> None:
        path = os.path.abspath(os.path.expanduser(os.fspath(storage_dir_path)))
        self.storage_dir_path = pathlib.Path(path)
        self.part_bytes = arguments.integer("part_bytes", part_bytes, minimum=1)
        self.verify = arguments.choice("verify", verify, _VERIFY)
        self.access = arguments.choice("access", access, _ACCESS)
        self.wait_timeout_s = arguments.optional_seconds("wait_timeout_s", wait_timeout_s)
        self.lease_ttl_s = arguments.seconds("lease_ttl_s", lease_ttl_s)
        self.allow_weak_publish = bool(allow_weak_publish)


class LFSStorage(CachingStorage):
    """Datasets in a directory: a local disk, NFS or another mounted file system.

    tensorflow_config: a tf.compat.v1.ConfigProto for the session that reads a dataset where
    TensorFlow does not execute eagerly.
    """

    def __init__(
        self, configurations: LFSConfigurations, tensorflow_config: Optional[Any] = None
    ) -> None:
        self._configurations = configurations
        self._tensorflow_config = tensorflow_config
        self._root = str(configurations.storage_dir_path)
        os.makedirs(self._root, exist_ok=True)

    def submit(self, data: Submittable, dataset_id: str, dataset_version: str) -> None:
        """Stores `data`; what was stored under this id and version is no longer found, and streams
        that read it go on. Raises what the dataset raises, unchanged, and then changes nothing."""
        store = self._store(dataset_id, dataset_version)
        caching.submit(store, data, self._open_source, self._configurations.part_bytes)

    def fetch(self, dataset_id: str, dataset_version: str) -> CachedDataRef:
        """NotCachedError where nothing is stored under this id and version; CorruptCacheError where
        what says so is damaged. Builds nothing, and opens no file before it is read."""
        store = self._store(dataset_id, dataset_version)
        found = store.latest()
        if found is None:
            raise NotCachedError(
                f"{store.name} is not cached in {self._root}: build it with submit() or a "
                "cacheable() function first"
            )
        if found.is_tombstone:
            raise NotCachedError(
                f"{store.name} is cached no longer in {self._root}: it was withdrawn "
                f"{text.local_time(found.time)} on {text.printable(found.host)} "
                f"({text.printable(found.reason)}). Build it anew with submit() or its "
                "cacheable() function"
            )
        return self._ref(store, is_rebuildable=found.source is not None, manifest=found)

    def get_or_build(
        self,
        function: Callable[..., Any],
        dataset_id: str,
        dataset_version: str,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Optional[dict[str, Any]] = None,
        announcement: Optional[str] = None,
        per_slot_batch_size: Optional[int] = None,
    ) -> CacheResult:
        store = self._store(dataset_id, dataset_version)
        maker = Maker(
            make=functools.partial(function, *args, **(kwargs or {})),
            open_source=self._open_source,
            function=function,
            has_arguments=bool(args or kwargs),
            announcement=announcement or f"building {store.name}",
            per_slot_batch_size=per_slot_batch_size,
        )
        options = BuildOptions(
            part_bytes=self._configurations.part_bytes,
            wait_timeout_s=self._configurations.wait_timeout_s,
            lease_ttl_s=self._configurations.lease_ttl_s,
        )
        open_ref = functools.partial(self._ref, store, True)
        return CacheResult(*caching.get_or_build(store, maker, options, open_ref))

    def check_id(self, dataset_id: str, dataset_version: str) -> None:
        self._store(dataset_id, dataset_version)

    def _store(self, dataset_id: str, dataset_version: str) -> LocalStore:
        return LocalStore(
            self._root,
            dataset_id,
            dataset_version,
            allow_weak_publish=self._configurations.allow_weak_publish,
        )

    def _open_source(self, data: Submittable) -> Any:
        return open_source(data, self._tensorflow_config)

    def _ref(self, store: LocalStore, is_rebuildable: bool, manifest: Manifest) -> CachedDataRef:
        access = self._configurations.access
        return CachedDataRef(
            store,
            manifest,
            verify=self._configurations.verify,
            access=choose_access(store.directory) if access == "auto" else access,
            is_rebuildable=is_rebuildable,
        )


def choose_access(path: str) -> str:
    """How to read files under `path`: "mmap", or "pread" where the file system is a network's."""
    return _core.access_for(path)
