"""How far a build is: a bar on a terminal, a log line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Optional

from ydl import log, text

_INTERVAL_S = 10.0


class Progress:
    """Of one build. total: records, or None where the source does not know."""

    def __init__(self, name: str, total: Optional[int]) -> None:
        self._name = name
        self._total = total
        self._start = self._last_line = time.monotonic()
        self._records = 0
        self._bytes = 0
        self._bar = _make_bar(name, total)

    def update(self, records: int, size_bytes: int) -> None:
        """Totals so far."""
        step, self._records, self._bytes = records - self._records, records, size_bytes
        if self._bar is not None:
            self._bar.set_postfix_str(text.byte_count(size_bytes), refresh=False)
            self._bar.update(step)
            return
        now = time.monotonic()
        if now - self._last_line >= _INTERVAL_S:
            self._last_line = now
            log.info("building %s: %s", self._name, self._describe(now))

    def close(self) -> None:
        """Ends the bar. May be called twice."""
        if self._bar is not None:
            self._bar.close()

    def summary(self) -> str:
        seconds = time.monotonic() - self._start
        return (
            f"{self._records} records, {text.byte_count(self._bytes)} in {seconds:.1f} s"
            f" ({_rate(self._records, seconds)})"
        )

    def _describe(self, now: float) -> str:
        seconds = now - self._start
        of_total = "" if self._total is None else f" of {self._total}"
        line = (
            f"{self._records}{of_total} records, {text.byte_count(self._bytes)} after "
            f"{seconds:.0f} s ({_rate(self._records, seconds)})"
        )
        if self._total is not None and 0 < self._records <= self._total:
            left = seconds * (self._total - self._records) / self._records
            line += f", about {left:.0f} s to go"
        return line


def _rate(records: int, seconds: float) -> str:
    return f"{records / seconds:.0f} records/s" if seconds > 0 else "0 s"


def _make_bar(name: str, total: Optional[int]) -> Any:
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None  # log lines do as well
    return tqdm(total=total, desc=f"building {name}", unit="rec", file=sys.stderr, leave=False)
