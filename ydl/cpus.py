"""How many processors this process may use."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path


def usable() -> int:
    """At least 1: those that its affinity allows, or fewer where a cgroup limits their time."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(allowed, _quota(Path("/proc"), Path("/sys/fs/cgroup")))))


@functools.cache
def _quota(proc: Path, cgroups: Path) -> float:
    """Processors' worth of time that the cgroups of this process have, parents included; inf
    where there is no limit. Inside a container the path may be that of the host, which is not
    there; then the root is the container's own. Kept, because a loader asks for each epoch."""
    quota = math.inf
    for line in _read(proc / "self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            root = cgroups
        elif "cpu" in controllers.split(","):
            root = cgroups / "cpu"
        else:
            continue
        directory = root / path.strip("/")
        while True:
            quota = min(quota, _quota_of(directory))
            if directory == root or root not in directory.parents:
                break
            directory = directory.parent
    return quota


def _quota_of(directory: Path) -> float:
    """Version 2: "<us or max> <period>"; version 1: two files, -1 without a limit."""
    fields = _read(directory / "cpu.max").split() or [
        _read(directory / "cpu.cfs_quota_us"),
        _read(directory / "cpu.cfs_period_us"),
    ]
    try:
        us, period = map(int, fields)
    except ValueError:
        return math.inf
    return us / period if us > 0 and period > 0 else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
