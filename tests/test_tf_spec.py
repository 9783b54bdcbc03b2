"""Element specs as schemas, and back; what cannot be cached is refused before it is written."""

from __future__ import annotations

import collections
import types

import pytest
from support import files_in
from tf_support import STRUCTURES, Dataset, shape_of_nesting, tf

from ydl.errors import UnsupportedError
from ydl.schema import Schema
from ydl.tensorflow.spec import batched_spec, schema_from_spec, spec_from_schema


@pytest.mark.parametrize("name", STRUCTURES)
def test_spec_to_schema_and_back(name):
    source = STRUCTURES[name]()
    schema = schema_from_spec(source.element_spec)
    for copy in [schema, Schema.from_json(schema.to_json())]:
        assert copy == schema
        spec = spec_from_schema(copy)
        assert spec == source.element_spec
        assert shape_of_nesting(spec) == shape_of_nesting(source.element_spec)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("rows", [None, 3])
def test_batched_spec_is_that_of_batch(name, rows):
    source = STRUCTURES[name]()
    wanted = source.batch(3, drop_remainder=rows is not None).element_spec
    assert batched_spec(schema_from_spec(source.element_spec), rows) == wanted


# ---- refused: the source, the component's path, its type ----


class Point(tf.experimental.ExtensionType):
    x: tf.Tensor


def with_dtype(dtype):
    return Dataset.range(3).map(lambda i: {"a": i, "b": tf.bitcast(tf.cast(i, tf.uint8), dtype)})


SOURCES = {
    "dataset in a dataset": (lambda: Dataset.range(4).window(2), "element", "DatasetSpec"),
    "variant": (
        lambda: Dataset.range(3).map(
            lambda i: (i, tf.data.experimental.to_variant(Dataset.range(i)))
        ),
        "element[1]",
        "tf.variant",
    ),
    "resource": (
        lambda: Dataset.range(3).map(
            lambda i: {"v": tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])}
        ),
        "element['v']",
        "tf.resource",
    ),
    "optional": (
        lambda: Dataset.range(3).map(lambda i: (i, (tf.experimental.Optional.from_value(i),))),
        "element[1][0]",
        "OptionalSpec",
    ),
    "quantized": (lambda: with_dtype(tf.quint8), "element['b']", "tf.quint8"),
    "extension type": (
        lambda: Dataset.range(3).map(lambda i: (i, Point(i))),
        "element[1]",
        "Point",
    ),
    "key": (lambda: Dataset.from_tensors((1, {1.5: 2})), "element[1]", "1.5 is of the type float"),
    "field": (
        lambda: Dataset.from_tensors(collections.namedtuple("P", ["class"], rename=True)(1)),
        "element",
        "'_0'",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_refused_sources_leave_nothing(name, storage, tmp_path):
    make, path, type_name = SOURCES[name]
    source = make()
    with pytest.raises(UnsupportedError) as caught:
        storage.submit(source, "d", "1")
    assert f"{path}:" in str(caught.value)
    assert type_name in str(caught.value)
    assert files_in(tmp_path) == []

    with pytest.raises(UnsupportedError):
        storage.cacheable("d", "1")(make)()
    assert files_in(tmp_path) == []


# As a subclass of TensorSpec: its bounds would be lost.
class BoundedTensorSpec(tf.TensorSpec):
    pass


BOUNDED = BoundedTensorSpec([], tf.int32)


def refused_specs():
    """Specs of which it takes much to make a dataset."""
    yield tf.TensorArraySpec([], tf.int32), "TensorArraySpec"
    yield BOUNDED, "BoundedTensorSpec"
    yield tf.RaggedTensorSpec([], tf.int32, -1), r"tf\.identity"  # an element of a ragged row
    yield types.MappingProxyType({"a": tf.TensorSpec([], tf.int32)}), "mappingproxy"
    yield tf.TensorSpec([1] * 32, tf.int32), "32 dimensions"
    for name in ["int4", "uint4", "float8_e5m2", "float8_e4m3fn", "qint32"]:
        try:
            dtype = tf.as_dtype(name)
        except TypeError:  # not in this version
            continue
        yield tf.TensorSpec([], dtype), f"tf.{name}"
    spec = tf.TensorSpec([], tf.int32)
    for _ in range(100):
        spec = (spec,)
    yield spec, "deeper"
    yield (), "no tensor"


@pytest.mark.parametrize("spec, words", refused_specs(), ids=lambda value: str(value)[:20])
def test_refused_specs(spec, words):
    with pytest.raises(UnsupportedError, match=words):
        schema_from_spec(spec)
