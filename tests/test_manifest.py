"""Manifests: round trip, and what hostile ones lead to."""

from __future__ import annotations

import contextlib
import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ydl import _core, manifest
from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.fingerprint import Fingerprint
from ydl.manifest import Manifest, Part
from ydl.schema import Schema, TensorNode

MANIFEST = Manifest(
    dataset_id="a/é\ud800",
    dataset_version="1",
    number=3,
    schema=Schema(TensorNode("int64", ())),
    records=7,
    parts=(
        Part("0" * 32, "00000.ydl", 4, 448, 2**64 - 1),
        Part("0" * 32, "00001.ydl", 3, 448, 0),
    ),
    source=Fingerprint("make", "/a.py", 3, "12ab", "3.11"),
    per_slot_batch_size=None,
    writer="ydl 1",
    host="h",
    time=1,
)


def sign(body: bytes) -> bytes:
    body += b"\n"
    return body + f"{_core.hash64(body):016x}\n".encode()


def changed(**fields) -> bytes:
    value = json.loads(manifest.to_bytes(MANIFEST).splitlines()[0])
    value.update(fields)
    return sign(json.dumps(value).encode())


def test_round_trip():
    assert manifest.from_bytes(manifest.to_bytes(MANIFEST), "f") == MANIFEST
    assert MANIFEST.total_bytes == 896 and MANIFEST.mean_record_bytes == 128
    tombstone = dataclasses.replace(MANIFEST, schema=None, records=0, parts=(), reason="damaged")
    assert manifest.from_bytes(manifest.to_bytes(tombstone), "f") == tombstone
    assert tombstone.is_tombstone and tombstone.mean_record_bytes == 0


def test_unknown_fields_are_left_to_later_versions():
    assert manifest.from_bytes(changed(later={"x": 1}), "f") == MANIFEST


def test_a_newer_format_says_so():
    with pytest.raises(UnsupportedError, match="format 2"):
        manifest.from_bytes(changed(format=2), "f")


def part(**fields):
    return [{"build": "0" * 32, "name": "00000.ydl", "records": 7, "bytes": 1, "hash": "0" * 16,
             **fields}]  # fmt: skip


HOSTILE_FIELDS = [
    {"format": 0}, {"format": "1"}, {"format": True}, {"format": None}, {"format": 1.0},
    {"state": "other"}, {"state": None}, {"state": "tombstone"},
    {"records": 6}, {"records": -1}, {"records": 7.0}, {"records": 2**63}, {"records": "7"},
    {"number": 0}, {"number": -1}, {"number": None},
    {"dataset_id": 5}, {"dataset_id": "x" * 5000}, {"dataset_version": None},
    {"schema": None}, {"schema": {"kind": "code"}},
    {"parts": None}, {"parts": {}}, {"parts": [5]}, {"parts": []},
    {"parts": part(name="../../x.ydl")}, {"parts": part(name="/etc/passwd")},
    {"parts": part(name="0.ydl")}, {"parts": part(name="00000.ydl\n")},
    {"parts": part(name="9999999999.ydl")}, {"parts": part(name="٠٠٠٠٠.ydl")},
    {"parts": part(build="..")}, {"parts": part(build="0" * 31 + "/")},
    {"parts": part(build="0" * 32 + "\n")}, {"parts": part(records=-7)},
    {"parts": part(records=True)}, {"parts": part(bytes=-1)}, {"parts": part(bytes=2**64)},
    {"parts": part(hash="xyz")}, {"parts": part(hash=5)},
    {"source": 5}, {"source": {}}, {"source": {"function": 1}},
    {"per_slot_batch_size": "x"}, {"per_slot_batch_size": -1},
    {"writer": None}, {"host": 5}, {"time": "now"}, {"time": -1}, {"reason": 5},
]  # fmt: skip


@pytest.mark.parametrize("fields", HOSTILE_FIELDS, ids=lambda value: repr(value)[:60])
def test_hostile_fields_are_corrupt_and_named(fields):
    with pytest.raises(CorruptCacheError, match="/where/it/is") as caught:
        manifest.from_bytes(changed(**fields), "/where/it/is")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}",
        b"0" * 16 + b"\n",
        sign(b""),
        sign(b"null"),
        sign(b"[]"),
        sign(b"{}"),
        sign(b"\xff\xfe"),
        sign(b'{"format": NaN}'),
        sign(b'{"format": 1, "format": 1}'),
        sign(b'{"format": ' + b"9" * 10**6 + b"}"),
        sign(b"[" * 10**6),
        sign(b'{"a":' * 10**5),
    ],
    ids=lambda content: repr(content)[:40],
)
def test_hostile_bytes_are_corrupt(content):
    with pytest.raises(CorruptCacheError):
        manifest.from_bytes(content, "f")


def test_every_flipped_or_missing_byte_is_noticed():
    content = manifest.to_bytes(MANIFEST)
    for at in range(len(content) - 1):
        flipped = bytearray(content)
        flipped[at] ^= 1
        for damaged in (bytes(flipped), content[:at]):
            with pytest.raises(CorruptCacheError):
                manifest.from_bytes(damaged, "f")


@given(
    st.sampled_from(sorted(json.loads(manifest.to_bytes(MANIFEST).splitlines()[0]))),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda children: st.one_of(
            st.lists(children, max_size=3), st.dictionaries(st.text(max_size=5), children)
        ),
        max_leaves=5,
    ),
)
@settings(max_examples=300, deadline=None)
def test_any_value_of_any_field_is_accepted_or_corrupt(key, value):
    with contextlib.suppress(CorruptCacheError, UnsupportedError):
        manifest.from_bytes(changed(**{key: value}), "f")
