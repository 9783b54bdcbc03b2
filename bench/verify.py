"""What it costs to verify: reading with verify="first" beside verify="never", in ratios of one run.

    python bench/verify.py [--rounds 9] [--directory DIR]

Shuffled epochs in batches of 128, from the page cache. The first pass over a newly opened dataset
checks every record; later ones, the steady state, only look up that it was checked. The two ways
take turns. "waited" is by the clock; "worked" is the time of all threads on a processor, which says
more where the machine has other things to do, and less where it has idle cores.
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


def epoch(stream) -> Times:
    waited, worked = time.perf_counter(), time.process_time()
    for _ in stream.batches(BATCH):
        pass
    return Times(time.perf_counter() - waited, time.process_time() - worked)


def repeat(run) -> Times:
    """The shortest of several runs: what disturbs makes them longer."""
    times = []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until or len(times) < 3:
        times.append(run())
    return Times(*map(min, zip(*times)))


def measure(storage, name: str) -> dict[str, Times]:
    def new_stream():
        return storage.fetch(name, "1").stream(shuffle=True, shuffle_seed=1)

    stream = new_stream()
    epoch(stream)
    return {
        "first pass": repeat(lambda: epoch(new_stream())),
        "steady state": repeat(lambda: epoch(stream)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--directory", help="where the datasets are made meanwhile")
    options = parser.parse_args()
    os.environ.setdefault("YDL_LOG", "warning")
    directory = tempfile.mkdtemp(prefix="ydl-verify-", dir=options.directory)
    missed = False
    try:
        ways = {
            verify: LFSStorage(LFSConfigurations(directory, verify=verify))
            for verify in ("first", "never")
        }
        print(
            f"cost of verified reading, batches of {BATCH}: of the best of {options.rounds} rounds "
            "(range of the rounds)"
        )
        for kind in KINDS:
            ways["first"].submit(Source(kind), kind.what, "1")
            measure(ways["never"], kind.what)  # into the page cache
            found: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for i in range(options.rounds):
                order = ["first", "never"] if i % 2 else ["never", "first"]
                times = {verify: measure(ways[verify], kind.what) for verify in order}
                for phase in MOST:
                    for clock in Times._fields:
                        pair = tuple(getattr(times[verify][phase], clock) for verify in ways)
                        found.setdefault((phase, clock), []).append(pair)
            for (phase, clock), pairs in found.items():
                values = [with_ / without - 1 for with_, without in pairs]
                cost = min(pair[0] for pair in pairs) / min(pair[1] for pair in pairs) - 1
                is_missed = clock == "waited" and cost > MOST[phase]
                missed |= is_missed
                print(
                    f"  {kind.what:>7} {phase:<13} {clock} {cost:+7.1%} ({min(values):+.1%} to "
                    f"{max(values):+.1%}), goal {MOST[phase]:.0%}{'  MISSED' * is_missed}",
                    flush=True,
                )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
