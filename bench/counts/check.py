"""Instructions per record, against the limits in limits.txt: check.py PROGRAM [--update]

Runs PROGRAM (counts.c) under callgrind and prints a table. Exit status 1 where a count is more than
5 % above its limit, or has none. Counts do not depend on how busy the machine is; they do on the
compiler, for which limits leave room (limits.txt). Standard library only.
"""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LIMITS = Path(__file__).with_name("limits.txt")
TOLERANCE = 1.05
ROOM = 1.15  # of a limit over what was counted when it was set
LOW = 0.7  # below this part of its limit, a count asks for a lower one

Count = tuple[str, str, float]  # dataset, way, instructions per record

# glibc picks memcpy by what the processor has: one for all, that of every x86-64. The last two
# keep it from instructions that copy without being counted.
TUNABLES = ":".join(
    f"glibc.cpu.{setting}"
    for setting in (
        "hwcaps=-AVX512VL,-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM",
        "x86_rep_movsb_threshold=0x40000000",
        "x86_non_temporal_threshold=0x40000000",
    )
)


def run(program: str) -> Iterator[Count]:
    with tempfile.TemporaryDirectory(prefix="ydl-counts-") as directory:
        out = Path(directory, "callgrind")
        data = Path(directory, "data")
        data.mkdir()
        command = ["valgrind", "--tool=callgrind", "--quiet", "--instr-atstart=no"]
        command += [f"--callgrind-out-file={out}", program, str(data)]
        environment = {**os.environ, "GLIBC_TUNABLES": TUNABLES}
        # Valgrind complains of system calls newer than itself, for which the core has another way.
        done = subprocess.run(
            command, timeout=300, env=environment, stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} gave exit status {done.returncode}:\n{done.stderr}")
        for dump in sorted(out.parent.glob("callgrind.*"), key=lambda path: int(path.suffix[1:])):
            text = dump.read_text()
            label = re.search(r"^desc: Trigger: Client Request: (\S+) (\S+) (\d+)$", text, re.M)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.M)
            if label and total:
                yield label[1], label[2], int(total[1]) / int(label[3])


def read_limits() -> dict[tuple[str, str], int]:
    limits = {}
    for line in LIMITS.read_text().splitlines():
        if line and not line.startswith("#"):
            dataset, way, limit = line.split()
            limits[dataset, way] = int(limit)
    return limits


def write_limits(counts: list[Count]) -> None:
    comments = [line for line in LIMITS.read_text().splitlines() if line.startswith("#")]
    lines = [
        f"{dataset:<8}{way:<8}{math.ceil(instructions * ROOM)}"
        for dataset, way, instructions in counts
    ]
    LIMITS.write_text("\n".join([*comments, *lines]) + "\n")


def compare(counts: list[Count], limits: dict[tuple[str, str], int]) -> list[str]:
    """Prints a line for each count; returns what is wrong with them."""
    wrong = []
    for dataset, way in {*limits} ^ {(dataset, way) for dataset, way, _ in counts}:
        wrong.append(f"{dataset} {way} is either not counted or not in {LIMITS.name}")
    for dataset, way, instructions in counts:
        limit = limits.get((dataset, way), 0)
        part = instructions / max(1, limit)
        note = "  lower the limit" if part < LOW else ""
        if part > TOLERANCE:
            note = "  TOO MANY"
            wrong.append(f"{dataset} {way} takes {part:.0%} of the instructions of its limit")
        print(
            f"instructions per record: {dataset:>5} {way:<5} {instructions:>9,.0f}, "
            f"limit {limit:>7,}, {part:4.0%} of it{note}"
        )
    return wrong


def main() -> int:
    program, *options = sys.argv[1:]
    if platform.machine() != "x86_64":
        print(f"instructions per record: limits are x86-64's, not those of {platform.machine()}")
        return 0
    counts = list(run(program))
    if options == ["--update"]:
        write_limits(counts)
    wrong = compare(counts, read_limits())
    for text in wrong:
        print(f"bench-counts: {text}")
    if wrong:
        print("bench-counts: meant? `make bench-counts ARGS=--update` sets limits anew")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
