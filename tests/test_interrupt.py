"""Ctrl-C, and the end of the interpreter, wherever a process may be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from support import files_in, numbers, run_python, storage_in

# Generous: what must not happen is that it is ignored until a batch, a build or a wait has ended.
SOON_S = 10.0

PRELUDE = """
import os, sys, threading, time
import numpy as np
from support import ArraySource, numbers, storage_in
from ydl.schema import TensorNode

class Stalling:
    schema = numbers(1).schema
    cardinality = None
    def batches(self):
        yield from numbers(3).batches()
        print("ready", flush=True)
        time.sleep(60)

def main(root):
    {code}

try:
    main(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", time.monotonic(), flush=True)
"""


def start(code, root):
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    program = PRELUDE.format(code=textwrap.indent(textwrap.dedent(code), "    ").strip())
    return subprocess.Popen(
        [sys.executable, "-c", program, str(root)], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def interrupt(code, root, after_s=0.2):
    """Sends SIGINT `after_s` after "ready"; returns the seconds until KeyboardInterrupt."""
    child = start(code, root)
    with child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(after_s)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        try:
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 0, err
    word, when = out.split()
    assert word == "interrupted", (out, err)
    return float(when) - sent


def test_in_the_source_of_a_build(tmp_path):
    code = 'storage_in(root).cacheable("d", "1")(lambda: Stalling())()'
    assert interrupt(code, tmp_path) < SOON_S
    assert files_in(tmp_path) == []
    assert len(storage_in(tmp_path).cacheable("d", "1")(lambda: numbers(3))()) == 3


def test_while_a_build_writes(tmp_path):
    code = """
    class Endless:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            print("ready", flush=True)
            while True:
                yield 100_000, [np.arange(100_000)]
    storage_in(root, part_bytes=1 << 20).cacheable("d", "1")(lambda: Endless())()
    """
    assert interrupt(code, tmp_path) < SOON_S
    assert files_in(tmp_path) == []


def test_while_waiting_for_another_builder(tmp_path):
    builder = start('storage_in(root).cacheable("d", "1")(lambda: Stalling())()', tmp_path)
    try:
        assert builder.stdout.readline() == "ready\n"
        code = """
        print("ready", flush=True)
        storage_in(root).cacheable("d", "1")(lambda: numbers(3))()
        """
        assert interrupt(code, tmp_path, after_s=1.5) < SOON_S
        assert builder.poll() is None  # and nothing of the builder's was touched
    finally:
        builder.kill()
        builder.communicate()
    assert len(storage_in(tmp_path).cacheable("d", "1")(lambda: numbers(3))()) == 3


@pytest.mark.parametrize("access", ["mmap", "pread"])
@pytest.mark.parametrize(
    "read",
    [
        "for record in stream.iterate('records', 100, endless=True): pass",
        "for batch in stream.iterate('batches', 4096, endless=True): pass",
        "for batch in stream.iterate('chunks', 256, endless=True): pass",
        "while True: ref.read(range(0, n, 50))",
        "while True: list(stream)",
    ],
)
def test_while_reading(tmp_path, read, access):
    """In NumPy within half a second, as long as one batch takes no longer."""
    code = f"""
    n = 200_000
    storage = storage_in(root, access={access!r})
    storage.submit(ArraySource(TensorNode("int64", (8,)), [np.zeros((n, 8), np.int64)]), "d", "1")
    ref = storage.fetch("d", "1")
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    print("ready", flush=True)
    {read}
    """
    assert interrupt(code, tmp_path) < SOON_S


def test_two_interrupts_in_a_row_leave_no_cache(tmp_path):
    """The second one meets the cleaning up after the first."""
    child = start('storage_in(root).cacheable("d", "1")(lambda: Stalling())()', tmp_path)
    with child:
        assert child.stdout.readline() == "ready\n"
        for _ in range(2):
            child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    start_s = time.monotonic()
    assert len(storage_in(tmp_path).cacheable("d", "1")(lambda: numbers(3))()) == 3
    assert time.monotonic() - start_s < SOON_S


EXITS = {
    "an iterator of records": "iterator = iter(stream); next(iterator)",
    "threads that have batches ready": "iterator = stream.batches(32); next(iterator)",
    "an endless iterator": "iterator = stream.iterate('batches', 32, endless=True); next(iterator)",
    "a cycle": "x = []; x.append((x, stream.batches(32))); next(x[0][1])",
    "arrays that outlive everything": "iterator = stream.batches(32); sys.kept = next(iterator)",
    "another thread that reads": (
        "threading.Thread(target=lambda: [0 for _ in stream.iterate('batches', 8, endless=True)],"
        " daemon=True).start(); time.sleep(0.2)"
    ),
    "another thread that waits": (
        "threading.Thread(target=lambda: storage.cacheable('e', '1')(lambda: Stalling())(),"
        " daemon=True).start(); time.sleep(0.3)\n"
        "threading.Thread(target=lambda: storage.cacheable('e', '1')(lambda: Stalling())(),"
        " daemon=True).start(); time.sleep(0.3)"
    ),
    "a held lease": (
        "lease = storage._store('f', '1'); lease.create_directories();"
        " lease = lease.lease(60); lease.try_acquire()"
    ),
    "an exception": "iterator = stream.batches(32); next(iterator); raise SystemExit(0)",
    "os._exit": "iterator = stream.batches(32); next(iterator); os._exit(0)",
}


@pytest.mark.parametrize("what", EXITS)
def test_the_interpreter_ends_with(tmp_path, what):
    code = (
        PRELUDE.split("def main")[0]
        + textwrap.dedent("""
        from ydl import shard
        shard._SMALL_BATCH_BYTES = 0  # threads all the same
        storage = storage_in(sys.argv[1])
        storage.submit(numbers(10_000), "d", "1")
        stream = storage.fetch("d", "1").stream(shuffle=True, shuffle_seed=1)
        """)
        + EXITS[what]
    )
    done = run_python(code, tmp_path, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr and "Fatal" not in done.stderr, done.stderr


def test_a_forked_childs_end_leaves_the_parents_stream_alone(tmp_path):
    code = """
    import os, sys
    from support import numbers, storage_in
    from ydl import shard
    shard._SMALL_BATCH_BYTES = 0  # threads all the same
    storage = storage_in(sys.argv[1])
    storage.submit(numbers(10_000), "d", "1")
    iterator = storage.fetch("d", "1").stream().batches(10)
    next(iterator)
    child = os.fork()
    if child == 0:
        sys.exit(0)  # with all of Python's cleaning up
    assert os.waitpid(child, 0)[1] == 0
    assert sum(len(batch) for batch in iterator) == 9_990
    """
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
