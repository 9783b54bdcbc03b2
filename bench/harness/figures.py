"""Numbers as texts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median_and_range(values: Sequence[float], digits: int = 0) -> str:
    middle, low, high = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({low}–{high})"


def digits_for(values: Sequence[float]) -> int:
    """Decimals that leave about three figures of the median."""
    middle = abs(statistics.median(values))
    return 0 if middle >= 100 else 1 if middle >= 10 else 2 if middle >= 0.1 else 4
