"""Files of records with an index: bagz and ArrayRecord. Both read many records at once fastest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from harness.kinds import BATCH, Columns, Source
from peers.base import Data, Peer
from peers.codec import decode, encode, slices


class _RecordFile(Peer):
    """Derived classes say how to write a record and how to read many."""

    read_at_once: ClassVar[int] = 1024

    def build(self, source: Source, path: str) -> None:
        writer = self._writer(_file(path))
        for batch in source.batches():
            for record in encode(source.kind, batch):
                writer.write(record)
        writer.close()

    def open(self, source: Source, path: str) -> Any:
        return self._reader(_file(path))

    def numpy(self, data: Data, seed: int) -> Iterator[Columns]:
        # As many as stay below 64 MB.
        many = max(BATCH, min(self.read_at_once, (64 << 20) // data.kind.record_bytes))
        order = data.order(seed)
        for at in range(0, len(order), many):
            records = self._read(data.handle, order[at : at + many])
            yield from slices(decode(data.kind, records), BATCH)

    def tensorflow(self, data: Data) -> Any:
        from peers.feeding import from_epochs

        return from_epochs(data.kind, lambda seed: self.numpy(data, seed))

    def first(self, data: Data, shuffle: bool, start: int) -> Any:
        order = data.order(1)[start:] if shuffle else np.arange(start, start + 1)
        return decode(data.kind, self._read(data.handle, order[:1]))


class Bagz(_RecordFile):
    packages = ("bagz",)

    def _writer(self, file: str) -> Any:
        import bagz

        options = bagz.Writer.Options(compression=bagz.CompressionNone())
        return bagz.Writer(file, options)

    def _reader(self, file: str) -> Any:
        import bagz

        return bagz.Reader(file, bagz.Reader.Options(compression=bagz.CompressionNone()))

    def _read(self, reader: Any, numbers: np.ndarray) -> list[bytes]:
        return reader.read_indices(numbers)


class ArrayRecord(_RecordFile):
    packages = ("array-record",)

    def _writer(self, file: str) -> Any:
        from array_record.python import array_record_module

        # One record a group, uncompressed: what its documentation says for random access.
        return array_record_module.ArrayRecordWriter(file, "group_size:1,uncompressed")

    def _reader(self, file: str) -> Any:
        from array_record.python import array_record_module

        options = "readahead_buffer_size:0"
        return array_record_module.ArrayRecordReader(file, options)

    def _read(self, reader: Any, numbers: np.ndarray) -> list[bytes]:
        return reader.read(numbers.tolist())


def _file(path: str) -> str:
    return os.path.join(path, "records")
