"""What epochs, iterators and references leave behind: nothing."""

from __future__ import annotations

import gc
import os
import time

import numpy as np
import pytest
from support import ArraySource, storage_in

from ydl.schema import TensorNode, TupleNode

pytestmark = pytest.mark.usefixtures("threaded")

RECORDS = 2000
ALLOWED_GROWTH = 4 << 20


@pytest.fixture
def make(storage):
    """2,000 records of 10 kB."""
    root = TupleNode((TensorNode("int64", ()), TensorNode("uint8", (10_000,))))

    @storage.cacheable("d", "1")
    def make():
        values = np.arange(RECORDS)
        return ArraySource(root, [values, np.zeros((RECORDS, 10_000), np.uint8)], batch=100)

    return make


def private_bytes():
    """Resident memory that is no file's: mapped cache files are the page cache's."""
    gc.collect()
    with open("/proc/self/status") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["RssAnon"].split()[0]) * 1024


def open_files():
    return len(os.listdir("/proc/self/fd"))


def threads():
    return len(os.listdir("/proc/self/task"))


def check_growth(step, warm_up, count):
    """What each step leaves behind shows in every row of `count` steps; what the allocator, or a
    library's thread, once kept for itself, in one of them."""
    for _ in range(warm_up):
        step()
    grown = []
    while len(grown) < 3 and (not grown or grown[-1] >= ALLOWED_GROWTH):
        before = private_bytes(), open_files(), threads()
        for _ in range(count):
            step()
        after = private_bytes(), open_files(), threads()
        assert after[1:] == before[1:]
        grown.append(after[0] - before[0])
    assert min(grown) < ALLOWED_GROWTH, grown


def test_c33_epochs_of_records_and_batches(make):
    """C33: leak per iterator/epoch."""
    stream = make().stream(shuffle=True, shuffle_seed=1)

    def step():
        assert sum(1 for _ in stream) == RECORDS
        assert sum(len(batch[0]) for batch in stream.batches(128)) == RECORDS

    check_growth(step, warm_up=5, count=30)


def test_c33_iterators_dropped_half_way(make):
    stream = make().stream(shuffle=True, shuffle_seed=1)

    def step():
        for iterator in (iter(stream), stream.batches(32), stream.iterate("chunks", 8)):
            for _ in range(20):
                next(iterator)

    check_growth(step, warm_up=10, count=30)


def test_c33_new_references_and_streams(make):
    def step():
        assert sum(1 for _ in make().stream().batches(100)) == 20

    check_growth(step, warm_up=30, count=300)


def test_c33_epochs_of_every_form_leave_no_thread_or_file_behind(storage):
    """30 epochs of new streams over parts that are mapped, and that are read."""
    for access in ("mmap", "pread"):
        other = storage_in(storage._root, access=access, part_bytes=100_000)
        other.submit(ArraySource(TensorNode("int64", ()), [np.arange(50_000)]), access, "1")
        ref = other.fetch(access, "1")

        def step(ref=ref):
            for form, rows in (("records", 100), ("batches", 1000), ("chunks", 1000)):
                assert sum(1 for _ in ref.stream().iterate(form, rows)) == (
                    50_000 if form == "records" else 50
                )

        check_growth(step, warm_up=3, count=30)


def test_c33_withdrawn_and_rebuilt_datasets(storage):
    """What failed leaves as little behind as what did not."""
    make = storage.cacheable("d", "1")(
        lambda: ArraySource(TensorNode("int64", ()), [np.arange(1000)])
    )

    def step():
        ref = make()
        directory = os.path.join(ref.directory, "builds", ref.manifest.parts[0].build)
        os.truncate(os.path.join(directory, "00000.ydl"), 100)
        assert len(make()) == 1000

    check_growth(step, warm_up=5, count=20)


def test_c33_copies_keep_no_files_open(make):
    stream = make().stream()
    detached = stream.detached()
    del stream
    before = open_files()
    for _ in range(20):
        next(iter(detached))
        assert open_files() == before


def test_an_epochs_order_is_the_only_memory_per_record(storage):
    """At most 4 B a record for the order and one bit for what is verified."""
    n = 5_000_000
    storage.submit(ArraySource(TensorNode("uint8", ()), [np.zeros(n, np.uint8)], 100_000), "n", "1")
    ref = storage.fetch("n", "1")
    next(iter(ref.stream()))
    before = private_bytes()
    for _ in range(4):  # the allocator may keep one order for the next, but not one more each time
        iterator = iter(ref.stream(shuffle=True, shuffle_seed=1))
        next(iterator)
        assert private_bytes() - before < 4.2 * n + ALLOWED_GROWTH
        iterator.close()


def test_epochs_hold_one_order_and_the_next_one_from_their_middle_on(storage):
    n, rows = 5_000_000, 250_000
    order, bits = 4 * n, n // 8
    storage.submit(ArraySource(TensorNode("uint8", ()), [np.zeros(n, np.uint8)], 100_000), "n", "1")
    ref = storage.fetch("n", "1")
    for _ in ref.stream().batches(rows):  # fills the pool of buffers
        pass
    before, threads_before = private_bytes(), threads()
    allowed = bits + ALLOWED_GROWTH
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    for epoch in range(4):
        for at, _ in enumerate(stream.batches(rows), start=1):
            if at in (1, 5, 11, 19):
                held = private_bytes() - before
                assert held < (1 if at < 6 else 2) * order + allowed, (epoch, at)
        wait_for_threads(threads_before)
        # Between epochs the next one's waits.
        assert 0.9 * order < private_bytes() - before < order + allowed

    detached = stream.detached()
    assert len(next(detached.batches(rows))) == rows
    del stream
    assert private_bytes() - before < allowed
    # What TensorFlow keeps for ever keeps no order.
    assert sum(len(batch) for batch in detached.batches(rows)) == n
    wait_for_threads(threads_before)
    assert private_bytes() - before < allowed


def wait_for_threads(count):
    """A thread that has ended is listed for a moment."""
    deadline = time.monotonic() + 60
    while threads() > count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
