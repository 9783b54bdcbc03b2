"""What the tests share: sources of records without TensorFlow, storages, other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np

from ydl.schema import RaggedNode, Schema, SparseNode, TensorNode, TupleNode
from ydl.storage import LFSConfigurations, LFSStorage


class ArraySource:
    """What ydl.build.Source describes, over arrays: one per component, of equal length."""

    def __init__(self, root, columns, batch=1000, cardinality=True):
        self.schema = Schema(root)
        self.columns = columns
        self.cardinality = len(columns[0]) if cardinality else None
        self._batch = batch

    def batches(self):
        for start in range(0, len(self.columns[0]), self._batch):
            part = [column[start : start + self._batch] for column in self.columns]
            yield len(part[0]), part


class RecordSource:
    """Record by record, for components whose shape varies: records are lists of components."""

    cardinality = None

    def __init__(self, root, records):
        self.schema = Schema(root)
        self._records = records

    def batches(self):
        for record in self._records:
            columns = []
            for value in record:
                column = np.empty((1, *np.shape(value)), np.asarray(value).dtype)
                if column.dtype.kind in "SU":
                    column = np.empty((1, *np.shape(value)), object)
                column[0] = value
                columns.append(column)
            yield 1, columns


class FailingSource:
    """Raises `error` in the place of record `at`."""

    cardinality = None

    def __init__(self, error, at):
        self.schema = Schema(TensorNode("int64", ()))
        self._error = error
        self._at = at

    def batches(self):
        for start in range(0, self._at, 1000):
            numbers = np.arange(start, min(start + 1000, self._at))
            yield len(numbers), [numbers]
        raise self._error


def numbers(n, first=0):
    """The records first, first + 1, ...: int64 scalars."""
    return ArraySource(TensorNode("int64", ()), [np.arange(first, first + n)])


def pairs(n):
    """Tuples (int64 i, float32[3] of i)."""
    root = TupleNode((TensorNode("int64", ()), TensorNode("float32", (3,))))
    values = np.arange(n)
    return ArraySource(root, [values, np.repeat(values, 3).reshape(n, 3).astype(np.float32)])


def ragged_node():
    return RaggedNode("int64", (None, None), 1, "int64")


def sparse_node():
    return SparseNode("int64", (None, None))


def storage_in(directory, **options):
    return LFSStorage(LFSConfigurations(str(directory), **options))


def files_in(directory):
    """Paths of all files below, without the lease's, which is no data."""
    found = []
    for parent, _, names in os.walk(str(directory)):
        if os.path.basename(parent) != "lease":
            found += [os.path.join(parent, name) for name in names]
    return sorted(found)


def run_python(code, *args, env=None, timeout=60):
    """Runs code in a new interpreter, in which tests/support.py can be imported."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_soak(module, *args, timeout=600):
    """Runs the short form of one of tests/soak/ in a process of its own, and gives what it says."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", f"soak.{module}", *map(str, args)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
