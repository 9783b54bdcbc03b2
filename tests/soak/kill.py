"""SIGKILL at random moments of a build, and after each of its calls that change a file.

    python -m soak.kill [--rounds 100] [--seed N] [--limit-s 1] [--directory DIR]

Each is followed by a new process that must find or build the right dataset, with nothing cleaned up
in between, and without waiting, since the builder is certainly dead; and by one that must find it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import numpy as np
from soak.forked import Child, Died, arm, run, start_with_recorder
from support import pairs, storage_in

_RECORDS = 400
_PART_BYTES = 2000  # some 7 parts
_BATCH = 40


class SlowSource:
    """pairs(), a bit slower, so that there is time to be killed in; tells when it is begun."""

    def __init__(self, on_begin, pause_s):
        self._source = pairs(_RECORDS)
        self._source._batch = _BATCH
        self.schema = self._source.schema
        self.cardinality = None
        self._on_begin = on_begin
        self._pause_s = pause_s

    def batches(self):
        self._on_begin()
        for batch in self._source.batches():
            time.sleep(self._pause_s)
            yield batch


def digest(ref):
    """Of all records, in order."""
    state = hashlib.sha256()
    for number, vector in ref.stream():
        state.update(np.int64(number).tobytes() + np.asarray(vector).tobytes())
    return state.hexdigest()


def expected_digest():
    state = hashlib.sha256()
    for i in range(_RECORDS):
        state.update(np.int64(i).tobytes() + np.full(3, i, np.float32).tobytes())
    return state.hexdigest()


def use(root, pause_s=0.0, on_start=lambda: None):
    """What a training job does. Gives (digest, seconds until the source was begun or None)."""
    storage = storage_in(root, part_bytes=_PART_BYTES)
    on_start()
    start = time.monotonic()
    begun = []

    def begin():
        begun.append(time.monotonic() - start)

    ref = storage.cacheable("d", "1")(lambda: SlowSource(begin, pause_s))()
    return digest(ref), begun[0] if begun else None


def killed_at_random(root, delay_s, pause_s):
    child = Child(lambda child: use(root, pause_s, lambda: child.tell("ready")))
    child.hear()
    time.sleep(delay_s)
    return child.kill()


def killed_after_call(root, number):
    def build(child):
        arm(root, kill_at=number)
        return use(root)

    try:
        Child(build).result()
    except Died as died:
        return died.code
    return 0


class Tally:
    def __init__(self, limit_s):
        self.limit_s = limit_s
        self.kills = 0
        self.rebuilt = 0
        self.slowest_s = 0.0
        self.problems = []

    def check(self, root, what, expected):
        """By new processes, which find what the killed one has left."""
        try:
            found, begun_s = run(lambda: use(root))
            again, begun_again = run(lambda: use(root))
        except Exception as error:
            self.problems.append(f"{what}: {error}")
            return
        if found != expected or again != expected:
            self.problems.append(f"{what}: other records")
        if begun_again is not None:
            self.problems.append(f"{what}: built once more")
        if begun_s is not None:
            self.rebuilt += 1
            self.slowest_s = max(self.slowest_s, begun_s)
            if begun_s > self.limit_s:
                self.problems.append(f"{what}: began to build after {begun_s:.2f} s only")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--limit-s", type=float, default=1.0, help="for taking over")
    parser.add_argument("--directory", default=tempfile.gettempdir())
    options = parser.parse_args(argv)
    start_with_recorder("soak.kill")
    print(f"seed {options.seed}")
    draw = random.Random(options.seed)
    expected = expected_digest()
    os.environ["YDL_LOG"] = "off"

    work = tempfile.mkdtemp(prefix="ydl-kill-", dir=options.directory)
    try:
        tally = Tally(options.limit_s)
        pause_s = 0.02
        start = time.monotonic()
        assert run(lambda: use(os.path.join(work, "first"), pause_s))[0] == expected
        whole_s = time.monotonic() - start
        while tally.kills < options.rounds:
            root = os.path.join(work, "random")
            delay_s = draw.uniform(0, whole_s)
            tally.kills += killed_at_random(root, delay_s, pause_s) == -signal.SIGKILL
            tally.check(root, f"killed after {delay_s:.4f} s", expected)
            shutil.rmtree(root)
        print(f"at random moments of {whole_s:.2f} s: {tally.kills} kills")

        calls = 0
        while True:
            root = os.path.join(work, f"call{calls}")
            os.mkdir(root)
            code = killed_after_call(root, calls + 1)
            if code == 0:
                break
            calls += 1
            tally.check(root, f"killed after call {calls}", expected)
            shutil.rmtree(root)
        print(f"after each call that changes a file: {calls} kills")
        if calls < 30:
            tally.problems.append("the recorder has missed calls")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(
        f"{tally.rebuilt} of them were built anew, begun after at most {tally.slowest_s:.3f} s; "
        f"{len(tally.problems)} problems"
    )
    for problem in tally.problems:
        print(problem)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
