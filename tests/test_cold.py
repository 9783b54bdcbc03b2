"""A cold page cache changes how long reading takes, and nothing that is read."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from support import ArraySource, files_in, storage_in

from ydl.schema import TensorNode, TupleNode

RECORDS = 4000
ROW = 2000


@pytest.fixture(params=["mmap", "pread"])
def cold(request, tmp_path):
    """A storage with a dataset of 8 MB in several parts, and what makes it cold."""
    storage = storage_in(tmp_path, access=request.param, part_bytes=1 << 20)
    root = TupleNode((TensorNode("int64", ()), TensorNode("uint8", (ROW,))))
    rows = np.random.default_rng(1).integers(0, 256, (RECORDS, ROW), np.uint8)
    storage.submit(ArraySource(root, [np.arange(RECORDS), rows], batch=100), "d", "1")
    parts = [path for path in files_in(tmp_path) if "/builds/" in path]
    assert len(parts) > 4

    def drop():
        for path in parts:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    return storage, rows, drop


def threads():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("form", ["batches", "records"])
@pytest.mark.parametrize("shards", [1, 5])
def test_records_are_those_of_a_warm_cache(cold, form, shards):
    storage, rows, drop = cold
    before = threads()
    epochs = []
    for _ in range(2):  # cold, then warm
        if not epochs:
            drop()
        ref = storage.fetch("d", "1")
        stream = ref.stream(shuffle=True, shuffle_seed=3, shard_rank=0, num_shards=shards)
        seen = []
        for numbers, values in stream.batches(64) if form == "batches" else stream:
            np.testing.assert_array_equal(values, rows[numbers])
            seen += np.atleast_1d(numbers).tolist()
        epochs.append(seen)
        assert seen == stream.record_numbers(0, 0, RECORDS).tolist()
    assert epochs[0] == epochs[1]
    assert threads() <= before


def test_an_early_end_leaves_no_thread(cold):
    storage, rows, drop = cold
    before = threads()
    for taken in (1, 2, 5):
        drop()
        batches = storage.fetch("d", "1").stream(shuffle=True, shuffle_seed=3).batches(64)
        for _ in range(taken):
            numbers, values = next(batches)
            np.testing.assert_array_equal(values, rows[numbers])
        batches.close()
        assert threads() <= before


def test_the_background_reading_of_an_idle_iterator_ends(cold):
    storage, _, drop = cold

    def start():
        batches = storage.fetch("d", "1").stream(shuffle=True, shuffle_seed=3).batches(64)
        next(batches)
        return batches

    list(storage.fetch("d", "1").stream().batches(64))
    warm = start()
    usual = threads()
    warm.close()
    drop()
    idle = start()
    deadline = time.monotonic() + 60
    while threads() > usual and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= usual
    idle.close()
