"""Nothing is read, written or removed through a link that somebody planted below the root."""

from __future__ import annotations

import copy
import os
import pickle
import shutil

import pytest
from support import files_in, numbers, run_python, storage_in

from ydl import _core, beneath
from ydl.errors import CorruptCacheError


def values(ref):
    return [int(record) for record in ref.stream()]


@pytest.fixture
def elsewhere(tmp_path):
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    return directory


def snapshot(directory):
    return {
        (parent, name): os.lstat(os.path.join(parent, name)).st_mtime_ns
        for parent, names, files in os.walk(directory)
        for name in [*names, *files]
    }


def test_a_linked_root_is_the_users_own(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    os.symlink(tmp_path / "link", tmp_path / "link of a link")
    storage = storage_in(tmp_path / "link of a link" / "inner")
    make = storage.cacheable("d", "1")(lambda: numbers(3))
    assert values(make()) == values(make()) == [0, 1, 2]
    storage.submit(numbers(2), "e", "1")
    assert os.path.isdir(tmp_path / "real" / "inner" / "d" / "1.ydl" / "lease")
    assert storage.fetch("d", "1").directory == str(tmp_path / "real" / "inner" / "d" / "1.ydl")


def test_a_links_end_is_looked_up_anew_in_another_process(tmp_path):
    """Hosts may reach one file system under different names."""
    for name in ("a", "b"):
        storage_in(tmp_path / name).submit(numbers(3), "d", "1")
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    os.symlink("a", tmp_path / "data")
    ref = storage_in(tmp_path / "data").fetch("d", "1")
    pickled = pickle.dumps(ref)
    os.remove(tmp_path / "data")
    os.symlink("b", tmp_path / "data")
    shutil.rmtree(tmp_path / "a")
    for other in (pickle.loads(pickled), copy.deepcopy(ref)):
        assert values(other) == [0, 1, 2]
        assert other.directory == str(tmp_path / "b" / "d" / "1.ydl")


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/1.ydl"])
@pytest.mark.parametrize("is_filled", [False, True])
def test_links_on_the_way_to_a_dataset(tmp_path, elsewhere, place, is_filled):
    storage = storage_in(tmp_path / "store")
    path = tmp_path / "store" / place
    if is_filled:
        storage.submit(numbers(3), "a/b", "1")
        shutil.move(path, elsewhere / "moved")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / "moved").mkdir()
    os.symlink(elsewhere / "moved", path)
    before = snapshot(elsewhere)
    for attempt in (
        storage.cacheable("a/b", "1")(lambda: numbers(4)),
        lambda: storage.submit(numbers(4), "a/b", "1"),
        lambda: storage.fetch("a/b", "1"),
    ):
        with pytest.raises(CorruptCacheError, match="symbolic link") as caught:
            attempt()
        assert str(path) in str(caught.value)
    assert snapshot(elsewhere) == before
    os.remove(path)
    assert len(storage.cacheable("a/b", "1")(lambda: numbers(4))()) == 4


@pytest.mark.parametrize("name", ["manifests", "builds", "lease"])
def test_links_in_the_place_of_a_datasets_own_directories(tmp_path, elsewhere, name):
    storage = storage_in(tmp_path / "store")
    storage.cacheable("d", "1")(lambda: numbers(3))()
    storage._store("d", "1").withdraw(1, "a test")
    path = tmp_path / "store" / "d" / "1.ydl" / name
    shutil.move(path, elsewhere / "moved")
    os.symlink(elsewhere / "moved", path)
    before = snapshot(elsewhere)
    for attempt in (
        storage.cacheable("d", "1")(lambda: numbers(4)),
        lambda: storage.submit(numbers(4), "d", "1") if name != "lease" else beneath_link(path),
    ):
        with pytest.raises(CorruptCacheError, match="symbolic link") as caught:
            attempt()
        assert str(path) in str(caught.value)
    assert snapshot(elsewhere) == before


def beneath_link(path):
    """What submit does not touch, as it takes no lease."""
    beneath.check_directory(str(path.parent), [path.name])


def test_a_link_in_the_place_of_a_build(tmp_path, elsewhere):
    """Healed like any damage; what it leads to stays as it is."""
    storage = storage_in(tmp_path / "store")
    make = storage.cacheable("d", "1")(lambda: numbers(3))
    ref = make()
    path = os.path.join(ref.directory, "builds", ref.manifest.parts[0].build)
    shutil.move(path, elsewhere / "moved")
    os.symlink(elsewhere / "moved", path)
    before = snapshot(elsewhere)
    with pytest.raises(CorruptCacheError, match="symbolic link"):
        values(storage.fetch("d", "1"))
    assert values(make()) == [0, 1, 2] and make().manifest.number == 3
    assert snapshot(elsewhere) == before


def test_links_at_names_that_a_builder_will_create(tmp_path, elsewhere):
    """The next entry of the log, the next generation of the lease."""
    storage = storage_in(tmp_path / "store")
    storage.cacheable("d", "1")(lambda: numbers(3))()
    directory = tmp_path / "store" / "d" / "1.ydl"
    for name in ("manifests/00000002.json", "lease/00000002.lease"):
        os.symlink(elsewhere / os.path.basename(name), directory / name)
    other = storage_in(tmp_path / "store", lease_ttl_s=0.3)
    assert values(other.cacheable("d", "1")(lambda: numbers(4))()) == [0, 1, 2, 3]
    other.submit(numbers(5), "d", "1")
    assert values(other.fetch("d", "1")) == [0, 1, 2, 3, 4]
    assert os.listdir(elsewhere) == []


def test_a_link_put_in_place_while_a_build_runs(tmp_path, elsewhere):
    storage = storage_in(tmp_path / "store", part_bytes=2000)
    builds = tmp_path / "store" / "d" / "1.ydl" / "builds"

    class Planting:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield from numbers(500).batches()
            (build,) = os.listdir(builds)
            shutil.move(builds / build, elsewhere / "moved")
            os.symlink(elsewhere / "moved", builds / build)
            yield from numbers(500).batches()

    before = None
    with pytest.raises(CorruptCacheError, match="symbolic link"):
        storage.cacheable("d", "1")(lambda: Planting())()
    before = len(os.listdir(elsewhere / "moved"))
    assert 0 < before < 10  # what was there when it was moved, and nothing was removed
    assert not [path for path in files_in(tmp_path / "store") if path.endswith(".json")]


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path):
    storage = storage_in(tmp_path / "store")
    (tmp_path / "store" / "d").write_text("a file")
    with pytest.raises(NotADirectoryError) as caught:
        storage.cacheable("d", "1")(lambda: numbers(3))()
    assert str(tmp_path / "store" / "d") in str(caught.value)


@pytest.mark.parametrize("name", ["log_latest", "log_append", "log_read", "Lease", "Writer"])
def test_the_core_follows_no_link_itself(tmp_path, elsewhere, name):
    """Whoever plants one after Python has looked is too late."""
    os.symlink(elsewhere, tmp_path / "link")
    (elsewhere / "inner").mkdir()
    for path in (str(tmp_path / "link"), str(tmp_path / "link" / "inner")):
        with pytest.raises(CorruptCacheError, match="symbolic link"):
            if name == "log_latest":
                _core.log_latest(path)
            elif name == "log_append":
                _core.log_append(path, 1, b"x", False)
            elif name == "log_read":
                _core.log_read(path, 1, 100)
            elif name == "Lease":
                _core.Lease(path, 1000).try_acquire()
            else:
                import numpy as np

                writer = _core.Writer(path, bytes(16), [("int64", ())], 1 << 20)
                writer.append(3, [np.arange(3)])
                writer.finish()
    assert files_in(elsewhere) == [] and os.listdir(elsewhere / "inner") == []


def test_where_the_kernel_has_no_openat2(tmp_path, elsewhere):
    """The same, one component after another: the sandbox says ENOSYS, or EPERM."""
    code = r"""
    import ctypes, os, struct, sys
    # seccomp: openat2 (437) fails with the given errno, everything else is allowed.
    libc = ctypes.CDLL(None, use_errno=True)
    def instruction(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)
    program = b"".join([
        instruction(0x20, 0, 0, 0),                            # load the number
        instruction(0x15, 0, 1, 437),
        instruction(0x06, 0, 0, 0x00050000 | int(sys.argv[2])),  # SECCOMP_RET_ERRNO
        instruction(0x06, 0, 0, 0x7FFF0000),                   # SECCOMP_RET_ALLOW
    ])
    buffer = ctypes.create_string_buffer(program)
    fprog = struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    if libc.prctl(22, 2, ctypes.c_char_p(fprog), 0, 0) != 0:
        print("no seccomp")
        sys.exit(0)
    from support import numbers, storage_in
    from ydl import _core
    from ydl.errors import CorruptCacheError
    root = sys.argv[1]
    storage = storage_in(root + "/store", part_bytes=2000)
    make = storage.cacheable("a/b", "1")(lambda: numbers(1000))
    assert len(list(make().stream())) == len(list(make().stream())) == 1000
    for path in ("link", "link/inner", "absent"):
        try:
            number = _core.log_latest(f"{root}/{path}")
            assert (path, number) == ("absent", 0)
        except CorruptCacheError as error:
            assert "symbolic link" in str(error) and path != "absent"
    os.chdir(root)
    assert _core.log_latest("store/a//b/./1.ydl/manifests/") == 1
    print("fine")
    """
    os.symlink(elsewhere, tmp_path / "link")
    (elsewhere / "inner").mkdir()
    for number in (38, 1):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        done = run_python(code, tmp_path, number)
        if done.stdout == "no seccomp\n":
            pytest.skip("no seccomp here")
        assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
