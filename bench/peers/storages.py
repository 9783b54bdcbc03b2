"""ydl and yogadl, which share their interface."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from harness.kinds import BATCH, Columns, Source
from peers.base import Data, Peer
from peers.codec import stack_column


def load_storage(library: str, directory: str) -> tuple[Any, Any]:
    """The package, with its .storage and .tensorflow, and a storage in directory."""
    importlib.import_module(f"{library}.storage")
    package = importlib.import_module(library)
    importlib.import_module(f"{library}.tensorflow")
    os.makedirs(directory, exist_ok=True)
    configurations = package.storage.LFSConfigurations(directory)
    return package, package.storage.LFSStorage(configurations)


class Storage(Peer):
    library: ClassVar[str]

    def __init__(self, directory: str, options: dict[str, Any]) -> None:
        super().__init__(directory, options)
        self.package, self._storage = load_storage(self.library, directory)

    def build(self, source: Source, path: str) -> None:
        self._storage.submit(source.dataset, *self._id(path))

    def open(self, source: Source, path: str) -> Any:
        return self._storage.fetch(*self._id(path))

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        raise NotImplementedError

    def tensorflow(self, data: Data) -> Any:
        stream = data.handle.stream(shuffle=True, shuffle_seed=1)
        return self.package.tensorflow.make_tf_dataset(stream).batch(BATCH)

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        stream = data.handle.stream(start_offset=start, shuffle=shuffle, shuffle_seed=1)
        return next(iter(stream))

    def _id(self, path: str) -> tuple[str, str]:
        return os.path.relpath(path, self.directory), "1"


class Ydl(Storage):
    library = "ydl"
    packages = ("ydl", "numpy")

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        batches = data.handle.stream(shuffle=True, shuffle_seed=seed).batches(BATCH)
        return batches if len(data.kind.components) > 1 else ((batch,) for batch in batches)

    def tensorflow(self, data: Data) -> Any:
        return self._dataset(data, batch_size=BATCH)

    def _dataset(self, data: Data, **arguments: Any) -> Any:
        if self.options.get("feed"):
            arguments["feed"] = self.options["feed"]
        stream = data.handle.stream(shuffle=True, shuffle_seed=1)
        return self.package.tensorflow.make_tf_dataset(stream, **arguments)


class YdlBatch(Ydl):
    """What unchanged code does."""

    def tensorflow(self, data: Data) -> Any:
        return self._dataset(data).batch(BATCH)


class YdlOneThread(Ydl):
    """The consumer's thread does everything. There is no option for it, since nobody should want
    it: its only use is this figure."""

    def __init__(self, directory: str, options: dict[str, Any]) -> None:
        super().__init__(directory, options)
        shard = importlib.import_module("ydl.shard")
        if not callable(getattr(shard, "_prefetch_threads", None)):
            raise AttributeError("ydl.shard._prefetch_threads moved: YdlOneThread replaces it")
        shard._prefetch_threads = lambda *arguments: 0

    tensorflow = None


class Yogadl(Storage):
    library = "yogadl"
    packages = ("yogadl", "lmdb")

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        # It has records only; whoever wants batches stacks them.
        return _stack(data.handle.stream(shuffle=True, shuffle_seed=seed))


def _stack(records: Iterable[Any]) -> Iterator[Columns]:
    iterator = iter(records)
    while batch := list(itertools.islice(iterator, BATCH)):
        rows = zip(*batch) if isinstance(batch[0], tuple) else (batch,)
        yield tuple(map(stack_column, rows))
