"""Files that are cut while they are read: an exception in the place of wrong data or a signal.

Each case runs in a process of its own: where the guard failed, SIGBUS would end the whole test run.
"""

from __future__ import annotations

import pytest
from support import run_python

pytestmark = pytest.mark.usefixtures("threaded")

PROGRAM = """
    import os, sys, threading
    import numpy as np
    from ydl import _core
    from ydl.errors import CorruptCacheError

    directory, kind, access, way, left = sys.argv[1:]
    N = 5000
    UUID = b"0123456789abcdef"

    if kind == "fixed":
        components = [("int64", ()), ("float32", (7,))]
        dtypes = [np.dtype("int64"), np.dtype("float32")]
        numbers = np.arange(N)
        columns = [numbers, np.repeat(numbers, 7).reshape(N, 7).astype("float32")]
    else:
        components = [("int64", ()), ("string", ())]
        dtypes = [np.dtype("int64"), np.dtype(object)]
        numbers = np.arange(N)
        columns = [numbers, np.array([b"x" * (i % 50) for i in range(N)], dtype=object)]

    writer = _core.Writer(directory, UUID, components, 1 << 30)
    writer.append(N, columns)
    (name, records, size, _), = writer.finish()
    path = os.path.join(directory, name)
    part = (path, UUID, 0, 0, records, size)
    reader = _core.Reader([part], components, dtypes, "first", access)
    cut_to = {"nothing": 0, "half": size // 2, "all but one": size - 1}[left]

    def loader(threads, form="batches"):
        order = _core.Order(
            N, rank=0, num_shards=1, drop_shard_remainder=False, shuffle=True, reshuffle=True,
            seed=1, shuffle_scope="shard", cut=0,
        )
        return _core.Loader(
            reader, order, epoch=0, position=0, batch_records=64, drop_remainder=False,
            endless=True, form=form, threads=threads, depth=4, group=1,
        )

    def check(batch):
        if kind == "fixed":
            assert (batch[1] == batch[0].astype("float32")[:, None]).all(), batch
        else:
            assert [len(text) for text in batch[1]] == [i % 50 for i in batch[0]], batch

    def check_records(records):
        check([np.array([record[0] for record in records]),
               np.stack([record[1] for record in records]) if kind == "fixed"
               else [record[1] for record in records]])

    def read_for_ever():
        while True:
            for start in range(0, N, 500):
                check_records(reader.read(range(start, start + 500)))

    def run():
        form, _, threads = way.partition(" ")
        if form == "read":
            read_for_ever()
        for item in loader(int(threads), form):
            check(item) if form == "batches" else check_records([item])
        raise AssertionError("no error")

    seen = []

    def collect():
        try:
            run()
        except BaseException as error:
            seen.append(error)

    threads = [threading.Thread(target=collect) for _ in range(2)]
    for thread in threads:
        thread.start()
    for batch, _ in zip(loader(0), range(2 * N // 64)):  # all records are verified by then
        check(batch)
    os.truncate(path, cut_to)
    for thread in threads:
        thread.join()
    collect()  # and a new loader on the same reader
    assert len(seen) == 3
    for error in seen:
        assert type(error) is CorruptCacheError, repr(error)
        assert path in str(error)
        if access == "mmap":
            assert f"{size - cut_to} bytes are missing, expected {size} and found {cut_to}" in str(
                error
            ), error
    print("survived")
"""

CASES = [
    (kind, access, way, left)
    for kind in ("fixed", "varying")
    for access in ("mmap", "pread")
    for way, left in [
        ("read", "half"),
        ("batches 0", "nothing"),
        ("batches 2", "half"),
        ("batches 2", "all but one"),
        ("records 0", "half"),
        ("records 0", "nothing"),
        ("records 0", "all but one"),
    ]
    # Without a map, a file without its last byte still has all of its records.
    if (access, left) != ("pread", "all but one")
]


@pytest.mark.parametrize(("kind", "access", "way", "left"), CASES)
def test_cut_under_an_open_reader(tmp_path, kind, access, way, left):
    done = run_python(PROGRAM, tmp_path, kind, access, way, left)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


def test_access_for(tmp_path):
    """Local file systems are mapped; what cannot be asked is read."""
    from ydl import _core

    assert _core.access_for("/proc") == "mmap"
    assert _core.access_for(str(tmp_path)) in ("mmap", "pread")
    assert _core.access_for(str(tmp_path / "absent")) == "pread"
    with pytest.raises((TypeError, ValueError)):
        _core.access_for("a\0b")
