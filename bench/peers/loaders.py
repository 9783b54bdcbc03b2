"""Training loaders of others, each with its own files and its own idea of a shuffle. They know no
TensorFlow, and get their records from NumPy.

All of them read in the process that asks, without worker processes, as everyone else here does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from harness.kinds import BATCH, Columns, Component, Source, batches
from peers.base import Data, Peer
from peers.codec import as_objects, stack_column


def _names(source: Any) -> list[str]:
    return [f"c{i}" for i in range(len(source.kind.components))]


def _records(source: Source) -> Iterator[dict[str, Any]]:
    """One dict a record, which is what all three want."""
    names = _names(source)
    for batch in batches(source.name, source.records):
        for values in zip(*batch):
            yield dict(zip(names, values))


def _stack(records: list[dict[str, Any]], names: list[str]) -> Columns:
    columns = [[record[name] for record in records] for name in names]
    return tuple(map(stack_column, columns))


def _torch_batches(dataset: Any, data: Data, loader: Any) -> Iterable[Columns]:
    names = _names(data)
    return loader(dataset, batch_size=BATCH, collate_fn=lambda some: _stack(some, names))


class Mds(Peer):
    packages = ("mosaicml-streaming", "torch")

    def build(self, source: Source, path: str) -> None:
        from streaming import MDSWriter

        columns = dict(zip(_names(source), map(_mds_encoding, source.kind.components)))
        with MDSWriter(out=os.path.join(path, "mds"), columns=columns) as writer:
            for record in _records(source):
                writer.write(record)

    def open(self, source: Source, path: str) -> Any:
        return os.path.join(path, "mds")

    def numpy(self, data: Data, seed: int) -> Iterable[Columns]:
        from torch.utils.data import DataLoader

        return _torch_batches(self._dataset(data, True, seed), data, DataLoader)

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        dataset = self._dataset(data, shuffle, 1)
        if start:
            state = {"epoch": 0, "sample_in_epoch": start, "num_canonical_nodes": 1}
            dataset.load_state_dict({**state, "shuffle_seed": 1, "initial_physical_nodes": 1})
        return next(iter(dataset))

    def _dataset(self, data: Data, shuffle: bool, seed: int) -> Any:
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()  # of the one before, which it refuses to share a directory with
        return StreamingDataset(
            local=data.handle,
            shuffle=shuffle,
            shuffle_seed=seed,
            batch_size=BATCH,
            num_canonical_nodes=1,
        )


def _mds_encoding(component: Component) -> str:
    if component.dtype == "string":
        return "bytes"
    if not component.shape:
        return component.dtype
    return f"ndarray:{component.dtype}:{','.join(map(str, component.shape))}"


class LitData(Peer):
    packages = ("litdata", "torch")

    def build(self, source: Source, path: str) -> None:
        from litdata.streaming.writer import BinaryWriter

        writer = BinaryWriter(os.path.join(path, "litdata"), chunk_bytes=64 << 20)
        for i, record in enumerate(_records(source)):
            writer[i] = record
        writer.done()
        writer.merge(1)

    def open(self, source: Source, path: str) -> Any:
        return os.path.join(path, "litdata")

    def numpy(self, data: Data, seed: int) -> Iterable[Columns]:
        from litdata import StreamingDataLoader

        dataset = self._dataset(data, True, seed)
        return _torch_batches(dataset, data, StreamingDataLoader)

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        dataset = self._dataset(data, shuffle, 1)
        # It has no other way to a position than the state of a loader; items are as near.
        return dataset[start] if start else next(iter(dataset))

    def _dataset(self, data: Data, shuffle: bool, seed: int) -> Any:
        from litdata import StreamingDataset

        return StreamingDataset(data.handle, shuffle=shuffle, seed=seed)


class HuggingFace(Peer):
    packages = ("datasets", "pyarrow")

    def build(self, source: Source, path: str) -> None:
        import datasets

        features = dict(zip(_names(source), map(_feature, source.kind.components)))
        made = datasets.Dataset.from_generator(
            lambda: _records(source),
            features=datasets.Features(features),
            cache_dir=os.path.join(path, "cache"),
        )
        made.save_to_disk(os.path.join(path, "saved"))

    def open(self, source: Source, path: str) -> Any:
        import datasets

        return datasets.load_from_disk(os.path.join(path, "saved")).with_format("numpy")

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        names = _names(data)
        shuffled = data.handle.shuffle(seed=seed, keep_in_memory=True)
        for batch in shuffled.iter(batch_size=BATCH):
            # NumPy arrays of small integers come as int64.
            yield tuple(
                as_objects(list(batch[name]))
                if component.dtype == "string"
                else np.asarray(batch[name], component.dtype)
                for name, component in zip(names, data.kind.components)
            )

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        order = data.handle.shuffle(seed=1, keep_in_memory=True) if shuffle else data.handle
        return order[start]


def _feature(component: Component) -> Any:
    import datasets

    if component.dtype == "string":
        return datasets.Value("binary")
    if not component.shape:
        return datasets.Value(component.dtype)
    if len(component.shape) == 1:
        return datasets.Sequence(datasets.Value(component.dtype), length=component.shape[0])
    array = {2: datasets.Array2D, 3: datasets.Array3D}[len(component.shape)]
    return array(component.shape, component.dtype)
