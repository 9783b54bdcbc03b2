"""The lease in use: what waiters are shown, who goes on when, and what is no contention."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from support import files_in, numbers, run_python, storage_in

from ydl import turn
from ydl.errors import NestedBuildError, WaitTimeoutError
from ydl.store import LocalStore

SOON_S = 10.0  # what is not to wait for 1.5 times a time to live of 60 s


def lease_dir(storage):
    return os.path.join(storage._root, "d", "1.ydl", "lease")


def test_a_takeover_after_a_failure_is_said_with_its_text(tmp_path, info_log):
    storage = storage_in(tmp_path)
    entered = threading.Event()

    def fail():
        entered.set()
        time.sleep(0.4)
        raise LookupError("the source is\x1b[31m empty")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(storage.cacheable("d", "1")(fail))
        entered.wait(10)
        second = pool.submit(storage.cacheable("d", "1")(lambda: numbers(5)))
        assert len(second.result(30)) == 5
        assert isinstance(first.exception(30), LookupError)
    (line,) = [line for line in info_log().splitlines() if "failed, and this process tries" in line]
    assert f"host {os.uname().nodename} (process {os.getpid()})" in line
    assert "LookupError: the source is" in line and "\x1b" not in line


def test_a_takeover_from_the_dead_is_at_once_and_said(tmp_path, info_log):
    code = """
    import sys, time
    from support import numbers, storage_in
    class Stalling:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            yield from numbers(2000).batches()
            print("ready", flush=True)
            time.sleep(60)
    storage_in(sys.argv[1], lease_ttl_s=3).cacheable("d", "1")(lambda: Stalling())()
    """
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.7)  # a heartbeat, with the records so far
        threading.Timer(0.5, child.kill).start()
        start = time.monotonic()
        assert len(storage_in(tmp_path).cacheable("d", "1")(lambda: numbers(5))()) == 5
        assert time.monotonic() - start < SOON_S
    (line,) = [line for line in info_log().splitlines() if "no more sign of life" in line]
    assert f"(process {child.pid})" in line and "2000 records" in line


def test_an_unreadable_holder_is_described_as_such(tmp_path, monkeypatch):
    storage = storage_in(tmp_path, wait_timeout_s=0.3, lease_ttl_s=30)
    store = LocalStore(str(tmp_path), "d", "1")
    store.create_directories()
    os.mkdir(lease_dir(storage))
    with open(os.path.join(lease_dir(storage), "00000007.lease"), "w") as file:
        file.write("junk")
    with pytest.raises(WaitTimeoutError) as caught:
        storage.cacheable("d", "1")(lambda: numbers(1))()
    assert "entry 7 cannot be read" in str(caught.value)
    assert lease_dir(storage) in str(caught.value) and "1970" not in str(caught.value)
    # It ages like any holder that shows no life.
    other = storage_in(tmp_path, lease_ttl_s=0.3)
    assert len(other.cacheable("d", "1")(lambda: numbers(1))()) == 1


def test_a_wait_for_another_thread_of_this_process_is_said_to_be_one(tmp_path, info_log):
    storage = storage_in(tmp_path)
    entered, go_on = threading.Event(), threading.Event()

    def slow():
        entered.set()
        go_on.wait(30)
        return numbers(5)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(storage.cacheable("d", "1")(slow))
        entered.wait(10)
        with pytest.raises(WaitTimeoutError, match="in another thread of this process"):
            storage_in(tmp_path, wait_timeout_s=0.3).cacheable("d", "1")(lambda: numbers(1))()
        second = pool.submit(storage.cacheable("d", "1")(lambda: numbers(1)))
        time.sleep(0.2)
        go_on.set()
        assert len(first.result(30)) == len(second.result(30)) == 5
    assert not turn._builders


def test_a_nested_build_in_one_thread(tmp_path):
    storage = storage_in(tmp_path)

    @storage.cacheable("d", "1")
    def make():
        return make()

    with pytest.raises(NestedBuildError, match="d:1"):
        make()
    assert not turn._builders


@pytest.mark.parametrize("how", ["py_function", "from_generator"])
def test_a_nested_build_in_a_thread_of_tensorflows(tmp_path, how):
    """What maps and generates runs on other threads than the builder's, which waits for them."""
    pytest.importorskip("tensorflow")
    code = """
    import sys
    import tensorflow as tf
    from ydl.storage import LFSConfigurations, LFSStorage
    storage = LFSStorage(LFSConfigurations(sys.argv[1]))

    @storage.cacheable("d", "1")
    def make():
        def generate():
            yield len(make())
        if sys.argv[2] == "from_generator":
            return tf.data.Dataset.from_generator(
                generate, output_signature=tf.TensorSpec((), tf.int64))
        # One record: TensorFlow 2.8 to 2.11 wait for themselves where a callback that the error
        # left running happens to be the thread that collects the failed iterator.
        return tf.data.Dataset.range(1).map(
            lambda x: tf.py_function(lambda y: len(make()), [x], tf.int64))

    try:
        make()
    except tf.errors.OpError as error:
        assert "NestedBuildError" in str(error) and "d:1" in str(error), error
        print("nested", flush=True)
    assert len(storage.cacheable("d", "1")(lambda: tf.data.Dataset.range(4))()) == 4
    """
    done = run_python(code, tmp_path, how, timeout=120)
    assert (done.returncode, done.stdout) == (0, "nested\n"), done.stderr


# ---- C21 ----

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(void)
{
    const char *how = getenv("SHIM_ERRNO");
    write(2, "lock call\n", 10);
    errno = how && strcmp(how, "ENOLCK") == 0 ? ENOLCK : ENOSYS;
    return -1;
}

int flock(int fd, int operation) { return fail(); }
int lockf(int fd, int command, off_t length) { return fail(); }

static int control(const char *name, int fd, int command, void *argument)
{
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
    if (command == F_SETLK || command == F_SETLKW || command == F_GETLK ||
        command == F_OFD_SETLK || command == F_OFD_SETLKW)
        return fail();
    return real(fd, command, argument);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return control("fcntl", fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    return control("fcntl64", fd, command, argument);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the shim")
    directory = tmp_path_factory.mktemp("shim")
    (directory / "shim.c").write_text(SHIM)
    target = str(directory / "shim.so")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", target, str(directory / "shim.c"), "-ldl"],
        check=True,
    )
    return target


@pytest.mark.parametrize("code", ["ENOSYS", "ENOLCK"])
def test_c21_a_file_system_without_locks(tmp_path, shim, code):
    """C21 (a): error treated as contention. Builds, waits, takes over and reads without any."""
    program = """
    import fcntl, os, sys
    from support import FailingSource, numbers, storage_in
    try:
        fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
    except OSError as error:
        sys.stderr.write("checked\\n")
    else:
        raise AssertionError("the shim does nothing")
    storage = storage_in(sys.argv[1])
    try:
        storage.cacheable("d", "1")(lambda: FailingSource(ValueError("x"), 3))()
    except ValueError:
        pass
    assert len(storage.cacheable("d", "1")(lambda: numbers(5))()) == 5
    assert sum(storage.fetch("d", "1").stream()) == 10
    storage.submit(numbers(6), "d", "1")
    """
    start = time.monotonic()
    done = run_python(program, tmp_path, env={"LD_PRELOAD": shim, "SHIM_ERRNO": code})
    assert done.returncode == 0, done.stderr
    before, _, after = done.stderr.partition("checked\n")
    assert "lock call" in before and "lock call" not in after
    assert time.monotonic() - start < SOON_S + 20


def test_c21_leftover_lock_files_of_others(tmp_path):
    """C21 (b): yogadl's lock file, and junk in the lease's directory."""
    storage = storage_in(tmp_path)
    (tmp_path / "yogadl.lock").write_text("junk")
    os.makedirs(lease_dir(storage))
    for name in ("yogadl.lock", "lock", "x.lease", "1.lease", "000000001.lease"):
        with open(os.path.join(lease_dir(storage), name), "w") as file:
            file.write("junk")
    start = time.monotonic()
    assert len(storage.cacheable("d", "1")(lambda: numbers(3))()) == 3
    assert time.monotonic() - start < SOON_S


def test_c21_a_killed_holder(tmp_path):
    """C21 (c): kill -9 of a lock's holder; and what it leaves is no reason to clean up by hand."""
    code = """
    import os, sys
    from support import numbers, storage_in
    class Dying:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            yield from numbers(6500).batches()
            os.kill(os.getpid(), 9)
    storage_in(sys.argv[1]).cacheable("d", "1")(lambda: Dying())()
    """
    for _ in range(2):
        assert run_python(code, tmp_path).returncode == -9
    start = time.monotonic()
    assert len(storage_in(tmp_path).cacheable("d", "1")(lambda: numbers(3))()) == 3
    assert time.monotonic() - start < SOON_S
    assert len([path for path in files_in(tmp_path) if path.endswith(".json")]) == 1


def test_what_is_published_between_the_last_look_and_the_build_is_adopted(tmp_path, monkeypatch):
    storage = storage_in(tmp_path)
    wait = turn.Waiter.wait

    def wait_and_pause(self):
        found = wait(self)
        assert found is None
        storage_in(tmp_path).submit(numbers(5), "d", "1")  # while this process is paused
        return found

    monkeypatch.setattr(turn.Waiter, "wait", wait_and_pause)
    assert len(storage.cacheable("d", "1")(lambda: numbers(3))()) == 5
    assert len(storage.fetch("d", "1")) == 5
