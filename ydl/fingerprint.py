"""Where a dataset came from: the function that made it, and a hash of its code.

A cache is found by its id and version alone, so a change of the function's code changes nothing
until the version does. The hash is what makes a warning possible.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

# Partials of methods of decorated functions: never endless.
_MAX_DEPTH = 8
# What a manifest takes.
_MAX_TEXT = 4096
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


class Fingerprint(NamedTuple):
    """Of a function. Two hashes are comparable where `python` is equal: code compiles differently
    in each minor version."""

    function: str  # qualified name
    file: str  # absolute path, or "" where there is none
    line: int  # 0 where unknown
    code: str  # hex digits, or "" where the callable has no Python code
    python: str  # "3.11"

    def differs_from(self, other: Fingerprint) -> bool:
        """Certainly other code."""
        comparable = self.python == other.python and self.code and other.code
        return bool(comparable) and self.code != other.code

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.file else self.function


def of_function(function: Any) -> Fingerprint:
    """Works for every callable and never raises: what is unknown stays empty."""
    name, file, line, digest = type(function).__qualname__, "", 0, ""
    with contextlib.suppress(Exception):  # objects may raise whatever they like when looked at
        name = str(getattr(function, "__qualname__", name))
        code = _plain_function(function).__code__
        digest = _hash_function(_plain_function(function))
        file, line = os.path.abspath(code.co_filename), code.co_firstlineno
    return Fingerprint(
        function=name[:_MAX_TEXT],
        file=file[:_MAX_TEXT],
        line=line,
        code=digest,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
    )


def _plain_function(function: Any) -> Any:
    """What a partial, a method, a decorated function or a callable object runs in the end."""
    for _ in range(_MAX_DEPTH):
        inner = _inner(function)
        if inner is None:
            break
        function = inner
    return function


def _inner(function: Any) -> Optional[Any]:
    if isinstance(function, functools.partial):
        return function.func
    for attribute in ("__wrapped__", "__func__"):
        inner = getattr(function, attribute, None)
        if inner is not None:
            return inner
    if not isinstance(function, types.FunctionType):
        call = vars(type(function)).get("__call__")
        if isinstance(call, types.FunctionType):
            return call
    return None


def _hash_function(function: types.FunctionType) -> str:
    digest = hashlib.sha256()
    for text in _describe_function(function, set()):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:32]


def _describe_function(
    function: types.FunctionType, seen: set[types.FunctionType]
) -> Iterable[str]:
    """Its own code and that of the functions in its closure, such as the one it decorates."""
    seen.add(function)
    yield from _describe_code(function.__code__)
    yield from _describe_constants(function.__defaults__ or ())
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # a name that nothing was assigned to yet
            continue
        # Functions only: numbers in a closure are often the rank or the step, which are no change.
        if isinstance(held, (types.FunctionType, types.MethodType, functools.partial)):
            inner = _plain_function(held)
            if isinstance(inner, types.FunctionType) and inner not in seen:
                yield from _describe_function(inner, seen)


def _describe_code(code: types.CodeType) -> Iterable[str]:
    """Not names of locals, lines or files: moving a function is no change."""
    yield code.co_code.hex()
    yield " ".join(code.co_names)
    yield from _describe_constants(code.co_consts)


def _describe_constants(constants: Iterable[Any]) -> Iterable[str]:
    inner = ""
    for constant in constants:
        # Until Python 3.10 the qualified name of an inner function follows its code.
        if isinstance(constant, str) and inner and constant.endswith(f".<locals>.{inner}"):
            continue
        inner = getattr(constant, "co_name", "")
        if isinstance(constant, types.CodeType):
            yield from _describe_code(constant)
        elif isinstance(constant, tuple):
            yield from ("(", *_describe_constants(constant), ")")
        elif isinstance(constant, frozenset):
            # Its own order depends on the process's hash seed.
            yield " ".join(sorted(map(repr, constant)))
        elif isinstance(constant, _PLAIN):
            yield f"{type(constant).__name__} {constant!r}"
