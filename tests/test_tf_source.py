"""Reading a user's dataset: eagerly, in a session, in a tf.function; once, and all of it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support import files_in, run_python, storage_in
from tf_support import (
    DTYPES,
    STRUCTURES,
    Dataset,
    elements,
    exact,
    from_list,
    six_values,
    tf,
)

import ydl
from ydl.errors import UnsupportedError
from ydl.schema import Component
from ydl.tensorflow import make_tf_dataset, open_source, session_config
from ydl.tensorflow.blocks import block_records


def read(dataset, config=None):
    """All blocks' columns as comparable values, and how many records were in each block."""
    sizes, columns = [], []
    for records, block in open_source(dataset, config).batches():
        assert all(len(rows_of(column)) == records for column in block)
        sizes.append(records)
        arrays = [array for column in block for array in parts_of(column)]
        columns.append([(array.dtype, array.shape, exact(array)) for array in arrays])
    return sizes, columns


def parts_of(column):
    return column if isinstance(column, tuple) else (column,)


def rows_of(column):
    """What has a row for each record: a column, or the shapes beside its elements."""
    return parts_of(column)[-1]


def in_session(make):
    with tf.Graph().as_default():
        return read(make(), tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1))


# Made of tensors that exist outside of any graph.
EAGER_ONLY = ("ragged", "sparse")


@pytest.mark.parametrize("name", [name for name in STRUCTURES if not name.startswith(EAGER_ONLY)])
def test_a_session_reads_what_eager_mode_reads(name):
    assert in_session(STRUCTURES[name]) == read(STRUCTURES[name]())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_session_reads_all_dtypes(dtype):
    six = six_values(dtype)
    _, [[(_, _, content)]] = in_session(lambda: Dataset.from_tensors(six))
    assert content == exact(six[None])


def test_records_are_read_in_blocks():
    sizes, _ = read(Dataset.range(10_000))
    assert sizes == [4096, 4096, 1808]
    sizes, _ = read(Dataset.range(70).map(lambda i: (tf.range(i), i)))
    assert sizes == [32, 32, 6]
    unknown = from_list([np.zeros([2] * (i % 3)) for i in range(10)], tf.TensorSpec(None))
    sizes, _ = read(unknown)  # tf.data cannot batch these
    assert sizes == [1] * 10


VARYING = {
    "first": lambda i: tf.fill([i % 5, 2], i),
    "last": lambda i: tf.fill([2, i % 5], i),
    "last_behind_none": lambda i: tf.ensure_shape(tf.zeros([0, i % 5]), [0, None]),
    "two": lambda i: tf.fill([i % 3, i % 4, 2], i),
    "all": lambda i: tf.fill([i % 3, i % 4, i % 2], tf.strings.as_string(i)),
    "beside_others": lambda i: (i, tf.range(i % 7), {"b": tf.fill([i % 3, i % 2], 1.5), "a": i}),
}


@pytest.mark.parametrize("name", VARYING)
def test_varying_shapes_over_several_blocks(name, tmp_path):
    """Exactly: also how wide no rows are."""
    source = Dataset.range(100).map(VARYING[name])
    for part_bytes in (2000, 1 << 20):
        storage = storage_in(tmp_path, part_bytes=part_bytes)
        storage.submit(source, "d", "1")
        assert elements(make_tf_dataset(storage.fetch("d", "1").stream())) == elements(source)


@pytest.mark.parametrize("dtype", DTYPES)
def test_varying_shapes_of_every_dtype(dtype, ref_of):
    six = six_values(dtype)
    records = [six[:n].reshape(rows, -1) for n, rows in ((6, 2), (0, 1), (6, 3), (3, 1), (5, 5))]
    records.append(six[:0].reshape(0, 3))
    source = from_list(records * 10, tf.TensorSpec([None, None], tf.as_dtype(dtype)))
    assert elements(make_tf_dataset(ref_of(source).stream())) == elements(source)


def test_an_error_between_varying_shapes_passes_through(storage, tmp_path):
    def generate():
        yield from ([0] * n for n in range(40))
        raise RuntimeError("no record 40")

    source = Dataset.from_generator(generate, output_signature=tf.TensorSpec([None], tf.int32))
    with pytest.raises(tf.errors.UnknownError, match="no record 40"):
        storage.submit(source, "d", "1")
    assert files_in(tmp_path) == []


def test_block_sizes_follow_the_record_size():
    def rows(*components):
        return block_records([Component("c", *component) for component in components])

    assert rows(("uint8", ())) == 4096
    assert rows(("uint8", (224, 224, 3)), ("int64", ())) == 13
    assert rows(("float32", (10**6,))) == 1
    assert rows(("string", ())) == 127  # may be an image file each
    assert rows(("bfloat16", (0, 5))) == 4096
    assert rows(("int64", (None,))) == rows(("string", (None, 2))) == 32
    assert rows(("int64", (None,)), ("float32", (10**5,))) == 5
    assert rows(("uint8", (None, 224, 224, 3))) == 13  # if each is one image long
    assert rows(("int64", (None,)), ("uint8", None)) == 1


def test_cardinality():
    assert open_source(Dataset.range(7)).cardinality == 7
    assert open_source(Dataset.range(7).filter(lambda i: i > 3)).cardinality is None
    with tf.Graph().as_default():
        assert open_source(Dataset.range(7)).cardinality == 7
        assert open_source(Dataset.range(7).filter(lambda i: i > 3)).cardinality is None


def test_the_source_may_be_read_again():
    source = open_source(Dataset.range(5))
    for _ in range(2):
        assert [column.tolist() for _, [column] in source.batches()] == [[0, 1, 2, 3, 4]]


def test_c12_source_that_repeats_for_ever(storage, tmp_path):
    """C12, source repeats for ever. Kind: unbounded build, no warning."""
    calls = []

    def generate():
        calls.append(1)
        yield 1

    source = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int32)).repeat()
    with pytest.raises(UnsupportedError, match=r"\.take\(n\)") as caught:
        storage.submit(source, "d", "1")
    assert isinstance(caught.value, ValueError)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"\.take\(n\)"):
        storage.submit(Dataset.range(3).repeat(), "d", "1")
    assert calls == []
    assert files_in(tmp_path) == []
    storage.submit(source.take(5), "d", "1")
    assert len(storage.fetch("d", "1")) == 5


@pytest.mark.parametrize("value", [None, 3, [1, 2], lambda: None, iter(Dataset.range(3))])
def test_what_is_no_dataset_is_named(value, storage):
    with pytest.raises(TypeError, match=type(value).__name__):
        open_source(value)
    with pytest.raises(TypeError):
        storage.cacheable("d", "1")(lambda: value)()


def test_the_users_error_passes_through_and_leaves_nothing(storage, tmp_path):
    def fail(i):
        raise RuntimeError(f"no record {i}")

    source = Dataset.range(9000).map(
        lambda i: tf.cond(i < 8000, lambda: i, lambda: tf.py_function(fail, [i], tf.int64))
    )
    source = source.map(lambda i: tf.reshape(i, []))
    with pytest.raises(tf.errors.UnknownError, match="no record 8000"):
        list(source)
    with pytest.raises(tf.errors.UnknownError, match="no record 8000"):
        storage.submit(source, "d", "1")
    assert files_in(tmp_path) == []


def test_compat_v1_datasets(ref_of):
    source = tf.compat.v1.data.Dataset.range(3)
    assert elements(make_tf_dataset(ref_of(source).stream())) == elements(source)


# ---- graph mode and tf.function ----


def lookup():
    keys = tf.constant(["a", "b"])
    initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1, 2], tf.int64))
    table = tf.lookup.StaticHashTable(initializer, -1)
    return Dataset.from_tensor_slices(["b", "x", "a"]).map(table.lookup)


def test_a_session_initialises_tables(storage):
    with tf.Graph().as_default():
        storage.submit(lookup(), "d", "1")
    assert [int(record) for record in make_tf_dataset(storage.fetch("d", "1").stream())] == [
        2,
        -1,
        1,
    ]


def test_a_dataset_made_in_a_graph_is_read_outside(storage):
    with tf.Graph().as_default():
        source = Dataset.range(3)
    storage.submit(source, "d", "1")
    assert list(storage.fetch("d", "1").stream()) == [0, 1, 2]


def generated_frames():
    """Functions on the stack that AutoGraph has rewritten."""
    frame, names = sys._getframe(), []
    while frame is not None:
        if "__autograph_generated_file" in frame.f_code.co_filename:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.parametrize("way", ["cacheable", "YogaDL"])
def test_decorated_function_inside_a_tf_function(tmp_path, way):
    calls = []

    def make():
        calls.append((tf.executing_eagerly(), generated_frames()))

        def even_or_zero(i):
            if i % 2 == 0:  # AutoGraph's business, in the user's code
                return i
            return tf.constant(0, tf.int64)

        return Dataset.range(6).map(even_or_zero)

    make_ref = storage_in(tmp_path).cacheable("d", "1")(make)

    def from_ref():
        return make_tf_dataset(make_ref().stream())

    config = {"type": "shared_fs", "container_storage_path": str(tmp_path)}
    from_helper = ydl.YogaDL(config).cache_train_dataset("d", "1")(make)
    make_dataset = {"cacheable": from_ref, "YogaDL": from_helper}[way]
    ours = {"cacheable": ["tf__from_ref", "tf__total"], "YogaDL": ["tf__total"]}[way]

    @tf.function
    def total(factor):
        result = tf.constant(0, tf.int64)
        for record in make_dataset():
            result += record * factor
        return result

    assert int(total(tf.constant(10, tf.int64))) == 60
    assert int(total(tf.constant(1, tf.int64))) == 6
    assert calls == [(True, ours)]


def test_a_dataset_of_a_traced_function_is_refused():
    @tf.function
    def traced():
        with pytest.raises(ValueError, match=r"tf\.init_scope"):
            open_source(Dataset.range(3))
        return 0

    traced()


def test_session_config():
    config = session_config(3)
    assert isinstance(config, tf.compat.v1.ConfigProto)
    assert config.gpu_options.visible_device_list == "3"


@pytest.mark.parametrize("switch", ["disable_eager_execution", "disable_v2_behavior"])
def test_without_eager_execution(switch, tmp_path):
    code = f"""
        import sys
        import tensorflow as tf
        from ydl.storage import LFSConfigurations, LFSStorage
        from ydl.tensorflow import make_tf_dataset, session_config

        tf.compat.v1.{switch}()
        storage = LFSStorage(LFSConfigurations(sys.argv[1]), tf.compat.v1.ConfigProto())

        @storage.cacheable("d", "1")
        def make():
            return tf.data.Dataset.range(5).map(lambda i: {{"z": i, "a": tf.strings.as_string(i)}})

        for batch_size in (None, 2):
            dataset = make_tf_dataset(make().stream(), batch_size)
            iterator = tf.compat.v1.data.make_one_shot_iterator(dataset)
            element = iterator.get_next()
            with tf.compat.v1.Session() as session:
                try:
                    while True:
                        print(session.run(element["z"]), end=" ")
                except tf.errors.OutOfRangeError:
                    print()
    """
    result = run_python(code, tmp_path, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "from_generator" not in result.stderr  # TensorFlow's warning about our own call
    assert result.stdout.split() == ["0", "1", "2", "3", "4", "[0", "1]", "[2", "3]", "[4]"]


def test_large_records_keep_their_values(ref_of):
    """Larger than a block, and than a chunk of the feed."""
    records = np.arange(3 << 20, dtype=np.uint32).reshape(3, 1 << 20)
    ref = ref_of(from_list(list(records), tf.TensorSpec([1 << 20], tf.uint32)))
    for got, wanted in zip(make_tf_dataset(ref.stream()), records):
        assert np.array_equal(got.numpy(), wanted)
