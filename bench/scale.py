"""What it costs to open, to begin and to resume, for 10^4 to 10^9 records: `make bench-scale`.

    python bench/scale.py [--largest 9] [--rounds 3] [--dir DIR]

Up to 10^6 records are written by ydl; more are sparse files (harness/sparse.py), and 10^6 is both,
so that one can be compared with the other. Each round is a new process, with imports and first use
done and pages cached. A shuffled epoch's order takes 4 bytes a record (8 from 2^32 records on);
sizes for which memory does not suffice are left out. Needs ydl and NumPy only.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ydl.storage import LFSConfigurations, LFSStorage

from harness import sparse
from harness.figures import digits_for, median_and_range
from harness.meters import memory
from harness.remote import child_environment

SMALLEST, LARGEST, WRITTEN_UP_TO = 4, 9, 6
LONG_FROM = 8  # orders of minutes: measured once
ORDER_BYTES = 4
COLUMNS = {
    "open": "open and first record, in order, ms",
    "shuffled": "the same, shuffled, ms",
    "resume": "the same, from the middle of a shuffled epoch, ms",
    "memory": "memory of a shuffled epoch, bytes a record",
}


class Source:
    """Records that ydl's own writer stores."""

    schema = sparse.SCHEMA

    def __init__(self, records: int) -> None:
        self.cardinality = records

    def batches(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        for first in range(0, self.cardinality, 1 << 16):
            n = min(1 << 16, self.cardinality - first)
            yield n, [np.zeros(n, np.uint8)]


def storage_in(directory: str) -> LFSStorage:
    return LFSStorage(LFSConfigurations(directory, verify="never"))


# ---- a new process -------------------------------------------------------------------------------


def measure_once(directory: str, name: str) -> dict[str, float]:
    """Of one dataset; "tiny" is there for whatever a process does only once."""
    storage = storage_in(directory)

    def begin(dataset: str, **stream: int) -> tuple[float, Iterator[object]]:
        start = time.perf_counter()
        records = iter(storage.fetch(dataset, "1").stream(**stream))
        next(records)
        return 1e3 * (time.perf_counter() - start), records

    shuffled = {"shuffle": True, "shuffle_seed": 1}
    for arguments in ({}, shuffled):
        begin("tiny", **arguments)
    count = len(storage.fetch(name, "1"))
    gc.collect()
    found = {"open": begin(name)[0]}
    before = memory()
    found["shuffled"], records = begin(name, **shuffled)
    found["memory"] = (memory() - before) / count
    del records
    gc.collect()
    found["resume"] = begin(name, **shuffled, start_offset=count // 2)[0]
    return found


# ---- all of them ---------------------------------------------------------------------------------


def datasets(directory: str, largest: int) -> Iterator[tuple[str, int, str]]:
    """(how it is stored, exponent, name), made when it is asked for."""
    storage = storage_in(directory)
    storage.submit(Source(10), "tiny", "1")
    for exponent in range(SMALLEST, min(largest, WRITTEN_UP_TO) + 1):
        name = f"written-{exponent}"
        storage.submit(Source(10**exponent), name, "1")
        yield "written", exponent, name
    for exponent in range(WRITTEN_UP_TO, largest + 1):
        needed, there = ORDER_BYTES * 10**exponent, available_bytes()
        if needed > 0.8 * there:
            print(
                f"\n10^{exponent} records are left out: an epoch's order takes "
                f"{needed / 2**30:.1f} GiB, and {there / 2**30:.1f} GiB are available",
                flush=True,
            )
            return
        name = f"sparse-{exponent}"
        sparse.submit(directory, name, 10**exponent)
        yield "sparse", exponent, name


def available_bytes() -> int:
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


def run(options: argparse.Namespace, directory: str) -> list[dict[str, object]]:
    results = []
    for files, exponent, name in datasets(directory, options.largest):
        rounds = 1 if exponent >= LONG_FROM else options.rounds
        values: dict[str, list[float]] = {column: [] for column in COLUMNS}
        for _ in range(rounds):
            command = [sys.executable, __file__, "--measure", directory, name]
            output = subprocess.run(
                command, stdout=subprocess.PIPE, check=True, env=child_environment()
            ).stdout
            for column, value in json.loads(output).items():
                values[column].append(value)
        results.append({"files": files, "records": 10**exponent, **values})
        cells = [median_and_range(some, digits_for(some)) for some in values.values()]
        print(f"| 10^{exponent} | {files} | {' | '.join(cells)} |", flush=True)
    return results


def describe_growth(results: list[dict[str, object]]) -> str:
    """By which power of the number of records each column grows between the two largest sizes."""
    if len(results) < 2:
        return ""
    small, large = results[-2:]
    step = math.log(large["records"] / small["records"])
    if not step:
        return ""
    powers = []
    for column in COLUMNS:
        quotient = statistics.median(large[column]) / statistics.median(small[column])
        powers.append(f"{column} ~ n^{math.log(quotient) / step:.2f}")
    return f"From {small['records']:,} to {large['records']:,} records: {', '.join(powers)}."


def main() -> int:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure_once(*sys.argv[2:])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=LARGEST, help="exponent (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="below 10^8 records (%(default)s)")
    parser.add_argument("--json", default="build/bench/scale.json", help="%(default)s")
    parser.add_argument("--dir", help="where the files are made (a temporary directory)")
    options = parser.parse_args()
    os.environ.setdefault("YDL_LOG", "warning")
    print(f"| records | files | {' | '.join(COLUMNS.values())} |")
    print("|---" * (len(COLUMNS) + 2) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="ydl-scale-", dir=options.dir) as directory:
        results = run(options, directory)
    print(f"\n{describe_growth(results)}")
    path = Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"columns": COLUMNS, "results": results}, indent=1) + "\n")
    print(f"All values: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
