"""Writing a source's records into the part files of one build."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional, Protocol, Union, runtime_checkable

import numpy as np

from ydl import _core
from ydl.manifest import Part
from ydl.schema import Schema
from ydl.store import LocalStore

Array = np.ndarray[Any, Any]
# One component of some records: an array [records, ...] of the component's dtype (of bytes objects
# for strings); or, where the records' shapes differ, the elements of all of them one after another,
# and their shapes, int64 [records, rank].
Column = Union[Array, tuple[Array, Array]]


@runtime_checkable
class Source(Protocol):
    """Records to cache. `ydl.tensorflow.open_source` makes one of a tf.data.Dataset."""

    @property
    def schema(self) -> Schema: ...

    @property
    def cardinality(self) -> Optional[int]:
        """Records, where that is known."""

    def batches(self) -> Iterator[tuple[int, list[Column]]]:
        """(n, a column of n records for each of the schema's components), until the records end."""


class Build:
    """The part files of one build, durable and verified, that no manifest names yet."""

    def __init__(self, uuid_hex: str, schema: Schema, parts: tuple[Part, ...]) -> None:
        self.uuid = uuid_hex
        self.schema = schema
        self.parts = parts

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)

    @property
    def total_bytes(self) -> int:
        """Of the files."""
        return sum(part.bytes for part in self.parts)


def write(
    store: LocalStore, source: Source, part_bytes: int, on_batch: Callable[[int, int], None]
) -> Build:
    """Writes all of source's records. on_batch(records, bytes) is told the totals so far.

    Whatever is raised, by the source or by the disk, leaves no file behind and passes unchanged.
    """
    pid = os.getpid()
    components = [(component.dtype, component.shape) for component in source.schema.components]
    build, directory = store.create_build()
    try:
        writer = _core.Writer(directory, uuid.UUID(hex=build).bytes, components, part_bytes)
        try:
            for records, columns in source.batches():
                writer.append(records, columns)
                on_batch(writer.records, writer.bytes)
            parts = writer.finish()
        finally:
            writer.close()
        store.flush_build(build)
    except BaseException:  # KeyboardInterrupt and SystemExit too
        if os.getpid() == pid:  # a child that the source forked must leave its parent's files
            store.remove_build(build)
        raise
    return Build(build, source.schema, tuple(Part(build, *part) for part in parts))
