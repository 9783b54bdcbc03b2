"""Checks of arguments: integers that are integers, in their range."""

from __future__ import annotations

import operator
from typing import Any, Optional

import numpy as np

# Positions, epochs and counts fit C's int64_t.
MAX_COUNT = 2**63 - 1
# Seeds of MT19937's legacy initialisation, as numpy.random.RandomState takes them.
MAX_SEED = 2**32 - 1


def integer(name: str, value: Any, minimum: int = 0, maximum: int = MAX_COUNT) -> int:
    """`value` as an int: an int or a NumPy integer, not a bool or a float.

    TypeError or ValueError, naming the argument and its value.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be an integer, not the {type(value).__name__} {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, not the {type(value).__name__} {value!r}"
        ) from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {number}")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, not {number}")
    return number


def seed(value: Any) -> int:
    return integer("shuffle_seed", value, 0, MAX_SEED)


def optional_seconds(name: str, value: Any) -> Optional[float]:
    """A duration in seconds, or None for no limit."""
    if value is None:
        return None
    return seconds(name, value)


def seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not value >= 0:
        raise ValueError(f"{name} must be at least 0 seconds, not {value!r}")
    return float(value)


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return str(value)
