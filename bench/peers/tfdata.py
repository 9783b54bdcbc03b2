"""What tf.data itself offers. None of it can seek: shuffling is a buffer, which is less than what
the others do."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from harness.kinds import BATCH, Kind, Source
from peers.base import Data, Peer
from peers.codec import encode
from peers.feeding import shuffle_buffer, shuffled_batches


class _Native(Peer):
    packages = ("tensorflow-cpu", "tensorflow")

    def tensorflow(self, data: Data) -> Any:
        return shuffled_batches(data.handle, data.kind, data.records)


class CacheFile(_Native):
    def build(self, source: Source, path: str) -> None:
        # A pass writes it. Records come one by one, as from any cache in the place of .cache().
        for _ in _cached(source, path).batch(BATCH):
            pass

    def open(self, source: Source, path: str) -> Any:
        return _cached(source, path)


def _cached(source: Source, path: str) -> Any:
    return source.dataset.cache(os.path.join(path, "cache"))


class SaveLoad(_Native):
    def build(self, source: Source, path: str) -> None:
        source.dataset.save(os.path.join(path, "saved"))

    def open(self, source: Source, path: str) -> Any:
        return tf.data.Dataset.load(os.path.join(path, "saved"))


class TFRecord(Peer):
    packages = ("tensorflow-cpu", "tensorflow")

    def build(self, source: Source, path: str) -> None:
        with tf.io.TFRecordWriter(_record_file(path)) as writer:
            for batch in source.batches():
                for record in encode(source.kind, batch):
                    writer.write(record)

    def open(self, source: Source, path: str) -> Any:
        return tf.data.TFRecordDataset(_record_file(path))

    def tensorflow(self, data: Data) -> Any:
        # Taken apart by the batch, in parallel: much faster than record by record.
        shuffled = data.handle.shuffle(shuffle_buffer(data.kind, data.records))
        return shuffled.batch(BATCH).map(_decoder(data.kind), num_parallel_calls=2).prefetch(2)


def _record_file(path: str) -> str:
    return os.path.join(path, "records.tfrecord")


def _decoder(kind: Kind) -> Any:
    if kind.is_text:
        return lambda records: records

    def decode(records: Any) -> Any:
        rows = tf.io.decode_raw(records, tf.uint8, fixed_length=kind.record_bytes)
        columns, at = [], 0
        for component in kind.components:
            flat = rows[:, at : at + component.bytes]
            at += component.bytes
            columns.append(_values(flat, tf.as_dtype(component.dtype), component.shape))
        return tuple(columns) if len(columns) > 1 else columns[0]

    return decode


def _values(flat: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    if dtype.size > 1:
        flat = tf.bitcast(tf.reshape(flat, [-1, *shape, dtype.size]), dtype)
    return tf.reshape(flat, [-1, *shape])
