"""What a measurement costs: wall clock, processor time of all threads, memory.

Linux only; the memory figures come from /proc.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator

MB = 2**20


class Meter:
    """Between start() and stop(): seconds, processor seconds, the largest resident set."""

    seconds = 0.0
    cpu_seconds = 0.0
    peak_mb = 0.0  # pages of mapped files included

    def start(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets VmHWM; where that is refused, the peak is the whole life's
        self._cpu = _cpu_seconds()
        self._begin = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self._begin

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._begin
        self.cpu_seconds = _cpu_seconds() - self._cpu
        self.peak_mb = memory("VmHWM") / MB


@contextlib.contextmanager
def measured() -> Iterator[Meter]:
    meter = Meter()
    meter.start()
    yield meter
    meter.stop()


def _cpu_seconds() -> float:
    """Of this process with all of its threads, and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def memory(field: str = "RssAnon") -> int:
    """A field of /proc/self/status, in bytes. RssAnon: the process's own memory, without the pages
    of files that it has mapped."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields[field].split()[0]) * 1024
