"""YogaDL and the storage with TensorFlow's own datasets."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support import files_in, run_python, storage_in

tf = pytest.importorskip("tensorflow")

import ydl  # noqa: E402
from ydl.errors import NotCachedError, UnsupportedError  # noqa: E402


@pytest.fixture
def helper(tmp_path):
    config = {"type": "shared_fs", "container_storage_path": str(tmp_path / "cache")}
    return ydl.YogaDL(config, seed=3, offset_records=5, per_slot_batch_size=4)


def test_the_decorators_return_datasets(helper, each_feed):
    calls = []

    @helper.cache_train_dataset("d", "1", shuffle=True)
    def train(n):
        calls.append(n)
        return tf.data.Dataset.range(n).map(lambda i: {"x": i, "y": tf.cast(i, tf.float32)})

    order = np.arange(20)
    np.random.RandomState(3).shuffle(order)
    for _ in range(2):
        dataset = train(20)
        assert isinstance(dataset, tf.data.Dataset) and calls == [20]
        assert dataset.element_spec["y"] == tf.TensorSpec((), tf.float32)
        assert [int(row["x"]) for row in dataset] == order[5:].tolist()
    batched = helper.cache_train_dataset("d", "1", batch_size=4)(train)()
    assert next(iter(batched))["x"].numpy().tolist() == [5, 6, 7, 8]


def test_c12_endless_datasets_are_refused_at_once(tmp_path):
    """C12: unbounded build."""
    storage = storage_in(tmp_path)
    start = time.monotonic()
    with pytest.raises(UnsupportedError, match="infinite"):
        storage.cacheable("d", "1")(lambda: tf.data.Dataset.range(3).repeat())()
    assert time.monotonic() - start < 5 and files_in(tmp_path) == []


def test_c13_errors_of_a_generator_dataset_leave_nothing(tmp_path):
    """C13: the half cache."""

    def fail():
        yield from range(3)
        raise RuntimeError("record 3")

    storage = storage_in(tmp_path)
    dataset = tf.data.Dataset.from_generator(fail, output_types=tf.int64, output_shapes=())
    with pytest.raises(tf.errors.OpError, match="record 3"):
        storage.cacheable("d", "1")(lambda: dataset)()
    assert files_in(tmp_path) == []
    with pytest.raises(NotCachedError):
        storage.fetch("d", "1")
    assert len(storage.cacheable("d", "1")(lambda: tf.data.Dataset.range(4))()) == 4


def test_what_is_no_dataset_is_said(tmp_path):
    for wrong in (None, [1, 2], 5, "x"):
        with pytest.raises(TypeError, match=r"tf\.data\.Dataset"):
            storage_in(tmp_path).cacheable("d", "1")(lambda wrong=wrong: wrong)()


def test_a_first_call_inside_a_tf_function(tmp_path):
    storage = storage_in(tmp_path)
    make = storage.cacheable("d", "1")(lambda: tf.data.Dataset.range(7))

    @tf.function
    def traced():
        return tf.constant(len(make()))

    assert int(traced()) == 7 == len(make())


def test_lines_appear_although_tensorflow_is_imported(tmp_path):
    """TensorFlow's own logging does not count as configured by somebody."""
    code = """
    import sys
    import tensorflow as tf
    from support import storage_in
    storage_in(sys.argv[1]).cacheable("d", "1")(lambda: tf.data.Dataset.range(4))()
    """
    assert "ydl: built d:1: 4 records" in run_python(code, tmp_path).stderr
