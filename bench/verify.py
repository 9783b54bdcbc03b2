"""What it costs to verify: reading with verify="first" beside verify="never", in ratios of one run.

    python bench/verify.py [--rounds 9] [--directory DIR] [--ways numpy,tensorflow]

Shuffled epochs in batches of 128, from the page cache, as NumPy arrays and in an eager loop of
TensorFlow's. The first pass over a newly opened dataset checks every record; later ones, the steady
state, only look up that it was checked. With and without take turns. "waited" is by the clock;
"worked" is the time of all threads on a processor, which says more where the machine has other
things to do, and less where it has idle cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np
from ydl.schema import Schema, TensorNode, TupleNode
from ydl.storage import LFSConfigurations, LFSStorage

BATCH = 128
# What verified reading may cost more.
MOST = {"first pass": 0.40, "steady state": 0.05}
# A measurement is repeated until it has taken so long.
SECONDS = 0.3


class Kind(NamedTuple):
    what: str
    records: int
    shape: tuple[int, ...]


KINDS = [
    Kind("784 B", 100_000, (784,)),
    Kind("12 B", 1_000_000, (12,)),
    Kind("150 KB", 2_000, (224, 224, 3)),
]


class Source:
    """Noise; one component of uint8."""

    def __init__(self, kind: Kind) -> None:
        self.schema = Schema(TupleNode((TensorNode("uint8", kind.shape),)))
        self.cardinality = kind.records
        self._kind = kind

    def batches(self):
        draw = np.random.default_rng(1)
        left = self._kind.records
        step = max(1, 2**22 // int(np.prod(self._kind.shape)))
        while left:
            n = min(step, left)
            yield n, [draw.integers(0, 256, (n, *self._kind.shape), np.uint8)]
            left -= n


class Times(NamedTuple):
    waited: float
    worked: float


class NumPy:
    def __init__(self, stream):
        self._stream = stream

    def __iter__(self):
        return self._stream.batches(BATCH)


class TensorFlow:
    def __init__(self, stream):
        from ydl.tensorflow import make_tf_dataset

        self._dataset = make_tf_dataset(stream, batch_size=BATCH)

    def __iter__(self):
        return iter(self._dataset)


WAYS = {"numpy": NumPy, "tensorflow": TensorFlow}


def epoch(batches) -> Times:
    waited, worked = time.perf_counter(), time.process_time()
    for _ in batches:
        pass
    return Times(time.perf_counter() - waited, time.process_time() - worked)


def repeat(open_batches) -> Times:
    """The shortest of several epochs: what disturbs makes them longer."""
    times = []
    while sum(each.waited for each in times) < SECONDS or len(times) < 3:
        times.append(epoch(open_batches()))
    return Times(*map(min, zip(*times)))


def measure(storage, name: str, way) -> dict[str, Times]:
    def open_batches():
        return way(storage.fetch(name, "1").stream(shuffle=True, shuffle_seed=1))

    batches = open_batches()
    epoch(batches)
    return {
        "first pass": repeat(open_batches),
        "steady state": repeat(lambda: batches),
    }


def compare(
    storages, name: str, way, rounds: int
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """For each phase and clock: (with verification, without) of each round."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for i in range(rounds):
        order = ["first", "never"] if i % 2 else ["never", "first"]
        times = {verify: measure(storages[verify], name, way) for verify in order}
        for phase in MOST:
            for clock in Times._fields:
                pair = tuple(getattr(times[verify][phase], clock) for verify in ("first", "never"))
                found.setdefault((phase, clock), []).append(pair)
    return found


def show(label: str, phase: str, clock: str, pairs: list[tuple[float, float]]) -> bool:
    """Prints a line; whether it misses its goal."""
    values = [with_ / without - 1 for with_, without in pairs]
    cost = min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs) - 1
    is_missed = clock == "waited" and cost > MOST[phase]
    print(
        f"  {label:>17} {phase:<13} {clock} {cost:+7.1%} ({min(values):+.1%} to "
        f"{max(values):+.1%}), goal {MOST[phase]:.0%}{'  MISSED' * is_missed}",
        flush=True,
    )
    return is_missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--directory", help="where the datasets are made meanwhile")
    parser.add_argument("--ways", default="numpy,tensorflow", help="%(default)s")
    options = parser.parse_args()
    os.environ.setdefault("YDL_LOG", "warning")
    directory = tempfile.mkdtemp(prefix="ydl-verify-", dir=options.directory)
    missed = False
    try:
        storages = {
            verify: LFSStorage(LFSConfigurations(directory, verify=verify))
            for verify in ("first", "never")
        }
        print(
            f"cost of verified reading, batches of {BATCH}: of the best of {options.rounds} rounds "
            "(range of the rounds)"
        )
        for kind in KINDS:
            storages["first"].submit(Source(kind), kind.what, "1")
            for name in options.ways.split(","):
                measure(storages["never"], kind.what, WAYS[name])  # into the page cache
                found = compare(storages, kind.what, WAYS[name], options.rounds)
                for (phase, clock), pairs in found.items():
                    missed |= show(f"{kind.what} {name}", phase, clock, pairs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
