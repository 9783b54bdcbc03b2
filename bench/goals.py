"""What is measured, and how fast ydl has to be: the table behind `make bench`.

Goals are ratios of one run, so that they mean something on any machine; limits are what a user
waits for. Standard library only.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional, Protocol, Union

from harness.figures import digits_for, median_and_range

# Values of a row: of each peer a list, one for each round.
Results = Mapping[str, Sequence[Mapping[str, float]]]


class Verdict(NamedTuple):
    wanted: str
    got: str
    passed: Optional[bool]  # None: a peer that it takes was not measured


class Goal(Protocol):
    def applies_to(self, kind: str) -> bool: ...

    def judge(self, row: Row, kind: str, results: Results) -> Verdict: ...


class Ratio(NamedTuple):
    """The subject has to be `factor` times as fast as the fastest (by its median) of `over`."""

    over: Union[str, Sequence[str]]
    factor: Union[float, Mapping[str, float]]  # or one for each kind that the goal is for
    kinds: str = ""  # of the row's; all where empty
    subject: str = "ydl"

    def applies_to(self, kind: str) -> bool:
        wanted = self.factor if isinstance(self.factor, Mapping) else self.kinds or kind
        return kind in wanted

    def judge(self, row: Row, kind: str, results: Results) -> Verdict:
        factor = self.factor[kind] if isinstance(self.factor, Mapping) else self.factor
        names = [self.over] if isinstance(self.over, str) else self.over
        others = [name for name in names if name in results]
        what = others[0] if len(others) == 1 else "the best on disk" if others else "/".join(names)
        wanted = f"{self.subject} ≥ {factor:.3g} × {what}"
        if not others or self.subject not in results:
            return Verdict(wanted, "not measured", None)
        best = max(others, key=lambda name: statistics.median(row.speeds(results[name])))
        ratios = row.ratios(results, self.subject, best)
        got = f"{median_and_range(ratios, digits_for(ratios))} × {best}"
        return Verdict(wanted, got, statistics.median(ratios) >= factor)


class Limit(NamedTuple):
    """The subject's own figure, in the row's unit."""

    at_least: Optional[float] = None
    at_most: Optional[float] = None
    kinds: str = ""
    subject: str = "ydl"
    field: str = "value"

    def applies_to(self, kind: str) -> bool:
        return kind in (self.kinds or kind)

    def judge(self, row: Row, kind: str, results: Results) -> Verdict:
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        note = "" if self.field == "value" else f", {self.field}"
        wanted = f"{self.subject} {sign} {bound:,.10g} {row.unit}{note}"
        if self.subject not in results:
            return Verdict(wanted, "not measured", None)
        values = [result[self.field] for result in results[self.subject]]
        middle = statistics.median(values)
        passed = middle >= bound if sign == "≥" else middle <= bound
        return Verdict(wanted, median_and_range(values, digits_for(values)), passed)


class Either(NamedTuple):
    """One of them is enough."""

    goals: tuple[Goal, ...]

    def applies_to(self, kind: str) -> bool:
        return any(goal.applies_to(kind) for goal in self.goals)

    def judge(self, row: Row, kind: str, results: Results) -> Verdict:
        verdicts = [goal.judge(row, kind, results) for goal in self.goals if goal.applies_to(kind)]
        outcomes = [verdict.passed for verdict in verdicts]
        return Verdict(
            " or ".join(verdict.wanted for verdict in verdicts),
            "; ".join(verdict.got for verdict in verdicts),
            True if True in outcomes else None if None in outcomes else False,
        )


class Row(NamedTuple):
    name: str
    what: str
    measure: str  # the worker's method
    ability: str  # what a peer must offer (peers/base.py)
    kinds: str
    unit: str = "records/s"
    goals: tuple[Goal, ...] = ()
    peers: Optional[Sequence[str]] = None  # None: all that have the ability
    lower_is_better: bool = False
    records: Optional[int] = None  # instead of the kind's own number; a file of its own
    in_new_process: bool = False

    def speeds(self, results: Sequence[Mapping[str, float]]) -> list[float]:
        """So that more is better."""
        values = [result["value"] for result in results]
        return [1 / max(value, 1e-9) for value in values] if self.lower_is_better else values

    def ratios(self, results: Results, subject: str, other: str) -> list[float]:
        """How many times as fast the subject was, round by round."""
        pairs = zip(self.speeds(results[subject]), self.speeds(results[other]))
        return [mine / theirs for mine, theirs in pairs]


ON_DISK = ["memmap", "memmap-map", "tf-cache", "tf-save", "tfrecord", "bagz", "array-record"]
OPENERS = ["ydl", "memmap", "bagz", "array-record", "mds", "litdata", "huggingface"]
# Bytes: an epoch's order takes 4, a bit says that a record was verified; memory comes in pages.
MOST_BYTES_A_RECORD = 4 + 1 / 8 + 1 / 4
MILLION = 1_000_000

ROWS = [
    Row(
        "tensorflow",
        "shuffled epoch into TensorFlow, eager, batches of 128",
        "tensorflow",
        "tensorflow",
        "TMIV",
        goals=(
            Ratio("memory", 0.95),
            Ratio(ON_DISK, 1.2),
            Ratio("yogadl", {"T": 80, "M": 40, "I": 6, "V": 40}),
            Ratio("ydl", 0.9, subject="ydl-batch"),
        ),
    ),
    Row(
        "fit",
        "Keras fit, one Dense layer, batches of 128",
        "fit",
        "tensorflow",
        "M",
        peers=["ydl", "ydl-batch", "memory", "memmap", "tf-cache", "yogadl"],
        goals=(Ratio("memory", 0.95),),
    ),
    Row(
        "numpy",
        "shuffled epoch as NumPy, batches of 128",
        "numpy",
        "numpy",
        "TMIV",
        peers=["ydl", "yogadl", "memmap", "bagz", "array-record", "mds", "litdata", "huggingface"],
        goals=(Ratio("memmap", {"T": 1, "M": 1.5, "I": 1.1}),),
    ),
    Row(
        "one-thread",
        "the same without ydl's own threads",
        "numpy",
        "numpy",
        "PL",
        peers=["ydl-1-thread", "memmap", "memcpy"],
        goals=(
            Limit(at_least=5 * MILLION, kinds="P", subject="ydl-1-thread"),
            Ratio("memcpy", 0.75, kinds="L", subject="ydl-1-thread"),
        ),
    ),
    Row(
        "open",
        "open and read one record in order",
        "open_sequential",
        "first",
        "T",
        "ms",
        peers=OPENERS,
        lower_is_better=True,
        records=MILLION,
        goals=(Limit(at_most=1),),
    ),
    Row(
        "open-shuffled",
        "open and read the first record of a shuffled epoch",
        "open_shuffled",
        "first",
        "T",
        "ms",
        peers=OPENERS,
        lower_is_better=True,
        records=MILLION,
        goals=(Limit(at_most=15), Ratio("bagz", 1)),
    ),
    Row(
        "resume",
        "open and read a record from the middle of a shuffled epoch",
        "resume",
        "first",
        "T",
        "ms",
        peers=OPENERS,
        lower_is_better=True,
        records=MILLION,
        goals=(Limit(at_most=15), Ratio("bagz", 1)),
    ),
    Row(
        "memory",
        "memory of a shuffled epoch",
        "memory",
        "numpy",
        "T",
        "bytes a record",
        peers=["ydl", "memmap", "bagz", "array-record", "mds", "litdata", "huggingface"],
        lower_is_better=True,
        records=MILLION,
        in_new_process=True,
        goals=(Limit(at_most=MOST_BYTES_A_RECORD),),
    ),
    Row(
        "build",
        "store a tf.data.Dataset durably",
        "build",
        "build",
        "TMIV",
        peers=["ydl", "yogadl", "pipeline", "disk", *ON_DISK[2:], "memmap"],
        goals=(
            Either((Ratio("pipeline", 1 / 1.3), Ratio("disk", 0.8))),
            Ratio("bagz", 1),
            Ratio("tf-save", 1),
            Ratio("yogadl", {"T": 50, "M": 50, "V": 50}),
        ),
    ),
    Row(
        "cold",
        "shuffled epoch with nothing in the page cache, opening included",
        "cold",
        "numpy",
        "PL",
        peers=["ydl", "memmap", "bagz", "disk"],
        goals=(Ratio("memmap", 3), Ratio("disk", 0.8)),
    ),
    Row(
        "steady",
        "growth of the process over ten epochs",
        "steady",
        "tensorflow",
        "MV",
        "MB",
        peers=["ydl"],
        lower_is_better=True,
        goals=(Limit(at_most=5),),
    ),
    Row(
        "stalled",
        "memory behind a consumer that takes one batch and stops",
        "stalled",
        "tensorflow",
        "I",
        "MB",
        peers=["ydl"],
        lower_is_better=True,
        goals=(Limit(at_most=256), Limit(at_most=5, field="late")),
    ),
]
