"""What people met with caches on disks: full ones, other users', other Pythons'."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import traceback

import numpy as np
import pytest
from support import ArraySource, files_in, numbers, run_python, storage_in

from ydl.errors import CorruptCacheError, NotCachedError
from ydl.schema import TensorNode


def big(n=100, size=100_000):
    root = TensorNode("uint8", (size,))
    values = np.random.RandomState(1).randint(0, 256, (n, size)).astype(np.uint8)
    return ArraySource(root, [values], batch=10)


def in_child(run):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# ---- C15 ----


@pytest.fixture
def small_disk(tmp_path):
    """2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    directory = tmp_path / "disk"
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)], capture_output=True
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs may be mounted here: {done.stderr.decode()}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def check_full(storage, error_numbers, free):
    for build in (
        lambda: storage.cacheable("d", "1")(big)(),
        lambda: storage.submit(big(), "d", "1"),
    ):
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                build()
            assert caught.value.errno in error_numbers
            assert storage._root in str(caught.value) and "builds" in str(caught.value)
            assert [path for path in files_in(storage._root) if "/d/" in path] == []
            with pytest.raises(NotCachedError):
                storage.fetch("d", "1")
    free()
    assert len(storage.cacheable("d", "1")(lambda: big(5))()) == 5
    assert np.array_equal(storage.fetch("d", "1").read([4])[0], big(5).columns[0][4])


def test_c15_a_full_disk(small_disk):
    """C15: ENOSPC path; leftovers."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    check_full(storage_in(small_disk), [errno.ENOSPC], lambda: os.remove(ballast))


def test_c15_a_disk_that_is_full_of_names(tmp_path):
    """C15: no inode left for the next part, or for the manifest."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    directory = tmp_path / "disk"
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=12", "tmpfs", str(directory)],
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("no tmpfs may be mounted here")
    try:
        storage = storage_in(directory, part_bytes=2000)
        with pytest.raises(OSError) as caught:
            storage.submit(numbers(2000), "d", "1")
        assert caught.value.errno == errno.ENOSPC
        assert files_in(directory) == []
        storage.submit(numbers(50), "d", "1")
        assert len(storage.fetch("d", "1")) == 50
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_c15_a_limit_on_the_size_of_files(tmp_path):
    """C15: RLIMIT_FSIZE, with SIGXFSZ ignored: EFBIG."""
    import resource

    def run():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        check_full(storage_in(tmp_path), [errno.EFBIG], lambda: None)

    in_child(run)


def test_c15_a_disk_that_fills_up_beside_what_is_published(small_disk):
    """What was there can be read, and so can what it is replaced by once there is room."""
    storage = storage_in(small_disk)
    storage.submit(big(8), "d", "1")
    with pytest.raises(OSError):
        storage.submit(big(), "d", "1")
    assert len(list(storage.fetch("d", "1").stream())) == 8
    storage.submit(big(6), "d", "1")
    assert len(list(storage.fetch("d", "1").stream())) == 6


# ---- C08 ----


def test_c08_a_namedtuple_of_main_is_read_elsewhere(tmp_path):
    """C08 (a): Python pickle as storage format."""
    build = """
    import sys
    import numpy as np
    from typing import NamedTuple
    from support import ArraySource, storage_in
    from ydl.schema import NamedTupleNode, TensorNode
    root = NamedTupleNode("P", ("x", "y"), (TensorNode("int64", ()), TensorNode("float32", ())))
    source = ArraySource(root, [np.arange(3), np.arange(3, dtype=np.float32)])
    storage_in(sys.argv[1]).submit(source, "d", "1")
    """
    done = run_python(build, tmp_path)
    assert done.returncode == 0, done.stderr
    records = list(storage_in(tmp_path).fetch("d", "1").stream())
    assert type(records[0]).__name__ == "P" and records[0]._fields == ("x", "y")
    assert [(int(r.x), float(r.y)) for r in records] == [(0, 0.0), (1, 1.0), (2, 2.0)]


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_c08_no_code_runs_wherever_a_pickle_is_put(tmp_path):
    """C08 (b): runs code when read."""
    proof = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(str(proof)))
    store = tmp_path / "store"
    storage = storage_in(store)
    storage.submit(numbers(3), "d", "1")
    for path in files_in(store):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(bomb)
        with pytest.raises(CorruptCacheError):
            list(storage.fetch("d", "1").stream())
        with open(path, "wb") as file:
            file.write(content)
    (store / "d" / "1").mkdir(parents=True)
    (store / "d" / "1.ydl" / "lease").mkdir()
    for name in ("1/cache.mdb", "1.ydl/manifests/00000009.json", "1.ydl/lease/00000009.lease"):
        (store / "d" / name).write_bytes(bomb)
    assert len(storage_in(store, lease_ttl_s=0.3).cacheable("d", "1")(lambda: numbers(3))()) == 3
    assert not proof.exists()
    pickle.loads(bomb).close()
    assert proof.exists()  # it does run where somebody opens it


# ---- other users ----


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077, 0o000])
def test_the_umask_is_honoured(tmp_path, mask):
    def run():
        os.umask(mask)
        storage = storage_in(tmp_path / "store")
        storage.submit(numbers(3), "a/b", "1")
        storage.cacheable("a/b", "2")(lambda: numbers(3))()
        for parent, _, files in os.walk(tmp_path / "store"):
            assert os.stat(parent).st_mode & 0o777 == 0o777 & ~mask, parent
            for name in files:
                path = os.path.join(parent, name)
                assert os.stat(path).st_mode & 0o777 == 0o666 & ~mask, path

    in_child(run)


def become_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_reads_and_is_told_what_it_may_not_do(tmp_path):
    for parent in [tmp_path, *tmp_path.parents][:3]:
        os.chmod(parent, 0o755)
    storage = storage_in(tmp_path / "store")
    make = storage.cacheable("d", "1")(lambda: numbers(3))
    make()
    storage.submit(numbers(4), "broken", "1")
    (part,) = [p for p in files_in(tmp_path / "store" / "broken") if "builds" in p]
    os.truncate(part, 50)

    def run():
        become_nobody()
        assert len(make()) == 3
        assert sum(storage.fetch("d", "1").stream()) == 3
        with pytest.raises(PermissionError):
            storage.cacheable("new", "1")(lambda: numbers(1))()
        with pytest.raises(PermissionError):
            storage.submit(numbers(1), "d", "1")
        with pytest.raises(CorruptCacheError) as caught:
            storage.cacheable("broken", "1")(lambda: numbers(1))()
        assert "Permission denied" in str(caught.value) and part in str(caught.value)

    before = files_in(tmp_path)
    in_child(run)
    assert files_in(tmp_path) == before
    os.chmod(part, 0)

    def run_unreadable():
        become_nobody()
        with pytest.raises(PermissionError):
            storage.cacheable("broken", "1")(lambda: numbers(1))()

    in_child(run_unreadable)


def test_a_read_only_mount(tmp_path):
    """Reading takes no lock and writes nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    storage = storage_in(tmp_path / "store")
    storage.cacheable("d", "1")(lambda: numbers(3))()
    mount = tmp_path / "mount"
    mount.mkdir()
    for command in (
        ["mount", "--bind", str(tmp_path / "store"), str(mount)],
        ["mount", "-o", "remount,ro,bind", str(mount)],
    ):
        if subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("nothing may be mounted here")
    try:
        there = storage_in(mount)
        ref = there.cacheable("d", "1")(lambda: 1 / 0)()
        assert sum(ref.stream()) == 3 and sum(there.fetch("d", "1").stream()) == 3
        with pytest.raises(OSError) as caught:
            there.cacheable("e", "1")(lambda: numbers(1))()
        assert caught.value.errno == errno.EROFS
        (part,) = [p for p in files_in(tmp_path / "store") if p.endswith("00000.ydl")]
        with open(part, "r+b") as file:
            file.seek(70)
            file.write(b"\xff")
        with pytest.raises(CorruptCacheError, match="Read-only file system"):
            list(there.cacheable("d", "1")(lambda: numbers(3))().stream())
        assert len(storage.fetch("d", "1")) == 3
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
