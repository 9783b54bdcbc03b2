"""Datasets of any number of records that take no room: the rows are a hole in the file.

The format is csrc/record/format.h's. Only what depends on the number of records is made here; what
a row looks like is copied from a part that the real writer wrote. Rows are zeros, and so are their
checksums, so that reading needs verify="never".
"""

from __future__ import annotations

import os
import struct
import tempfile
import uuid
from typing import NamedTuple

import numpy as np
from ydl import _core
from ydl.manifest import Manifest, Part, made_here
from ydl.schema import Schema, TensorNode
from ydl.store import LocalStore

SCHEMA = Schema(TensorNode("uint8", ()))

_HEAD_MAGIC, _TAIL_MAGIC = b"\x89YDL\r\n\x1a\n", b"\nYDLend\x89"
_HEADER = struct.Struct("<8s III4x 16s QQ")  # and the hash of these 56 bytes
_REGION = struct.Struct("<IIQQQ")
_TRAILER = struct.Struct("<16s QQ I4x Q")  # and a hash, and the tail magic
_ROWS, _LAYOUT, _REQUIRED = 1, 2, 1


class _Row(NamedTuple):
    bytes: int
    layout: bytes  # the layout region


def submit(root: str, name: str, records: int, part_bytes: int = 256 << 20) -> None:
    """Publishes a dataset of so many records as (name, "1")."""
    row = _real_row()
    store = LocalStore(root, name, "1")
    store.create_directories()
    build, directory = store.create_build()
    parts = []
    rows_per_part = (part_bytes - 4096) // row.bytes
    for number, first in enumerate(range(0, records, rows_per_part)):
        count = min(rows_per_part, records - first)
        path = os.path.join(directory, f"{number:05}.ydl")
        size = _write_part(path, uuid.UUID(hex=build).bytes, number, first, count, row)
        parts.append(Part(build, os.path.basename(path), count, size, 0))
    store.publish(
        Manifest(
            dataset_id=name,
            dataset_version="1",
            number=1,
            schema=SCHEMA,
            records=records,
            parts=tuple(parts),
            source=None,
            per_slot_batch_size=None,
            **made_here(),
        )
    )


def _real_row() -> _Row:
    components = [(component.dtype, component.shape) for component in SCHEMA.components]
    with tempfile.TemporaryDirectory() as directory:
        writer = _core.Writer(directory, bytes(16), components, 1 << 20)
        writer.append(1, [np.zeros(1, np.uint8)])
        ((name, _, size, _),) = writer.finish()
        with open(os.path.join(directory, name), "rb") as file:
            content = file.read()
    table, count = struct.unpack_from("<QI", content, size - 64 + 24)
    entries = [_REGION.unpack_from(content, table + i * _REGION.size) for i in range(count)]
    regions = {entry[0]: entry[2:4] for entry in entries}
    offset, length = regions[_LAYOUT]
    return _Row(regions[_ROWS][1], content[offset : offset + length])


def _write_part(path: str, build: bytes, number: int, first: int, count: int, row: _Row) -> int:
    """Returns its size."""
    header = _HEADER.pack(_HEAD_MAGIC, 1, 0, 0, build, number, first)
    header += struct.pack("<Q", _core.hash64(header))
    layout_at = _align(len(header) + count * row.bytes)
    table_at = _align(layout_at + len(row.layout))
    table = _REGION.pack(_ROWS, _REQUIRED, len(header), count * row.bytes, 0)
    layout_hash = _core.hash64(row.layout)
    table += _REGION.pack(_LAYOUT, _REQUIRED, layout_at, len(row.layout), layout_hash)
    size = table_at + len(table) + 64
    trailer = _TRAILER.pack(build, count, table_at, 2, size)
    trailer += struct.pack("<Q", _core.hash64(header + table + trailer)) + _TAIL_MAGIC
    with open(path, "wb") as file:
        file.write(header)
        file.seek(layout_at)  # leaves the hole
        file.write(row.layout)
        file.seek(table_at)
        file.write(table + trailer)
    return size


def _align(offset: int) -> int:
    return -(-offset // 64) * 64
