"""ydl beside yogadl 0.1.4, in ratios of one run: `make bench-quick`. See README.md here.

    python bench/quick.py [--rounds N] [--kinds TMIV] [--json FILE]

Needs both libraries and TensorFlow in one environment; bench/run-quick makes it. This process only
gives orders, in turn, to two workers (one for each library) and to short-lived openers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from typing import NamedTuple

from harness.figures import median_and_range
from harness.kinds import BATCH, KINDS, pipeline
from harness.meters import memory
from harness.remote import Remote, child_environment, serve
from peers.storages import load_storage

# How long a reading goes on, epoch after epoch.
SECONDS = 1.5
OPENINGS = 5
COMPARED = "TMIV"


class Row(NamedTuple):
    """A line of the table for each kind, and how many times faster ydl has to be."""

    what: str
    ydl: str  # measured by which function of a worker
    yogadl: str
    fast: float  # for T, M and V
    images: float  # for I

    def target(self, kind):
        return self.images if kind == "I" else self.fast


ROWS = [
    Row("build, `submit`", "build", "build", 5, 1.5),
    Row("NumPy records, shuffled", "records", "records", 8, 1.2),
    Row("`make_tf_dataset(stream).batch(128)`, shuffled", "batch", "batch", 12, 0.9),
    # yogadl has no such argument: the same way of its as in the row above.
    Row("`make_tf_dataset(stream, batch_size=128)`, shuffled", "direct", "batch", 20, 3),
]

OPEN_LIMIT_MS = 50
# An epoch's order: 4 bytes per record; which records were verified: one bit.
MEMORY_LIMIT_BYTES = 4 + 1 / 8
# Two processes differ by some pages for no reason; this many bytes per record are forgiven.
MEMORY_NOISE_BYTES = 0.25
SMALL, MIDDLE, LARGE = 10_000, 1_000_000, 4_000_000


# ---- a worker: one library, told what to do through its standard input ---------------------------


class Worker:
    """Methods with a name of ROWS are measurements; they return (records, seconds)."""

    def __init__(self, library, directory):
        self._library = library
        self._directory = directory
        self._package, self._storage = load_storage(library, directory)

    def prepare(self, dataset_id, kind, records):
        """Makes a cache to read."""
        self._storage.submit(pipeline(kind, records), dataset_id, "1")

    def build(self, kind, turn):
        records = KINDS[kind].records
        if self._library == "yogadl":
            records = KINDS[kind].few
        source = pipeline(kind, records)
        begin = time.perf_counter()
        self._storage.submit(source, "built", str(turn))
        seconds = time.perf_counter() - begin
        shutil.rmtree(os.path.join(self._directory, "built"))
        return records, seconds

    def records(self, kind, turn):
        stream = self._stream(kind, turn)
        self._check((kind, "records"), sum(1 for record in stream), stream)
        records, begin, seconds = 0, time.perf_counter(), 0.0
        while seconds < SECONDS:
            deque(stream, maxlen=0)  # the fastest way of taking all and keeping none
            records += len(stream)
            seconds = time.perf_counter() - begin
        return records, seconds

    def batch(self, kind, turn):
        stream = self._stream(kind, turn)
        dataset = self._package.tensorflow.make_tf_dataset(stream).batch(BATCH)
        return self._read_batches((kind, "batch"), stream, dataset)

    def direct(self, kind, turn):
        stream = self._stream(kind, turn)
        dataset = self._package.tensorflow.make_tf_dataset(stream, batch_size=BATCH)
        return self._read_batches((kind, "direct"), stream, dataset)

    def _stream(self, kind, turn):
        return self._storage.fetch(kind, "1").stream(shuffle=True, shuffle_seed=turn)

    def _read_batches(self, name, stream, dataset):
        if self._library == "ydl":  # yogadl would take a minute for it
            self._check(name, sum(map(count_rows, dataset)), stream)
        else:
            deque(dataset.take(2), maxlen=0)  # so that no first call is measured
        batches, begin = 0, time.perf_counter()
        while True:
            for _ in dataset:
                batches += 1
                # Not only between epochs, of which yogadl would do one a minute.
                seconds = time.perf_counter() - begin
                if seconds >= SECONDS:
                    # The last one of an epoch is smaller; but few are.
                    return batches * len(stream) / -(-len(stream) // BATCH), seconds

    def _check(self, name, came, stream):
        if came != len(stream):
            raise ValueError(f"{name}: {came} records came, not {len(stream)}")


def count_rows(batch):
    return int((batch[0] if isinstance(batch, tuple) else batch).shape[0])


# ---- an opener: a new process that opens one cache and says how long that took -------------------


def open_cache(directory, dataset_id):
    """Prints milliseconds to open, to the first record of a shuffled epoch; and the process's own
    memory in the middle of that epoch, in bytes."""
    import ydl.storage

    storage = ydl.storage.LFSStorage(ydl.storage.LFSConfigurations(directory))
    begin = time.perf_counter()
    ref = storage.fetch(dataset_id, "1")
    opened = time.perf_counter()
    next(iter(ref.stream(shuffle=True, shuffle_seed=1)))
    first = time.perf_counter()

    iterator = ref.stream(shuffle=True, shuffle_seed=2).batches(1000)
    for _ in range(len(ref) // 2 // 1000):
        next(iterator)
    print(json.dumps([1e3 * (opened - begin), 1e3 * (first - begin), memory()]))


# ---- giving the orders --------------------------------------------------------------------------


class Result(NamedTuple):
    """One line of the table, with all rounds' values."""

    what: str
    values: dict
    figure: float  # what is compared with the target
    target: float
    passed: bool


def compare(workers, kind, rounds):
    """All rows for one kind; in each round all measurements, ydl and yogadl in turn."""
    for worker in workers.values():
        worker.ask("prepare", kind, kind, KINDS[kind].records)
    rates = {(library, name): [] for library in workers for name in measurements(library)}
    for turn in range(rounds):
        for name in dict.fromkeys(row.ydl for row in ROWS):
            for library, worker in workers.items():
                if (library, name) in rates:
                    records, seconds = worker.ask(name, kind, turn)
                    rates[library, name].append(records / seconds)
    for row in ROWS:
        ydl, yogadl = rates["ydl", row.ydl], rates["yogadl", row.yogadl]
        ratio = statistics.median(ydl) / statistics.median(yogadl)
        values = {"kind": kind, "ydl": ydl, "yogadl": yogadl}
        yield Result(row.what, values, ratio, row.target(kind), ratio >= row.target(kind))


def measurements(library):
    return {getattr(row, library) for row in ROWS}


def measure_openings(worker, directory):
    """Milliseconds to open and bytes per record."""
    sizes = {f"open-{records}": records for records in (SMALL, MIDDLE, LARGE)}
    for dataset_id, records in sizes.items():
        worker.ask("prepare", dataset_id, "T", records)
    opened, first, memory = ({size: [] for size in sizes.values()} for _ in range(3))
    for _ in range(OPENINGS):
        for dataset_id, records in sizes.items():
            output = subprocess.run(
                [sys.executable, __file__, "opener", directory, dataset_id],
                stdout=subprocess.PIPE,
                check=True,
                env=child_environment(),
            ).stdout
            for values, value in zip((opened, first, memory), json.loads(output)):
                values[records].append(value)
    for records in (SMALL, MIDDLE):
        milliseconds = statistics.median(opened[records])
        yield Result(
            f"opening a cache of {records:,} records, ms",
            {"ydl": opened[records], "first_record": first[records]},
            milliseconds,
            OPEN_LIMIT_MS,
            milliseconds < OPEN_LIMIT_MS,
        )
    per_record = [
        (large - middle) / (LARGE - MIDDLE)
        for large, middle in zip(sorted(memory[LARGE]), sorted(memory[MIDDLE]))
    ]
    figure = statistics.median(per_record)
    yield Result(
        "memory per record in a shuffled epoch, bytes",
        {"ydl": per_record},
        figure,
        MEMORY_LIMIT_BYTES,
        figure <= MEMORY_LIMIT_BYTES + MEMORY_NOISE_BYTES,
    )


def verdict(result):
    return "PASS" if result.passed else "**FAIL**"


def show_comparison(result):
    ydl, yogadl = result.values["ydl"], result.values["yogadl"]
    ratios = [a / b for a, b in zip(ydl, yogadl)]
    print(
        f"| {result.what} | {result.values['kind']} | {median_and_range(ydl)} "
        f"| {median_and_range(yogadl)} "
        f"| {result.figure:.1f} ({min(ratios):.1f}–{max(ratios):.1f}) "
        f"| ≥ {result.target:g} | {verdict(result)} |",
        flush=True,
    )


def show_opening(result):
    first = result.values.get("first_record")
    note = f"; shuffled, to the first record: {median_and_range(first, 1)}" if first else ""
    print(
        f"| {result.what}{note} | {median_and_range(result.values['ydl'], 2)} "
        f"| ≤ {result.target:g} | {verdict(result)} |",
        flush=True,
    )


def describe_environment():
    from importlib import metadata

    packages = ["ydl", "yogadl", "lmdb", "tensorflow-cpu", "tensorflow", "numpy"]
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
    }


def run(options, directory):
    environment = describe_environment()
    begin = time.perf_counter()
    logs = os.path.dirname(os.path.abspath(options.json))
    os.makedirs(logs, exist_ok=True)
    workers = {
        library: Remote(
            [sys.executable, __file__, "worker", library, os.path.join(directory, library)],
            f"{logs}/quick-{library}.log",
        )
        for library in ("ydl", "yogadl")
    }
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    print(f"{versions}; {environment['cpus']} CPUs.")
    print(f"Records/s: median of {options.rounds} rounds (min–max).\n")
    for name in COMPARED:
        kind = KINDS[name]
        print(
            f"- {name}: {kind.what}; {kind.records:,} records, of which yogadl builds "
            f"{kind.few:,} in each round"
        )
    print("\n| | | ydl | yogadl | ratio | target | |\n|---|---|---|---|---|---|---|", flush=True)
    results = []
    for kind in options.kinds:
        for result in compare(workers, kind, options.rounds):
            show_comparison(result)
            results.append(result)
    workers["yogadl"].close()

    print(f"\n| | ydl, median of {OPENINGS} processes (min–max) | target | |\n|---|---|---|---|")
    for result in measure_openings(workers["ydl"], os.path.join(directory, "ydl")):
        show_opening(result)
        results.append(result)
    workers["ydl"].close()

    with open(options.json, "w") as output:
        json.dump(
            {**environment, "results": [result._asdict() for result in results]}, output, indent=1
        )
    failed = sum(not result.passed for result in results)
    print(
        f"\n{len(results) - failed} of {len(results)} targets met, in "
        f"{time.perf_counter() - begin:.0f} s. All values: {options.json}"
    )
    return 1 if failed else 0


def main():
    if sys.argv[1:2] == ["worker"]:
        return serve(Worker, *sys.argv[2:])
    if sys.argv[1:2] == ["opener"]:
        return open_cache(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=COMPARED, help="which datasets (%(default)s)")
    parser.add_argument("--json", default="build/bench/quick.json", help="%(default)s")
    parser.add_argument("--dir", help="where the caches are made (a temporary directory)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ydl-bench-", dir=options.dir) as directory:
        return run(options, directory)


if __name__ == "__main__":
    sys.exit(main())
