"""The seeds of tests/fuzz/corpus/{manifest,schema}; anew only after a change of a format."""

from __future__ import annotations

import json
import os

from ydl import manifest
from ydl.fingerprint import Fingerprint
from ydl.manifest import Manifest, Part
from ydl.schema import (
    DictNode,
    NamedTupleNode,
    NoneNode,
    RaggedNode,
    Schema,
    SparseNode,
    TensorNode,
    TupleNode,
)

_CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")

SCHEMAS = {
    "scalar": TensorNode("int64", ()),
    "unknown_rank": TensorNode("string", None, "name"),
    "tuple": TupleNode((TensorNode("uint8", (28, None)), TensorNode("bfloat16", ()))),
    "dict": DictNode(("a", 7), (TensorNode("bool", ()), TupleNode((TensorNode("int8", (0,)),)))),
    "namedtuple": NamedTupleNode("Pair", ("x", "y"), (NoneNode(), TensorNode("float32", (3,)))),
    "ragged": RaggedNode("int64", (None, None), 1, "int32"),
    "row": RaggedNode("int64", (None,), 0, "int64"),
    "sparse": SparseNode("complex64", (None, 4)),
}


def manifest_of(root) -> Manifest:
    build = "0123456789abcdef" * 2
    return Manifest(
        dataset_id="a/é",
        dataset_version="1",
        number=3,
        schema=None if root is None else Schema(root),
        records=0 if root is None else 7,
        parts=()
        if root is None
        else (Part(build, "00000.ydl", 4, 448, 2**64 - 1), Part(build, "00001.ydl", 3, 448, 0)),
        source=Fingerprint("make", "/a.py", 3, "12ab", "3.11"),
        per_slot_batch_size=32,
        writer="ydl 1",
        host="h",
        time=1,
        reason="" if root is not None else "damaged",
    )


def main() -> None:
    for name, root in SCHEMAS.items():
        write("schema", name, json.dumps(Schema(root).to_json()).encode())
        write("manifest", name, manifest.to_bytes(manifest_of(root)).splitlines()[0])
    write("manifest", "tombstone", manifest.to_bytes(manifest_of(None)).splitlines()[0])
    write("manifest", "whole_file", manifest.to_bytes(manifest_of(SCHEMAS["scalar"])))
    deep = {"kind": "tensor", "dtype": "int8", "shape": []}
    for _ in range(70):
        deep = {"kind": "tuple", "items": [deep]}
    write("schema", "too_deep", json.dumps(deep).encode())
    for name, text in {
        "constant": '{"kind": "tensor", "dtype": "int8", "shape": [NaN]}',
        "long_number": '{"kind": "tensor", "dtype": "int8", "shape": [' + "9" * 400 + "]}",
        "negative": '{"kind": "tensor", "dtype": "int8", "shape": [-1]}',
        "keyword": '{"kind": "namedtuple", "name": "class", "fields": ["x"], "items": []}',
        "surrogate": '{"kind": "dict", "keys": ["\\ud800"], "items": [{"kind": "none"}]}',
        "list": "[]",
    }.items():
        write("schema", name, text.encode())
        write("manifest", name, b'{"format": 1, "schema": ' + text.encode() + b"}")


def write(target: str, name: str, content: bytes) -> None:
    directory = os.path.join(_CORPUS, target)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main()
