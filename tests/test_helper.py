"""YogaDL, the helper of the migration guide."""

from __future__ import annotations

import os
import re
import sys
import types
from typing import NamedTuple, Optional

import numpy as np
import pytest
from support import ArraySource, RecordSource, numbers, ragged_node, run_python

import ydl
from ydl import YogaDL
from ydl.errors import UnsupportedError
from ydl.schema import DictNode, TensorNode, TupleNode


class Made(NamedTuple):
    """What the helper asked make_tf_dataset for."""

    stream: ydl.Stream
    batch_size: Optional[int]
    drop_remainder: bool
    repeat: bool
    feed: str

    def __iter__(self):
        return iter(self.stream)


class Dist(NamedTuple):
    rank: int = 0
    size: int = 1
    local_rank: int = 0


@pytest.fixture(autouse=True)
def tensorflow_side(monkeypatch):
    """ydl.tensorflow without TensorFlow, which test_tf_*.py test."""
    fake = types.ModuleType("ydl.tensorflow")
    fake.session_configs = []
    fake.make_tf_dataset = lambda stream, **options: Made(stream, **options)
    fake.call_outside_function_graph = lambda run: run()
    fake.session_config = lambda local_rank: fake.session_configs.append(local_rank)
    monkeypatch.setitem(sys.modules, "ydl.tensorflow", fake)
    return fake


@pytest.fixture
def config(tmp_path):
    return {"type": "shared_fs", "container_storage_path": str(tmp_path / "cache")}


def batches(n, size, last=None):
    """Records that are batches: ([size, 2], [size])."""
    sizes = [size] * (n - 1) + [last or size]
    root = TupleNode((TensorNode("float32", (None, 2)), TensorNode("int64", (None,))))
    return RecordSource(
        root, [[np.zeros((size, 2), np.float32), np.arange(size)] for size in sizes]
    )


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# ---- what the decorators do ----


def test_train_and_validation_differ_as_the_table_says(config):
    options = {"dist": Dist(1, 3), "per_slot_batch_size": 2, "seed": 7, "offset_records": 4}
    helper = YogaDL(config, **options)
    train = helper.cache_train_dataset("d", "1", shuffle=True)(lambda: numbers(10))()
    valid = helper.cache_validation_dataset("d", "1", shuffle=True)(lambda: numbers(11))()

    assert train.stream.start == (1, 1) and len(train.stream) == 3  # 9 of 10, three for each
    epochs = [np.arange(9)[1::3] for _ in range(4)]
    for epoch, keys in enumerate(epochs):
        np.random.RandomState(7 + epoch).shuffle(keys)
    assert list(train) == epochs[1].tolist()[1:] and list(train) == epochs[2].tolist()

    keys = np.arange(11)[1::3]
    np.random.RandomState(7).shuffle(keys)
    assert valid.stream.start == (0, 0) and len(valid.stream) == 4  # every record on some rank
    assert list(valid) == list(valid) == keys.tolist()
    assert sorted(os.listdir(os.path.join(config["container_storage_path"], "d"))) == [
        "1_train.ydl",
        "1_val.ydl",
    ]
    assert train[1:] == (None, False, False, "auto")


def test_options_of_the_decorators(config):
    helper = YogaDL(config, dist=Dist(0, 3), seed=1)
    made = helper.cache_train_dataset(
        "d", "1", True, True, batch_size=4, drop_remainder=True, repeat=True,
        drop_shard_remainder=False, feed="generator",
    )(lambda: numbers(10))()  # fmt: skip
    assert made[1:] == (4, True, True, "generator") and len(made.stream) == 4
    assert list(made) == list(made)  # skip_shuffle_at_epoch_end
    made = helper.cache_validation_dataset(
        "d", "1", batch_size=4, drop_remainder=True, repeat=True, drop_shard_remainder=True
    )(lambda: numbers(10))()
    assert made[1:] == (4, True, True, "auto") and len(made.stream) == 3
    with pytest.raises(TypeError):
        helper.cache_train_dataset("d", "1", True, False, 4)
    with pytest.raises(TypeError):
        helper.cache_validation_dataset("d", "1", True, 4)


def test_make_decorator_is_the_guides(config):
    helper = YogaDL(config, offset_records=3)
    made = helper.make_decorator(
        dataset_id="d", dataset_version="1", shuffle=False, skip_shuffle_at_epoch_end=False,
        drop_shard_remainder=True,
    )(lambda: numbers(10))()  # fmt: skip
    assert list(made) == [3, 4, 5, 6, 7, 8, 9]
    assert len(helper.storage.fetch("d", "1")) == 10


def test_attributes_are_read_when_the_function_is_called(config):
    helper = YogaDL(config, Dist(), 2, 1, 5)

    @helper.cache_train_dataset("d", "1")
    def make():
        return numbers(10)

    assert list(make()) == [5, 6, 7, 8, 9]
    helper.offset_records = 0
    helper.start_epoch = 2
    helper.dist = Dist(1, 2)
    helper.per_slot_batch_size = 3
    assert list(make()) == [1, 3, 5, 7, 9] and make().stream.start == (2, 0)
    assert helper.config is config and helper.seed == 1


def test_start_epoch_is_keyword_only_and_counts_for_training_only(config):
    helper = YogaDL(config, offset_records=3, start_epoch=2)
    assert helper.cache_train_dataset("d", "1")(lambda: numbers(10))().stream.start == (2, 3)
    assert helper.cache_validation_dataset("d", "1")(lambda: numbers(10))().stream.start == (0, 0)
    with pytest.raises(TypeError):
        YogaDL(config, None, None, None, 0, None, None, None, 2)


def test_the_function_keeps_its_name_gets_its_arguments_and_runs_once(config):
    helper = YogaDL(config)
    calls = []

    @helper.cache_train_dataset("d", "1")
    def make(n, *, step=1):
        "Makes n."
        calls.append((n, step))
        return numbers(n * step)

    assert (make.__name__, make.__doc__) == ("make", "Makes n.")
    assert len(make(3, step=2).stream) == len(make(5).stream) == 6
    assert calls == [(3, 2)]


def test_shuffling_needs_a_seed_where_it_changes(config):
    helper = YogaDL(config)
    with pytest.raises(ValueError, match="shuffle_seed"):
        helper.cache_train_dataset("d", "1", shuffle=True)(lambda: numbers(3))()
    helper.cache_validation_dataset("d", "1", shuffle=True)(lambda: numbers(3))()


@pytest.mark.parametrize("version", [1, 1.0, None, b"1"])
def test_versions_must_be_text(config, version):
    helper = YogaDL(config)
    for decorator in (helper.cache_train_dataset, helper.cache_validation_dataset):
        with pytest.raises(TypeError, match="dataset_version") as caught:
            decorator("d", version)
        assert repr(version) in str(caught.value)


def test_odd_ids_are_refused_by_the_decorator(config):
    with pytest.raises(ValueError, match=re.escape("'../x'")):
        YogaDL(config).cache_train_dataset("../x", "1")


# ---- what the log says ----


def test_the_builder_says_what_the_guides_helper_printed_and_a_hit_never_does(tmp_path):
    code = """
    import sys
    import test_helper
    sys.modules["ydl.tensorflow"] = __import__("types").ModuleType("ydl.tensorflow")
    sys.modules["ydl.tensorflow"].make_tf_dataset = lambda stream, **options: stream
    from ydl import YogaDL
    helper = YogaDL({"type": "shared_fs", "container_storage_path": sys.argv[1]}, seed=3,
                    offset_records=14)
    print(len(list(helper.cache_train_dataset("d", "1")(lambda: test_helper.numbers(10))())))
    """
    first, second = (run_python(code, tmp_path) for _ in range(2))
    assert (first.stdout, second.stdout) == ("6\n", "6\n"), first.stderr
    lines = first.stderr.splitlines()
    assert lines[0].startswith("ydl: generating dataset d:1_train! (by <lambda>")
    assert "generating" not in second.stderr
    (hit,) = second.stderr.splitlines()
    assert hit.startswith("ydl: using d:1_train: 10 records, built 2")
    assert hit.endswith(f"in {tmp_path}/d/1_train.ydl; rank 0 of 1, epoch 1, offset 4")


def test_batches_as_records_are_warned_about_where_an_offset_counts(config, caplog):
    for last in (None, 5):
        helper = YogaDL(config, per_slot_batch_size=32, offset_records=64)
        make = helper.cache_train_dataset("d", str(last))(lambda last=last: batches(100, 32, last))
        for _ in range(3):
            make()
        (warning,) = warnings_of(caplog)
        for part in ("batches of 32", "64", "2048", "offset_records=steps_completed (2)"):
            assert part in warning
        assert make().stream.start == (0, 64)  # the arithmetic stays
        caplog.clear()


@pytest.mark.parametrize(
    "source, offset, size",
    [
        (lambda: batches(100, 32), 0, 32),
        (lambda: batches(100, 32), 64, 16),
        (lambda: batches(100, 32), 64, None),
        (lambda: batches(100, 1), 64, 1),
        (lambda: batches(100, 32, 33), 64, 32),
        (lambda: numbers(100), 64, 32),
        (lambda: numbers(0), 64, 32),
        # An image of 32 rows and a label.
        (
            lambda: ArraySource(
                DictNode(("x", "y"), (TensorNode("uint8", (32, 4)), TensorNode("int64", ()))),
                [np.zeros((50, 32, 4), np.uint8), np.arange(50)],
            ),
            64,
            32,
        ),
    ],
)
def test_what_is_not_like_batches_is_not_warned_about(config, caplog, source, offset, size):
    helper = YogaDL(config, per_slot_batch_size=size, offset_records=offset)
    helper.cache_train_dataset("d", "1")(source)()
    assert warnings_of(caplog) == []


def test_ragged_records_can_look_like_batches(config, caplog):
    root = TupleNode((ragged_node(),))
    records = [[np.arange(6), np.array([0, 1, 3, 6])] for _ in range(4)]
    helper = YogaDL(config, per_slot_batch_size=3, offset_records=1)
    helper.cache_train_dataset("d", "1")(lambda: RecordSource(root, records))()
    assert len(warnings_of(caplog)) == 1


def test_a_builders_other_batch_size_is_warned_about_once(config, caplog):
    YogaDL(config, per_slot_batch_size=32).cache_train_dataset("d", "1")(lambda: batches(9, 32))()
    YogaDL(config, per_slot_batch_size=32).cache_train_dataset("n", "1")(lambda: numbers(9))()
    assert warnings_of(caplog) == []
    helper = YogaDL(config, per_slot_batch_size=16)

    def make():
        return batches(9, 16)

    for _ in range(2):
        helper.cache_train_dataset("d", "1")(make)()
        helper.cache_train_dataset("n", "1")(make)()  # single records do for every size
    found = [warning for warning in warnings_of(caplog) if "per_slot_batch_size" in warning]
    assert len(found) == 1
    for part in ("d:1_train", "32", "16", "version", "batch after caching"):
        assert part in found[0]


def test_unused_records_and_empty_ranks_are_said(config, info_log, caplog):
    helper = YogaDL(config, dist=Dist(0, 4))
    helper.cache_train_dataset("d", "1")(lambda: numbers(10))()
    assert "leaves the last 2 of the 10 records of d:1_train unused" in info_log()
    helper.cache_train_dataset("even", "1")(lambda: numbers(8))()
    helper.cache_validation_dataset("d", "1")(lambda: numbers(10))()
    assert info_log().count("drop_shard_remainder leaves") == 1 and warnings_of(caplog) == []
    helper.cache_validation_dataset("few", "1")(lambda: numbers(2))()
    assert warnings_of(caplog) == ["ranks 2 to 3 of 4 get no record of few:1_val: it has 2 records"]


# ---- configuration ----


def test_shared_fs_ignores_the_coordinator_and_its_own_host_path(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HOME", str(tmp_path))
    helper = YogaDL(
        {"type": "shared_fs", "host_storage_path": "/x", "container_storage_path": None,
         "part_bytes": 2000, "verify": "always", "wait_timeout_s": 5},
        None, None, None, 0, "ws://MY-IP-ADDR:9001 nonsense", "/no/file", "name",
    )  # fmt: skip
    helper.cache_train_dataset("d", "1")(lambda: numbers(1000))()
    assert (tmp_path / "data/determined/d/1_train.ydl").is_dir()
    assert len(helper.storage.fetch("d", "1_train").manifest.parts) > 1
    assert warnings_of(caplog) == [] and helper.dist.size == 1


@pytest.mark.parametrize(
    "config, error, words",
    [
        ({}, ValueError, ["'type'", "shared_fs"]),
        ({"type": None}, ValueError, ["'type'"]),
        ({"type": "hdfs"}, ValueError, ["'hdfs'", "shared_fs", "s3", "gcp"]),
        ({"type": "s3"}, ValueError, ["'bucket'", "s3"]),
        ({"type": "gcp", "bucket": None}, ValueError, ["'bucket'", "gcp"]),
        ({"type": "shared_fs", "verify": "x"}, ValueError, ["verify", "'x'"]),
        ({"type": "shared_fs", "part_bytes": "x"}, TypeError, ["part_bytes"]),
        (None, TypeError, ["data_layer"]),
        ("shared_fs", TypeError, ["data_layer"]),
    ],
)
def test_bad_configurations_are_named(config, error, words):
    with pytest.raises(error) as caught:
        YogaDL(config)
    assert all(word in str(caught.value) for word in words)


def test_unknown_keys_are_warned_about(config, caplog):
    YogaDL({**config, "contianer_path": "x", "bucket": "b"})
    (warning,) = warnings_of(caplog)
    assert "bucket, contianer_path" in warning and "container_storage_path" in warning


@pytest.mark.parametrize(
    "config",
    [
        {"type": "s3", "bucket": "b7", "bucket_directory_path": "x", "access_key": "k",
         "secret_key": "TOP-SECRET", "endpoint_url": "http://h", "region": "r",
         "local_cache_container_path": "/c", "local_cache_host_path": "/h", "part_bytes": 1000,
         "addressing_style": "path", "cache_limit_bytes": 1, "connections": 2, "ca_file": "f",
         "skip_verify": True},
        {"type": "gcp", "bucket": "b7"},
        {"type": "gcs", "bucket": "b7"},
    ],
)  # fmt: skip
def test_cloud_types_say_what_is_missing(config, caplog):
    with pytest.raises(UnsupportedError, match=r"b7.*ydl\._net") as caught:
        YogaDL(config, rw_coordinator_url="ws://h:1")
    assert warnings_of(caplog) == [] and "SECRET" not in str(caught.value) + caplog.text


def test_several_processes_get_a_session_config_of_their_gpu(config, tensorflow_side):
    YogaDL(config, dist=Dist(0, 1, 5))
    assert tensorflow_side.session_configs == []
    YogaDL(config, dist=Dist(2, 4, 1))
    assert tensorflow_side.session_configs == [1]
