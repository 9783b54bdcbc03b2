"""What a published dataset consists of: one entry of the manifest log <name>.ydl/manifests/.

A manifest is a JSON object and, as its last line, the XXH3-64 of the bytes before that line. It
comes from a directory that others write, so every field is checked here; nothing in it is run, and
names of files are names that ydl itself would give.
"""

from __future__ import annotations

import json
import platform
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Optional

import ydl
from ydl import _core
from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.fingerprint import Fingerprint
from ydl.schema import Schema

FORMAT = 1
# 40,000 parts need 5 MB; a file larger than this is none of ours.
MAX_BYTES = 256 * 2**20
MAX_NUMBER = 99_999_999  # of an entry: eight digits
_MAX_COUNT = 2**63 - 1
MAX_TEXT = 4096

_BUILD = re.compile(r"[0-9a-f]{32}")
_PART_NAME = re.compile(r"[0-9]{5,9}\.ydl")
_HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Part:
    """One part file, builds/<build>/<name>."""

    build: str  # the build's uuid, 32 hex digits
    name: str
    records: int
    bytes: int
    hash: int  # XXH3-64 of the file

    @property
    def number(self) -> int:
        """Of the part within its build, as its header says too."""
        return int(self.name[: -len(".ydl")])


@dataclass(frozen=True)
class Manifest:
    """Entry `number` of a dataset's log. A tombstone says that no dataset is there any more."""

    dataset_id: str
    dataset_version: str
    number: int
    schema: Optional[Schema]  # None: a tombstone
    records: int
    parts: tuple[Part, ...]
    source: Optional[Fingerprint]  # of the function that made the dataset; None: submitted
    per_slot_batch_size: Optional[int]  # the builder's
    writer: str  # which program
    host: str
    time: int  # unix seconds on that host's clock
    reason: str = ""  # of a tombstone

    @property
    def is_tombstone(self) -> bool:
        return self.schema is None

    @property
    def total_bytes(self) -> int:
        """Of all part files."""
        return sum(part.bytes for part in self.parts)

    @property
    def mean_record_bytes(self) -> int:
        """In the files, overhead included; 0 for an empty dataset."""
        return self.total_bytes // self.records if self.records else 0


def made_here() -> dict[str, Any]:
    """The fields of an entry that say which program made it, where and when."""
    return {
        "writer": f"ydl {ydl.__version__}, Python {platform.python_version()}",
        "host": socket.gethostname(),
        "time": int(time.time()),
    }


def to_bytes(manifest: Manifest) -> bytes:
    value: dict[str, Any] = {
        "format": FORMAT,
        "dataset_id": manifest.dataset_id,
        "dataset_version": manifest.dataset_version,
        "number": manifest.number,
        "state": "tombstone" if manifest.schema is None else "complete",
        "records": manifest.records,
        "schema": None if manifest.schema is None else manifest.schema.to_json(),
        "parts": [
            {
                "build": part.build,
                "name": part.name,
                "records": part.records,
                "bytes": part.bytes,
                "hash": f"{part.hash:016x}",
            }
            for part in manifest.parts
        ],
        "source": None if manifest.source is None else manifest.source._asdict(),
        "per_slot_batch_size": manifest.per_slot_batch_size,
        "writer": manifest.writer,
        "host": manifest.host,
        "time": manifest.time,
        "reason": manifest.reason,
    }
    # ASCII: file names that are not valid UTF-8 become surrogates, which JSON can escape.
    body = json.dumps(value).encode("ascii") + b"\n"
    return body + f"{_core.hash64(body):016x}\n".encode("ascii")


def from_bytes(content: bytes, where: str) -> Manifest:
    """`where`: the file's name, for error texts.

    CorruptCacheError where content is no manifest; UnsupportedError where it is one of a newer
    format.
    """
    fields = _Fields(_parse(content, where), where)
    version = fields.integer("format", 1)
    if version > FORMAT:
        raise UnsupportedError(
            f"{where} is a manifest of format {version}, and this ydl reads up to {FORMAT}: "
            "install a newer ydl"
        )
    state = fields.text("state")
    if state not in ("complete", "tombstone"):
        fields.refuse("state", state)
    schema = None if state == "tombstone" else _schema(fields)
    records = fields.integer("records")
    parts = tuple(_part(item, where) for item in fields.list_of_objects("parts"))
    if sum(part.records for part in parts) != records:
        fields.refuse("records", records)
    if schema is None and records:
        fields.refuse("state", state)
    return Manifest(
        dataset_id=fields.text("dataset_id"),
        dataset_version=fields.text("dataset_version"),
        number=fields.integer("number", 1),
        schema=schema,
        records=records,
        parts=parts,
        source=_source(fields.optional_object("source"), where),
        per_slot_batch_size=fields.optional_integer("per_slot_batch_size"),
        writer=fields.text("writer"),
        host=fields.text("host"),
        time=fields.integer("time"),
        reason=fields.text("reason"),
    )


def _parse(content: bytes, where: str) -> Mapping[str, Any]:
    body, newline, last = content.removesuffix(b"\n").rpartition(b"\n")
    body += newline
    if not body or last != f"{_core.hash64(body):016x}".encode("ascii"):
        raise CorruptCacheError(
            f"{where} is damaged or no manifest: the hash in its last line is not that of the "
            f"{len(body)} bytes before it"
        )

    def refuse_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is no JSON")

    def parse_int(text: str) -> int:
        if len(text) > 20:  # a longer one takes long and fits no field
            raise ValueError(f"the number {text[:20]}... is too long")
        return int(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise ValueError("a key is there twice")
        return value

    try:
        value = json.loads(
            body, parse_constant=refuse_constant, parse_int=parse_int, object_pairs_hook=unique
        )
    except (ValueError, RecursionError) as error:
        raise CorruptCacheError(f"{where} is no manifest: {error}") from None
    if not isinstance(value, dict):
        raise CorruptCacheError(f"{where} is no manifest: it is no JSON object")
    return value


class _Fields:
    """Typed access to an object's fields."""

    def __init__(self, value: Mapping[str, Any], where: str) -> None:
        self._value = value
        self._where = where

    def refuse(self, key: str, value: Any) -> NoReturn:
        raise CorruptCacheError(f"{self._where} is no manifest: {key!r} is {value!r:.80}")

    def _get(self, key: str, accepts: Callable[[Any], bool]) -> Any:
        value = self._value.get(key)
        if not accepts(value):
            self.refuse(key, value)
        return value

    def integer(self, key: str, minimum: int = 0) -> int:
        # type(...), because True is an int to isinstance.
        value = self._get(key, lambda v: type(v) is int and minimum <= v <= _MAX_COUNT)
        return int(value)

    def optional_integer(self, key: str) -> Optional[int]:
        return None if self._value.get(key) is None else self.integer(key)

    def text(self, key: str, max_chars: int = MAX_TEXT) -> str:
        return str(self._get(key, lambda v: isinstance(v, str) and len(v) <= max_chars))

    def matching(self, key: str, pattern: re.Pattern[str]) -> str:
        return str(self._get(key, lambda v: isinstance(v, str) and bool(pattern.fullmatch(v))))

    def list_of_objects(self, key: str) -> list[dict[str, Any]]:
        value = self._get(
            key, lambda v: isinstance(v, list) and all(isinstance(item, dict) for item in v)
        )
        return list(value)

    def optional_object(self, key: str) -> Optional[dict[str, Any]]:
        value: Optional[dict[str, Any]] = self._get(key, lambda v: v is None or isinstance(v, dict))
        return value

    def anything(self, key: str) -> Any:
        return self._value.get(key)


def _schema(fields: _Fields) -> Schema:
    try:
        return Schema.from_json(fields.anything("schema"))
    except CorruptCacheError as error:
        raise CorruptCacheError(f"{fields._where} is no manifest: {error}") from None


def _part(value: Mapping[str, Any], where: str) -> Part:
    fields = _Fields(value, where)
    return Part(
        build=fields.matching("build", _BUILD),
        name=fields.matching("name", _PART_NAME),
        records=fields.integer("records"),
        bytes=fields.integer("bytes"),
        hash=int(fields.matching("hash", _HASH), 16),
    )


def _source(value: Optional[Mapping[str, Any]], where: str) -> Optional[Fingerprint]:
    if value is None:
        return None
    fields = _Fields(value, where)
    return Fingerprint(
        function=fields.text("function"),
        file=fields.text("file"),
        line=fields.integer("line"),
        code=fields.text("code", 64),
        python=fields.text("python", 16),
    )
