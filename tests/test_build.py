"""Writing a build: columns of different shapes, the thread that finishes parts, forks."""

from __future__ import annotations

import glob
import os

import numpy as np
import pytest
from support import FailingSource, RecordSource, files_in, numbers, storage_in

from ydl import _core
from ydl.errors import CorruptCacheError, ForkedError, ShapeMismatchError
from ydl.schema import TensorNode, TupleNode

UUID = b"0123456789abcdef"


def write(directory, components, batches, part_bytes=1 << 20):
    """The bytes of all files."""
    directory.mkdir()
    writer = _core.Writer(str(directory), UUID, components, part_bytes)
    try:
        for records, columns in batches:
            writer.append(records, columns)
        parts = writer.finish()
    finally:
        writer.close()
    return [(directory / name).read_bytes() for name, *_ in parts]


def objects(values):
    return np.array([*values, None], object)[:-1]  # never an array of arrays


def columns_of(records, at):
    """Component `at` of records, as one column of (elements, shapes)."""
    arrays = [np.asarray(record[at]) for record in records]
    shapes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), -1)
    if arrays[0].dtype == object:
        return objects(value for array in arrays for value in array.ravel()), shapes
    return np.concatenate([array.ravel() for array in arrays]), shapes


@pytest.mark.parametrize("part_bytes", [1 << 20, 500])
def test_columns_of_different_shapes_make_the_same_files(tmp_path, part_bytes):
    rng = np.random.default_rng(1)
    root = TupleNode(
        (
            TensorNode("float32", (None, 2)),
            TensorNode("int16", (2, None, None)),
            TensorNode("string", (None,)),
            TensorNode("int64", ()),
        )
    )
    records = []
    for i in range(100):
        a, b, c, d = rng.integers(0, 4, 4)
        strings = objects(rng.bytes(rng.integers(0, 9)) for _ in range(d))
        records.append(
            (
                rng.random((a, 2), np.float32),
                rng.integers(0, 9, (2, b, c)).astype(np.int16),
                strings,
                np.int64(i),
            )
        )
    source = RecordSource(root, records)
    components = [(component.dtype, component.shape) for component in source.schema.components]

    def blocks():
        at = 0
        for n in (1, 7, 0, 60, 32):
            block = records[at : at + n]
            at += n
            if n == 0:
                yield (
                    0,
                    [
                        (np.empty(0, np.float32), np.empty((0, 2), np.int64)),
                        (np.empty(0, np.int16), np.empty((0, 3), np.int64)),
                        (np.empty(0, object), np.empty((0, 1), np.int64)),
                        np.empty(0, np.int64),
                    ],
                )
                continue
            numbers_column = np.array([record[3] for record in block])
            yield n, [*(columns_of(block, c) for c in range(3)), numbers_column]

    at_once = write(tmp_path / "a", components, blocks(), part_bytes)
    one_by_one = write(tmp_path / "b", components, source.batches(), part_bytes)
    assert at_once == one_by_one
    assert (len(at_once) > 1) == (part_bytes == 500)


GOOD_SHAPES = np.array([[1], [3], [0]])


@pytest.mark.parametrize(
    ("column", "error", "text"),
    [
        ((np.zeros(4), GOOD_SHAPES.astype(np.int32)), ValueError, r"int64 \[3, rank\]"),
        ((np.zeros(4), GOOD_SHAPES[:2]), ValueError, r"int64 \[3, rank\]"),
        ((np.zeros(4), GOOD_SHAPES[:, 0]), ValueError, r"int64 \[3, rank\]"),
        ((np.zeros(4), [[1], [3], [0]]), ValueError, r"int64 \[3, rank\]"),
        ((np.zeros(4), np.zeros((3, 64), np.int64)), ValueError, r"int64 \[3, rank\]"),
        ((np.zeros(5), GOOD_SHAPES), ValueError, "has 5 elements, but their shapes ask for 4"),
        ((np.zeros(3), GOOD_SHAPES), ValueError, "has 3 elements, but their shapes ask for 4"),
        ((np.zeros(4, np.float32), GOOD_SHAPES), ValueError, "float32"),
        ((np.zeros(4), np.tile(GOOD_SHAPES, 2)), ShapeMismatchError, r"record 0 .*\(1, 1\)"),
        ((np.zeros(4), -GOOD_SHAPES), ShapeMismatchError, "record 0"),
        ((None, GOOD_SHAPES), TypeError, "no NumPy array"),
        ((np.zeros(4), GOOD_SHAPES, 1), TypeError, "no NumPy array"),
    ],
)
def test_refused_columns(tmp_path, column, error, text):
    with pytest.raises(error, match=text):
        write(tmp_path / "a", [("float64", (None,))], [(3, [column])])


def test_finishing_threads_end_with_their_build(tmp_path):
    """Many parts; whatever becomes of the build."""
    storage = storage_in(tmp_path, part_bytes=1 << 13)
    threads = set(os.listdir("/proc/self/task"))  # others may end meanwhile: TensorFlow's
    descriptors = len(os.listdir("/proc/self/fd"))
    for i in range(5):
        storage.submit(numbers(20_000), "d", str(i))
        with pytest.raises(RuntimeError, match="the source's"):
            storage.submit(FailingSource(RuntimeError("the source's"), 20_000), "d", "failed")
    assert set(os.listdir("/proc/self/task")) <= threads
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not [path for path in files_in(tmp_path) if "failed" in path]


def test_a_part_that_is_not_what_was_written_is_not_published(storage, tmp_path):
    class Meddling:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield 1000, [np.arange(1000)]
            [part] = glob.glob(f"{tmp_path}/**/00000.ydl", recursive=True)
            with open(part, "r+b") as file:
                file.truncate(1 << 20)  # it will be shorter
            yield 1000, [np.arange(1000)]

    with pytest.raises(CorruptCacheError, match=r"00000\.ydl"):
        storage.submit(Meddling(), "d", "1")
    assert files_in(tmp_path) == []


def test_a_forked_child_cannot_go_on_with_the_build(tmp_path):
    """Its records would go into its parent's files."""
    pid = os.getpid()

    class Forking:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield 3000, [np.arange(3000)]
            child = os.fork()
            yield 3000, [np.arange(3000, 6000)]
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    storage = storage_in(tmp_path, part_bytes=1 << 12)
    try:
        storage.submit(Forking(), "d", "1")
    except ForkedError:
        if os.getpid() != pid:
            os._exit(7)
        raise
    except BaseException:
        if os.getpid() != pid:
            os._exit(8)
        raise
    assert [int(record) for record in storage.fetch("d", "1").stream()] == list(range(6000))
