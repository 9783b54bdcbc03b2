"""The structure of a record, and what a hostile one leads to."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.schema import (
    DTYPES,
    DictNode,
    NamedTupleNode,
    NoneNode,
    RaggedNode,
    RaggedValue,
    Schema,
    SparseNode,
    SparseValue,
    TensorNode,
    TupleNode,
)

INT = TensorNode("int64", ())

shapes = st.one_of(
    st.none(),
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=3).map(tuple),
)
dtypes = st.sampled_from(sorted(DTYPES))
names = st.sampled_from(["a", "b", "c", "field", "x1"])
leaves = st.one_of(
    st.builds(TensorNode, dtypes, shapes, st.one_of(st.none(), st.text(max_size=3))),
    st.builds(
        lambda dtype, rank, inner, splits: RaggedNode(
            dtype, (None,) * (rank + inner), rank, splits
        ),
        dtypes, st.integers(0, 3), st.integers(1, 2), st.sampled_from(["int32", "int64"]),
    ),
    st.builds(SparseNode, dtypes, shapes),
)  # fmt: skip


def _containers(children):
    items = st.lists(children, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        items.map(TupleNode),
        st.builds(
            lambda items, labels: DictNode(tuple(labels[: len(items)]), items),
            items,
            st.permutations(["k", 0, "é", -3]),
        ),
        st.builds(
            lambda items, labels: NamedTupleNode("P", tuple(labels[: len(items)]), items),
            items,
            st.permutations(["a", "b", "c"]),
        ),
    )


nodes = st.recursive(st.one_of(leaves, st.just(NoneNode())), _containers, max_leaves=6)


@given(nodes)
@settings(max_examples=300, deadline=None)
def test_json_round_trip(node):
    try:
        schema = Schema(node)
    except UnsupportedError:
        return  # no tensor in it
    stored = json.loads(json.dumps(schema.to_json()))
    assert Schema.from_json(stored) == schema
    assert Schema.from_json(stored).components == schema.components
    assert pickle.loads(pickle.dumps(schema)) == copy.deepcopy(schema) == schema


@given(nodes)
@settings(max_examples=200, deadline=None)
def test_packing_and_flattening_are_inverse(node):
    try:
        schema = Schema(node)
    except UnsupportedError:
        return
    flat = tuple(range(len(schema.components)))
    element = schema.packer()(flat)
    if schema.is_flat_tuple:
        assert element == flat
    values = []
    for leaf in schema.flatten_leaves(element):
        if isinstance(leaf, RaggedValue):
            values += [leaf.flat_values, *leaf.nested_row_splits]
        elif isinstance(leaf, SparseValue):
            values += list(leaf)
        else:
            values.append(leaf)
    assert tuple(values) == flat
    assert len(schema.flatten_leaves(element)) == len(list(schema.leaves()))


def test_namedtuples_of_one_schema_are_one_class_and_pickle():
    schema = Schema(NamedTupleNode("Point", ("x", "y"), (INT, INT)))
    one = schema.packer()((1, 2))
    other = Schema.from_json(schema.to_json()).packer()((1, 2))
    assert type(one) is type(other) and one.x == 1 and one._fields == ("x", "y")
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(copy.deepcopy(one)) is type(one)


def test_a_dict_keeps_its_order():
    schema = Schema(DictNode(("b", "a"), (INT, INT)))
    assert list(schema.packer()((1, 2)).items()) == [("b", 1), ("a", 2)]


def test_elements_without_tensors_are_refused():
    for root in (NoneNode(), TupleNode(()), TupleNode((NoneNode(), DictNode((), ())))):
        with pytest.raises(UnsupportedError, match="no tensor"):
            Schema(root)


def test_too_many_dimensions_are_refused():
    with pytest.raises(UnsupportedError, match="32 dimensions"):
        Schema(TensorNode("int64", (1,) * 32))


def _nested(depth):
    value = {"kind": "none"}
    for _ in range(depth):
        value = {"kind": "tuple", "items": [value]}
    return value


TENSOR = {"kind": "tensor", "dtype": "int64", "shape": []}
RAGGED = {"kind": "ragged", "dtype": "int64", "shape": [None, None], "ragged_rank": 1,
          "row_splits_dtype": "int64"}  # fmt: skip
HOSTILE = [
    None, 5, [], "tensor", {}, {"kind": "code"}, {"kind": []}, {"kind": "none"},
    {**TENSOR, "dtype": "object"}, {**TENSOR, "dtype": None}, {**TENSOR, "dtype": ["int64"]},
    {**TENSOR, "shape": [-1]}, {**TENSOR, "shape": [2**63]}, {**TENSOR, "shape": [1.0]},
    {**TENSOR, "shape": [True]}, {**TENSOR, "shape": "ab"}, {**TENSOR, "shape": [1] * 40},
    {**TENSOR, "name": 5},
    {**RAGGED, "ragged_rank": 40}, {**RAGGED, "ragged_rank": 1.0}, {**RAGGED, "ragged_rank": -1},
    {**RAGGED, "ragged_rank": True}, {**RAGGED, "row_splits_dtype": "int8"},
    {**RAGGED, "shape": [None]},
    {"kind": "tuple"}, {"kind": "tuple", "items": {}}, {"kind": "tuple", "items": [5]},
    {"kind": "tuple", "items": [TENSOR] * 5000},
    {"kind": "dict", "keys": ["a"], "items": []},
    {"kind": "dict", "keys": ["a", "a"], "items": [TENSOR, TENSOR]},
    {"kind": "dict", "keys": [None], "items": [TENSOR]},
    {"kind": "dict", "keys": [["a"]], "items": [TENSOR]},
    {"kind": "dict", "keys": [True], "items": [TENSOR]},
    {"kind": "namedtuple", "name": "P", "fields": ["_x"], "items": [TENSOR]},
    {"kind": "namedtuple", "name": "P", "fields": ["x", "x"], "items": [TENSOR, TENSOR]},
    {"kind": "namedtuple", "name": "P", "fields": ["import"], "items": [TENSOR]},
    {"kind": "namedtuple", "name": "P", "fields": ["x\n"], "items": [TENSOR]},
    {"kind": "namedtuple", "name": "P; import os", "fields": ["x"], "items": [TENSOR]},
    {"kind": "namedtuple", "name": None, "fields": ["x"], "items": [TENSOR]},
    _nested(100),
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:60])
def test_hostile_schemas_are_corrupt(value):
    with pytest.raises(CorruptCacheError) as caught:
        Schema.from_json(value)
    assert len(str(caught.value)) < 400


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
              st.sampled_from(["tensor", "ragged", "sparse", "tuple", "dict", "int64"])),
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.dictionaries(
            st.sampled_from(["kind", "dtype", "shape", "items", "keys", "fields", "name",
                             "ragged_rank", "row_splits_dtype"]),
            children, max_size=5)),
    max_leaves=10,
))  # fmt: skip
@settings(max_examples=500, deadline=None)
def test_any_json_is_a_schema_or_corrupt(value):
    try:
        schema = Schema.from_json(value)
    except CorruptCacheError:
        return
    assert Schema.from_json(schema.to_json()) == schema


def test_numpy_dtypes():
    schema = Schema(TupleNode((TensorNode("string", ()), TensorNode("bool", ()))))
    assert schema.numpy_dtypes() == [np.dtype(object), np.dtype(bool)]
