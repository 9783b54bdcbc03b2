"""Records as bytes, for the formats that know nothing else: a record's components, one behind the
other, without padding. Whole batches at a time, since that is what their fastest users do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.kinds import Columns, Kind


def encode(kind: Kind, columns: Columns) -> list[bytes]:
    if kind.is_text:
        return list(columns[0])
    rows = [
        np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8) for column in columns
    ]
    joined = np.concatenate([row.reshape(len(row), -1) for row in rows], axis=1)
    block, width = joined.tobytes(), joined.shape[1]
    return [block[at : at + width] for at in range(0, len(block), width)]


def decode(kind: Kind, records: Sequence[bytes]) -> Columns:
    if kind.is_text:
        return (as_objects(records),)
    rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)
    ends = list(itertools.accumulate(component.bytes for component in kind.components))
    columns = []
    for component, end in zip(kind.components, ends):
        values = np.ascontiguousarray(rows[:, end - component.bytes : end])
        columns.append(values.view(component.dtype).reshape(len(records), *component.shape))
    return tuple(columns)


def as_objects(texts: Sequence[bytes]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def stack_column(values: Sequence[Any]) -> np.ndarray:
    """One component of records that came one by one."""
    if isinstance(values[0], (bytes, memoryview)):
        return as_objects([bytes(value) for value in values])
    return np.stack(values)


def slices(columns: Columns, size: int) -> list[Columns]:
    return [
        tuple(column[at : at + size] for column in columns)
        for at in range(0, len(columns[0]), size)
    ]
