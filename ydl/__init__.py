"""ydl caches a finished tf.data.Dataset once and streams it back shuffled, sharded and resumed.

`import ydl as yogadl` serves code written for yogadl 0.1.4: the names below are that library's,
plus `YogaDL`, the helper of Determined's migration guide.

Everything is reached on first use, so that importing the package costs nothing: it imports no
TensorFlow, loads no extension module and starts no thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ydl import constants as constants
    from ydl import dataref as dataref
    from ydl import errors as errors
    from ydl import rw_coordinator as rw_coordinator
    from ydl import storage as storage
    from ydl import tensorflow as tensorflow
    from ydl.dataref import DataRef as DataRef
    from ydl.helper import YogaDL as YogaDL
    from ydl.keys import GeneratorFromKeys as GeneratorFromKeys
    from ydl.keys import non_sequential_shard as non_sequential_shard
    from ydl.keys import sequential_shard as sequential_shard
    from ydl.keys import shard_keys as shard_keys
    from ydl.keys import shuffle_keys as shuffle_keys
    from ydl.lmdb_access import LmdbAccess as LmdbAccess
    from ydl.lmdb_access import serialize_generator_to_lmdb as serialize_generator_to_lmdb
    from ydl.storage.base import Storage as Storage
    from ydl.storage.base import Submittable as Submittable
    from ydl.stream import Stream as Stream

    __version__: str

_SUBMODULES = frozenset(
    ["constants", "dataref", "errors", "rw_coordinator", "storage", "tensorflow"]
)
_MODULE_OF = {
    "DataRef": "ydl.dataref",
    "GeneratorFromKeys": "ydl.keys",
    "LmdbAccess": "ydl.lmdb_access",
    "Storage": "ydl.storage.base",
    "Stream": "ydl.stream",
    "Submittable": "ydl.storage.base",
    "YogaDL": "ydl.helper",
    "non_sequential_shard": "ydl.keys",
    "sequential_shard": "ydl.keys",
    "serialize_generator_to_lmdb": "ydl.lmdb_access",
    "shard_keys": "ydl.keys",
    "shuffle_keys": "ydl.keys",
}

# Not the submodules: `from ydl import *` is to import no TensorFlow either.
__all__ = [
    "DataRef",
    "GeneratorFromKeys",
    "LmdbAccess",
    "Storage",
    "Stream",
    "Submittable",
    "YogaDL",
    "non_sequential_shard",
    "sequential_shard",
    "serialize_generator_to_lmdb",
    "shard_keys",
    "shuffle_keys",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"ydl.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name == "__version__":
        value = _read_version()
    else:
        raise AttributeError(f"module 'ydl' has no attribute {name!r}")
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES, *_MODULE_OF, "__version__"])


def _read_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("ydl")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"  # run from a source tree
