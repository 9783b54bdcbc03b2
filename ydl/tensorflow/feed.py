"""Feeding a stream's records to TensorFlow, as a tf.data.Dataset.

    batches:  core ── feed ──> [chunk map] ──> spec ──> options
    records:  core ── feed ──> [chunk map] ──> unbatch ──> [record map] ──> spec ──> options

What is in brackets (routes.py) is there only where shapes vary or leaves are ragged or sparse. A
feed is either the op of native.py or, everywhere and for everything, a generator. There, arrays
cross from NumPy into TensorFlow without a copy: they are C-contiguous and 64-byte aligned, and the
generator is declared by output_types and output_shapes (with an output_signature, or without
shapes, TensorFlow copies every array).
"""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ydl import arguments, batching, log
from ydl.errors import UnsupportedError
from ydl.schema import Schema, component_count
from ydl.stream import RecordStream, Stream
from ydl.tensorflow import native
from ydl.tensorflow.routes import Route, batch_routes, record_routes
from ydl.tensorflow.spec import (
    batched_spec,
    declare_spec,
    nest_order,
    not_converted,
    spec_from_schema,
)

Arrays = tuple[npt.NDArray[Any], ...]


# A chunk should be so large that the cost of a generator call (some 100 us) is spread over many
# records, and so small that it stays in the processor's cache until it has been taken apart.
_CHUNK_BYTES = 256 << 10
_MAX_CHUNK_RECORDS = 1024
# Batches that are asked for at once, at most.
_MAX_GROUP = 8
# Large records: still a few in a chunk, as long as that does not take much memory.
_LARGE_CHUNK_BYTES = 4 << 20
_LARGE_CHUNK_RECORDS = 16


FEEDS = ("auto", "generator", "native")


class Pull(NamedTuple):
    """What to ask of RecordStream.iterate (or lend), and by which feed."""

    form: str
    batch_records: int
    drop_remainder: bool
    endless: bool
    is_native: bool


@not_converted
def make_tf_dataset(
    stream: Union[Stream, RecordStream],
    batch_size: Optional[int] = None,
    drop_remainder: bool = False,
    repeat: bool = False,
    *,
    feed: str = "auto",
    direct_batches: bool = True,
) -> tf.data.Dataset:
    """A tf.data.Dataset over a stream's records.

    Its element_spec is that of the dataset which was cached (batched: with a leading dimension).
    Each new iterator over it is the stream's next epoch. Automatic sharding is switched off in its
    options: a stream already holds one rank's records. `dataset.ydl_stream` is the stream.

    batch_size: records per element, as `.batch(batch_size, drop_remainder)` would give them, but
        put together by the C core, which is the fastest way. None: single records.
    repeat: never end. Batches cross the ends of epochs, and each new iterator starts again where
        the stream starts: the way for Keras' fit(steps_per_epoch=...).
    feed: how records cross into TensorFlow. "native": through an op, without Python; not for
        structures whose shapes vary, ragged and sparse ones among them. "generator": through
        Python, for everything. "auto": native where that works. Elements and their order are the
        same.
    direct_batches: with batch_size=None, `.batch(n)` called on the returned dataset itself is
        answered by batches of the core, as if batch_size=n had been given here. Elements and their
        order are the same. False, or any other transformation before: TensorFlow's own way.

    Errors of the stream reach the reader of the dataset as TensorFlow's errors, with their text:
    ValueErrors (such as records of different shapes in one batch) as InvalidArgumentError, others
    as UnknownError. Its cardinality is set where every iterator has the same number of records,
    that is, unless the stream starts in the middle of an epoch.

    TypeError, ValueError: the arguments are wrong, or feed="native" does not work here.
    """
    if feed not in FEEDS:
        raise ValueError(f"feed is {feed!r}, and should be one of {', '.join(map(repr, FEEDS))}")
    rows = None if batch_size is None else arguments.integer("batch_size", batch_size, minimum=1)
    if drop_remainder and rows is None:
        raise ValueError("drop_remainder=True needs a batch_size: single records leave none over")
    if isinstance(stream, RecordStream):
        dataset = _record_stream_dataset(stream, rows, drop_remainder, repeat, feed)
    elif isinstance(stream, Stream):
        dataset = _user_stream_dataset(stream, rows, drop_remainder, repeat, feed)
    else:
        raise TypeError(
            f"make_tf_dataset expects a ydl.Stream, which DataRef.stream() returns; got "
            f"{stream!r:.200} of the type {type(stream).__name__}"
        )

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    dataset.ydl_stream = stream
    if direct_batches and rows is None and isinstance(stream, RecordStream):
        dataset.batch = _direct_batch(weakref.ref(dataset), stream, repeat, feed)
    return dataset


def _direct_batch(
    records: weakref.ReferenceType[tf.data.Dataset], stream: RecordStream, repeat: bool, feed: str
) -> Callable[..., tf.data.Dataset]:
    """A method batch() for the dataset `records`; weak, since a cycle would keep files open until
    the garbage collector runs."""

    @not_converted
    def batch(
        batch_size: Any, drop_remainder: Any = False, *args: Any, **kwargs: Any
    ) -> tf.data.Dataset:
        """Combines consecutive elements of this dataset, as tf.data.Dataset.batch() does."""
        is_plain = isinstance(batch_size, (int, np.integer)) and isinstance(drop_remainder, bool)
        if is_plain and batch_size > 0:
            # What else it takes says how TensorFlow's own threads would work.
            return make_tf_dataset(stream, int(batch_size), drop_remainder, repeat, feed=feed)
        return tf.data.Dataset.batch(records(), batch_size, drop_remainder, *args, **kwargs)

    return batch


def chunk_records(mean_record_bytes: int) -> int:
    """How many records the core gives at once where TensorFlow takes them apart again."""
    size = max(1, mean_record_bytes)
    at_least = min(_LARGE_CHUNK_RECORDS, max(1, _LARGE_CHUNK_BYTES // size))
    return max(at_least, min(_MAX_CHUNK_RECORDS, _CHUNK_BYTES // size))


def _user_stream_dataset(
    stream: Stream, rows: Optional[int], drop_remainder: bool, repeat: bool, feed: str
) -> tf.data.Dataset:
    """A stream that a user made: one call of his iterator per record."""
    if stream.output_types is None:
        raise TypeError(
            "make_tf_dataset needs to know what the stream's records are: give "
            "Stream(..., output_types=, output_shapes=), nested like a record; "
            f"got output_types=None for {stream!r:.200}"
        )
    if feed == "native":
        raise UnsupportedError(
            f"feed='native' is for streams whose records ydl's core reads: {stream!r:.200} is one "
            "of yours, so that Python has to be asked. Use feed='auto'"
        )
    dataset = _from_generator(stream.iterator_fn, stream.output_types, stream.output_shapes)
    if repeat:
        dataset = dataset.repeat()
    return dataset if rows is None else dataset.batch(rows, drop_remainder=drop_remainder)


def _record_stream_dataset(
    stream: RecordStream, rows: Optional[int], drop_remainder: bool, repeat: bool, feed: str
) -> tf.data.Dataset:
    if rows is None:
        dataset = _records(stream, repeat, feed)
    else:
        dataset = _batches(stream, rows, drop_remainder, repeat, feed)
    return _assert_cardinality(dataset, stream, rows, drop_remainder, repeat)


def _is_native(feed: str, form: str) -> bool:
    if feed == "generator":
        return False
    reason = native.why_not()
    if reason is not None:
        if feed == "native":
            raise UnsupportedError(f"feed='native' does not work here: {reason}")
        _tell_fallback(reason)
        return False
    if form == "batches":
        return True
    if feed == "native":
        raise UnsupportedError(
            "feed='native' is for records whose components all have one shape, and for batches of "
            "such: use feed='auto'"
        )
    return False


@functools.cache
def _tell_fallback(reason: str) -> None:
    """Once in a process."""
    log.info("feeding TensorFlow through Python, since the native op does not work: %s", reason)


def _records(stream: RecordStream, repeat: bool, feed: str) -> tf.data.Dataset:
    schema = stream.schema
    routes = record_routes(schema)
    is_mapped = not all(route.is_row for route in routes)
    order = list(range(len(routes))) if is_mapped else nest_order(schema)

    # The simple form where it will do, that is, where a row is all that there is to a record.
    form = "chunks" if is_mapped or not schema.is_plain else "batches"
    rows = chunk_records(stream.mean_record_bytes)
    pull = Pull(form, rows, False, endless=repeat, is_native=_is_native(feed, form))
    dataset = _from_core(stream, pull, routes, order).unbatch()
    if is_mapped:
        dataset = dataset.map(_record_map(schema, routes))
    return declare_spec(dataset, spec_from_schema(schema))


def _batches(
    stream: RecordStream, rows: int, drop_remainder: bool, repeat: bool, feed: str
) -> tf.data.Dataset:
    schema = stream.schema
    static_rows = rows if drop_remainder else None
    routes = batch_routes(schema, static_rows)
    # The core itself makes dense batches; it knows no ragged or sparse ones.
    form = "batches" if schema.is_plain else "chunks"
    pull = Pull(form, rows, drop_remainder, endless=repeat, is_native=_is_native(feed, form))
    dataset = _from_core(stream, pull, routes, nest_order(schema))
    return declare_spec(dataset, batched_spec(schema, static_rows))


def _record_map(schema: Schema, routes: Sequence[Route]) -> Callable[..., Any]:
    """In the graph: from the rows of one record to the nested element."""

    def record_map(*parts: Any) -> Any:
        leaves = []
        at = 0
        for route in routes:
            leaves.append(route.record(parts[at : at + route.row_parts]))
            at += route.row_parts
        following = iter(leaves)
        return schema.map_leaves(lambda leaf: next(following))

    return record_map


def _from_core(
    stream: RecordStream, pull: Pull, routes: Sequence[Route], order: Sequence[int]
) -> tf.data.Dataset:
    """What the core gives at once, as flat tuples of the routes' rows, in this order of routes."""
    if pull.is_native:
        return _from_op(stream, pull, routes, order)
    columns = [column for at in order for column in routes[at].columns]
    dataset = _from_generator(
        _generator(stream, pull, _item_converter(stream.schema, pull.form, routes, order)),
        tuple(column.dtype for column in columns),
        tuple(tf.TensorShape(column.shape) for column in columns),
    )
    if all(route.rows is None for route in routes):
        return dataset

    def chunk_map(*tensors: tf.Tensor) -> tuple[Any, ...]:
        parts: list[Any] = []
        first = 0
        for at in order:
            route = routes[at]
            own = tensors[first : first + len(route.columns)]
            parts.extend(own if route.rows is None else route.rows(own))
            first += len(own)
        return tuple(parts)

    return dataset.map(chunk_map)


def _from_op(
    stream: RecordStream, pull: Pull, routes: Sequence[Route], order: Sequence[int]
) -> tf.data.Dataset:
    """Batches of components that are leaves: one output of the op for each, in the core's order."""
    detached = stream.detached()
    _, rows, drop_remainder, endless, _ = pull
    group = _group(stream, rows)
    return native.batches(
        lambda: detached.lend(rows, drop_remainder, endless, group),
        [route.columns[0] for route in routes],
        order,
        rows,
        group,
    )


def _group(stream: RecordStream, rows: int) -> int:
    """How many batches to ask the core for at once: some 100 us of TensorFlow's for each question
    are much for small batches. Few in comparison with the epoch, so that who looks at the first
    batch leaves most of it; and none where a batch's shape is known only when it is there, or where
    nothing could be taken apart (routes.py's _empty)."""
    shapes = [component.shape for component in stream.schema.components]
    if any(shape is None or None in shape or 0 in shape for shape in shapes):
        return 1
    batch_bytes = max(1, rows * stream.mean_record_bytes)
    return max(1, min(_MAX_GROUP, _CHUNK_BYTES // batch_bytes, len(stream) // rows // 16))


def _from_generator(
    generator: Callable[[], Any], output_types: Any, output_shapes: Any
) -> tf.data.Dataset:
    """from_generator without the warning that output_types are deprecated, which is no news that
    a user of ydl could do anything about."""

    def is_other(record: logging.LogRecord) -> bool:
        return "output_signature" not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(is_other)
    try:
        return tf.data.Dataset.from_generator(
            generator, output_types=output_types, output_shapes=output_shapes
        )
    finally:
        logger.removeFilter(is_other)


def _generator(
    stream: RecordStream, pull: Pull, convert: Callable[[Arrays], Arrays]
) -> Callable[[], Iterator[Arrays]]:
    """What TensorFlow calls for each pass over the dataset.

    TensorFlow keeps the generators of finished datasets for the life of the process. So this one
    holds not the stream, which keeps files open, but only what can open them again.
    """
    detached = stream.detached()

    def generate() -> Iterator[Arrays]:
        iterator = detached.iterate(*pull[:4])
        try:
            # Not a loop with a yield in it, whose variable would keep the last arrays alive.
            yield from map(convert, iterator)
        finally:
            iterator.close()

    return generate


def _item_converter(
    schema: Schema, form: str, routes: Sequence[Route], order: Sequence[int]
) -> Callable[[Arrays], Arrays]:
    """A function that turns an item of the core's into the arrays of the routes' columns."""
    columns = [column for at in order for column in routes[at].columns]
    dtypes = [np.dtype(column.dtype.as_numpy_dtype) for column in columns]
    if form == "batches":
        # An array is a component is a column.
        places = list(zip(order, dtypes))
        return lambda item: tuple(_as_dtype(item[at], dtype) for at, dtype in places)

    firsts = list(itertools.accumulate(map(component_count, schema.leaves()), initial=0))

    def convert(item: Arrays) -> Arrays:
        parts = batching.chunk_columns(schema.components, item)
        arrays: list[npt.NDArray[Any]] = []
        for at in order:
            arrays.extend(routes[at].arrays(parts[firsts[at] : firsts[at + 1]]))
        return tuple(map(_as_dtype, arrays, dtypes))

    return convert


def _as_dtype(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The array under TensorFlow's own dtype: its bfloat16 and ml_dtypes' may be two classes."""
    return array if array.dtype == dtype else array.view(dtype)


def _assert_cardinality(
    dataset: tf.data.Dataset,
    stream: RecordStream,
    rows: Optional[int],
    drop_remainder: bool,
    repeat: bool,
) -> tf.data.Dataset:
    records = len(stream)
    if repeat and records:
        count = int(tf.data.INFINITE_CARDINALITY)
    elif repeat or stream.starts_at_epoch_begin:
        count = records
        if rows is not None:
            count = records // rows if drop_remainder else -(-records // rows)
    else:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(count))
