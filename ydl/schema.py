"""The structure of a record: which components it has and how they nest.

A schema is a tree of nodes. Its leaves are made of *components*, the dense tensors that the C core
stores: a tensor is one component, a ragged tensor its flat values and row splits, a sparse tensor
its indices, values and dense shape. The tree is kept as JSON in the manifest, never as a pickle;
reading it runs no code and imports nothing.
"""

from __future__ import annotations

import collections
import functools
import keyword
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ydl.errors import CorruptCacheError, UnsupportedError

Shape = Optional[tuple[Optional[int], ...]]  # None: unknown rank; None inside: varies

# Dtypes that NumPy itself knows; the others come from ml_dtypes (or from TensorFlow's copy of it).
_NUMPY_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
_EXTENSION_DTYPES = ["bfloat16", "float8_e5m2", "float8_e4m3fn"]
DTYPES = frozenset([*_NUMPY_DTYPES, *_EXTENSION_DTYPES, "string"])

# A stored tree deeper or wider than this is hostile, not somebody's element structure.
_MAX_DEPTH = 64
_MAX_COMPONENTS = 4096
_MAX_RANK = 31


class RaggedValue(NamedTuple):
    """A ragged record in NumPy: flat_values [values, ...] and one row-split array per ragged
    dimension, outermost first."""

    flat_values: np.ndarray[Any, Any]
    nested_row_splits: tuple[np.ndarray[Any, Any], ...]


class SparseValue(NamedTuple):
    """A sparse record in NumPy: indices int64 [n, rank], values [n], dense_shape int64 [rank]."""

    indices: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    dense_shape: np.ndarray[Any, Any]


class Component(NamedTuple):
    """One dense tensor of a record. `name` is where it stands in the element, for error texts."""

    name: str
    dtype: str
    shape: Shape

    @property
    def is_static(self) -> bool:
        """Every record has the same number of bytes here."""
        return self.has_static_shape and self.dtype != "string"

    @property
    def has_static_shape(self) -> bool:
        return self.shape is not None and None not in self.shape


@dataclass(frozen=True)
class TensorNode:
    dtype: str
    shape: Shape
    name: Optional[str] = None  # the TensorSpec's own name


@dataclass(frozen=True)
class RaggedNode:
    """A RaggedTensor. With ragged_rank 0 it is a row of a ragged tensor: a plain tensor, which
    batching makes ragged again."""

    dtype: str
    shape: Shape
    ragged_rank: int
    row_splits_dtype: str


@dataclass(frozen=True)
class SparseNode:
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class NoneNode:
    pass


@dataclass(frozen=True)
class TupleNode:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class NamedTupleNode:
    name: str
    fields: tuple[str, ...]
    items: tuple[Node, ...]

    def make_class(self) -> Any:
        """The same class for the same name and fields."""
        return _namedtuple_class(self.name, self.fields)


@dataclass(frozen=True)
class DictNode:
    keys: tuple[Union[str, int], ...]
    items: tuple[Node, ...]


Node = Union[TensorNode, RaggedNode, SparseNode, NoneNode, TupleNode, NamedTupleNode, DictNode]


@dataclass(frozen=True)
class Schema:
    """A record's structure. Equal schemas describe interchangeable records."""

    root: Node
    components: tuple[Component, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        components = tuple(_components(self.root, "element"))
        if not components:
            raise UnsupportedError(
                "cannot cache a dataset whose elements hold no tensor (the element is "
                f"{self.root!r}): return at least one tensor per element"
            )
        for component in components:
            if component.shape is not None and len(component.shape) > _MAX_RANK:
                raise UnsupportedError(
                    f"cannot cache {component.name}: it has {len(component.shape)} dimensions, "
                    f"and ydl stores at most {_MAX_RANK} (NumPy's limit less one for a batch)"
                )
        object.__setattr__(self, "components", components)

    @property
    def is_plain(self) -> bool:
        """No ragged or sparse leaf: components and leaves are the same."""
        return all(isinstance(leaf, TensorNode) for leaf in self.leaves())

    @property
    def is_flat_tuple(self) -> bool:
        """Elements are tuples of tensors, so that a record's components are its element."""
        return isinstance(self.root, TupleNode) and _holds_tensors_only(self.root)

    def leaves(self) -> Iterator[Union[TensorNode, RaggedNode, SparseNode]]:
        return _leaves(self.root)

    def packer(self) -> Callable[[Sequence[Any]], Any]:
        """A function that nests one record's (or batch's) components like the element."""
        if _holds_tensors_only(self.root):
            return _wrap(self.root)  # of all components: no slice, no Python frame of ours
        return _packer(self.root, iter(range(len(self.components))))

    def map_leaves(self, leaf: Callable[[Any], Any]) -> Any:
        """The element's nesting with leaf(node) in the place of each leaf."""
        return _map_leaves(self.root, leaf)

    def flatten_leaves(self, element: Any) -> list[Any]:
        """The leaves of a nested element in the order of leaves()."""
        return list(_flatten(self.root, element))

    def to_json(self) -> Any:
        return _to_json(self.root)

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        """Raises CorruptCacheError where `value` (from json.loads) is no schema."""
        try:
            return cls(_from_json(value, depth=0))
        except UnsupportedError as error:
            raise CorruptCacheError(f"the stored schema is not one: {error}") from None

    def numpy_dtypes(self) -> list[np.dtype[Any]]:
        """What NumPy arrays of each component have; object for strings."""
        return [numpy_dtype(component.dtype, component.name) for component in self.components]


def numpy_dtype(name: str, component: str) -> np.dtype[Any]:
    """The NumPy dtype for a stored one. UnsupportedError where it needs ml_dtypes and that is
    not installed."""
    if name == "string":
        return np.dtype(object)
    if name in _NUMPY_DTYPES:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        try:
            return np.dtype(name)  # TensorFlow before 2.12, once imported, brings its own
        except TypeError:
            raise UnsupportedError(
                f"cannot read {component}: NumPy has no {name} of its own; pip install ml_dtypes"
            ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


@functools.cache
def _namedtuple_class(name: str, fields: tuple[str, ...]) -> Any:
    made = collections.namedtuple(name, fields)  # type: ignore[misc]
    # It cannot be imported, so that its instances pickle by what they are made of.
    made.__reduce__ = lambda self: (_make_namedtuple, (name, fields, tuple(self)))  # type: ignore
    return made


def _make_namedtuple(name: str, fields: tuple[str, ...], items: tuple[Any, ...]) -> Any:
    return _namedtuple_class(name, fields)._make(items)


def element_count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def component_count(leaf: Union[TensorNode, RaggedNode, SparseNode]) -> int:
    if isinstance(leaf, RaggedNode):
        return 1 + leaf.ragged_rank
    return 3 if isinstance(leaf, SparseNode) else 1


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (TupleNode, NamedTupleNode, DictNode)):
        return node.items
    return ()


def _child_paths(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    labels: Sequence[Union[str, int]] = range(len(_children(node)))
    if isinstance(node, NamedTupleNode):
        labels = node.fields
    elif isinstance(node, DictNode):
        labels = node.keys
    for child, label in zip(_children(node), labels):
        yield child, f"{path}.{label}" if isinstance(node, NamedTupleNode) else f"{path}[{label!r}]"


def _components(node: Node, path: str) -> Iterator[Component]:
    if isinstance(node, TensorNode) or (isinstance(node, RaggedNode) and not node.ragged_rank):
        yield Component(path, node.dtype, node.shape)
    elif isinstance(node, RaggedNode):
        inner: Shape = None if node.shape is None else (None, *node.shape[node.ragged_rank + 1 :])
        yield Component(f"{path}.flat_values", node.dtype, inner)
        for dim in range(node.ragged_rank):
            yield Component(f"{path}.row_splits[{dim}]", node.row_splits_dtype, (None,))
    elif isinstance(node, SparseNode):
        rank = None if node.shape is None else len(node.shape)
        yield Component(f"{path}.indices", "int64", (None, rank))
        yield Component(f"{path}.values", node.dtype, (None,))
        yield Component(f"{path}.dense_shape", "int64", (rank,))
    for child, child_path in _child_paths(node, path):
        yield from _components(child, child_path)


def _leaves(node: Node) -> Iterator[Union[TensorNode, RaggedNode, SparseNode]]:
    if isinstance(node, (TensorNode, RaggedNode, SparseNode)):
        yield node
    for child in _children(node):
        yield from _leaves(child)


def _holds_tensors_only(node: Node) -> bool:
    """A container of tensors, in which nothing else nests."""
    return isinstance(node, (TupleNode, NamedTupleNode, DictNode)) and all(
        isinstance(child, TensorNode) for child in node.items
    )


def _wrap(node: Node) -> Callable[[Sequence[Any]], Any]:
    """What makes a container of this node's kind from its items."""
    if isinstance(node, NamedTupleNode):
        # What the class's own _make does, without its Python frame.
        return functools.partial(tuple.__new__, node.make_class())
    if isinstance(node, DictNode):
        return _dict_maker(node.keys)
    return tuple


def _dict_maker(keys: tuple[Union[str, int], ...]) -> Callable[[Sequence[Any]], Any]:
    # Called per record: a display takes half as long as zip, and most elements are this small.
    if len(keys) == 2:
        first, second = keys
        return lambda items: {first: items[0], second: items[1]}
    if len(keys) == 3:
        first, second, third = keys
        return lambda items: {first: items[0], second: items[1], third: items[2]}
    return lambda items: dict(zip(keys, items))


def _map_leaves(node: Node, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(node, NoneNode):
        return None
    if isinstance(node, (TensorNode, RaggedNode, SparseNode)):
        return leaf(node)
    return _wrap(node)([_map_leaves(child, leaf) for child in node.items])


def _flatten(node: Node, element: Any) -> Iterator[Any]:
    if isinstance(node, NoneNode):
        return
    if isinstance(node, (TensorNode, RaggedNode, SparseNode)):
        yield element
        return
    parts = [element[key] for key in node.keys] if isinstance(node, DictNode) else element
    for child, part in zip(node.items, parts):
        yield from _flatten(child, part)


def _packer(node: Node, index: Iterator[int]) -> Callable[[Sequence[Any]], Any]:
    if isinstance(node, NoneNode):
        return lambda flat: None
    if isinstance(node, TensorNode) or (isinstance(node, RaggedNode) and not node.ragged_rank):
        return operator.itemgetter(next(index))
    if isinstance(node, RaggedNode):
        at = next(index)
        splits = [next(index) for _ in range(node.ragged_rank)]
        return lambda flat: RaggedValue(flat[at], tuple(flat[i] for i in splits))
    if isinstance(node, SparseNode):
        first = next(index)
        next(index), next(index)
        return lambda flat: SparseValue(*flat[first : first + 3])
    wrap = _wrap(node)
    if node.items and _holds_tensors_only(node):
        # The common case, called per record: one slice instead of a call per component.
        ats = [next(index) for _ in node.items]
        begin, end = ats[0], ats[-1] + 1
        return lambda flat: wrap(flat[begin:end])
    packers = [_packer(child, index) for child in node.items]
    return lambda flat: wrap([pack(flat) for pack in packers])


def _to_json(node: Node) -> Any:
    if isinstance(node, NoneNode):
        return {"kind": "none"}
    if isinstance(node, TensorNode):
        value = {"kind": "tensor", "dtype": node.dtype, "shape": _shape_to_json(node.shape)}
        if node.name is not None:
            value["name"] = node.name
        return value
    if isinstance(node, RaggedNode):
        return {
            "kind": "ragged",
            "dtype": node.dtype,
            "shape": _shape_to_json(node.shape),
            "ragged_rank": node.ragged_rank,
            "row_splits_dtype": node.row_splits_dtype,
        }
    if isinstance(node, SparseNode):
        return {"kind": "sparse", "dtype": node.dtype, "shape": _shape_to_json(node.shape)}
    items = [_to_json(child) for child in node.items]
    if isinstance(node, NamedTupleNode):
        return {"kind": "namedtuple", "name": node.name, "fields": [*node.fields], "items": items}
    if isinstance(node, DictNode):
        return {"kind": "dict", "keys": [*node.keys], "items": items}
    return {"kind": "tuple", "items": items}


def _shape_to_json(shape: Shape) -> Optional[list[Optional[int]]]:
    return None if shape is None else list(shape)


def _from_json(value: Any, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise CorruptCacheError(f"the stored schema nests deeper than {_MAX_DEPTH} levels")
    if not isinstance(value, Mapping):
        raise CorruptCacheError(f"the stored schema holds {value!r:.80} where a node should be")
    kind = value.get("kind")
    if kind == "none":
        return NoneNode()
    if kind in ("tensor", "ragged", "sparse"):
        return _leaf_from_json(kind, value)
    if kind not in ("tuple", "namedtuple", "dict"):
        raise CorruptCacheError(f"the stored schema holds a node of unknown kind {kind!r:.80}")

    stored = _list(value, "items")
    items = tuple(_from_json(item, depth + 1) for item in stored)
    if kind == "tuple":
        return TupleNode(items)
    if kind == "dict":
        keys = _labels(value, "keys", len(items), lambda key: type(key) in (str, int))
        return DictNode(tuple(keys), items)
    fields = _labels(value, "fields", len(items), is_field_name)
    name = value.get("name")
    if not is_class_name(name):
        raise CorruptCacheError(f"the stored namedtuple has the name {name!r:.80}")
    return NamedTupleNode(str(name), tuple(fields), items)


def _labels(
    value: Mapping[str, Any], key: str, count: int, accepts: Callable[[Any], bool]
) -> list[Any]:
    labels = _list(value, key)
    if len(labels) != count or not all(map(accepts, labels)) or len(set(labels)) != count:
        raise CorruptCacheError(f"the stored schema has {key} {labels!r:.80} for {count} items")
    return labels


def is_class_name(text: Any) -> bool:
    """collections.namedtuple accepts it as a class's name: an identifier, no keyword."""
    return isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)


def is_field_name(text: Any) -> bool:
    """collections.namedtuple accepts it as a field's name: also no leading underscore."""
    return is_class_name(text) and not text.startswith("_")


def _leaf_from_json(kind: str, value: Mapping[str, Any]) -> Node:
    dtype = value.get("dtype")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CorruptCacheError(f"the stored schema names the dtype {dtype!r:.80}")
    shape = _shape_from_json(value.get("shape"))
    if kind == "sparse":
        return SparseNode(dtype, shape)
    if kind == "tensor":
        name = value.get("name")
        if name is not None and not isinstance(name, str):
            raise CorruptCacheError(f"the stored tensor has the name {name!r:.80}")
        return TensorNode(dtype, shape, name)

    ragged_rank = value.get("ragged_rank")
    row_splits_dtype = value.get("row_splits_dtype")
    if type(ragged_rank) is not int or not 0 <= ragged_rank <= _MAX_RANK:
        raise CorruptCacheError(f"the stored ragged tensor has the ragged rank {ragged_rank!r:.80}")
    if shape is not None and len(shape) <= ragged_rank:
        raise CorruptCacheError(f"the stored ragged tensor has shape {shape}, rank {ragged_rank}")
    if row_splits_dtype not in ("int32", "int64"):
        raise CorruptCacheError(f"the stored ragged tensor has splits of {row_splits_dtype!r:.80}")
    return RaggedNode(dtype, shape, ragged_rank, row_splits_dtype)


def _shape_from_json(value: Any) -> Shape:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > _MAX_RANK + 1:
        raise CorruptCacheError(f"the stored schema holds the shape {value!r:.80}")
    for size in value:
        if size is not None and (type(size) is not int or not 0 <= size < 2**63):
            raise CorruptCacheError(f"the stored schema holds the dimension {size!r:.80}")
    return tuple(value)


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    items = value.get(key)
    if not isinstance(items, list) or len(items) > _MAX_COMPONENTS:
        raise CorruptCacheError(f"the stored schema holds {items!r:.80} as {key}")
    return items
