"""One raw file for each component, mapped: what a user with NumPy writes in ten lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.kinds import BATCH, Columns, Source
from peers.base import Data, Peer
from peers.codec import as_objects


class Memmap(Peer):
    packages = ("numpy",)

    def build(self, source: Source, path: str) -> None:
        names = [_file(path, i) for i in range(len(source.kind.components))]
        files = [open(name, "wb") for name in names]
        lengths = []
        for batch in source.batches():
            if source.kind.is_text:
                files[0].write(b"".join(batch[0]))
                lengths += map(len, batch[0])
                continue
            for file, column in zip(files, batch):
                file.write(column.data)
        for file in files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        if lengths:
            np.save(_ends(path), np.cumsum(lengths))

    def open(self, source: Source, path: str) -> Any:
        if source.kind.is_text:
            ends = np.load(_ends(path), mmap_mode="r")
            return np.memmap(_file(path, 0), np.uint8, "r"), ends
        columns = []
        for i, component in enumerate(source.kind.components):
            shape = (source.records, *component.shape)
            columns.append(np.memmap(_file(path, i), component.dtype, "r", shape=shape))
        return tuple(columns)

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        order = data.order(seed)
        for at in range(0, len(order), BATCH):
            yield _take(data, order[at : at + BATCH])

    def tensorflow(self, data: Data) -> Any:
        from peers.feeding import from_epochs

        return from_epochs(data.kind, lambda seed: self.numpy(data, seed))

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        order = data.order(1) if shuffle else range(data.records)
        return _take(data, np.asarray(order[start : start + 1]))


class MemmapMap(Memmap):
    """The other way into TensorFlow: only numbers cross through the dataset."""

    numpy = first = None

    def tensorflow(self, data: Data) -> Any:
        import tensorflow as tf

        from peers.feeding import gathered, specs

        types, shapes = map(tf.nest.flatten, specs(data.kind))

        def gather(numbers: Any) -> Any:
            rows = tf.numpy_function(lambda some: list(_take(data, some)), [numbers], types)
            return tuple(map(tf.ensure_shape, rows, shapes))

        return gathered(data, gather)


def _take(data: Data, numbers: np.ndarray) -> Columns:
    if not data.kind.is_text:
        return tuple(column[numbers] for column in data.handle)
    text, ends = data.handle
    stops = ends[numbers]
    starts = np.where(numbers > 0, ends[numbers - 1], 0)
    view = memoryview(text)
    return (as_objects([bytes(view[a:b]) for a, b in zip(starts.tolist(), stops.tolist())]),)


def _file(path: str, component: int) -> str:
    return os.path.join(path, f"{component}.raw")


def _ends(path: str) -> str:
    return os.path.join(path, "ends.npy")
