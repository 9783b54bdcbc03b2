"""Every bit of a small cache flipped, and every file cut at every length.

    python -m soak.flips [--every 1] [--directory DIR]

Manifest and parts alike, of fixed and of varying rows, through fetch, stream, batches and read, by
mmap and by pread. Whatever comes must be the right records or one of ydl's errors; and where a job
asks again, `cacheable` must give it the right records without anybody cleaning up.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import random
import shutil
import sys
import tempfile
from collections import Counter

import numpy as np
from soak.forked import Child, Died
from support import RecordSource, files_in, pairs, storage_in

from ydl.errors import YdlError
from ydl.schema import TensorNode, TupleNode

_HANG_S = 60  # that one damaged file may take at most
_HEAL_EVERY = 40  # damaged caches that are also given to cacheable


def words():
    root = TupleNode((TensorNode("string", ()), TensorNode("uint8", (None,))))
    records = [[f"word{i}".encode(), np.arange(i % 4, dtype=np.uint8)] for i in range(9)]
    return RecordSource(root, records)


SOURCES = {"fixed": lambda: pairs(12), "varying": words}
_PART_BYTES = {"fixed": 520, "varying": 700}  # two or three parts each


def shape(record):
    return tuple(
        value if isinstance(value, bytes) else np.asarray(value).tolist() for value in record
    )


def read_all(ref):
    """All ways to read, which must agree; gives the records."""
    streamed = [shape(record) for record in ref.stream()]
    read = [shape(record) for record in ref.read(range(len(ref)))]
    assert streamed == read, "stream and read differ"
    return streamed


class Damage:
    """One cache, damaged again and again, and made whole in between."""

    def __init__(self, kind, directory, heals):
        self.kind = kind
        self.heals = heals
        self.root = os.path.join(directory, kind)
        self._storages = {
            access: storage_in(self.root, part_bytes=_PART_BYTES[kind], access=access)
            for access in ("mmap", "pread")
        }
        self._storages["mmap"].submit(SOURCES[kind](), "d", "1")
        self.files = {}
        for path in files_in(self.root):
            with open(path, "rb") as file:
                self.files[path] = file.read()
        self.expected = read_all(self._storages["mmap"].fetch("d", "1"))
        self.tally = Counter()
        self.problems = []
        self._count = 0

    def _restore(self, path):
        with open(path, "wb") as file:
            file.write(self.files[path])
        for extra in set(files_in(self.root)) - set(self.files):
            os.remove(extra)

    def check(self, path, content, what):
        with open(path, "wb") as file:
            file.write(content)
        for access, storage in self._storages.items():
            self._check_reading(storage, f"{what}, {access}")
        self._count += 1
        if self.heals and self._count % _HEAL_EVERY == 0:
            self._check_healing(f"{what}, cacheable")
        self._restore(path)

    def _check_reading(self, storage, what):
        try:
            records = read_all(storage.fetch("d", "1"))
        except YdlError as error:
            self.tally[type(error).__name__] += 1
        except Exception as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
        else:
            self.tally["right records"] += 1
            if records != self.expected:
                self.problems.append(f"{what}: silently wrong")

    def _check_healing(self, what):
        # The first call may meet the damage in mid-stream, the second must not.
        for left in (1, 0):
            storage = self._storages["mmap"]
            try:
                found = read_all(storage.cacheable("d", "1")(SOURCES[self.kind])())
            except YdlError as error:
                if not left:
                    self.problems.append(f"{what}: {type(error).__name__}: {error}")
            else:
                self.tally["right after cacheable"] += 1
                if found != self.expected:
                    self.problems.append(f"{what}: silently wrong")
                return


def damage_all(kind, directory, options, first, where):
    every = options.every
    damage = Damage(kind, directory, not options.no_healing)
    for path, content in damage.files.items():
        name = os.path.relpath(path, damage.root)
        for bit in range(first, 8 * len(content), every):
            position = f"{kind}: {name}, bit {bit}"
            where[:] = position.encode().ljust(len(where))
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            damage.check(path, bytes(changed), position)
        for length in range(first % max(every, 1), len(content), every):
            position = f"{kind}: {name}, cut to {length}"
            where[:] = position.encode().ljust(len(where))
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            damage.check(path, content[:length], position)
    faulthandler.cancel_dump_traceback_later()
    total_bytes = sum(map(len, damage.files.values()))
    return damage._count, len(damage.files), total_bytes, dict(damage.tally), damage.problems


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth bit and length")
    parser.add_argument("--no-healing", action="store_true", help="do not ask cacheable")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    options = parser.parse_args(argv)
    first = random.Random(options.seed).randrange(options.every)
    print(f"seed {options.seed}: bits and lengths {first}, {first + options.every}, ...")
    os.environ["YDL_LOG"] = "off"
    failed = False
    work = tempfile.mkdtemp(prefix="ydl-flips-", dir=options.directory)
    where = mmap.mmap(-1, 200)
    try:
        for kind in SOURCES:
            child = Child(lambda child, kind=kind: damage_all(kind, work, options, first, where))
            child.hang_s = 3600.0
            try:
                count, files, size, tally, problems = child.result()
            except Died as died:
                print(f"ended with {died.code} at {where[:].decode().strip()}")
                failed = True
                continue
            print(f"{kind}: {files} files of {size} bytes, {count} damages, each read twice")
            print("    " + ", ".join(f"{name} {n}" for name, n in sorted(tally.items())))
            print(f"    {len(problems)} problems")
            for problem in problems[:20]:
                print(f"    {problem}")
            failed |= bool(problems)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
