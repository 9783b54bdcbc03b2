"""Reading with a cold page cache, in ratios of one run: ydl beside a plain NumPy memmap of the same
rows in the same shuffled order, and beside what the disk gives when it is read from end to end.

    python bench/cold.py [--rounds 3] [--megabytes 1200] [--directory DIR] [--access pread]

--directory decides which disk is measured. The pages of the datasets' own files are dropped before
each measurement; no right but to read them is needed. A file system in memory has none to drop, and
then nothing here is cold.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ydl.schema import Schema, TensorNode, TupleNode
from ydl.storage import LFSConfigurations, LFSStorage

BATCH = 128
PIECE = 4 * 2**20
READERS = 4
# By how much ydl has to be faster than a memmap; which part of the disk's speed an epoch has to
# reach.
LEAST_RATIO = 3.0
LEAST_SHARE = 0.8


class Kind(NamedTuple):
    what: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape))


KINDS = [Kind("150 KB", (224, 224, 3)), Kind("784 B", (784,))]


class Source:
    """Noise; one component of uint8."""

    def __init__(self, kind: Kind, records: int) -> None:
        self.schema = Schema(TupleNode((TensorNode("uint8", kind.shape),)))
        self.cardinality = records
        self._kind = kind

    def batches(self):
        draw = np.random.default_rng(1)
        step = max(1, 2**22 // self._kind.row_bytes)
        for start in range(0, self.cardinality, step):
            n = min(step, self.cardinality - start)
            yield n, [draw.integers(0, 256, (n, *self._kind.shape), np.uint8)]


class Dataset:
    """A dataset that was written for the purpose, and its files."""

    def __init__(self, directory: str, kind: Kind, megabytes: int, access: str) -> None:
        self.kind = kind
        self.records = megabytes * 10**6 // kind.row_bytes
        self._storage = LFSStorage(LFSConfigurations(directory, access=access))
        source = Source(kind, self.records)
        self._storage.submit(source, kind.what, "1")
        self.numbers = self.new_stream().record_numbers(0, 0, self.records)
        ref = self._storage.fetch(kind.what, "1")
        parts = ref.manifest.parts
        self.files = [Path(ref.directory, "builds", part.build, part.name) for part in parts]
        self.file_bytes = sum(part.bytes for part in parts)
        self._ends = np.cumsum([part.records for part in parts])
        # Where rows begin and how far they are from each other, from what is known to be there.
        _, (rows,) = next(source.batches())
        head = self.files[0].read_bytes()[: 4 * kind.row_bytes + 4096]
        self._begin = head.index(rows[0].tobytes())
        self._stride = head.index(rows[1].tobytes()) - self._begin

    def new_stream(self):
        """Of a dataset that is newly opened."""
        return self._storage.fetch(self.kind.what, "1").stream(shuffle=True, shuffle_seed=1)

    def drop(self) -> None:
        for path in self.files:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def read_plain(self) -> float:
        maps = [np.memmap(path, np.uint8, "r") for path in self.files]
        parts = np.searchsorted(self._ends, self.numbers, side="right")
        firsts = np.concatenate([[0], self._ends])[parts]
        begins = self._begin + (self.numbers.astype(np.int64) - firsts) * self._stride
        out = np.empty(self.kind.row_bytes, np.uint8)
        start = time.perf_counter()
        for part, begin in zip(parts.tolist(), begins.tolist()):
            out[:] = maps[part][begin : begin + len(out)]
        return time.perf_counter() - start

    def read_ydl(self) -> float:
        start = time.perf_counter()
        for _ in self.new_stream().batches(BATCH):
            pass
        return time.perf_counter() - start

    def read_disk(self) -> float:
        """All bytes, past the page cache, by a few threads."""
        pieces = [(p, at) for p in self.files for at in range(0, p.stat().st_size, PIECE)]
        lock = threading.Lock()

        def work() -> None:
            buffer = mmap.mmap(-1, PIECE)
            while True:
                with lock:
                    if not pieces:
                        return
                    path, at = pieces.pop(0)
                fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
                os.preadv(fd, [buffer], at)
                os.close(fd)

        threads = [threading.Thread(target=work) for _ in range(READERS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start


def read_ahead_kib(directory: str) -> str:
    device = os.stat(directory).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        return Path(f"/sys/class/bdi/{name}/read_ahead_kb").read_text().strip()
    except OSError:
        return "unknown"


def report(
    what: str, values: list[float], goal: float, form: str, is_disk_bound: bool = False
) -> bool:
    middle = statistics.median(values)
    is_missed = middle < goal and not is_disk_bound
    print(
        f"  {what:<42} {middle:{form}} ({min(values):{form}} to {max(values):{form}}), "
        f"goal {goal:{form}}{'  MISSED' * is_missed}{', as the disk allows' * is_disk_bound}",
        flush=True,
    )
    return is_missed


def measure(data: Dataset, rounds: int) -> bool:
    what = data.kind.what
    ratios, shares, lines = [], [], []
    for _ in range(rounds):
        seconds = []
        for read in (data.read_disk, data.read_plain, data.read_ydl):
            data.drop()
            seconds.append(read())
        disk, plain, ydl = seconds
        ratios.append(plain / ydl)
        shares.append(disk / ydl)
        lines.append(
            f"    disk {data.file_bytes / disk / 1e6:,.0f} MB/s, "
            f"memmap {data.file_bytes / plain / 1e6:,.0f} MB/s "
            f"({data.records / plain:,.0f} rows/s), "
            f"ydl {data.file_bytes / ydl / 1e6:,.0f} MB/s ({data.records / ydl:,.0f} rows/s)"
        )
    missed = report(f"{what}: epoch by the disk's speed", shares, LEAST_SHARE, ".0%")
    # Who reads as fast as the disk cannot be faster.
    is_disk_bound = not missed and statistics.median(ratios) < LEAST_RATIO
    missed |= report(f"{what}: memmap's time by ydl's", ratios, LEAST_RATIO, ".2f", is_disk_bound)
    print("\n".join(lines), flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=1200, help="of each dataset")
    parser.add_argument("--directory", help="where the datasets are made meanwhile")
    parser.add_argument("--access", default="auto", help="LFSConfigurations(access=...)")
    options = parser.parse_args()
    os.environ.setdefault("YDL_LOG", "warning")
    directory = tempfile.mkdtemp(prefix="ydl-cold-", dir=options.directory)
    missed = False
    try:
        print(
            f"cold page cache, {options.megabytes} MB, batches of {BATCH}: median of "
            f"{options.rounds} rounds (range); the disk reads {read_ahead_kib(directory)} KiB ahead"
        )
        for kind in KINDS:
            data = Dataset(directory, kind, options.megabytes, options.access)
            missed |= measure(data, options.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
