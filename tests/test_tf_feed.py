"""make_tf_dataset: epochs, cardinality, errors, modes, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import socket
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import numbers, pairs, run_python, storage_in
from tf_support import STRUCTURES, Dataset, elements, grown, ragged, tf

import ydl
from ydl.tensorflow import feed, make_tf_dataset


@pytest.fixture
def ref_of(ref_of, each_feed):
    """What a test caches here, it reads through both feeds."""
    return ref_of


def ints(dataset):
    """The numbers in a dataset of scalars or of batches."""
    result = []
    for element in dataset:
        result.extend(np.ravel(element).tolist())
    return result


def cardinality(dataset):
    return int(tf.data.experimental.cardinality(dataset))


UNKNOWN, INFINITE = -2, -1


# ---- epochs ----


@pytest.mark.parametrize("batch_size", [None, 3])
def test_each_iterator_is_the_next_epoch(ref_of, batch_size):
    ref = ref_of(numbers(10))
    epochs = ref.stream(shuffle=True, shuffle_seed=5)
    wanted = [[int(i) for i in epochs] for _ in range(6)]
    assert wanted[0] != wanted[1]

    stream = ref.stream(shuffle=True, shuffle_seed=5)
    dataset = make_tf_dataset(stream, batch_size)
    assert ints(dataset) == wanted[0]
    assert ints(dataset) == wanted[1]
    assert ints(dataset.repeat(2)) == wanted[2] + wanted[3]
    assert ints(make_tf_dataset(stream)) == wanted[4]  # the stream counts, not the dataset
    assert [int(i) for i in stream] == wanted[5]


def test_an_iterator_that_nobody_pulls_takes_no_epoch(ref_of):
    stream = ref_of(numbers(10)).stream(shuffle=True, shuffle_seed=5)
    dataset = make_tf_dataset(stream)
    iterators = [iter(dataset), iter(dataset)]
    assert ints(dataset) == stream.record_numbers(0, 0, 10).tolist()
    assert next(iterators[1]).numpy() == stream.record_numbers(1, 0, 1)[0]
    assert next(iterators[0]).numpy() == stream.record_numbers(2, 0, 1)[0]


def test_two_live_iterators_do_not_disturb_each_other(ref_of):
    stream = ref_of(numbers(3000)).stream(shuffle=True, shuffle_seed=5)
    dataset = make_tf_dataset(stream)
    first, second = zip(*Dataset.zip((dataset, dataset)).as_numpy_iterator())
    epochs = {tuple(stream.record_numbers(epoch, 0, 3000)) for epoch in (0, 1)}
    assert {first, second} == epochs


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_resumed_epoch_is_shorter(ref_of, batch_size):
    ref = ref_of(numbers(10))
    dataset = make_tf_dataset(ref.stream(start_offset=17), batch_size)
    assert ints(dataset) == [7, 8, 9]
    assert ints(dataset) == list(range(10))


@pytest.mark.parametrize("batch_size", [None, 4])
def test_dropping_a_resumed_epoch_warns(ref_of, info_log, batch_size):
    dataset = make_tf_dataset(ref_of(numbers(5000)).stream(start_offset=10), batch_size)
    ints(dataset.take(1))
    gc.collect()
    assert ints(dataset)[0] == 0
    assert "repeat=True" in info_log()


def test_an_early_break_ends_the_threads(ref_of):
    ref = ref_of(numbers(100_000))
    dataset = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1))
    ints(dataset.take(1))

    def threads():
        return len(os.listdir("/proc/self/task"))

    before = threads()
    for _ in range(20):
        iterator = iter(dataset)
        next(iterator)
        del iterator
    gc.collect()
    assert threads() <= before + 2  # TensorFlow's own may come and go


# ---- repeat=True ----


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_repeat_crosses_epoch_ends_and_starts_at_the_resume_point(ref_of, drop_remainder):
    ref = ref_of(numbers(10))
    stream = ref.stream(start_offset=14, shuffle=True, shuffle_seed=3)
    wanted = [stream.record_numbers(1, 4, 6), *[stream.record_numbers(e, 0, 10) for e in (2, 3, 4)]]
    wanted = np.concatenate(wanted).tolist()

    dataset = make_tf_dataset(stream, 4, drop_remainder, repeat=True)
    assert cardinality(dataset) == INFINITE
    for _ in range(3):
        batches = list(dataset.take(9).as_numpy_iterator())
        assert [len(batch) for batch in batches] == [4] * 9
        assert np.concatenate(batches).tolist() == wanted
    records = make_tf_dataset(stream, repeat=True)
    assert cardinality(records) == INFINITE
    assert ints(records.take(36)) == wanted
    # It used up no epoch of the stream.
    assert ints(make_tf_dataset(stream)) == wanted[:6]


def test_repeat_of_ragged_batches(ref_of):
    ref = ref_of(Dataset.from_tensor_slices(ragged([1, 2, 3])))
    dataset = make_tf_dataset(ref.stream(), 2, repeat=True)
    assert [batch.row_lengths().numpy().tolist() for batch in dataset.take(3)] == [
        [1, 2],
        [3, 1],
        [2, 3],
    ]


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("source", ["empty", "ragged_rows", "varying_all", "none_in_dict"])
def test_no_records(ref_of, repeat, batch_size, source):
    ref = ref_of(STRUCTURES[source]().take(0))
    dataset = make_tf_dataset(ref.stream(), batch_size, repeat=repeat)
    assert elements(dataset) == []
    assert cardinality(dataset) == 0


def test_a_shard_without_records(ref_of):
    ref = ref_of(numbers(3))
    stream = ref.stream(shard_rank=4, num_shards=5)
    assert ints(make_tf_dataset(stream)) == []
    assert ints(make_tf_dataset(stream, 4, repeat=True)) == []


# ---- C34 ----


def test_c34_cardinality_is_never_wrong(ref_of):
    """C34, cardinality unknown; spec, options and graph mode. Kind: metadata lost at the
    from_generator border."""
    ref = ref_of(numbers(10))
    for batch_size, drop_remainder, count in [
        (None, False, 10),
        (3, False, 4),
        (3, True, 3),
        (5, False, 2),
        (20, False, 1),
        (20, True, 0),
    ]:
        for offset in (0, 20):
            stream = ref.stream(start_offset=offset)
            dataset = make_tf_dataset(stream, batch_size, drop_remainder)
            assert cardinality(dataset) == len(dataset) == count
            assert len(elements(dataset)) == len(elements(dataset)) == count
            assert cardinality(dataset.repeat(2)) == 2 * count
            assert len(elements(dataset.repeat(2))) == 2 * count
            assert len(elements(Dataset.zip((dataset, dataset)))) == count
        resumed = make_tf_dataset(ref.stream(start_offset=11), batch_size, drop_remainder)
        assert cardinality(resumed) == UNKNOWN
        elements(resumed)
        assert len(elements(resumed)) == count

    shard = make_tf_dataset(ref.stream(shard_rank=1, num_shards=3))
    assert len(shard) == len(elements(shard)) == 3


@pytest.mark.parametrize("name", ["scalar", "everything"])
def test_c34_options_and_modes_give_the_same_records(ref_of, name):
    """C34, as above: options, tf.function, and a graph whose iterator is initialised twice."""
    ref = ref_of(STRUCTURES[name]())
    wanted = elements(make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1)).repeat(2))

    options = tf.data.Options()
    options.experimental_deterministic = False
    dataset = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1))
    assert elements(dataset.with_options(options).repeat(2)) == wanted

    dataset = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1))

    def number(element):
        return element if name == "scalar" else element["tensors"][0]

    @tf.function
    def in_function(numbers):
        for element in dataset:
            numbers = tf.concat([numbers, [number(element)]], 0)
        return numbers

    found = [*in_function(tf.zeros([0], tf.int64)), *in_function(tf.zeros([0], tf.int64))]
    eager = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1)).repeat(2)
    in_order = [int(number(element)) for element in eager]
    assert [int(i) for i in found] == in_order

    found = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = make_tf_dataset(ref.stream(shuffle=True, shuffle_seed=1))
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        element = number(iterator.get_next())
        for _ in range(2):
            session.run(iterator.initializer)
            while True:
                try:
                    found.append(session.run(element))
                except tf.errors.OutOfRangeError:
                    break
    assert [int(i) for i in found] == in_order


def test_usual_transformations(ref_of):
    dataset = make_tf_dataset(ref_of(numbers(20)).stream())
    assert ints(dataset.skip(5).take(10).batch(3)) == list(range(5, 15))
    assert sorted(ints(dataset.shuffle(100).prefetch(2))) == list(range(20))
    assert ints(dataset.shard(4, 1)) == [1, 5, 9, 13, 17]
    cached = dataset.cache()
    assert ints(cached) == ints(cached) == list(range(20))
    assert ints(dataset.interleave(lambda i: Dataset.range(i, i + 1))) == list(range(20))


# ---- C35 ----


def test_c35_automatic_sharding_is_off(ref_of):
    """C35, tf.distribute shards again on top of num_shards. Kind: two sharding layers."""
    ref = ref_of(numbers(10))
    wanted = tf.data.experimental.AutoShardPolicy.OFF
    user = ydl.Stream(lambda: iter(range(3)), 3, tf.int64, ())
    for dataset in [
        make_tf_dataset(ref.stream()),
        make_tf_dataset(ref.stream(), batch_size=2),
        make_tf_dataset(ref.stream(), batch_size=2).map(lambda x: x).prefetch(1),
        make_tf_dataset(user),
    ]:
        assert dataset.options().experimental_distribute.auto_shard_policy == wanted


WORKER = """
    import json, os, sys

    rank, ports, root = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]},
        "task": {"type": "worker", "index": rank},
    })
    import tensorflow as tf
    from support import storage_in
    from ydl.tensorflow import make_tf_dataset

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ref = storage_in(root).fetch("d", "1")
    for batch_size in (None, 2):
        dataset = make_tf_dataset(ref.stream(shard_rank=rank, num_shards=2), batch_size)
        if batch_size is None:
            dataset = dataset.batch(2)
        for batch in strategy.experimental_distribute_dataset(dataset):
            for local in strategy.experimental_local_results(batch):
                print(*local.numpy(), end=" ")
        print()
"""


def test_c35_two_workers_get_all_records(tmp_path):
    """C35, as above, in a cluster of two processes."""
    storage_in(tmp_path).submit(numbers(12), "d", "1")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = ",".join(str(server.getsockname()[1]) for server in sockets)
    for server in sockets:
        server.close()
    with ThreadPoolExecutor() as pool:
        workers = [
            pool.submit(run_python, WORKER, rank, ports, tmp_path, timeout=180) for rank in (0, 1)
        ]
    for rank, worker in enumerate(workers):
        result = worker.result()
        assert result.returncode == 0, result.stderr
        records = " ".join(str(number) for number in range(rank, 12, 2))
        assert [line.strip() for line in result.stdout.splitlines()] == [records, records]


@pytest.mark.parametrize("batch_size", [None, 2])
def test_mirrored_strategy_on_one_cpu(ref_of, batch_size):
    dataset = make_tf_dataset(ref_of(numbers(9)).stream(), batch_size)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    distributed = strategy.experimental_distribute_dataset(
        dataset if batch_size else dataset.batch(2)
    )
    found = []
    for batch in distributed:
        strategy.run(lambda x: found.extend(x.numpy().tolist()), args=(batch,))
    assert found == list(range(9))


# ---- errors ----


@pytest.mark.parametrize("name", ["varying_vector", "varying_last", "varying_all"])
def test_different_shapes_are_the_error_that_batch_gives(ref_of, name):
    source = STRUCTURES[name]()
    dataset = make_tf_dataset(ref_of(source).stream(), batch_size=10)
    with pytest.raises(tf.errors.OpError) as by_batch:
        elements(source.batch(10))
    with pytest.raises(tf.errors.OpError) as by_ydl:
        elements(dataset)
    assert type(by_ydl.value) is type(by_batch.value) is tf.errors.InvalidArgumentError
    assert "Cannot batch tensors with different shapes in component 0." in str(by_ydl.value)
    # TensorFlow has two texts; both give the two shapes, as this one does.
    shapes = {"varying_vector": ("[0]", "[1]"), "varying_last": ("[2,0]", "[2,1]")}
    for shape in shapes.get(name, ("[0,0,2]", "[1,1,2]")):
        assert shape in str(by_ydl.value)
        assert shape in str(by_batch.value)


def test_errors_of_the_core_reach_the_user(ref_of, tmp_path):
    ref = ref_of(pairs(2000))
    (part,) = tmp_path.rglob("*.ydl/builds/*/*.ydl")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.chmod(0o600)
    part.write_bytes(content)
    for batch_size in (None, 100):
        with pytest.raises(tf.errors.UnknownError, match="CorruptRecordError") as caught:
            elements(make_tf_dataset(ref.stream(), batch_size))
        assert str(part) in str(caught.value)


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"batch_size": 0}, ValueError),
        ({"batch_size": -1}, ValueError),
        ({"batch_size": True}, TypeError),
        ({"batch_size": 2.0}, TypeError),
        ({"batch_size": "2"}, TypeError),
        ({"drop_remainder": True}, ValueError),
    ],
)
def test_wrong_arguments(ref_of, arguments, error):
    with pytest.raises(error, match="batch_size"):
        make_tf_dataset(ref_of(numbers(3)).stream(), **arguments)


def test_numpy_integers_are_integers(ref_of):
    dataset = make_tf_dataset(ref_of(numbers(5)).stream(), np.int64(2))
    assert [len(batch) for batch in dataset] == [2, 2, 1]


def test_what_is_no_stream_is_named(ref_of):
    with pytest.raises(TypeError, match="Stream"):
        make_tf_dataset(ref_of(numbers(3)))


def test_chunk_sizes():
    rows = feed.chunk_records
    assert rows(0) == rows(8) == 1024
    assert rows(800) == 327
    assert rows(1300) == 201
    assert rows(150_000) == 16
    assert rows(1 << 20) == 4
    assert rows(1 << 30) == 1


# ---- the dataset's stream, and what stays behind ----


def test_ydl_stream(ref_of):
    stream = ref_of(numbers(10)).stream()
    dataset = make_tf_dataset(stream)
    assert dataset.ydl_stream is stream
    assert len(dataset.ydl_stream) == 10


def test_a_derived_dataset_keeps_the_stream(ref_of):
    derived = make_tf_dataset(ref_of(numbers(10)).stream(start_offset=4)).map(lambda i: i + 1)
    gc.collect()
    assert ints(derived) == [5, 6, 7, 8, 9, 10]
    assert ints(derived) == list(range(1, 11))


def test_a_dataset_outlives_its_stream_inside_a_function(ref_of):
    ref = ref_of(numbers(10))

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for number in make_tf_dataset(ref.stream()):
            result += number
        return result

    assert int(total()) == 45
    gc.collect()
    assert int(total()) == 45


def held_files(directory):
    """Descriptors and maps of this process that lie in a directory."""
    held = []
    for number in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the descriptor of this very listing
            pass
    with open("/proc/self/maps") as maps:
        held += [line.split()[-1] for line in maps]
    return [path for path in held if path.startswith(str(directory))]


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_100_datasets_leave_nothing_behind(storage, tmp_path):
    images = np.zeros((32, 224, 224, 3), np.uint8)  # 4.8 MB
    sources = {
        "fixed": Dataset.from_tensor_slices(images),
        "varying": grown(lambda i: (tf.fill([i, 1000], i), tf.fill([i], "x"))),
    }
    refs = {}
    for name, source in sources.items():
        storage.submit(source, name, "1")
        refs[name] = storage.fetch(name, "1")
    assert held_files(tmp_path) == []

    def use(turn):
        ref = refs["varying" if turn % 4 == 3 else "fixed"]
        kwargs = [{}, {"batch_size": 16}, {"batch_size": 16, "repeat": True}, {}][turn % 4]
        stream = ref.stream(shuffle=True, shuffle_seed=turn)
        by = ["auto", "generator"][turn // 4 % 2]
        dataset = make_tf_dataset(stream, **kwargs, feed=by)
        if turn % 3 == 0:
            dataset = dataset.map(lambda *element: element).prefetch(1)
        steps = [1, 3, None][turn % 3]  # broken off, or read to the end
        if steps is None and "repeat" not in kwargs:
            elements(dataset)
        for _ in dataset.take(steps or 3):
            pass
        return weakref.ref(stream)

    streams = []
    for turn in range(100):
        streams.append(use(turn))
        if turn == 20:
            gc.collect()
            before = resident_bytes()
    gc.collect()
    assert [stream() for stream in streams] == [None] * 100
    refs.clear()
    gc.collect()
    assert held_files(tmp_path) == []
    assert resident_bytes() < before + (150 << 20)


# ---- streams and references that a user made ----


class RangeRef(ydl.DataRef):
    """What a user of yogadl may have written."""

    def __init__(self, records):
        self.records = records

    def stream(
        self,
        start_offset=0,
        shuffle=False,
        skip_shuffle_at_epoch_end=False,
        shuffle_seed=None,
        shard_rank=0,
        num_shards=1,
        drop_shard_remainder=False,
    ):
        keys = list(range(self.records))[shard_rank::num_shards]
        return ydl.Stream(
            iterator_fn=lambda: ({"key": key, "square": [key * key]} for key in keys),
            length=len(keys),
            output_types={"key": tf.int64, "square": np.float32},
            output_shapes={"key": (), "square": (1,)},
        )

    def __len__(self):
        return self.records


def test_a_users_data_ref():
    stream = RangeRef(7).stream(shard_rank=1, num_shards=2)
    dataset = make_tf_dataset(stream)
    assert dataset.ydl_stream is stream
    assert dataset.element_spec == {
        "key": tf.TensorSpec([], tf.int64),
        "square": tf.TensorSpec([1], tf.float32),
    }
    assert cardinality(dataset) == UNKNOWN
    for _ in range(2):
        assert [int(record["key"]) for record in dataset] == [1, 3, 5]
    batches = make_tf_dataset(stream, batch_size=2)
    assert [batch["square"].numpy().tolist() for batch in batches] == [[[1], [9]], [[25]]]
    batches = make_tf_dataset(stream, batch_size=2, drop_remainder=True)
    assert [batch["key"].numpy().tolist() for batch in batches] == [[1, 3]]
    repeated = make_tf_dataset(stream, batch_size=2, repeat=True)
    assert cardinality(repeated) == INFINITE
    assert [b["key"].numpy().tolist() for b in repeated.take(3)] == [[1, 3], [5, 1], [3, 5]]


def test_a_users_stream_without_shapes():
    dataset = make_tf_dataset(ydl.Stream(lambda: iter([[1], [2, 3]]), 2, tf.int32))
    assert dataset.element_spec == tf.TensorSpec(None, tf.int32)
    assert [record.numpy().tolist() for record in dataset] == [[1], [2, 3]]


def test_a_users_stream_needs_types():
    with pytest.raises(TypeError, match="output_types"):
        make_tf_dataset(ydl.Stream(lambda: iter([1]), 1))


def test_a_users_stream_of_our_records(ref_of):
    """A wrapper around a stream of ours: its types and shapes serve it."""
    inner = ref_of(grown(lambda i: {"b": i, "a": tf.strings.as_string(i)})).stream()
    wrapped = ydl.Stream(
        lambda: (record for record in inner if record["b"] % 2),
        5,
        inner.output_types,
        inner.output_shapes,
    )
    found = [(int(r["b"]), r["a"].numpy()) for r in make_tf_dataset(wrapped)]
    assert found == [(1, b"1"), (3, b"3"), (5, b"5"), (7, b"7"), (9, b"9")]


def test_a_users_error_reaches_him():
    def generate():
        yield 1
        raise KeyError("no such key")

    dataset = make_tf_dataset(ydl.Stream(generate, 2, tf.int64, ()))
    with pytest.raises(tf.errors.UnknownError, match="no such key"):
        ints(dataset)
