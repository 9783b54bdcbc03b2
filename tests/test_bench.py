"""The benchmarks' own arithmetic: a bench that measures other records, or that cannot fail, says
nothing. Nothing is measured here."""

# ruff: noqa: E402  bench/ is no package: it is put on the path first

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ydl.storage import LFSConfigurations, LFSStorage

BENCH = Path(__file__).resolve().parents[1] / "bench"
if not BENCH.is_dir():
    pytest.skip("the sdist has no bench/", allow_module_level=True)
sys.path.append(str(BENCH))

from goals import ROWS, Either, Limit, Ratio, Row
from harness import sparse
from harness.kinds import KINDS, batches, columns, digest
from peers import PEERS
from peers.codec import decode, encode
from worker import Worker

RECORDS = 40


def load_check() -> Any:
    spec = importlib.util.spec_from_file_location("check_counts", BENCH / "counts" / "check.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_records_survive_the_codec(kind: str) -> None:
    stored = columns(kind, RECORDS)
    back = decode(KINDS[kind], encode(KINDS[kind], stored))
    assert [column.dtype for column in back] == [column.dtype for column in stored]
    assert all(np.array_equal(a, b) for a, b in zip(stored, back))


@pytest.mark.parametrize("kind", KINDS)
def test_digest_tells_records_but_not_their_order(kind: str) -> None:
    stored = columns(kind, RECORDS)
    expected = sum(digest(batch) for batch in batches(kind, RECORDS, size=7))
    order = np.random.RandomState(1).permutation(RECORDS)
    assert digest(tuple(column[order] for column in stored)) == expected
    assert digest(tuple(column[1:] for column in stored)) != expected
    twice = np.concatenate([[1], np.arange(1, RECORDS)])
    assert digest(tuple(column[twice] for column in stored)) != expected


def test_table_names_what_is_there() -> None:
    for row in ROWS:
        assert set(row.kinds) <= set(KINDS)
        assert callable(getattr(Worker, row.measure))
        assert row.peers is None or set(row.peers) <= set(PEERS)
        for goal in row.goals:
            for part in goal.goals if isinstance(goal, Either) else [goal]:
                over = getattr(part, "over", ())
                named = [part.subject, *([over] if isinstance(over, str) else over)]
                assert set(named) <= set(PEERS)
                assert row.peers is None or set(named) <= set(row.peers), (row.name, part)
                assert any(part.applies_to(kind) for kind in row.kinds)


def values(*numbers: float) -> list[dict[str, float]]:
    return [{"value": number} for number in numbers]


ROW = Row("row", "", "numpy", "numpy", "TM")
LOWER = ROW._replace(lower_is_better=True, unit="ms")
RESULTS = {"ydl": values(10, 30, 20), "bagz": values(10, 10, 10), "memmap": values(1, 99, 2)}


@pytest.mark.parametrize(
    ("row", "goal", "passed"),
    [
        (ROW, Ratio("bagz", 2), True),
        (ROW, Ratio("bagz", 2.1), False),
        (LOWER, Ratio("bagz", 0.5), True),
        (LOWER, Ratio("bagz", 0.51), False),
        # The best by its median, not by a lucky round.
        (ROW, Ratio(["memmap", "bagz", "tf-save"], 2), True),
        (ROW, Ratio("yogadl", 2), None),
        (ROW, Limit(at_least=20), True),
        (ROW, Limit(at_least=20.1), False),
        (LOWER, Limit(at_most=20), True),
        (LOWER, Limit(at_most=19), False),
        (ROW, Limit(at_least=1, subject="yogadl"), None),
        (ROW, Either((Ratio("bagz", 3), Limit(at_least=20))), True),
        (ROW, Either((Ratio("bagz", 3), Limit(at_least=21))), False),
        (ROW, Either((Ratio("yogadl", 3), Limit(at_least=21))), None),
    ],
)
def test_goals_judge(row: Row, goal: Any, passed: Any) -> None:
    assert goal.judge(row, "T", RESULTS).passed is passed


def test_goals_apply_to_their_kinds() -> None:
    assert Ratio("bagz", {"T": 1}).applies_to("T")
    assert not Ratio("bagz", {"T": 1}).applies_to("M")
    assert not Limit(at_most=1, kinds="M").applies_to("T")


def test_counts_are_held_to_their_limits() -> None:
    check = load_check()
    limits = {("8B", "first"): 100, ("text", "first"): 200}
    fine = [("8B", "first", 105.0), ("text", "first", 90.0)]
    assert check.compare(fine, limits) == []
    assert len(check.compare([("8B", "first", 106.0), fine[1]], limits)) == 1
    assert check.compare(fine[:1], limits)
    assert check.compare([*fine, ("784B", "first", 1.0)], limits)
    assert check.read_limits()


def test_sparse_datasets_are_read_as_written_ones(tmp_path: Path) -> None:
    records = 3000
    sparse.submit(str(tmp_path), "sparse", records, part_bytes=12_000)  # several parts
    storage = LFSStorage(LFSConfigurations(tmp_path, verify="never"))
    ref = storage.fetch("sparse", "1")
    ref.check()
    assert len(ref.manifest.parts) > 1
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    assert sum(1 for record in stream if record == 0) == records
