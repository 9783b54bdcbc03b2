"""The logger `ydl`, whose lines go to stderr where nobody configured logging.

A training script often runs without any logging set up, and then Python drops lines of level INFO.
They say what an operator asks first (was the cache built or reused? who is being waited for?), so
they are printed there, from level `YDL_LOG` on: off, warning, info (the default) or debug. As soon
as the root logger or the logger `ydl` has a handler, lines go there and nowhere else.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from typing import Optional, TextIO

logger = logging.getLogger("ydl")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "off": logging.CRITICAL + 1,
}


def debug(message: str, *args: object) -> None:
    _log(logging.DEBUG, message, args)


def info(message: str, *args: object) -> None:
    _log(logging.INFO, message, args)


def warning(message: str, *args: object) -> None:
    _log(logging.WARNING, message, args)


def _log(level: int, message: str, args: tuple[object, ...]) -> None:
    if logger.handlers or (logger.propagate and logging.getLogger().handlers):
        logger.log(level, message, *args, stacklevel=3)
    elif level >= _threshold() and not logger.disabled and logging.root.manager.disable < level:
        _print(message % args if args else message)


def _threshold() -> int:
    """A level that somebody set on the logger itself counts before the environment."""
    return logger.level or _LEVELS.get(os.environ.get("YDL_LOG", "").lower(), logging.INFO)


def _print(text: str) -> None:
    # A closed or full stderr is no reason to end a build.
    if _is_open(sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            print(f"ydl: {text}", file=sys.stderr, flush=True)


def _is_open(stream: Optional[TextIO]) -> bool:
    """Asked before writing: what a failed write leaves in the buffer fails again when Python ends,
    and then the exit status is 120."""
    if stream is None:
        return False
    try:
        os.fstat(stream.fileno())
    except (AttributeError, io.UnsupportedOperation):
        return True  # no file at all: a notebook's or a test's stream
    except (OSError, ValueError):
        return False
    return True
