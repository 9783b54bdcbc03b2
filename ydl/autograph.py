"""Keeping TensorFlow's AutoGraph out of ydl's own code, without importing TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def called_as_is(function: _F) -> _F:
    """Decorator: inside a tf.function AutoGraph calls this function as it is.

    Otherwise it rewrites all that is called from there, of ydl and of the standard library, from
    source text that it reads from the disk. tf.autograph.experimental.do_not_convert would be the
    public way, but it also ends the conversion of the functions that the user's own code gives to
    Dataset.map(), which may need it. The attribute is the mark of AutoGraph's own wrappers; where
    it means nothing, nothing changes.
    """
    function.autograph_info__ = {}  # type: ignore[attr-defined]
    return function
