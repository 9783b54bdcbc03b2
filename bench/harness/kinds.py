"""The datasets that are measured with: the same records for every library.

All are cheap to make, so that what is measured is what a library adds. Importing this needs NumPy
only; pipeline() needs TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

BATCH = 128
# What batches() gives at once, and what whoever reads a pipeline in batches should take.
BLOCK_BYTES = 2 << 20
MAX_BLOCK_RECORDS = 4096

Columns = tuple[np.ndarray, ...]


class Component(NamedTuple):
    dtype: str  # "string": bytes of any length
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=int)) * np.dtype(self.dtype).itemsize


class Kind(NamedTuple):
    """A dataset. `few`: what those build who would take minutes for all of it; their time per
    record does not depend on the number."""

    what: str
    records: int
    few: int
    components: tuple[Component, ...]
    # (random, records) -> values of the components; record i has the value i % len. A last
    # component without values is the record's number.
    make: Callable[[np.random.RandomState, int], tuple[np.ndarray, ...]]

    @property
    def is_text(self) -> bool:
        return self.components[0].dtype == "string"

    @property
    def record_bytes(self) -> int:
        """Of its values; of texts on average."""
        return 1300 if self.is_text else sum(component.bytes for component in self.components)


def _floats(random: np.random.RandomState, n: int) -> tuple[np.ndarray, ...]:
    return random.rand(n).astype(np.float32), random.rand(n).astype(np.float32)


def _noise(*shape: int, most: int = 2**62) -> Callable[..., tuple[np.ndarray, ...]]:
    return lambda random, n: (random.randint(0, 256, (min(n, most), *shape), np.uint8),)


def _texts(random: np.random.RandomState, n: int) -> tuple[np.ndarray, ...]:
    letters = np.frombuffer(b"etaoin shrdlu etaoin shrdlu, cmf", np.uint8)
    texts = np.empty(min(n, 999), object)
    for i in range(len(texts)):
        texts[i] = letters[random.randint(0, 32, random.randint(1000, 1600))].tobytes()
    return (texts,)


_FLOAT = Component("float32", ())
_NUMBER = Component("int64", ())
_DIGIT = Component("uint8", (28, 28))
_ROW = Component("uint8", (784,))
_IMAGE = Component("uint8", (224, 224, 3))
# 64 different images: all would be a constant of hundreds of MB in the pipeline's graph.
_images = _noise(224, 224, 3, most=64)

KINDS = {
    "T": Kind("two float32", 100_000, 6_000, (_FLOAT, _FLOAT), _floats),
    "M": Kind("uint8[28,28] and int64", 60_000, 6_000, (_DIGIT, _NUMBER), _noise(28, 28)),
    "I": Kind("uint8[224,224,3] and int64", 6_000, 800, (_IMAGE, _NUMBER), _images),
    "V": Kind("text of about 1.3 KB", 60_000, 12_000, (Component("string", ()),), _texts),
    "P": Kind("uint8[784] alone", 100_000, 6_000, (_ROW,), _noise(784)),
    "L": Kind("uint8[224,224,3] alone", 6_000, 800, (_IMAGE,), _images),
}


def _values(kind: Kind, records: int) -> list[np.ndarray | None]:
    values = kind.make(np.random.RandomState(1), records)
    return [*values, None] if len(values) < len(kind.components) else [*values]


def block_records(kind: Kind) -> int:
    return max(1, min(MAX_BLOCK_RECORDS, BLOCK_BYTES // kind.record_bytes))


def batches(name: str, records: int, size: int | None = None) -> Iterator[Columns]:
    """The records from the first to the last, in columns of `size` (some MB) at most."""
    kind = KINDS[name]
    values = _values(kind, records)
    size = size or block_records(kind)
    for start in range(0, records, size):
        numbers = np.arange(start, min(start + size, records))
        yield tuple(numbers if value is None else value[numbers % len(value)] for value in values)


def columns(name: str, records: int) -> Columns:
    """All of them at once."""
    return next(batches(name, records, size=records))


def pipeline(name: str, records: int) -> Any:
    """The same records as a tf.data.Dataset."""
    import tensorflow as tf

    values = _values(KINDS[name], records)
    if KINDS[name].components[0] is not _IMAGE:
        all_of_it = columns(name, records)
        return tf.data.Dataset.from_tensor_slices(all_of_it if len(all_of_it) > 1 else all_of_it[0])
    images = tf.constant(values[0])
    if len(values) == 1:
        return tf.data.Dataset.range(records).map(lambda i: images[i % len(images)])
    return tf.data.Dataset.range(records).map(lambda i: (images[i % len(images)], i))


class Source:
    """What is stored: a kind's records, made before anybody measures."""

    def __init__(self, name: str, records: int) -> None:
        self.name = name
        self.kind = KINDS[name]
        self.records = records

    @functools.cached_property
    def dataset(self) -> Any:
        """For those who take a tf.data.Dataset."""
        return pipeline(self.name, self.records)

    def batches(self) -> Iterator[Columns]:
        """The dataset as NumPy, as fast as it comes: for those who store records otherwise."""
        blocks = self.dataset.batch(block_records(self.kind)).prefetch(2)
        for block in blocks.as_numpy_iterator():
            yield block if isinstance(block, tuple) else (block,)


def digest(batch: Columns) -> int:
    """A number that is the same for the same records in any order; the sum over an epoch's batches
    says whether all of its records came."""
    total = 0
    for column in map(np.asarray, batch):
        if column.dtype == object:
            total += sum(len(text) + text[0] + text[-1] for text in column)
        else:
            # Weighted by place, so that a record with its values elsewhere is another one.
            rows = np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8)
            sums = rows.sum(axis=0, dtype=np.int64)
            total += int((sums * (np.arange(len(sums)) % 97 + 1)).sum())
    return total
