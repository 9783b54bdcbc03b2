"""Numbers and foreign texts, as people are shown them."""

from __future__ import annotations

import time


def printable(text: str) -> str:
    """`text` from a file or a peer, without what would steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def byte_count(count: float) -> str:
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("KB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def local_time(unix_seconds: int) -> str:
    """A planted number that is no time stays a number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))
    except (OverflowError, ValueError, OSError):
        return str(unix_seconds)


def rank_list(ranks: range) -> str:
    """ "rank 3", "ranks 3 to 7"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks[0]} to {ranks[-1]}"
