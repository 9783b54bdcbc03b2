"""Storing datasets in a directory: building once, finding, replacing, failing cleanly."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import pytest
from support import (
    FailingSource,
    files_in,
    numbers,
    pairs,
    run_python,
    storage_in,
)

import ydl
from ydl import build, caching, fingerprint, manifest
from ydl.errors import (
    CacheReplacedError,
    NestedBuildError,
    NotCachedError,
    SharedDirectoryError,
    UnsupportedError,
    YdlError,
)
from ydl.storage import LFSConfigurations
from ydl.store import LocalStore


def values(ref):
    return [int(record) for record in ref.stream()]


# ---- submit, fetch, cacheable ----


def test_what_is_not_there_is_said_with_its_name(storage):
    with pytest.raises(NotCachedError, match="nope:3 is not cached in") as caught:
        storage.fetch("nope", "3")
    assert isinstance(caught.value, FileNotFoundError)


def test_submit_replaces_and_open_streams_go_on(storage):
    storage.submit(numbers(3), "d", "1")
    old = storage.fetch("d", "1")
    iterator = iter(old.stream())
    next(iterator)
    storage.submit(numbers(5, first=10), "d", "1")
    new = storage.fetch("d", "1")
    assert values(new) == [10, 11, 12, 13, 14] and new.manifest.number == 2
    assert list(iterator) == [1, 2] and values(old) == [0, 1, 2]
    assert new.manifest.source is None


def test_cacheable_calls_once_and_hits_write_nothing(storage, tmp_path, monkeypatch):
    calls = []

    @storage.cacheable("d", "1")
    def make():
        calls.append(1)
        return numbers(4)

    assert values(make()) == [0, 1, 2, 3]
    before = {path: os.stat(path).st_mtime_ns for path in files_in(tmp_path)}
    directories = sorted(os.walk(tmp_path))
    assert values(make()) == [0, 1, 2, 3] and calls == [1]
    other = storage_in(tmp_path / "store")
    assert values(other.cacheable("d", "1")(make)()) == [0, 1, 2, 3] and calls == [1]
    assert {path: os.stat(path).st_mtime_ns for path in files_in(tmp_path)} == before
    assert sorted(os.walk(tmp_path)) == directories


def test_a_read_only_directory_can_be_read():
    """Run by a user for whom it is; root itself may write everywhere."""
    with tempfile.TemporaryDirectory() as root:
        storage = storage_in(root)
        storage.submit(numbers(4), "d", "1")
        directories = [parent for parent, _, _ in os.walk(root)]
        for directory in directories:
            os.chmod(directory, 0o555)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setegid(65534)
                    os.seteuid(65534)
                assert not any(os.access(d, os.W_OK, effective_ids=True) for d in directories)
                assert values(storage.fetch("d", "1")) == [0, 1, 2, 3]
                assert values(storage.cacheable("d", "1")(lambda: 1 / 0)()) == [0, 1, 2, 3]
                with pytest.raises(PermissionError):
                    storage.cacheable("other", "1")(lambda: numbers(1))()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        for directory in directories:
            os.chmod(directory, 0o755)
        assert status == 0


def test_c25_arguments_and_code_changes_are_noticed(storage, info_log, caplog):
    """C25: stale cache by design; silence."""
    calls = []

    @storage.cacheable("d", "1")
    def make(n):
        "Makes n."
        calls.append(n)
        return numbers(n)

    assert (make.__name__, make.__doc__) == ("make", "Makes n.")
    assert len(make(3)) == 3
    assert "no effect" not in info_log()
    assert len(make(7)) == len(make(n=7)) == 3 and calls == [3]
    assert info_log().count("the arguments of this call have no effect") == 2
    assert "built by other code" not in info_log()

    def changed(n):
        return numbers(n + 1)

    caplog.clear()
    assert len(storage.cacheable("d", "1")(changed)(3)) == 3
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "make" in warning and "changed" in warning and "test_storage.py" in warning


def test_a_hit_says_what_from_where_and_when(storage, info_log):
    make = storage.cacheable("d", "1")(lambda: numbers(4))
    make()
    assert "building d:1 (by" in info_log() and "built d:1: 4 records" in info_log()
    assert "using d:1" not in info_log()
    ref = make()
    line = info_log().splitlines()[-1]
    assert line.startswith("using d:1: 4 records, built 20") and "test_storage.py" in line
    assert line.endswith(ref.directory) and "lambda" in line


def test_nested_builds(storage):
    """The same dataset: an error. Another one: fine."""

    @storage.cacheable("inner", "1")
    def inner():
        return numbers(2)

    @storage.cacheable("outer", "1")
    def outer():
        return numbers(len(inner()) + 1)

    assert len(outer()) == 3

    @storage.cacheable("self", "1")
    def recursive():
        return numbers(len(recursive()))

    with pytest.raises(NestedBuildError, match="self:1"):
        recursive()
    assert len(storage.cacheable("self", "1")(lambda: numbers(1))()) == 1


# ---- failing builds ----


class Custom(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)
        self.second = second


@pytest.mark.parametrize("at", [0, 3, 12_000])
@pytest.mark.parametrize("error", [RuntimeError("boom"), Custom(1, 2), KeyboardInterrupt()])
def test_c13_a_failing_source_leaves_nothing_and_passes_its_error_on(storage, tmp_path, at, error):
    """C13: non-atomic publish."""
    sources = [FailingSource(error, at), numbers(9)]

    @storage.cacheable("d", "1")
    def make():
        return sources.pop(0)

    with pytest.raises(type(error)) as caught:
        make()
    assert caught.value is error and error.__cause__ is None
    assert files_in(tmp_path) == []
    with pytest.raises(NotCachedError):
        storage.fetch("d", "1")
    assert values(make()) == list(range(9))
    assert len(files_in(tmp_path)) == 2  # one part, one manifest


def test_c13_a_failing_function_leaves_nothing(storage, tmp_path):
    """C13: raised inside `make` itself."""

    @storage.cacheable("d", "1")
    def make():
        raise LookupError("in make")

    for _ in range(4):  # a new call is no waiter: it tries again
        with pytest.raises(LookupError, match="in make"):
            make()
    assert files_in(tmp_path) == []
    assert len(storage.cacheable("d", "1")(lambda: numbers(1))()) == 1


def test_c13_a_failing_submit_keeps_what_was_stored(storage, tmp_path):
    storage.submit(numbers(3), "d", "1")
    before = files_in(tmp_path)
    with pytest.raises(RuntimeError, match="boom"):
        storage.submit(FailingSource(RuntimeError("boom"), 2500), "d", "1")
    assert files_in(tmp_path) == before and len(storage.fetch("d", "1")) == 3


def test_what_cannot_be_cached_is_refused_before_a_file_is_written(storage, tmp_path, monkeypatch):
    """C12: what open_source refuses. (That it refuses endless datasets: the TensorFlow tests.)"""

    def refuse(data, tensorflow_config):
        raise UnsupportedError("it never ends")

    monkeypatch.setattr("ydl.storage.local.open_source", refuse)
    for attempt in (
        storage.cacheable("d", "1")(lambda: numbers(3)),
        lambda: storage.submit(numbers(3), "d", "1"),
    ):
        with pytest.raises(UnsupportedError, match="never ends"):
            attempt()
    assert files_in(tmp_path) == []
    for parent, _, _ in os.walk(tmp_path):
        assert not parent.endswith("builds") or os.listdir(parent) == []


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_c12_interrupting_an_endless_build_leaves_no_cache_and_no_lock(tmp_path, signal_name):
    """C12: unbounded build, no warning. Progress lines appear, and the next process goes on at
    once."""
    code = """
    import sys, numpy as np
    from support import numbers, storage_in
    from ydl import progress
    progress._INTERVAL_S = 0.05

    class Endless:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            while True:
                yield 1000, [np.arange(1000)]

    storage_in(sys.argv[1]).cacheable("d", "1")(lambda: Endless())()
    """
    import textwrap

    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        lines = iter(child.stderr.readline, "")
        assert any("records/s)" in line for line in lines), "no progress line"
        child.send_signal(getattr(signal, signal_name))
        child.communicate(timeout=30)
    start = time.monotonic()
    storage = storage_in(tmp_path)
    with pytest.raises(NotCachedError):
        storage.fetch("d", "1")
    if signal_name == "SIGINT":
        assert files_in(tmp_path) == []
    assert values(storage.cacheable("d", "1")(lambda: numbers(3))()) == [0, 1, 2]
    assert time.monotonic() - start < 5


def test_a_forked_child_that_leaves_the_source_removes_nothing(storage, tmp_path):
    """C21 (d): ownership across fork."""

    class Forking:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield 1000, [np.arange(1000)]
            child = os.fork()
            if child == 0:
                raise SystemExit(7)  # unwinds through the build
            yield 1000, [np.arange(1000, 2000)]
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    pid = os.getpid()
    try:
        ref = storage.cacheable("d", "1")(lambda: Forking())()
    except SystemExit:
        if os.getpid() != pid:
            os._exit(7)
        raise
    assert values(ref) == list(range(2000))


# ---- publishing ----


def test_who_loses_the_race_adopts_the_winners_dataset(storage, tmp_path):
    class Slow:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield 1, [np.zeros(1, np.int64)]
            storage.submit(numbers(5), "d", "1")  # somebody who holds no lease

    ref = storage.cacheable("d", "1")(lambda: Slow())()
    assert values(ref) == [0, 1, 2, 3, 4]
    assert len(files_in(tmp_path)) == 2  # the loser's parts are gone


def test_submit_goes_behind_whoever_was_faster(storage):
    class Slow:
        schema = numbers(1).schema
        cardinality = 1

        def batches(self):
            storage.submit(numbers(5), "d", "1")
            yield 1, [np.array([77])]

    storage.submit(Slow(), "d", "1")
    assert values(storage.fetch("d", "1")) == [77]
    assert storage.fetch("d", "1").manifest.number == 2


def test_a_publish_error_removes_the_build_only_if_nobody_can_know_it(
    storage, tmp_path, monkeypatch
):
    publish = LocalStore.publish

    def fail_before(self, entry):
        raise OSError(5, "before")

    def fail_after(self, entry):
        assert publish(self, entry)
        raise OSError(5, "after")

    make = storage.cacheable("d", "1")(lambda: numbers(3))
    monkeypatch.setattr(LocalStore, "publish", fail_before)
    with pytest.raises(OSError, match="before"):
        make()
    assert files_in(tmp_path) == []
    monkeypatch.setattr(LocalStore, "publish", fail_after)
    with pytest.raises(OSError, match="after"):
        make()
    monkeypatch.undo()
    assert values(make()) == [0, 1, 2]


def test_a_tombstone_is_no_dataset(storage):
    make = storage.cacheable("d", "1")(lambda: numbers(3))
    entry = make().manifest
    store = LocalStore(str(storage._root), "d", "1")
    stone = dataclasses.replace(
        entry, number=2, schema=None, records=0, parts=(), reason="record 1 is damaged"
    )
    assert store.publish(stone) and not store.publish(stone)
    with pytest.raises(NotCachedError):
        storage.fetch("d", "1")
    assert make().manifest.number == 3 and store.read(2) == stone


def manifest_path(ref):
    return pathlib.Path(ref.directory, "manifests", f"{ref.manifest.number:08}.json")


def test_two_names_for_one_directory_are_noticed(storage, tmp_path):
    """A file system that ignores case, or a renamed directory: no damage that one would heal by
    withdrawing the other's dataset."""
    storage.submit(numbers(3), "d", "1")
    os.rename(tmp_path / "store" / "d", tmp_path / "store" / "D")
    for attempt in (
        lambda: storage.fetch("D", "1"),
        storage.cacheable("D", "1")(lambda: numbers(4)),
    ):
        with pytest.raises(SharedDirectoryError, match="d:1"):
            attempt()


def test_removed_parts_are_an_error_with_advice(storage):
    storage.submit(numbers(3), "d", "1")
    ref = storage.fetch("d", "1")
    for path in files_in(ref.directory):
        if "builds" in path:
            os.remove(path)
    with pytest.raises(CacheReplacedError, match="call the cached function"):
        list(ref.stream())


def test_a_flipped_byte_is_an_error_unless_verification_is_off(storage, tmp_path):
    storage.submit(pairs(50), "d", "1")
    (path,) = [p for p in files_in(tmp_path) if p.endswith("00000.ydl")]
    with open(path, "r+b") as part:
        part.seek(64 + 20)
        byte = part.read(1)
        part.seek(-1, 1)
        part.write(bytes([byte[0] ^ 1]))
    for verify in ("first", "always"):
        ref = storage_in(tmp_path / "store", verify=verify).fetch("d", "1")
        with pytest.raises(ydl.errors.CorruptRecordError, match="record"):
            list(ref.stream())
        assert len(ref.read(range(10, 50))) == 40
    assert len(list(storage_in(tmp_path / "store", verify="never").fetch("d", "1").stream())) == 50


# ---- configuration ----


def test_paths_are_expanded_and_fixed_when_configured(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    home = ydl.storage.LFSStorage(LFSConfigurations("~/a/b"))
    relative = ydl.storage.LFSStorage(LFSConfigurations(pathlib.Path("rel/x")))
    assert (tmp_path / "home/a/b").is_dir() and (tmp_path / "rel/x").is_dir()
    monkeypatch.chdir("/")
    relative.submit(numbers(2), "d", "1")
    home.submit(numbers(2), "d", "1")
    assert (tmp_path / "rel/x/d/1.ydl").is_dir() and (tmp_path / "home/a/b/d/1.ydl").is_dir()
    assert LFSConfigurations("/x/../y").storage_dir_path == pathlib.Path("/y")


@pytest.mark.parametrize(
    "options, error",
    [
        ({"part_bytes": 0}, ValueError),
        ({"part_bytes": 1.5}, TypeError),
        ({"verify": "sometimes"}, ValueError),
        ({"access": "magic"}, ValueError),
        ({"wait_timeout_s": -1}, ValueError),
        ({"wait_timeout_s": "1"}, TypeError),
        ({"lease_ttl_s": None}, TypeError),
        ({"lease_ttl_s": float("nan")}, ValueError),
    ],
)
def test_bad_options_are_named(options, error):
    (name,) = options
    with pytest.raises(error, match=name):
        LFSConfigurations("/tmp/x", **options)


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_small_parts_and_both_ways_to_read(tmp_path, access):
    storage = storage_in(tmp_path, part_bytes=2000, access=access)
    storage.submit(pairs(1000), "d", "1")
    ref = storage.fetch("d", "1")
    assert len(ref.manifest.parts) > 10
    assert all(part.bytes <= 2000 for part in ref.manifest.parts)
    assert sorted(r[0] for r in ref.stream(shuffle=True, shuffle_seed=1)) == list(range(1000))
    assert [r[0] for r in ref.read([999, 0])] == [999, 0]


def test_a_yogadl_cache_is_left_alone(storage, tmp_path, info_log):
    """C08 (b), (c): no pickle is opened."""
    old = tmp_path / "store" / "d" / "1" / "cache.mdb"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"junk")
    assert len(storage.cacheable("d", "1")(lambda: numbers(3))()) == 3
    assert "made by yogadl" in info_log() and old.read_bytes() == b"junk"


def test_cloud_storages_say_what_is_missing(tmp_path):
    for kind, options in (
        ("S3", {"access_key": "key", "secret_key": "TOP-SECRET", "endpoint_url": "http://h"}),
        ("GCS", {}),
    ):
        make = getattr(ydl.storage, f"{kind}Configurations")
        configurations = make("bucket7", "dir", "ws://h:1", part_bytes=2**20, **options)
        assert configurations.bucket == "bucket7" and configurations.part_bytes == 2**20
        assert isinstance(configurations, ydl.storage.BaseCloudConfigurations)
        with pytest.raises(UnsupportedError, match=r"bucket7.*ydl\._net") as caught:
            getattr(ydl.storage, f"{kind}Storage")(configurations, tensorflow_config=None)
        assert "SECRET" not in str(caught.value)
    assert issubclass(ydl.storage.S3Storage, ydl.storage.BaseCloudStorage)
    for name in ("RwCoordinatorClient", "RwCoordinatorServer"):
        with pytest.raises(UnsupportedError, match=r"ydl\._net"):
            getattr(ydl.rw_coordinator, name)("ws://host")


def test_errors_are_what_a_user_would_catch():
    for error, builtin in (
        ("CorruptRecordError", OSError), ("NotCachedError", FileNotFoundError),
        ("WaitTimeoutError", TimeoutError), ("ShapeMismatchError", ValueError),
        ("UnsupportedError", ValueError), ("BuildFailedError", RuntimeError),
    ):  # fmt: skip
        assert issubclass(getattr(ydl.errors, error), (YdlError, builtin))


# ---- fingerprints ----


def _hash(function):
    return fingerprint.of_function(function).code


def test_fingerprints_follow_code_and_constants():
    def one():
        return [x * 3 for x in (1, 2)]

    def same():
        return [x * 3 for x in (1, 2)]

    def constant():
        return [x * 4 for x in (1, 2)]

    def name():
        return [y.real * 3 for y in (1, 2)]

    assert _hash(one) == _hash(same) != ""
    assert len({_hash(one), _hash(constant), _hash(name)}) == 3

    def closing_over(function):
        def make():
            return function()

        return make

    assert _hash(closing_over(one)) == _hash(closing_over(same)) != _hash(closing_over(constant))

    def number(n):
        return lambda: n

    assert _hash(number(1)) == _hash(number(2))  # a closure's numbers may be the rank

    wrapped = functools.wraps(one)(lambda: one())
    partial = functools.partial(one)
    assert _hash(wrapped) == _hash(partial) == _hash(one)


def test_fingerprints_do_not_depend_on_the_process():
    code = """
    from ydl import fingerprint
    def make(x):
        return x in {"a", "b", "c"} or [lambda: "d"]
    print(fingerprint.of_function(make).code)
    """
    found = {
        run_python(code, env={"PYTHONHASHSEED": str(seed)}).stdout.strip() for seed in range(3)
    }
    assert len(found) == 1 and found != {""}


def test_fingerprints_of_odd_callables_do_not_raise():
    class Callable:
        def __call__(self):
            return 1

        def method(self):
            return 1

    class Strange:
        __wrapped__ = property(lambda self: self)

    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

    def tangle():
        functions = []

        def first():
            return functions, second, third

        def second():
            return first, third, unassigned

        def third():
            return first, second

        if functions:
            unassigned = 1
        return first

    for function in (len, Callable, Callable(), Callable().method, dict.fromkeys, Strange(),
                     Hostile(), functools.partial(functools.partial(len)), None, 5, np.sum,
                     tangle()):  # fmt: skip
        found = fingerprint.of_function(function)
        assert found.function and str(found)
    assert _hash(Callable()) == _hash(Callable.__call__) != ""


def test_unknown_or_incomparable_code_does_not_differ():
    one = fingerprint.of_function(lambda: 1)
    other = fingerprint.of_function(lambda: 2)
    assert one.differs_from(other)
    assert not one.differs_from(other._replace(python="3.0"))
    assert not one.differs_from(other._replace(code=""))


# ---- sources ----


def test_a_source_that_breaks_its_promises_leaves_nothing(storage, tmp_path):
    class Wrong:
        schema = numbers(1).schema
        cardinality = 1

        def batches(self):
            yield 2, [np.zeros((2, 3), np.int64)]

    with pytest.raises(ValueError):
        storage.submit(Wrong(), "d", "1")
    assert files_in(tmp_path) == []
    assert isinstance(numbers(1), build.Source)


def test_the_manifest_says_who_built_what(storage):
    ref = storage.get_or_build(lambda: numbers(3), "d", "1", per_slot_batch_size=32).ref
    entry = ref.manifest
    assert entry.per_slot_batch_size == 32 and entry.host and entry.writer.startswith("ydl ")
    assert abs(entry.time - time.time()) < 3600
    assert manifest.from_bytes(manifest_path(ref).read_bytes(), "f") == entry
    assert caching.describe(entry, "/x").startswith("3 records")
