"""Measured values as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from goals import ROWS, Results, Row, Verdict
from harness.figures import digits_for, median_and_range

VERDICTS = {True: "PASS", False: "**FAIL**", None: "–"}


class Outcome(NamedTuple):
    """One row for one kind."""

    row: str
    kind: str
    records: int
    results: Results

    @property
    def definition(self) -> Row:
        return next(row for row in ROWS if row.name == self.row)

    def verdicts(self) -> Iterator[Verdict]:
        for goal in self.definition.goals:
            if goal.applies_to(self.kind):
                yield goal.judge(self.definition, self.kind, self.results)


def format_outcome(outcome: Outcome) -> str:
    row = outcome.definition
    lines = [
        f"### {row.name} {outcome.kind}: {row.what}; {outcome.records:,} records",
        "",
        f"| | {row.unit} | ydl is better, times | CPU-s per 10⁶ records | peak RSS, MB |",
        "|---|---|---|---|---|",
    ]
    subject = next((name for name in outcome.results if name.startswith("ydl")), "")
    for peer, results in outcome.results.items():
        values = [result["value"] for result in results]
        ratio = ""
        if subject and peer != subject:
            ratios = row.ratios(outcome.results, subject, peer)
            ratio = median_and_range(ratios, digits_for(ratios))
        lines.append(
            f"| {peer} | {median_and_range(values, digits_for(values))} | {ratio} "
            f"| {_optional(results, 'cpu', 2)} | {_optional(results, 'peak', 0)} |"
        )
    return "\n".join([*lines, ""])


def _optional(results: Sequence[Mapping[str, float]], field: str, digits: int) -> str:
    values = [result[field] for result in results if field in result]
    return f"{statistics.median(values):,.{digits}f}" if values else ""


def format_goals(outcomes: Sequence[Outcome]) -> str:
    lines = ["### Goals", "", "| row | kind | goal | median (min–max) | |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        for verdict in outcome.verdicts():
            lines.append(
                f"| {outcome.row} | {outcome.kind} | {verdict.wanted} | {verdict.got} "
                f"| {VERDICTS[verdict.passed]} |"
            )
    passed = [verdict.passed for outcome in outcomes for verdict in outcome.verdicts()]
    lines += [
        "",
        f"{passed.count(True)} of {len(passed)} goals met, {passed.count(False)} missed, "
        f"{passed.count(None)} not measured.",
    ]
    return "\n".join(lines)


def format_environment(environment: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return (
        f"{environment['cpus']} CPUs ({environment['machine']}), Linux {environment['kernel']}, "
        f"{environment['file_system']}; {versions}. Median of {environment['rounds']} rounds "
        f"(min–max); ratios are taken round by round; scale {environment['scale']:g}.\n"
    )


def is_missed(outcomes: Sequence[Outcome]) -> bool:
    return any(verdict.passed is False for outcome in outcomes for verdict in outcome.verdicts())
