"""TensorFlow's element_spec and ydl's Schema, each from the other.

tf.data flattens an element by itself, with dictionary keys sorted; a Schema keeps them as the user
wrote them. `nest_order` is the bridge between the two orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Optional, TypeVar, Union, cast

import tensorflow as tf

from ydl.errors import CorruptCacheError, UnsupportedError
from ydl.schema import (
    DTYPES,
    DictNode,
    NamedTupleNode,
    Node,
    NoneNode,
    RaggedNode,
    Schema,
    Shape,
    SparseNode,
    TensorNode,
    TupleNode,
    is_class_name,
    is_field_name,
)

Leaf = Union[TensorNode, RaggedNode, SparseNode]

_F = TypeVar("_F", bound=Callable[..., Any])

_NONE_SPEC = tf.type_spec_from_value(None)

# tf.data can hold a float8 tensor but neither batch nor unbatch it (TensorFlow 2.15 and 2.21:
# "Unhandled data type"), so that such a dataset could be neither read nor fed in blocks.
_REFUSED_DTYPES = frozenset(name for name in DTYPES if name.startswith("float8"))


def schema_from_spec(element_spec: Any) -> Schema:
    """The Schema of a dataset's element_spec.

    UnsupportedError names the component that cannot be cached, its type, and what to do.
    """
    schema = Schema(_node(element_spec, "element"))
    try:
        # What is written must be readable: the limits on depth and width are the reader's.
        Schema.from_json(schema.to_json())
    except CorruptCacheError as error:
        raise UnsupportedError(f"cannot cache elements of this structure: {error}") from None
    return schema


def spec_from_schema(schema: Schema) -> Any:
    """The element_spec of records: equal to the source's, with dicts for all its mappings."""
    return _fill_none(schema.map_leaves(leaf_spec))


def batched_spec(schema: Schema, rows: Optional[int]) -> Any:
    """The element_spec that `.batch()` gives. rows: the batches' static size, None if it varies."""

    def batched(leaf: Leaf) -> Any:
        shape = tf.TensorShape([rows]).concatenate(tf.TensorShape(leaf.shape))
        dtype = tf.as_dtype(leaf.dtype)
        if isinstance(leaf, RaggedNode):
            splits = tf.as_dtype(leaf.row_splits_dtype)
            return tf.RaggedTensorSpec(shape, dtype, leaf.ragged_rank + 1, splits)
        if isinstance(leaf, SparseNode):
            return tf.SparseTensorSpec(shape, dtype)
        return tf.TensorSpec(shape, dtype)

    return _fill_none(schema.map_leaves(batched))


def leaf_spec(leaf: Leaf) -> Any:
    dtype = tf.as_dtype(leaf.dtype)
    if isinstance(leaf, RaggedNode):
        splits = tf.as_dtype(leaf.row_splits_dtype)
        return tf.RaggedTensorSpec(leaf.shape, dtype, leaf.ragged_rank, splits)
    if isinstance(leaf, SparseNode):
        return tf.SparseTensorSpec(leaf.shape, dtype)
    return tf.TensorSpec(leaf.shape, dtype, leaf.name)


def leaf_components(leaf_value: Any) -> list[tf.Tensor]:
    """The dense tensors that a leaf's value is made of, in the Schema's order."""
    return list(tf.nest.flatten(leaf_value, expand_composites=True))


def leaf_value(leaf: Leaf, components: Sequence[tf.Tensor]) -> Any:
    """What leaf_components took apart."""
    return tf.nest.pack_sequence_as(leaf_spec(leaf), list(components), expand_composites=True)


def nest_order(schema: Schema) -> list[int]:
    """Positions of the leaves in the order in which tf.data flattens an element."""
    index = itertools.count()
    tree = schema.map_leaves(lambda leaf: next(index))
    return [position for position in tf.nest.flatten(tree) if position is not None]


def declare_spec(dataset: tf.data.Dataset, element_spec: Any) -> tf.data.Dataset:
    """The same dataset under another element_spec that flattens to the same tensors.

    A dataset op knows only the flat list of its tensors; how they nest, and what they are called,
    is in the Python object alone. So this adds no work per element, where a map() would.
    """
    declared = tf.data.experimental.from_variant(
        tf.data.experimental.to_variant(dataset), element_spec
    )
    # The Python functions inside live as long as the Python object that made them.
    declared._ydl_declared_from = dataset
    return declared


def not_converted(function: _F) -> _F:
    """Decorator: AutoGraph leaves the function as it is when it is called in a tf.function."""
    return cast(_F, tf.autograph.experimental.do_not_convert(function))


def _fill_none(tree: Any) -> Any:
    return tf.nest.map_structure(lambda spec: _NONE_SPEC if spec is None else spec, tree)


def _node(spec: Any, path: str) -> Node:
    if type(spec) is type(_NONE_SPEC):
        return NoneNode()
    if type(spec) is tf.TensorSpec:
        return TensorNode(_dtype(spec, path), _shape(spec), spec.name)
    if type(spec) is tf.RaggedTensorSpec:
        return _ragged_node(spec, path)
    if type(spec) is tf.SparseTensorSpec:
        return SparseNode(_dtype(spec, path), _shape(spec))
    if isinstance(spec, dict):
        return _dict_node(spec, path)
    if isinstance(spec, tuple):
        return _tuple_node(spec, path)
    raise UnsupportedError(
        f"cannot cache {path}: its type is {_type_name(spec)} ({spec!r:.200}); ydl caches tensors, "
        "ragged tensors, sparse tensors and None, nested in tuples, named tuples and dictionaries: "
        "map the dataset to such elements, or leave this one out"
    )


def _ragged_node(spec: tf.RaggedTensorSpec, path: str) -> RaggedNode:
    if spec.flat_values_spec is not None:
        raise UnsupportedError(
            f"cannot cache {path}: a RaggedTensor whose flat values are of the type "
            f"{_type_name(spec.flat_values_spec)}; use one over a plain tensor"
        )
    if spec.ragged_rank < 0:
        raise UnsupportedError(
            f"cannot cache {path}: its spec is {spec!r}, which tf.data gives the elements of a "
            "ragged tensor's row; add .map(tf.identity), which makes plain tensors of them"
        )
    return RaggedNode(
        _dtype(spec, path), _shape(spec), spec.ragged_rank, tf.as_dtype(spec.row_splits_dtype).name
    )


def _dict_node(spec: dict[Any, Any], path: str) -> DictNode:
    for key in spec:
        if type(key) not in (str, int):
            raise UnsupportedError(
                f"cannot cache {path}: its key {key!r} is of the type {_type_name(key)}; use "
                "str or int keys"
            )
    items = tuple(_node(item, f"{path}[{key!r}]") for key, item in spec.items())
    return DictNode(tuple(spec), items)


def _tuple_node(spec: tuple[Any, ...], path: str) -> Node:
    fields = getattr(spec, "_fields", None)
    if fields is None:
        return TupleNode(tuple(_node(item, f"{path}[{i}]") for i, item in enumerate(spec)))
    name = type(spec).__name__
    refused = [text for text in fields if not is_field_name(text)]
    if not is_class_name(name):
        refused.append(name)
    if refused:
        raise UnsupportedError(
            f"cannot cache {path}: the named tuple {name!r} uses the name {refused[0]!r}, which "
            "collections.namedtuple refuses when the cache is read; rename it"
        )
    items = tuple(_node(item, f"{path}.{label}") for label, item in zip(fields, spec))
    return NamedTupleNode(name, tuple(fields), items)


def _dtype(spec: Any, path: str) -> str:
    name = str(spec.dtype.name)
    if name not in DTYPES or name in _REFUSED_DTYPES:
        advice = "leave this component out, or map it to a tensor of another dtype"
        if name in _REFUSED_DTYPES:
            advice = "tf.data can neither batch nor unbatch it; cast it to tf.bfloat16 (exact)"
        raise UnsupportedError(f"cannot cache {path}: its dtype is tf.{name} ({spec!r}); {advice}")
    return name


def _shape(spec: Any) -> Shape:
    shape = spec.shape
    return None if shape.rank is None else tuple(shape.as_list())


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
