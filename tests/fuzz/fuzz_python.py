"""What the parsers of stored JSON do with any bytes; for pytest and for atheris.

Each function takes one input and raises where something is wrong: anything but the parsers' own
errors, a result that does not survive being written and read again, or a hang (atheris's timeout).
"""

from __future__ import annotations

import json

from ydl import _core, manifest
from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.schema import Schema


def signed(body: bytes) -> bytes:
    """With the hash in the last line that belongs there: else nothing behind it is ever reached."""
    body = body.rstrip(b"\n") + b"\n"
    return body + f"{_core.hash64(body):016x}\n".encode("ascii")


def check_manifest(content: bytes) -> None:
    try:
        manifest.from_bytes(content, "f")  # as it is: nearly always a wrong hash
    except (CorruptCacheError, UnsupportedError):
        pass
    try:
        entry = manifest.from_bytes(signed(content), "f")
    except (CorruptCacheError, UnsupportedError):
        return
    again = manifest.from_bytes(manifest.to_bytes(entry), "f")
    assert again == entry, "a manifest does not survive being written"


def check_schema(content: bytes) -> None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return
    try:
        schema = Schema.from_json(value)
    except CorruptCacheError:
        return
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema, "a schema does not survive being written"
    schema.packer()
    schema.map_leaves(lambda leaf: leaf)


CHECKS = {"manifest": check_manifest, "schema": check_schema}
