"""Damage in what is stored: never served, said, and built anew by whoever can."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import threading
import time

import numpy as np
import pytest
from support import ArraySource, files_in, numbers, pairs, run_python, storage_in

from ydl import manifest
from ydl.errors import (
    CacheReplacedError,
    CorruptCacheError,
    CorruptRecordError,
    NotCachedError,
    UnsupportedError,
)
from ydl.schema import TensorNode
from ydl.store import LocalStore

N = 300
PART_BYTES = 2000  # some parts


class Made:
    """A cached function that counts its calls."""

    def __init__(self, storage, n=N):
        self.calls = 0

        @storage.cacheable("d", "1")
        def make():
            self.calls += 1
            return pairs(n)

        self.make = make


@pytest.fixture
def storage(tmp_path):
    return storage_in(tmp_path / "store", part_bytes=PART_BYTES)


@pytest.fixture
def made(storage):
    made = Made(storage)
    made.make()
    return made


def firsts(ref):
    return [int(record[0]) for record in ref.stream()]


def part_files(ref):
    return sorted(
        glob.glob(os.path.join(ref.directory, "builds", ref.manifest.parts[0].build, "*"))
    )


def manifest_file(ref):
    return os.path.join(ref.directory, "manifests", f"{ref.manifest.number:08}.json")


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def write_bytes(path, content):
    """In place, so that it stays the same file."""
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(content)


def flip(path, offset):
    content = bytearray(read_bytes(path))
    content[offset] ^= 1
    write_bytes(path, content)


def swap(one, other):
    first, second = read_bytes(one), read_bytes(other)
    write_bytes(one, second)
    write_bytes(other, first)


def replace_by(make_other):
    def do(path):
        os.remove(path)
        make_other(path)

    return do


def bind_socket(path):
    """By a short name, as its address holds no long one."""
    before = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.basename(path))
    finally:
        os.chdir(before)


def plant_other_builds_part(path):
    store = os.path.dirname(path.split("/d/1.ydl/")[0])
    other = storage_in(store + "/elsewhere", part_bytes=PART_BYTES)
    other.submit(pairs(N), "d", "1")
    shutil.copy(part_files(other.fetch("d", "1"))[0], path)


PART_DAMAGE = {
    "removed": os.remove,
    "empty": lambda path: os.truncate(path, 0),
    "cut to 1": lambda path: os.truncate(path, 1),
    "cut to 100": lambda path: os.truncate(path, 100),
    "cut in half": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "one byte short": lambda path: os.truncate(path, os.path.getsize(path) - 1),
    "junk behind": lambda path: write_bytes(path, read_bytes(path) + b"junk"),
    "header": lambda path: flip(path, 9),
    "region table": lambda path: flip(path, os.path.getsize(path) - 70),
    "trailer": lambda path: flip(path, os.path.getsize(path) - 20),
    "magic": lambda path: flip(path, os.path.getsize(path) - 1),
    "another build's": plant_other_builds_part,
    "a directory": replace_by(os.mkdir),
    "a fifo": replace_by(os.mkfifo),
    "a link": replace_by(lambda path: os.symlink("/etc/passwd", path)),
    "a socket": replace_by(bind_socket),
}


@pytest.mark.parametrize("damage", PART_DAMAGE)
def test_c27_a_damaged_part_is_built_anew(made, storage, caplog, damage):
    """C27: trust in the file; no length check, no checksum. (One with the file's structure: met
    when the dataset is opened.)"""
    ref = made.make()
    path = part_files(ref)[1 if damage != "another build's" else 0]
    kept = [part for part in part_files(ref) if part != path]
    PART_DAMAGE[damage](path)
    caplog.clear()
    new = made.make()
    assert made.calls == 2 and firsts(new) == list(range(N))
    assert new.manifest.number == 3
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "d:1 is damaged" in warning and path in warning and "built anew" in warning
    stone = LocalStore(str(storage._root), "d", "1").read(2)
    assert stone.is_tombstone and path in stone.reason
    assert all(os.path.exists(part) for part in kept)  # until they are collected
    assert firsts(made.make()) == list(range(N)) and made.calls == 2


def test_c27_two_parts_in_each_others_place(made):
    """C27: "swap two files"."""
    paths = part_files(made.make())
    swap(paths[0], paths[1])
    assert firsts(made.make()) == list(range(N)) and made.calls == 2


MANIFEST_DAMAGE = {
    "empty": lambda path: os.truncate(path, 0),
    "cut": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "one byte short of its hash": lambda path: os.truncate(path, os.path.getsize(path) - 3),
    "flipped": lambda path: flip(path, 40),
    "junk": lambda path: write_bytes(path, b"\x80\x05cos\nsystem\n(S'touch /tmp/x'\ntR."),
    "a link": replace_by(lambda path: os.symlink("/etc/passwd", path)),
    "a directory": replace_by(os.mkdir),
    "a fifo": replace_by(os.mkfifo),
}


@pytest.mark.parametrize("damage", MANIFEST_DAMAGE)
def test_a_damaged_manifest_is_built_anew_and_never_taken_for_no_cache(
    made, storage, caplog, damage
):
    path = manifest_file(made.make())
    MANIFEST_DAMAGE[damage](path)
    with pytest.raises(CorruptCacheError, match=r"00000001\.json"):
        storage.fetch("d", "1")
    caplog.clear()
    assert firsts(made.make()) == list(range(N)) and made.calls == 2
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert path in warning
    assert len(storage.fetch("d", "1")) == N


def test_a_manifest_copied_from_another_dataset_is_built_anew(made, storage):
    storage.submit(numbers(7), "other", "5")
    shutil.copy(
        manifest_file(storage.fetch("other", "5")),
        os.path.join(made.make().directory, "manifests", "00000002.json"),
    )
    with pytest.raises(CorruptCacheError, match="other:5"):
        storage.fetch("d", "1")
    assert firsts(made.make()) == list(range(N)) and made.calls == 2


def test_submit_replaces_what_is_damaged(made, storage):
    MANIFEST_DAMAGE["empty"](manifest_file(made.make()))
    storage.submit(pairs(4), "d", "1")
    assert len(storage.fetch("d", "1")) == 4


def test_entries_that_are_none_are_ignored(made):
    directory = os.path.join(made.make().directory, "manifests")
    for name in ("2.json", "00000002.json.bak", ".00000002.json.tmp", "000000002.json", "x"):
        with open(os.path.join(directory, name), "w") as file:
            file.write("junk")
    assert made.make().manifest.number == 1 and made.calls == 1


def test_a_planted_number_is_passed(made):
    directory = os.path.join(made.make().directory, "manifests")
    with open(os.path.join(directory, "50000000.json"), "w") as file:
        file.write("junk")
    assert made.make().manifest.number == 50_000_002
    assert made.calls == 2


def test_the_last_number_names_the_file_to_remove(made, storage):
    directory = os.path.join(made.make().directory, "manifests")
    planted = os.path.join(directory, "99999999.json")
    with open(planted, "w") as file:
        file.write("junk")
    for attempt in (made.make, lambda: storage.submit(pairs(2), "d", "1")):
        with pytest.raises(CorruptCacheError) as caught:
            attempt()
        assert planted in str(caught.value) and "Remove that file" in str(caught.value)
    os.remove(planted)
    assert firsts(made.make()) == list(range(N)) and made.calls == 1


def test_a_newer_format_is_neither_read_nor_replaced(made, storage):
    path = manifest_file(made.make())
    newer = read_bytes(path).splitlines()[0].replace(b'"format": 1', b'"format": 2') + b"\n"
    write_bytes(path, newer + f"{manifest._core.hash64(newer):016x}\n".encode())
    before = files_in(storage._root)
    for attempt in (made.make, lambda: storage.fetch("d", "1")):
        with pytest.raises(UnsupportedError, match="newer ydl"):
            attempt()
    assert files_in(storage._root) == before and made.calls == 1


@pytest.mark.parametrize("code", [5, 13, 116])  # EIO, EACCES, ESTALE
def test_what_cannot_be_read_now_is_no_damage(made, storage, monkeypatch, code):
    before = files_in(storage._root)

    def fail(*args):
        raise OSError(code, os.strerror(code), "a file")

    real = manifest._core.log_read
    monkeypatch.setattr("ydl.store._core.log_read", fail)
    with pytest.raises(OSError) as caught:
        made.make()
    assert caught.value.errno == code
    monkeypatch.setattr("ydl.store._core.log_read", real)
    monkeypatch.setattr("ydl.dataref.CachedDataRef.check", fail)
    with pytest.raises(OSError) as caught:
        made.make()
    assert caught.value.errno == code
    monkeypatch.undo()
    assert files_in(storage._root) == before
    made.make()
    assert made.calls == 1


FAILING_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        real = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (access(getenv("DISK_FAILS"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd, to, n, offset);
}
ssize_t pread64(int fd, void *to, size_t n, off_t offset) { return pread(fd, to, n, offset); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for the shim")
@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_disk_that_fails_in_mid_stream_is_no_damage(tmp_path, access):
    """A failing page of a map looks like one of a file that was cut: zeros, and a signal."""
    (tmp_path / "shim.c").write_text(FAILING_DISK)
    shim, fails = str(tmp_path / "shim.so"), tmp_path / "fails"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", "-o", shim, str(tmp_path / "shim.c"), "-ldl"], check=True
    )
    code = """
    import glob, os, sys
    from support import numbers, storage_in
    root, access, fails = sys.argv[1:]
    make = storage_in(root, access=access).cacheable("d", "1")(lambda: numbers(100_000))
    make()
    ref = make()
    stream = iter(ref.stream())  # without threads, which would see the file while it is cut
    next(stream)
    (part,) = glob.glob(ref.directory + "/builds/*/*")
    open(fails, "w").close()
    if access == "mmap":
        size = os.path.getsize(part)
        os.truncate(part, 4096)  # the pages go ...
        os.truncate(part, size)
    try:
        for batch in stream:
            pass
    except OSError as error:
        print(type(error).__name__, error.errno)
    print(len(os.listdir(ref.directory + "/manifests")))
    """
    done = run_python(
        code, tmp_path / "store", access, fails, env={"LD_PRELOAD": shim, "DISK_FAILS": str(fails)}
    )
    assert done.stdout == "OSError 5\n1\n", (done.stdout, done.stderr)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_part_without_permission_is_no_damage(made):
    path = part_files(made.make())[0]
    os.chmod(path, 0)
    with pytest.raises(PermissionError):
        made.make()


def test_a_second_damage_in_one_call_raises(storage, monkeypatch):
    """A disk that damages everything is not written to for ever."""
    made = Made(storage)
    made.make()
    check = "ydl.dataref.CachedDataRef.check"

    def always_damaged(self):
        raise CorruptCacheError("part file x is damaged")

    def somebody_elses():
        made.calls += 1
        storage.submit(pairs(3), "d", "1")  # so that this call's own build loses
        return pairs(N)

    monkeypatch.setattr(check, always_damaged)
    with pytest.raises(CorruptCacheError, match="second damage that one call found"):
        storage.cacheable("d", "1")(somebody_elses)()
    monkeypatch.undo()


def test_where_it_cannot_be_withdrawn_the_error_says_so(made, storage, monkeypatch):
    path = part_files(made.make())[0]
    os.truncate(path, 10)
    before = files_in(storage._root)

    def fail(*args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("ydl.store._core.log_append", fail)
    with pytest.raises(CorruptCacheError) as caught:
        made.make()
    for words in (path, "Read-only file system", "writable", made.make.__name__ and "d/1.ydl"):
        assert words in str(caught.value)
    assert files_in(storage._root) == before and made.calls == 1


def test_many_find_the_damage_and_one_builds(made, storage):
    os.truncate(part_files(made.make())[0], 10)
    results = [None] * 6

    def run(i):
        time.sleep(0.01 * (i % 3))
        results[i] = made.make()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert made.calls == 2
    assert {ref.manifest.number for ref in results} == {3}
    assert all(firsts(ref) == list(range(N)) for ref in results)


# ---- damage that only a record's checksum shows ----


def flip_record(ref, number=5):
    """A bit of a record, 24 bytes each here."""
    flip(part_files(ref)[0], 64 + 24 * number + 3)


READERS = {
    "records": firsts,
    "batches": lambda ref: list(ref.stream().batches(32)),
    "read": lambda ref: ref.read(range(N)),
    "shuffled": lambda ref: list(ref.stream(shuffle=True, shuffle_seed=1)),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("get", ["cacheable", "fetch"])
def test_c27_a_damaged_record_is_withdrawn_where_somebody_can_build_it(
    made, storage, caplog, read, get
):
    """C27: payload damage."""
    flip_record(made.make())
    ref = made.make() if get == "cacheable" else storage.fetch("d", "1")
    with pytest.raises(CorruptRecordError) as caught:
        READERS[read](ref)
    text = str(caught.value)
    assert part_files(ref)[0] in text and "record 5" in text and "offset" in text
    assert "is withdrawn by entry 2" in text and "call the cached function again" in text
    assert caught.value.filename == part_files(ref)[0]
    with pytest.raises(NotCachedError, match=r"withdrawn .*record 5"):
        storage.fetch("d", "1")
    # Whoever has it open may go on with the others.
    assert len(ref.read(range(6, N))) == N - 6
    assert firsts(made.make()) == list(range(N)) and made.calls == 2
    # An old stream that meets it again leaves the new dataset alone.
    with pytest.raises(CorruptRecordError, match="was replaced meanwhile"):
        READERS[read](ref)
    assert made.make().manifest.number == 3


def test_a_damaged_record_of_a_submitted_dataset_is_no_reason_to_withdraw_it(storage):
    """Nobody could build it anew, and the other records are all there."""
    storage.submit(pairs(N), "d", "1")
    for _ in range(2):
        ref = storage.fetch("d", "1")
        if _ == 0:
            flip_record(ref)
        with pytest.raises(CorruptRecordError, match="submit it again"):
            firsts(ref)
        assert len(ref.read(range(6, N))) == N - 6
    assert storage.fetch("d", "1").manifest.number == 1


def test_a_damaged_record_where_nothing_can_be_written(made, storage, monkeypatch):
    flip_record(made.make())
    ref = made.make()
    before = files_in(storage._root)

    def fail(*args):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("ydl.store._core.log_append", fail)
    with pytest.raises(CorruptRecordError) as caught:
        firsts(ref)
    for words in ("record 5", "stays published", "Read-only file system", ref.directory):
        assert words in str(caught.value)
    assert files_in(storage._root) == before


def test_a_rebuilt_directory_is_not_withdrawn_by_an_old_stream(made, storage):
    """The directory was removed and filled again: entry 1 is another one now."""
    flip_record(made.make())
    ref = made.make()
    ref.check()
    shutil.rmtree(ref.directory)
    made.make()
    with pytest.raises(CorruptRecordError, match="was replaced meanwhile"):
        firsts(ref)
    assert made.make().manifest.number == 1


def test_verify_never_serves_what_is_there(made, tmp_path):
    flip_record(made.make())
    ref = storage_in(tmp_path / "store", verify="never").fetch("d", "1")
    assert len(firsts(ref)) == N


def test_fetch_never_builds(made, storage):
    ref = made.make()
    os.truncate(part_files(ref)[1], 10)
    with pytest.raises(CorruptCacheError, match="call the cached function again"):
        firsts(storage.fetch("d", "1"))
    made.make()
    os.remove(part_files(made.make())[1])
    with pytest.raises(CacheReplacedError):
        firsts(storage.fetch("d", "1"))
    assert LocalStore(str(storage._root), "d", "1").current() is not None
    assert made.make().manifest.number == 5 and made.calls == 3


def test_an_open_stream_ends_with_its_own_data_when_its_files_go(made, storage):
    ref = made.make()
    iterator = iter(ref.stream())
    batches = ref.stream().batches(7)
    next(iterator), next(batches)
    shutil.rmtree(ref.directory)
    assert [int(record[0]) for record in iterator] == list(range(1, N))
    assert np.concatenate([batch[0] for batch in batches]).tolist() == list(range(7, N))
    assert firsts(ref) == list(range(N))  # all parts were opened when it was found
    assert firsts(made.make()) == list(range(N)) and made.calls == 2


# ---- costs ----


def test_many_parts_are_checked_and_bounded(tmp_path):
    """More parts than may be open at once."""
    import resource

    storage = storage_in(tmp_path, part_bytes=600, access="pread")
    source = ArraySource(TensorNode("int64", ()), [np.arange(3000)])
    make = storage.cacheable("d", "1")(lambda: source)
    make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        ref = make()
        parts = len(ref.manifest.parts)
        ref.check()
        open_now = len(os.listdir("/proc/self/fd"))
        stream = ref.stream(shuffle=True, shuffle_seed=3)
        assert sorted(np.concatenate(list(stream.batches(1000)))) == list(range(3000))
        assert sorted(map(int, stream)) == list(range(3000))
        assert len(ref.read(range(3000))) == 3000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert parts > 64 > open_now
