"""The command `ydl`."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Optional

from ydl import collect, doctor, text

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit status: 0; 1 where something failed or cannot be trusted; 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="ydl", description="Looks after the caches that ydl makes."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_gc(commands)
    _add_doctor(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except OSError as error:
        print(f"ydl: {error}", file=sys.stderr)
        return 1


def _add_gc(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    gc = commands.add_parser(
        "gc",
        help="remove what no dataset needs any more",
        description="Removes replaced and unfinished builds, temporary files and old records of "
        "leases, in one dataset's directory or in all below a storage's. Needs nobody to stop: "
        "published data stays, and so do builds in progress and what is younger than --grace.",
    )
    gc.add_argument("path", metavar="PATH", help="a storage's directory, or a dataset's (*.ydl)")
    gc.add_argument(
        "--grace",
        type=_duration,
        default=collect.DEFAULT_GRACE_S,
        metavar="TIME",
        help="spare what was in use so lately, as 90s, 30m, 12h or 7d (the default). Less than a "
        "job's run time makes streams of replaced datasets fail, and builders that are paused",
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    gc.set_defaults(run=_run_gc)


def _run_gc(options: argparse.Namespace) -> int:
    path = os.path.abspath(os.path.expanduser(options.path))
    failed, count, total = 0, 0, 0
    for root, names in collect.datasets(path):
        try:
            report = collect.collect(root, names, options.grace, dry_run=options.dry_run)
        except OSError as error:
            print(f"ydl: {os.path.join(root, *names)}: {error}", file=sys.stderr)
            failed = 1
            continue
        for item in report.removed:
            print(f"{item.path}  {item.what}, {text.byte_count(item.bytes)}")
        for sentence in report.kept:
            print(f"kept {sentence}")
        count += len(report.removed)
        total += report.bytes
    verb = "would remove" if options.dry_run else "removed"
    print(f"{verb} {count} builds and files, {text.byte_count(total)}")
    return failed


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor",
        help="test a directory's file system",
        description="Tests there what building, publishing and reading rely on, and says what can "
        "be trusted. Writes a little, and removes it again. Run it on each host that builds.",
    )
    command.add_argument("path", metavar="PATH", help="a storage's directory, or where one will be")
    command.set_defaults(run=_run_doctor)


def _run_doctor(options: argparse.Namespace) -> int:
    failed = 0
    for finding in doctor.examine(os.path.abspath(os.path.expanduser(options.path))):
        mark = {True: "ok", False: "FAILS", None: "note"}[finding.trusted]
        print(f"{mark:<6}{finding.name:<18}{finding.text}")
        failed |= finding.trusted is False
    print("Something there cannot be trusted." if failed else "Caches are safe there.")
    return int(failed)


def _duration(value: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", value)
    if match is None:
        raise argparse.ArgumentTypeError(f"{value!r} is no time like 90s, 30m, 12h or 7d")
    return float(match[1]) * _UNITS_S[match[2] or "s"]
