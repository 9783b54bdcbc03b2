"""No libraries: what this machine, and the dataset that is cached, can do at best."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.kinds import BATCH, Columns, Source, columns
from peers.base import Data, Peer

_STEP_BYTES = 8 << 20


class Memcpy(Peer):
    """One thread copies batches in order, from memory to the same memory."""

    def open(self, source: Source, path: str) -> Any:
        rows = columns(source.name, source.records)
        return rows, tuple(np.empty_like(column[:BATCH]) for column in rows)

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        rows, batch = data.handle
        for at in range(0, data.records, BATCH):
            n = min(BATCH, data.records - at)
            for to, column in zip(batch, rows):
                np.copyto(to[:n], column[at : at + n])
            yield tuple(to[:n] for to in batch)


class Disk(Peer):
    """As many bytes as the records have, in one file, in order."""

    holds_records = False

    def build(self, source: Source, path: str) -> None:
        left = source.records * source.kind.record_bytes
        noise = np.random.RandomState(1).bytes(1 << 20)
        with open(_file(path), "wb", buffering=0) as file:
            while left > 0:
                left -= file.write(noise[:left])
            os.fsync(file.fileno())

    def open(self, source: Source, path: str) -> Any:
        return _file(path)

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        width = data.kind.record_bytes
        block = np.empty((max(BATCH, _STEP_BYTES // width), width), np.uint8)
        with open(data.handle, "rb", buffering=0) as file:
            while n := file.readinto(block):
                yield (block[: n // width],)


class Pipeline(Peer):
    """What is cached, iterated over in batches and forgotten."""

    packages = ("tensorflow-cpu", "tensorflow")

    def build(self, source: Source, path: str) -> None:
        for _ in source.batches():
            pass


def _file(path: str) -> str:
    return os.path.join(path, "noise")
