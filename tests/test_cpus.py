"""Processors that this process may use: cgroups of both versions, parents included."""

import math
import os
from pathlib import Path

import pytest

from ydl import cpus


def quota(root: Path, cgroup: str, **files: str) -> float:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cpus._quota(root / "proc", root / "cgroup")


V1 = "cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"

CASES = [
    ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
    ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
    ("0::/\n", {}, math.inf),
    ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2),
    ("0::/a/b\n", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "200000 100000"}, 0.5),
    ("0::/of/the/host\n", {"cpu.max": "300000 100000"}, 3),  # seen from inside a container
    ("0::/../sibling\n", {"cpu.max": "300000 100000"}, 3),
    ("4:cpu,cpuacct:/a\n0::/\n", {V1[0]: "250000", V1[1]: "100000"}, 2.5),
    ("4:cpu,cpuacct:/a\n", {V1[0]: "-1", V1[1]: "100000"}, math.inf),
    ("4:cpuset:/a\n", {V1[0]: "250000", V1[1]: "100000"}, math.inf),
    ("0::/\n", {"cpu.max": "nonsense"}, math.inf),
    ("0::/\n", {"cpu.max": "100000 0"}, math.inf),
    ("nonsense", {}, math.inf),
    ("", {}, math.inf),
]


@pytest.mark.parametrize(("cgroup", "files", "expected"), CASES)
def test_quota(tmp_path: Path, cgroup: str, files: dict[str, str], expected: float) -> None:
    assert quota(tmp_path, cgroup, **files) == expected


@pytest.mark.parametrize(("limit", "expected"), [(0.2, 1), (1.0, 1), (1.5, 2), (math.inf, 8)])
def test_limit_counts_up_to_the_affinity(
    monkeypatch: pytest.MonkeyPatch, limit: float, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cpus, "_quota", lambda proc, cgroups: limit)
    assert cpus.usable() == expected
