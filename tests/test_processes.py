"""Several processes and threads: building together, forking, spawning, pickling."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import pytest
from support import FailingSource, files_in, numbers, storage_in

from ydl import turn
from ydl.errors import BuildFailedError, ForkedError, WaitTimeoutError
from ydl.schema import NamedTupleNode, TensorNode
from ydl.storage import LFSConfigurations, LFSStorage

pytestmark = pytest.mark.usefixtures("threaded")


class SlowSource:
    """n records; notes in a file that it was consumed, takes a while."""

    cardinality = None

    def __init__(self, log, n=2000, seconds=0.5):
        self.schema = numbers(1).schema
        self._log = log
        self._n = n
        self._seconds = seconds

    def batches(self):
        with open(self._log, "a") as log:
            log.write("consumed\n")
        time.sleep(self._seconds)
        yield from numbers(self._n).batches()


def build_slowly(root, n=2000, seconds=0.5):
    storage = storage_in(root)
    log = os.path.join(root, "consumed.log")
    return storage.cacheable("d", "1")(lambda: SlowSource(log, n, seconds))


def start_python(code, *args):
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(child):
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return out, err


# ---- building together ----


def test_c18_four_processes_build_once(tmp_path):
    """C18: race at first use."""
    code = """
    import sys
    from test_processes import build_slowly
    print(sum(build_slowly(sys.argv[1])().stream()))
    """
    children = [start_python(code, tmp_path) for _ in range(4)]
    results = [finish(child) for child in children]
    assert {out for out, _ in results} == {f"{sum(range(2000))}\n"}
    assert (tmp_path / "consumed.log").read_text() == "consumed\n"
    errors = [err for _, err in results]
    assert sum("building d:1" in err for err in errors) == 1
    waiting = [err for err in errors if "waiting for d:1" in err]
    assert all("records so far" in err and "on host" in err for err in waiting)
    # Whoever did not build says what it uses.
    assert sum("using d:1: 2000 records" in err for err in errors) == 3


def run_threads(count, target):
    results = [None] * count

    def run(i):
        try:
            results[i] = target(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_c18_four_threads_build_once(tmp_path):
    """C18: race at first use, within a process."""
    make = build_slowly(str(tmp_path))
    results = run_threads(4, lambda i: sum(make().stream()))
    assert results == [sum(range(2000))] * 4
    assert (tmp_path / "consumed.log").read_text() == "consumed\n"


def test_c18_the_next_one_builds_after_a_failed_builder(tmp_path):
    """C18: failed first builder."""
    storage = storage_in(tmp_path)
    entered = threading.Event()

    def fail():
        entered.set()
        time.sleep(0.3)
        raise RuntimeError("first builder")

    def run(i):
        if i == 0:
            return storage.cacheable("d", "1")(fail)()
        entered.wait(10)
        return storage.cacheable("d", "1")(lambda: numbers(5))()

    failed, *others = run_threads(3, run)
    assert isinstance(failed, RuntimeError) and str(failed) == "first builder"
    assert [len(ref) for ref in others] == [5, 5]
    assert others[0].manifest == others[1].manifest


def test_waiters_give_up_after_two_failed_builds(tmp_path):
    storage = storage_in(tmp_path)
    tries = []
    entered = threading.Event()

    def fail():
        tries.append(1)
        entered.set()
        time.sleep(0.7)
        return FailingSource(LookupError(f"no record\n7 in try {len(tries)}"), 3)

    def run(i):
        if i:
            entered.wait(10)
        return storage.cacheable("d", "1")(fail)()

    results = run_threads(4, run)
    assert len(tries) == 2
    assert sorted(type(result).__name__ for result in results) == [
        "BuildFailedError", "BuildFailedError", "LookupError", "LookupError",
    ]  # fmt: skip
    for result in results:
        if isinstance(result, BuildFailedError):
            for part in ("d:1", "2 builds", os.uname().nodename, "LookupError: no record 7 in try"):
                assert part in str(result)
    assert files_in(tmp_path) == []
    # Whoever comes new is no waiter.
    assert len(storage.cacheable("d", "1")(lambda: numbers(4))()) == 4


def test_failures_of_the_past_do_not_count(tmp_path):
    storage = storage_in(tmp_path)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            storage.cacheable("d", "1")(lambda: FailingSource(RuntimeError("x"), 0))()
    entered = threading.Event()

    def run(i):
        if i == 0:
            entered.set()
            time.sleep(0.3)
            return storage.cacheable("d", "1")(lambda: FailingSource(RuntimeError("y"), 0))()
        entered.wait(10)
        return storage.cacheable("d", "1")(lambda: numbers(4))()

    results = run_threads(2, run)
    assert len(results[1]) == 4


def test_waiting_is_said_and_limited(tmp_path, info_log, monkeypatch):
    monkeypatch.setattr(turn, "_LINE_INTERVAL_S", 0.3)
    code = """
    import sys, time
    from test_processes import SlowSource, storage_in
    import numpy as np

    class Stalled(SlowSource):
        def batches(self):
            yield from super().batches()
            print("stalled", flush=True)
            time.sleep(60)
            yield 0, [np.zeros(0, np.int64)]

    storage_in(sys.argv[1], lease_ttl_s=1).cacheable("d", "1")(
        lambda: Stalled(sys.argv[1] + "/log", 2000, 0))()
    """
    child = start_python(code, tmp_path)
    try:
        assert child.stdout.readline() == "stalled\n"
        storage = storage_in(tmp_path, wait_timeout_s=1.2, lease_ttl_s=1)
        start = time.monotonic()
        with pytest.raises(WaitTimeoutError) as caught:
            storage.cacheable("d", "1")(lambda: numbers(1))()
        assert 1.2 <= time.monotonic() - start < 5
        assert isinstance(caught.value, TimeoutError)
        lines = [line for line in info_log().splitlines() if line.startswith("waiting for d:1")]
        assert 3 <= len(lines) <= 5  # one at once, then one each 0.3 s
        for text in (str(caught.value), lines[-1]):
            assert f"process {child.pid} on host {os.uname().nodename}" in text
            assert "2000 records so far" in text
    finally:
        child.kill()
        child.communicate()
    assert len(storage.cacheable("d", "1")(lambda: numbers(1))()) == 1


def test_a_paused_builder_that_wakes_up_harms_nothing(tmp_path):
    """It was taken for dead; somebody else has built and published."""
    code = """
    import sys, time
    from test_processes import numbers, storage_in

    class Pausing:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            print("building", flush=True)
            sys.stdin.readline()
            yield from numbers(3).batches()

    ref = storage_in(sys.argv[1], lease_ttl_s=0.3).cacheable("d", "1")(lambda: Pausing())()
    print(len(ref))
    """
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], env=env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "building\n"
        child.send_signal(19)  # SIGSTOP: its heartbeat ends
        storage = storage_in(tmp_path, lease_ttl_s=0.3)
        ref = storage.cacheable("d", "1")(lambda: numbers(5))()
        assert len(ref) == 5
        child.send_signal(18)  # SIGCONT
        out, _ = child.communicate("\n", timeout=30)
    assert out == "5\n"
    assert [record.item() for record in ref.stream()] == [0, 1, 2, 3, 4]
    assert len(files_in(tmp_path)) == 2


# ---- fork, spawn, pickle, copy ----


def shuffled(n, seed):
    numbers_of = np.arange(n)
    np.random.RandomState(seed).shuffle(numbers_of)
    return numbers_of.tolist()


def in_child(run):
    """Runs in a forked child; what it raises is printed and fails the test."""
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
    return child


def join(children):
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


def test_c31_children_forked_during_an_iteration_read_right_data(ref_of):
    """C31: process-local state crossing a process border."""
    ref = ref_of(numbers(3000))
    shared = ref.stream(shuffle=True, shuffle_seed=50)
    live = iter(shared)
    head = [next(live) for _ in range(1500)]

    def child(seed):
        own = ref.stream(shuffle=True, shuffle_seed=seed)
        assert list(own) == shuffled(3000, seed)
        assert list(own) == shuffled(3000, seed + 1)
        # The stream of before goes on where it was: at its next epoch.
        assert list(shared) == shuffled(3000, 51)
        assert [b.tolist() for b in shared.batches(3000)] == [shuffled(3000, 52)]
        assert ref.read([7]) == [7]
        with pytest.raises(ForkedError, match="new iterator after the fork"):
            next(live)
        gc.collect()

    children = [in_child(lambda seed=seed: child(seed)) for seed in (1, 2, 3)]
    assert head + list(live) == shuffled(3000, 50)
    join(children)
    assert list(shared) == shuffled(3000, 51)


def test_c31_children_forked_while_an_order_is_made_ahead(ref_of):
    """The thread that makes it, and holds its lock, is the parent's."""
    n = 1_000_000
    stream = ref_of(numbers(n)).stream(shuffle=True, shuffle_seed=50)
    epochs = [shuffled(n, seed) for seed in (50, 51, 52)]

    def child():
        assert np.concatenate(list(stream.batches(50_000))).tolist() == epochs[1]
        assert stream.record_numbers(2, 0, n).tolist() == epochs[2]

    live = stream.batches(50_000)
    served = []
    children = []
    for batch in live:
        served.append(batch)
        if 4 <= len(served) <= 12:  # from before its beginning to after its end
            children.append(in_child(child))
    assert np.concatenate(served).tolist() == epochs[0]
    join(children)
    assert np.concatenate(list(stream.batches(50_000))).tolist() == epochs[1]


def test_c31_children_may_drop_what_they_inherit(ref_of):
    ref = ref_of(numbers(3000))
    stream = ref.stream()
    live = [iter(stream), stream.batches(7)]
    assert [next(iterator) is not None for iterator in live] == [True, True]

    def child():
        nonlocal ref, stream
        live[1].close()
        live.clear()
        ref = stream = None
        gc.collect()

    join([in_child(child)])
    assert [len(list(iterator)) for iterator in live] == [2999, 428]


def test_c31_a_fork_while_other_threads_take_epochs(ref_of):
    ref = ref_of(numbers(50))
    stream = ref.stream()
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            assert len(list(stream)) == 50

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            join([in_child(lambda: len(list(stream)) == 50 or os._exit(2))])
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def spawned(ref, stream, connection):
    try:
        connection.send([list(map(int, ref.stream(5))), *(list(map(int, stream)) for _ in "ab")])
    except BaseException:
        connection.send(traceback.format_exc())


@pytest.mark.parametrize("used", [False, True])
def test_c31_spawned_processes_get_refs_and_streams(ref_of, used):
    """C31: spawn and pickling."""
    ref = ref_of(numbers(10))
    stream = ref.stream(3, shuffle=True, shuffle_seed=1)
    if used:
        next(iter(stream))
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=spawned, args=(ref, stream, there))
    child.start()
    assert here.poll(60)
    got = here.recv()
    child.join(60)
    epochs = [shuffled(10, 1)[3:], shuffled(10, 2), shuffled(10, 3)]
    assert got == [list(range(5, 10)), *(epochs[1:] if used else epochs[:2])]
    assert list(stream) == (epochs[1] if used else epochs[0])


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy,
                                 lambda thing: pickle.loads(pickle.dumps(thing))])  # fmt: skip
@pytest.mark.parametrize("state", ["new", "used", "live", "detached"])
def test_c31_refs_and_streams_copy_in_every_state(ref_of, how, state):
    ref = ref_of(numbers(10))
    stream = ref.stream(4, shuffle=True, shuffle_seed=1)
    if state == "detached":
        stream = stream.detached()
    live = iter(stream)
    if state == "live":
        next(live)
    elif state != "new":
        list(live)
    epoch = 0 if state == "new" else 1
    expected = shuffled(10, 1 + epoch)[0 if epoch else 4 :]

    assert [int(record) for record in how(ref).stream()] == list(range(10))
    copied = how(stream)
    assert len(copied) == 10 and copied.start == (0, 4)
    assert copied.output_shapes == () and copied.output_types == np.dtype("int64")
    assert list(copied) == expected
    if how is not copy.copy:  # a shallow copy shares the epochs
        assert list(stream) == expected
    assert len(how((ref, stream))[1]) == 10


def test_c31_streams_of_namedtuples_pickle(storage):
    from support import ArraySource

    root = NamedTupleNode("P", ("x",), (TensorNode("int64", ()),))
    storage.submit(ArraySource(root, [np.arange(3)]), "p", "1")
    stream = pickle.loads(pickle.dumps(storage.fetch("p", "1").stream()))
    assert [record.x for record in stream] == [0, 1, 2]
    assert pickle.loads(pickle.dumps(list(stream)))[2].x == 2


def test_storages_pickle(tmp_path):
    storage = pickle.loads(pickle.dumps(LFSStorage(LFSConfigurations(tmp_path))))
    storage.submit(numbers(2), "d", "1")
    assert len(storage.fetch("d", "1")) == 2
