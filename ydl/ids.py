"""Which directory a dataset's id and version stand for.

<root>/<dataset_id>/<dataset_version>.ydl, where the id may nest ("a/b") and a slash in the version
is encoded. The map is injective, and nothing leaves the root: every (id, version) has a directory
of its own, which no other dataset's directory contains.
"""

from __future__ import annotations

import os
from typing import Any, Optional

_SUFFIX = ".ydl"
# File systems take 255 bytes; the rest is for the suffix and for temporary names.
_MAX_COMPONENT_BYTES = 200


def dataset_directory(root: str, dataset_id: Any, dataset_version: Any) -> str:
    """Raises ValueError, which names the id or version, where it cannot be a file name."""
    _check_text("dataset id", dataset_id)
    _check_text("dataset version", dataset_version)
    if dataset_id.startswith("/"):
        raise _refused("dataset id", dataset_id, "it is an absolute path")
    for component in dataset_id.split("/"):
        _check_component("dataset id", dataset_id, component)

    # "%" too, else the versions "a/b" and "a%2Fb" would be one.
    encoded = dataset_version.replace("%", "%25").replace("/", "%2F")
    _check_component("dataset version", dataset_version, encoded)
    return os.path.join(root, *dataset_id.split("/"), encoded + _SUFFIX)


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _refused(what, value, f"it is a {type(value).__name__}, not a str")
    if not value:
        raise _refused(what, value, "it is empty")
    if "\0" in value:
        raise _refused(what, value, "it holds a NUL")


def _check_component(what: str, value: str, component: str) -> None:
    problem = _component_problem(component)
    if problem is not None:
        raise _refused(what, value, problem)


def _component_problem(component: str) -> Optional[str]:
    if not component:
        return "it has an empty component"
    if component in (".", ".."):
        return f"{component!r} is not a name"
    if component.startswith("."):
        return f"{component!r} starts with a dot"
    if component.endswith(_SUFFIX):
        return f"{component!r} ends in {_SUFFIX!r}, which marks a dataset's own directory"
    try:
        size = len(component.encode("utf-8"))
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > _MAX_COMPONENT_BYTES:
        return f"it has a component of {size} bytes, more than {_MAX_COMPONENT_BYTES}"
    return None


def _refused(what: str, value: Any, why: str) -> ValueError:
    return ValueError(f"cannot use the {what} {value!r}: {why}")
