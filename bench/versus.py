"""ydl beside everything else that does such things: `make bench`. See README.md here.

    python bench/versus.py [--rows numpy,open] [--kinds TM] [--peers all] [--scale 0.02] [--plots]

This process only gives orders to workers, one for each peer, in turn; what it needs itself is
Python's standard library and NumPy. goals.py says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import report
from goals import ROWS, Row
from harness import environments
from harness.kinds import BATCH, KINDS
from harness.remote import Remote
from peers import PEERS

HERE = Path(__file__).resolve().parent
WARNING_SCALE = 0.5
SECONDS = 1.5


class Crew:
    """The workers, each started when it is first needed and kept."""

    def __init__(self, directory: str, logs: Path, options: argparse.Namespace) -> None:
        self._directory = directory
        self._logs = logs
        self._options = json.dumps({"feed": options.feed, "seconds": options.seconds})
        self._pythons: dict[str, str] = {}
        self._workers: dict[str, Remote] = {}
        self._abilities: dict[str, list[str]] = {}
        self._prepared: set[tuple[str, str, int]] = set()
        self.versions: dict[str, str] = {"python": platform.python_version()}

    def ask(self, peer: str, *order: Any) -> Any:
        return self._worker(peer).ask(*order)

    def ask_new(self, peer: str, *order: Any) -> Any:
        """In a process of its own, which sees the same datasets."""
        worker = self._start(peer, "-new")
        try:
            return worker.ask(*order)
        finally:
            worker.close()

    def can(self, peer: str, row: Row) -> bool:
        self._worker(peer)
        return row.ability in self._abilities[peer]

    def prepare(self, peer: str, kind: str, records: int, check: bool) -> None:
        if (peer, kind, records) not in self._prepared:
            self._prepared.add((peer, kind, records))
            self.ask(peer, "prepare", kind, records)
            if check:
                self.ask(peer, "check", kind, records)

    def forget(self, kind: str) -> None:
        for peer, name, records in [item for item in self._prepared if item[1] == kind]:
            self.ask(peer, "forget", kind, records)
            self._prepared.remove((peer, name, records))

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def _worker(self, peer: str) -> Remote:
        if peer not in self._workers:
            self._workers[peer] = self._start(peer)
            self._abilities[peer] = self._workers[peer].ask("abilities")
            self.versions.update(self._workers[peer].ask("versions"))
        return self._workers[peer]

    def _start(self, peer: str, suffix: str = "") -> Remote:
        environment = PEERS[peer].environment
        if environment not in self._pythons:
            self._pythons[environment] = environments.ensure(environment)
        command = [self._pythons[environment], str(HERE / "worker.py"), peer]
        command += [os.path.join(self._directory, peer), self._options]
        return Remote(command, str(self._logs / f"versus-{peer}{suffix}.log"))


def measure(crew: Crew, options: argparse.Namespace) -> Iterator[report.Outcome]:
    """Kind by kind, so that only one kind's datasets are on the disk."""
    for kind in KINDS:
        for row in options.rows:
            if kind in options.kinds and kind in row.kinds:
                records = max(BATCH, int((row.records or KINDS[kind].records) * options.scale))
                outcome = measure_row(crew, row, kind, records, options)
                if outcome.results:
                    yield outcome
        crew.forget(kind)


def measure_row(
    crew: Crew, row: Row, kind: str, records: int, options: argparse.Namespace
) -> report.Outcome:
    wanted = options.peers if row.peers is None else [p for p in row.peers if p in options.peers]
    peers = [peer for peer in wanted if crew.can(peer, row)]
    if row.measure != "build":
        for peer in peers:
            crew.prepare(peer, kind, records, check=row.records is None)
    ask = crew.ask_new if row.in_new_process else crew.ask
    results: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for turn in range(options.rounds):
        # Another one begins in each round, so that nobody always comes after the same one.
        first = turn % max(1, len(peers))
        for peer in peers[first:] + peers[:first]:
            few = row.measure == "build" and PEERS[peer].is_slow
            number = min(records, int(KINDS[kind].few * options.scale) + 1) if few else records
            results[peer].append(ask(peer, row.measure, kind, number, turn))
    return report.Outcome(row.name, kind, records, results)


def describe(directory: str, crew: Crew, options: argparse.Namespace) -> dict[str, Any]:
    file_system = subprocess.run(
        ["stat", "-f", "-c", "%T", directory], stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    return {
        "versions": crew.versions,
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "file_system": file_system,
        "rounds": options.rounds,
        "scale": options.scale,
    }


def run(options: argparse.Namespace, directory: str) -> int:
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    crew = Crew(directory, out, options)
    outcomes, texts = [], []
    try:
        for outcome in measure(crew, options):
            outcomes.append(outcome)
            texts.append(report.format_outcome(outcome))
            print(texts[-1], flush=True)
    finally:
        crew.close()
    environment = describe(directory, crew, options)
    texts = [report.format_environment(environment), *texts, report.format_goals(outcomes)]
    print(f"{texts[-1]}\n\n{texts[0]}")
    content = {**environment, "outcomes": [outcome._asdict() for outcome in outcomes]}
    (out / "versus.json").write_text(json.dumps(content, indent=1) + "\n")
    (out / "versus.md").write_text("\n".join(texts) + "\n")
    print(f"All values: {out}/versus.json; these tables: {out}/versus.md")
    if options.plots:
        draw(out, Path(options.plots_to))
    return 1 if report.is_missed(outcomes) else 0


def draw(out: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    python = environments.ensure("tensorflow")  # which has matplotlib
    subprocess.run([python, str(HERE / "plots.py"), str(out / "versus.json"), str(to)], check=True)
    shutil.copy(out / "versus.md", to / "versus.md")
    print(f"Plots: {to}")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        epilog="peers: " + "; ".join(f"{name} ({peer.what})" for name, peer in PEERS.items()),
    )
    names = ",".join(row.name for row in ROWS)
    parser.add_argument("--rows", default=names, help="%(default)s")
    parser.add_argument("--kinds", default="".join(KINDS), help="which datasets (%(default)s)")
    parser.add_argument("--peers", default="default", help='names, "default" or "all" (6 GB more)')
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a reading (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of records")
    parser.add_argument("--feed", help="pass feed=... to make_tf_dataset")
    parser.add_argument("--plots", action="store_true", help="draw into --plots-to")
    parser.add_argument("--plots-to", default="docs/bench", help="%(default)s")
    parser.add_argument("--out", default="build/bench", help="%(default)s")
    parser.add_argument("--dir", help="where datasets are made (a temporary directory)")
    options = parser.parse_args(arguments)

    options.rows = [find(parser, ROWS, name) for name in options.rows.split(",")]
    if options.peers in ("default", "all"):
        everyone = options.peers == "all"
        options.peers = [name for name, peer in PEERS.items() if peer.is_default or everyone]
    else:
        options.peers = options.peers.split(",")
    if unknown := {*options.peers} - {*PEERS} or {*options.kinds} - {*KINDS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return options


def find(parser: argparse.ArgumentParser, rows: Sequence[Row], name: str) -> Row:
    for row in rows:
        if row.name == name:
            return row
    parser.error(f"there is no row {name}: rows are {', '.join(row.name for row in rows)}")


def main() -> int:
    options = parse_arguments()
    if options.scale < WARNING_SCALE:
        print("A small scale shows that everything runs; its figures mean little.\n")
    with tempfile.TemporaryDirectory(prefix="ydl-bench-", dir=options.dir) as directory:
        return run(options, directory)


if __name__ == "__main__":
    sys.exit(main())
