"""yogadl's own file format, which ydl neither writes nor reads.

yogadl kept pickled records in LMDB; reading them runs whatever code a file holds. The names exist
so that code which uses them learns what took their place.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ydl.errors import UnsupportedError


class LmdbAccess:
    """Raises UnsupportedError. `ydl.storage.LFSStorage.fetch(...)` gives access to a cache."""

    def __init__(self, lmdb_path: Any) -> None:
        raise UnsupportedError(
            f"cannot open {lmdb_path}: ydl does not read yogadl's LMDB files, whose pickles run "
            "code. Build the dataset again with ydl.storage.LFSStorage.cacheable or submit, and "
            "read records with fetch(...).stream() or fetch(...).read(numbers)"
        )


def serialize_generator_to_lmdb(
    dataset_generator: Any,
    data_shapes: Any,
    data_types: Any,
    lmdb_path: Any,
    write_frequency: int = 5000,
) -> NoReturn:
    """Raises UnsupportedError. `ydl.storage.LFSStorage.submit(...)` writes a cache."""
    raise UnsupportedError(
        f"cannot write {lmdb_path}: ydl does not write yogadl's LMDB files. Store a dataset with "
        "ydl.storage.LFSStorage.submit(tf.data.Dataset.from_generator(...), dataset_id, "
        "dataset_version)"
    )
