"""What a peer is: a way of storing records and of getting them back, shuffled and batched."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from harness.kinds import Source


class Data:
    """An opened dataset: what is in it, and whatever the peer reads it through."""

    def __init__(self, source: Source, handle: Any) -> None:
        self.kind = source.kind
        self.records = source.records
        self.handle = handle

    def order(self, seed: int) -> np.ndarray:
        """For peers that have none of their own: all record numbers, shuffled by NumPy."""
        return np.random.RandomState(seed % 2**32).permutation(self.records)


class Peer:
    """Derived classes define what they can do, of:

    build(source, path)               stores the source's records
    open(source, path) -> Any         what the other methods find as data.handle
    numpy(data, seed)                 iterator over one shuffled epoch: tuples of columns, 128 rows
    tensorflow(data)                  tf.data.Dataset of batches of 128, reshuffled in each pass
    first(data, shuffle, start)       the first record from position `start` of an epoch

    `path` is a directory of the dataset's own, which is there. Shuffling is part of an epoch, and
    so of its time, for all of them; making the object that is iterated over is not.
    """

    # What comes back is the records that were stored, and not only as many bytes.
    holds_records: ClassVar[bool] = True
    # Its distributions, to name their versions.
    packages: ClassVar[tuple[str, ...]] = ("numpy",)

    def __init__(self, directory: str, options: dict[str, Any]) -> None:
        self.directory = directory
        self.options = options
        os.makedirs(directory, exist_ok=True)

    def open_data(self, source: Source, path: str) -> Data:
        return Data(source, self.open(source, path))
