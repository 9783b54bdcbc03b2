"""`.batch()` called straight on what make_tf_dataset returns: the core's batches."""

from __future__ import annotations

import copy
import gc
import re

import numpy as np
import pytest
from support import numbers, pairs
from tf_support import STRUCTURES, elements, outcome, shape_of_nesting, tf

from ydl.tensorflow import feed, make_tf_dataset


@pytest.fixture
def direct(monkeypatch):
    """The batch sizes that the core was asked for."""
    asked = []
    original = feed._batches

    def batches(stream, rows, *rest):
        asked.append(rows)
        return original(stream, rows, *rest)

    monkeypatch.setattr(feed, "_batches", batches)
    return asked


def cardinality(dataset):
    return int(tf.data.experimental.cardinality(dataset))


def datasets(ref, **options):
    """The same records with and without direct batches."""
    return [
        make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=3), direct_batches=way, **options)
        for way in (True, False)
    ]


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize(
    "name", ["pair", "dict_in_its_own_order", "nested_one_tuple", "string", "varying_vector",
             "zero_size", "empty"]
)  # fmt: skip
def test_batches_are_those_of_tensorflow(ref_of, direct, name, drop_remainder):
    ours, theirs = (
        dataset.batch(3, drop_remainder) for dataset in datasets(ref_of(STRUCTURES[name]()))
    )
    assert direct == [3]
    assert ours.element_spec == theirs.element_spec
    assert shape_of_nesting(ours.element_spec) == shape_of_nesting(theirs.element_spec)
    assert cardinality(ours) == cardinality(theirs)
    for _ in range(2):
        assert outcome(ours) == outcome(theirs)


def test_both_datasets_count_the_same_epochs(ref_of):
    stream = ref_of(numbers(10)).stream(shuffle=True, shuffle_seed=5)
    wanted = [stream.record_numbers(epoch, 0, 10).tolist() for epoch in range(4)]
    records = make_tf_dataset(stream)
    batches = records.batch(4)
    assert np.concatenate([batch.numpy() for batch in batches]).tolist() == wanted[0]
    assert [int(record) for record in records] == wanted[1]
    assert np.concatenate([batch.numpy() for batch in batches.repeat(2)]).tolist() == (
        wanted[2] + wanted[3]
    )
    assert batches.ydl_stream is stream


def test_endless_batches_cross_the_ends_of_epochs(ref_of, direct):
    ref = ref_of(numbers(5))
    ours, theirs = (dataset.batch(4).take(5) for dataset in datasets(ref, repeat=True))
    assert elements(ours) == elements(theirs) and direct == [4]


def test_a_resumed_stream(ref_of):
    ref = ref_of(pairs(50))
    first, second = (
        make_tf_dataset(ref.stream(13, shuffle=True, shuffle_seed=3), direct_batches=way).batch(8)
        for way in (True, False)
    )
    assert cardinality(first) == cardinality(second) == -2  # unknown
    for _ in range(2):
        assert elements(first) == elements(second)


def test_other_arguments_of_batch(ref_of, direct):
    dataset = make_tf_dataset(ref_of(numbers(9)).stream())
    wanted = elements(dataset.batch(4))
    for batches in (
        dataset.batch(np.int64(4)),
        dataset.batch(batch_size=4, drop_remainder=False),
        dataset.batch(4, False, 2, True),
        dataset.batch(4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False),
    ):
        assert elements(batches) == wanted
    assert direct == [4] * 5
    assert elements(dataset.batch(tf.constant(4, tf.int64))) == wanted
    assert elements(dataset.batch(4, tf.constant(False))) == wanted
    assert direct == [4] * 5  # a tensor's value is TensorFlow's business
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        elements(dataset.batch(0))


def test_anything_in_between_gives_the_ordinary_way(ref_of, direct):
    dataset = make_tf_dataset(ref_of(numbers(9)).stream())
    for other in (dataset.map(lambda x: x + 1), dataset.shuffle(9), dataset.take(8)):
        assert sum(len(batch) for batch in other.batch(4)) >= 8
    assert direct == []
    assert len(list(make_tf_dataset(dataset.ydl_stream, direct_batches=False).batch(4))) == 3
    assert direct == []
    batches = make_tf_dataset(dataset.ydl_stream, 3).batch(2)  # of batches
    assert [tuple(batch.shape) for batch in batches] == [(2, 3), (1, 3)]
    assert direct == [3]


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize(
    "records, start, size", [(1000, 0, 3), (1003, 0, 5), (999, 640, 4), (160, 3, 1)]
)
def test_small_batches_that_come_at_once(ref_of, monkeypatch, records, start, size, drop_remainder):
    """The op is asked for several whole batches, then for the rest one by one."""
    asked = []
    original = feed.RecordStream.lend

    def lend(stream, *arguments):
        asked.append(arguments[-1])
        return original(stream, *arguments)

    monkeypatch.setattr(feed.RecordStream, "lend", lend)
    stream = ref_of(pairs(records)).stream(start, shuffle=True, shuffle_seed=3)
    native, generator = (
        make_tf_dataset(stream_of(stream), size, drop_remainder, feed=way)
        for way in ("native", "generator")
    )
    assert native.element_spec == generator.element_spec
    assert cardinality(native) == cardinality(generator)
    for _ in range(3):
        assert elements(native) == elements(generator)
    assert len(asked) == 3 and 1 < asked[0] <= 8
    endless = [
        make_tf_dataset(stream_of(stream), size, drop_remainder, repeat=True, feed=way)
        for way in ("native", "generator")
    ]
    assert elements(endless[0].take(700)) == elements(endless[1].take(700))


def stream_of(stream):
    """A copy, which counts its own epochs."""
    return copy.deepcopy(stream)


def test_a_look_at_the_first_batch_leaves_most_of_a_resumed_epoch(ref_of, caplog):
    dataset = make_tf_dataset(ref_of(numbers(100)).stream(10), 4)
    next(iter(dataset))
    gc.collect()
    list(dataset)
    (message,) = [text for text in caplog.messages if "are skipped" in text]
    left_at = int(re.search("dropped before record ([0-9]+)", message)[1])
    assert 10 + 4 <= left_at < 60


def test_inside_a_function(ref_of, direct):
    dataset = make_tf_dataset(ref_of(numbers(10)).stream())

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for batch in dataset.batch(3):
            result += tf.reduce_sum(batch)
        return result

    assert int(total()) == 45 and direct == [3]


def mapped_parts():
    with open("/proc/self/maps") as lines:
        return sum(".ydl" in line for line in lines)


def test_a_dataset_that_is_dropped_leaves_no_file_mapped(ref_of):
    """At once: the garbage collector, which would find a cycle, is off."""
    gc.collect()
    gc.disable()
    try:
        before = mapped_parts()
        dataset = make_tf_dataset(ref_of(numbers(10)).stream())
        batches = dataset.batch(4)
        assert len(list(batches)) == 3 and mapped_parts() == before + 1
        del batches
        assert mapped_parts() == before + 1
        del dataset
        assert mapped_parts() == before
    finally:
        gc.enable()
