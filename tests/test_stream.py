"""Streams in NumPy: epochs, resuming, nesting, batches."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import sys

import numpy as np
import pytest
from support import ArraySource, RecordSource, numbers, pairs, ragged_node, sparse_node

import ydl
from ydl.errors import ShapeMismatchError
from ydl.schema import (
    DictNode,
    NamedTupleNode,
    NoneNode,
    RaggedNode,
    RaggedValue,
    SparseValue,
    TensorNode,
    TupleNode,
)

pytestmark = pytest.mark.usefixtures("threaded")

INT = TensorNode("int64", ())
TEXT = TensorNode("string", ())


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def epochs(stream, count):
    return [[int(record) for record in stream] for _ in range(count)]


# ---- epochs ----


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_c29_every_resume_point_continues_the_same_sequence(ref_of, shuffle, skip, shards):
    """C29: off-by-one-epoch arithmetic."""
    ref = ref_of(numbers(10))
    for rank in range(shards):
        options = {
            "shuffle": shuffle, "skip_shuffle_at_epoch_end": skip, "shuffle_seed": 3,
            "shard_rank": rank, "num_shards": shards,
        }  # fmt: skip
        whole = flat(epochs(ref.stream(**options), 36 // (10 // shards) + 5))
        for k in range(36):
            resumed = flat(epochs(ref.stream(k, **options), 4))
            assert resumed == whole[k:][: len(resumed)]


def test_c29_boundaries_and_odd_offsets(ref_of):
    """C29: offsets at, past or before the ends."""
    ref = ref_of(numbers(10))
    options = {"shuffle": True, "shuffle_seed": 1}
    from_zero = epochs(ref.stream(**options), 3)
    assert epochs(ref.stream(10, **options), 2) == from_zero[1:]
    assert epochs(ref.stream(np.int64(3), **options), 1) == [from_zero[0][3:]]
    assert epochs(ref.stream(25), 2) == [[5, 6, 7, 8, 9], list(range(10))]
    assert epochs(ref.stream(10**18), 1) == [list(range(10))]
    assert ref.stream(20).starts_at_epoch_begin and not ref.stream(25).starts_at_epoch_begin


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("start_offset", -1, ValueError),
        ("start_offset", 2.0, TypeError),
        ("start_offset", True, TypeError),
        ("start_offset", np.float32(2), TypeError),
        ("start_offset", np.bool_(False), TypeError),
        ("start_offset", None, TypeError),
        ("start_offset", "3", TypeError),
        ("start_offset", 2**63, ValueError),
        ("start_epoch", -1, ValueError),
        ("start_epoch", 0.5, TypeError),
        ("num_shards", 0, ValueError),
        ("num_shards", False, TypeError),
        ("shard_rank", -1, ValueError),
        ("shard_rank", 2, ValueError),
        ("shuffle_seed", -1, ValueError),
        ("shuffle_seed", 2**32, ValueError),
        ("shuffle_seed", 1.5, TypeError),
        ("shuffle_seed", True, TypeError),
    ],
)
def test_bad_numbers_are_named_at_once(ref_of, name, value, error):
    ref = ref_of(numbers(10))
    with pytest.raises(error, match=name) as caught:
        ref.stream(**{"num_shards": 2, name: value})
    assert str(value) in str(caught.value)


def test_rank_beyond_the_shards_names_both(ref_of):
    with pytest.raises(ValueError, match="shard_rank is 7, but num_shards is 4"):
        ref_of(numbers(10)).stream(shard_rank=7, num_shards=4)


def test_reshuffling_needs_a_seed(ref_of):
    with pytest.raises(ValueError, match="shuffle_seed"):
        ref_of(numbers(10)).stream(shuffle=True)


@pytest.mark.parametrize("seed", [None, 0, 2**32 - 1])
def test_without_reshuffling_all_epochs_have_one_order(ref_of, seed):
    ref = ref_of(numbers(100))
    stream = ref.stream(shuffle=True, skip_shuffle_at_epoch_end=True, shuffle_seed=seed)
    first, second, third = epochs(stream, 3)
    assert first == second == third != sorted(first)
    assert stream.record_numbers(7, 0, 100).tolist() == first


def test_an_iterator_takes_its_epoch_at_its_first_pull(ref_of):
    stream = ref_of(numbers(5)).stream(shuffle=True, shuffle_seed=1)
    orders = [stream.record_numbers(epoch, 0, 5).tolist() for epoch in range(3)]
    unused, late, early = iter(stream), iter(stream), stream.batches(5)
    assert next(early).tolist() == orders[0]
    assert list(late) == orders[1]
    del unused
    assert list(stream) == orders[2]


def test_two_live_iterators_do_not_disturb_each_other(ref_of):
    stream = ref_of(numbers(3000)).stream(shuffle=True, shuffle_seed=9)
    orders = [stream.record_numbers(epoch, 0, 3000).tolist() for epoch in range(2)]
    assert list(zip(stream, stream)) == list(zip(*orders))


def test_start_epoch_is_where_the_offset_counts_from(ref_of):
    ref = ref_of(numbers(10))
    options = {"shuffle": True, "shuffle_seed": 1}
    whole = epochs(ref.stream(**options), 4)
    assert epochs(ref.stream(3, start_epoch=2, **options), 2) == [whole[2][3:], whole[3]]
    assert epochs(ref.stream(13, start_epoch=2, **options), 1) == [whole[3][3:]]
    assert ref.stream(13, start_epoch=2).start == (3, 3)
    with pytest.raises(TypeError):
        ref.stream(0, False, False, None, 0, 1, False, 2)


def test_record_numbers_cuts_at_the_epochs_end(ref_of):
    stream = ref_of(numbers(10)).stream(shard_rank=1, num_shards=3)
    assert stream.record_numbers(0, 1, 5).tolist() == [4, 7]
    assert stream.record_numbers(0, 3, 5).tolist() == stream.record_numbers(0, 9, 5).tolist() == []
    assert stream.record_numbers(np.int64(0), 0, 1).dtype == np.uint64
    with pytest.raises(ValueError, match="start must be at least 0, not -1"):
        stream.record_numbers(0, -1, 1)


# ---- peeking at a resumed epoch ----


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_peeking_at_a_resumed_epoch_is_warned_about_once(ref_of, caplog):
    stream = ref_of(numbers(100)).stream(start_offset=28)
    assert next(iter(stream)) == 28
    assert warnings_of(caplog) == []
    for _ in range(3):
        next(iter(stream))
    (warning,) = warnings_of(caplog)
    for part in (
        "epoch 0",
        "record 28",
        "29 to 99",
        "epoch 1",
        "repeat=True",
        "call the decorated",
    ):
        assert part in warning


@pytest.mark.parametrize("start", [{"start_offset": 200}, {"start_epoch": 2}])
@pytest.mark.parametrize("source", [numbers, pairs])
def test_peeking_at_an_epoch_resumed_at_its_begin_is_warned_about(ref_of, caplog, start, source):
    stream = ref_of(source(100)).stream(**start)
    batches = stream.batches(10)
    next(batches)
    batches.close()
    list(stream)
    (warning,) = warnings_of(caplog)
    assert "10 to 99" in warning


def test_what_is_no_peeking_is_not_warned_about(ref_of, caplog):
    ref = ref_of(numbers(100))
    for offset in (0, 28):
        finished = ref.stream(offset)
        for _ in range(2):
            list(finished)
        exactly = ref.stream(offset)
        for _ in range(2):
            list(itertools.islice(iter(exactly), 100 - offset))
        live = ref.stream(offset)
        one, other = iter(live), iter(live)
        next(one), next(other)
        remainder = ref.stream(offset)
        for _ in range(2):  # what drop_remainder leaves out is served to nobody
            list(itertools.islice(remainder.batches(30, drop_remainder=True), (100 - offset) // 30))
    fresh = ref.stream()
    for _ in range(3):
        next(iter(fresh))
    endless = ref.stream(28)
    for _ in range(3):
        next(endless.iterate("records", 1, endless=True))
    later = ref.stream(28)
    list(later)
    for _ in range(3):
        next(iter(later))
    assert warnings_of(caplog) == []


# ---- shards without records, empty datasets ----


def test_c09_an_empty_dataset_streams_nothing(ref_of):
    """C09: division by length; schema inferred from the first record."""
    root = TupleNode((TensorNode("int64", (2,)), TEXT))
    ref = ref_of(ArraySource(root, [np.zeros((0, 2), np.int64), np.zeros(0, object)]))
    assert len(ref) == 0 and ref.read([]) == []
    for options in (
        {},
        {"start_offset": 0, "shuffle": True, "shuffle_seed": 1},
        {"start_offset": 7, "start_epoch": 3},
        {"num_shards": 4, "shard_rank": 3, "drop_shard_remainder": True},
    ):
        stream = ref.stream(**options)
        assert len(stream) == 0 and stream.starts_at_epoch_begin
        for _ in range(3):
            assert list(stream) == list(stream.batches(4)) == []
        assert stream.output_types == (np.dtype("int64"), np.dtype(object))
        assert stream.output_shapes == ((2,), ())
        assert stream.record_numbers(0, 0, 5).tolist() == []


def test_more_shards_than_records(ref_of, caplog):
    ref = ref_of(numbers(3))
    streams = [ref.stream(shard_rank=rank, num_shards=8, start_offset=5) for rank in range(8)]
    assert [len(stream) for stream in streams] == [1] * 3 + [0] * 5
    assert [list(stream) for stream in streams] == [[0], [1], [2], [], [], [], [], []]
    assert len(warnings_of(caplog)) == 8  # each rank says so
    assert "ranks 3 to 7 of 8 get no record of d:1: it has 3 records" in caplog.text
    caplog.clear()
    dropped = ref.stream(num_shards=4, drop_shard_remainder=True)
    assert list(dropped) == [] and "ranks 0 to 3 of 4" in caplog.text
    caplog.clear()
    ref.stream(num_shards=4, shard_rank=3)
    assert "rank 3 of 4 gets no record" in caplog.text


# ---- nesting ----


def test_records_and_batches_keep_the_nesting(ref_of):
    root = NamedTupleNode(
        "Row",
        ("image", "more"),
        (
            TensorNode("uint8", (2, 2)),
            DictNode(("b", "a"), (INT, TupleNode((NoneNode(), TEXT)))),
        ),
    )
    images = np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2)
    texts = np.array([b"", b"\0", b"x\0", b"\xff", b"long" * 9], object)
    ref = ref_of(ArraySource(root, [images, np.arange(5), texts]))

    records = list(ref.stream())
    for i, record in enumerate(records):
        assert type(record).__name__ == "Row" and record.image.tolist() == images[i].tolist()
        assert list(record.more) == ["b", "a"]
        assert type(record.more["b"]) is np.int64 and record.more["b"] == i
        assert record.more["a"] == (None, texts[i]) and type(record.more["a"][1]) is bytes
    first, last = ref.stream().batches(3)
    assert type(first) is type(records[0])
    assert first.image.shape == (3, 2, 2) and last.image.tolist() == images[3:].tolist()
    assert first.more["b"].tolist() == [0, 1, 2]
    assert last.more["a"][1].tolist() == texts[3:].tolist()
    assert last.more["a"][0] is None
    assert first.image.ctypes.data % 64 == 0
    types, shapes = ref.stream().output_types, ref.stream().output_shapes
    assert types == ("uint8", {"b": "int64", "a": (None, "O")})
    assert shapes == ((2, 2), {"b": (), "a": (None, ())})


def test_records_of_one_tensor_and_of_one_tuple(ref_of):
    assert list(ref_of(numbers(2)).stream()) == [0, 1]
    one = ref_of(ArraySource(TupleNode((INT,)), [np.arange(2)]), "one")
    assert list(one.stream()) == [(0,), (1,)]
    assert [batch[0].tolist() for batch in one.stream().batches(2)] == [[0, 1]]


def test_records_own_their_memory(ref_of):
    ref = ref_of(pairs(3))
    records = list(ref.stream())
    records[0][1][:] = -1
    assert [record[1].tolist() for record in records] == [[-1] * 3, [1] * 3, [2] * 3]
    assert next(iter(ref.stream()))[1].tolist() == [0] * 3


def test_read_gives_any_records_in_any_order(ref_of):
    ref = ref_of(pairs(2000))
    assert [record[0] for record in ref.read([1999, 0, 7, 7])] == [1999, 0, 7, 7]
    assert [record[0] for record in ref.read(np.array([3, 1]))] == [3, 1]
    assert ref.read([]) == []
    with pytest.raises(IndexError, match="record 2000 of d:1, which has 2000"):
        ref.read([0, 2000])
    for wrong, error in ((-1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error):
            ref.read([wrong])


@pytest.mark.parametrize("size, error", [(0, ValueError), (-1, ValueError), (2.0, TypeError),
                                         (True, TypeError), (None, TypeError)])  # fmt: skip
def test_bad_batch_sizes(ref_of, size, error):
    with pytest.raises(error, match="batch_size"):
        ref_of(numbers(3)).stream().batches(size)


def test_batches_of_a_resumed_epoch_and_drop_remainder(ref_of):
    stream = ref_of(numbers(10)).stream(3)
    assert [batch.tolist() for batch in stream.batches(4)] == [[3, 4, 5, 6], [7, 8, 9]]
    assert [b.tolist() for b in stream.batches(4, drop_remainder=True)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert list(stream.batches(np.int64(2**40), drop_remainder=True)) == []


# ---- varying shapes, ragged and sparse ----


def test_batching_different_shapes_fails_in_tf_datas_words(ref_of):
    root = TupleNode((INT, TensorNode("int64", (None,))))
    ref = ref_of(RecordSource(root, [[i, np.zeros(i + 2, np.int64)] for i in range(3)]))
    assert [record[1].shape for record in ref.stream()] == [(2,), (3,), (4,)]
    with pytest.raises(
        ShapeMismatchError,
        match=r"Cannot batch tensors with different shapes in component 1. First element had "
        r"shape \[2\] and element 1 had shape \[3\].",
    ):
        list(ref.stream().batches(2))
    assert [batch[1].shape for batch in ref.stream().batches(1)] == [(1, 2), (1, 3), (1, 4)]


def ragged(rows, dtype=np.int64, splits=np.int64):
    """[rows, (values)] as flat values and row splits."""
    flat = np.array([value for row in rows for value in row], dtype)
    return [flat, np.cumsum([0, *map(len, rows)]).astype(splits)]


def to_lists(value, level=0):
    """A RaggedValue as nested lists."""
    if level == len(value.nested_row_splits):
        return value.flat_values.tolist()
    inner = to_lists(value, level + 1)
    splits = value.nested_row_splits[level]
    return [inner[begin:end] for begin, end in zip(splits, splits[1:])]


RAGGED_ROWS = [[[1, 2], [], [3]], [], [[4]], [[], []], [[5, 6, 7]]]


@pytest.mark.parametrize("splits", ["int32", "int64"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ragged_batches_get_an_outer_dimension(ref_of, splits, size):
    root = DictNode(("r", "i"), (RaggedNode("int16", (None, None), 1, splits), INT))
    records = [[*ragged(rows, np.int16, splits), i] for i, rows in enumerate(RAGGED_ROWS)]
    ref = ref_of(RecordSource(root, records))
    assert [to_lists(record["r"]) for record in ref.stream()] == RAGGED_ROWS
    assert isinstance(ref.read([0])[0]["r"], RaggedValue)
    served = []
    for batch in ref.stream().batches(size):
        value = batch["r"]
        assert isinstance(value, RaggedValue) and value.flat_values.dtype == np.int16
        assert [s.dtype for s in value.nested_row_splits] == [np.dtype(splits)] * 2
        assert len(value.nested_row_splits[0]) == len(batch["i"]) + 1
        served += to_lists(value)
    assert served == RAGGED_ROWS


def test_ragged_batches_of_two_ragged_dimensions_and_inner_ones(ref_of):
    node = RaggedNode("int64", (None, None, None, 2), 2, "int64")
    # Two records of [blocks, (rows), (cells), 2].
    records = [
        [np.arange(8).reshape(4, 2), np.array([0, 1, 3]), np.array([0, 2, 2, 4])],
        [np.zeros((0, 2), np.int64), np.array([0, 0]), np.array([0])],
        [np.arange(2).reshape(1, 2), np.array([0, 1]), np.array([0, 1])],
    ]
    ref = ref_of(RecordSource(TupleNode((node, INT)), [[*r, i] for i, r in enumerate(records)]))
    single = [to_lists(record[0]) for record in ref.stream()]
    assert single[0] == [[[[0, 1], [2, 3]]], [[], [[4, 5], [6, 7]]]]
    for size in (1, 2, 3):
        batches = list(ref.stream().batches(size))
        assert flat(to_lists(batch[0]) for batch in batches) == single
        assert all(len(batch[0].nested_row_splits) == 3 for batch in batches)


@pytest.mark.parametrize("shape", [(None,), (3,), (None, 2), (3, 2)])
def test_rows_of_a_ragged_batch_become_ragged_again(ref_of, shape):
    """A RaggedTensorSpec of ragged rank 0: its records are plain, its batches are not."""
    node = RaggedNode("int64", shape, 0, "int32")
    sizes = [3, 3, 3] if shape[0] else [0, 2, 1]
    rows = [np.arange(n * 2).reshape(n, 2) if shape[1:] else np.arange(n) for n in sizes]
    ref = ref_of(RecordSource(TupleNode((node,)), [[row] for row in rows]))
    assert [record[0].tolist() for record in ref.stream()] == [row.tolist() for row in rows]
    ((batch,),) = ref.stream().batches(3)
    assert batch.nested_row_splits[0].dtype == np.int32
    assert to_lists(batch) == [row.tolist() for row in rows]


def test_ragged_records_with_different_inner_shapes_do_not_batch(ref_of):
    node = RaggedNode("int64", (None, None, None), 1, "int64")
    records = [[np.zeros((2, width), np.int64), np.array([0, 2])] for width in (2, 3)]
    ref = ref_of(RecordSource(TupleNode((node,)), records))
    with pytest.raises(ShapeMismatchError, match="component 0"):
        list(ref.stream().batches(2))


def sparse(dense):
    dense = np.asarray(dense)
    indices = np.argwhere(dense)
    return [indices, dense[tuple(indices.T)], np.array(dense.shape)]


def densify(value):
    dense = np.zeros(value.dense_shape, value.values.dtype)
    dense[tuple(value.indices.T)] = value.values
    return dense


def test_sparse_batches_get_a_first_dimension(ref_of):
    dense = [np.array([[0, 1], [2, 0]]), np.zeros((1, 3), int), np.array([[5, 0, 0, 6]])]
    root = TupleNode((sparse_node(), TensorNode("int64", (None,))))
    ref = ref_of(RecordSource(root, [[*sparse(d), [i]] for i, d in enumerate(dense)]))
    for record, expected in zip(ref.stream(), dense):
        assert isinstance(record[0], SparseValue)
        assert densify(record[0]).tolist() == expected.tolist()
    for size in (1, 2, 3):
        at = 0
        for value, plain in ref.stream().batches(size):
            rows = dense[at : at + len(plain)]
            assert value.indices.dtype == value.dense_shape.dtype == np.int64
            assert value.dense_shape.tolist() == [len(rows), *np.max([r.shape for r in rows], 0)]
            for got, expected in zip(densify(value), rows):
                assert got[: expected.shape[0], : expected.shape[1]].tolist() == expected.tolist()
                assert got.sum() == expected.sum()
            assert plain.tolist() == [[at + i] for i in range(len(rows))]
            at += len(rows)


def test_sparse_records_of_unknown_rank(ref_of):
    from ydl.schema import SparseNode

    dense = [np.array([1, 0]), np.array([0, 2])]
    ref = ref_of(RecordSource(TupleNode((SparseNode("int64", None),)), [sparse(d) for d in dense]))
    ((batch,),) = ref.stream().batches(2)
    assert densify(batch).tolist() == [[1, 0], [0, 2]]


def test_varying_plain_tensors_beside_ragged_ones(ref_of):
    root = TupleNode((ragged_node(), TensorNode("string", (None,)), TensorNode("int64", None)))
    records = [
        [*ragged([[1]]), np.array([b"a", b"b\0"], object), np.array(1)],
        [*ragged([[2, 3]]), np.array([b"", b"c"], object), np.array(2)],
        [*ragged([[2, 3]]), np.array([b""], object), np.array([2])],
    ]
    ref = ref_of(RecordSource(root, records))
    _, texts, plain = next(ref.stream().batches(2))
    assert texts.tolist() == [[b"a", b"b\0"], [b"", b"c"]] and plain.tolist() == [1, 2]
    with pytest.raises(
        ShapeMismatchError, match=r"component 2\. .* \[2\] and .* 2 had shape \[1\]"
    ):
        next(ref.stream().batches(3))


# ---- a user's own streams ----


def test_user_made_streams_iterate_and_batch():
    records = [(np.int64(i), {"t": b"x\0" * i, "v": [i, i]}, None) for i in range(5)]
    stream = ydl.Stream(lambda: iter(records), 5, "types", "shapes")
    assert list(stream) == records and len(stream) == 5
    assert (stream.output_types, stream.output_shapes) == ("types", "shapes")
    assert stream.length == 5 and list(stream.iterator_fn()) == records
    for _ in range(2):
        first, last = stream.batches(3)
        assert first[0].tolist() == [0, 1, 2] and first[0].dtype == np.int64
        assert first[1]["t"].tolist() == [b"", b"x\0", b"x\0x\0"]
        assert last[1]["v"].tolist() == [[3, 3], [4, 4]] and last[2] is None
    assert len(list(stream.batches(3, drop_remainder=True))) == 1
    with pytest.raises(ValueError, match="batch_size"):
        stream.batches(0)


def test_user_made_streams_whose_shapes_differ():
    stream = ydl.Stream(lambda: iter([(1, np.zeros(2)), (2, np.zeros(3))]), 2)
    with pytest.raises(
        ShapeMismatchError,
        match=r"different shapes in component 1. First element had shape \[2\] and element 1 had "
        r"shape \[3\].",
    ):
        list(stream.batches(2))


def test_user_made_data_refs():
    class MyRef(ydl.DataRef):
        def stream(self, start_offset=0, **options):
            return ydl.Stream(lambda: iter(range(start_offset, 3)), 3)

        def __len__(self):
            return 3

    assert list(MyRef().stream(1)) == [1, 2] and len(MyRef()) == 3
    with pytest.raises(TypeError):
        ydl.DataRef()


# ---- what a stream holds ----


def threads():
    return len(os.listdir("/proc/self/task"))


def maps_of(ref):
    with open("/proc/self/maps") as lines:
        return sum(ref.directory in line for line in lines)


def open_files_of(ref):
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found += ref.directory in os.readlink(f"/proc/self/fd/{fd}")
    return found


@pytest.mark.parametrize("size", [20_000, 20_001])
def test_batches_of_long_rows(storage, size):
    """Those of more than 4 MiB, which are copied in another way."""
    rows = np.random.default_rng(1).integers(0, 256, (1000, size), np.uint8)
    root = TupleNode((TensorNode("int64", ()), TensorNode("uint8", (size,))))
    storage.submit(ArraySource(root, [np.arange(1000), rows], batch=100), "long", "1")
    stream = storage.fetch("long", "1").stream(shuffle=True, shuffle_seed=1)
    for _ in range(2):
        for numbers_, values in stream.batches(300):
            assert np.array_equal(values, rows[numbers_])


def test_small_batches_start_no_thread(ref_of, monkeypatch):
    monkeypatch.undo()  # the fixture that all tests here use
    stream = ref_of(numbers(200_000)).stream()
    before = threads()
    iterators = [stream.batches(128), stream.iterate("chunks", 1000)]
    assert all(next(iterator)[0].size for iterator in iterators) and threads() == before
    large = stream.batches(50_000)
    next(large)
    assert threads() > before


def test_finished_closed_and_dropped_iterators_hold_no_thread(ref_of):
    stream = ref_of(numbers(200_000, first=1)).stream()
    before = threads()
    iterators = [iter(stream), stream.iterate("batches", 10), stream.iterate("chunks", 10)]
    assert all(map(next, iterators))  # leaves no further reference to one
    assert threads() > before
    list(iterators[0])
    iterators[1].close()
    del iterators[2]
    assert threads() <= before
    assert list(iterators[0]) == list(iterators[1]) == []


def test_nothing_is_open_once_nobody_holds_the_stream(ref_of):
    gc.disable()  # reference counts alone have to do it
    try:
        ref = ref_of(numbers(100))
        stream = ref.stream()
        list(stream)
        assert maps_of(ref) + open_files_of(ref) > 0
        directory = ref.directory
        del ref, stream
        with open("/proc/self/maps") as lines:
            assert not any(directory in line for line in lines)
    finally:
        gc.enable()


def test_a_detached_stream_shares_the_epochs_and_keeps_nothing_open(ref_of):
    ref = ref_of(numbers(10))
    stream = ref.stream(3, shuffle=True, shuffle_seed=2)
    detached = stream.detached()
    orders = [stream.record_numbers(epoch, 0, 10).tolist() for epoch in range(5)]
    assert list(stream) == orders[0][3:]
    assert list(detached) == orders[1]
    assert list(stream.detached()) == orders[2]
    again = ref_of(numbers(10), "again")  # keeps nothing of the first open
    path = ref.directory
    del stream, ref
    live = detached.iterate("batches", 4)
    assert next(live)[0].tolist() == orders[3][:4]
    with open("/proc/self/maps") as lines:
        assert any(path in line for line in lines)
    live.close()
    assert [batch.tolist() for batch in detached.batches(10)] == [orders[4]]
    with open("/proc/self/maps") as lines:
        assert not any(path in line for line in lines)
    assert len(again) == 10


def test_a_detached_stream_shares_the_orders_while_somebody_keeps_the_stream(ref_of):
    stream = ref_of(numbers(10)).stream(3, shuffle=True, shuffle_seed=2)
    detached, again = stream.detached(), stream.detached().detached()
    shared = stream._shard._order_of(1)
    assert detached._shard._order_of(0) is again._shard._order_of(7) is shared
    copied = pickle.loads(pickle.dumps((stream, detached)))
    for other in copied:
        assert other._shard._order_of(1) is not shared
    del stream
    assert detached._shard._order_of(1) is not shared
    assert detached._shard._order_of(1) is not detached._shard._order_of(1)


def test_importing_ydl_imports_no_tensorflow_and_starts_no_thread():
    from support import run_python

    done = run_python(
        """
        import sys, os
        import ydl as yogadl
        assert "numpy" not in sys.modules and "ydl._core" not in sys.modules
        for name in ("DataRef", "Storage", "Stream", "Submittable", "YogaDL", "LmdbAccess",
                     "GeneratorFromKeys", "sequential_shard", "non_sequential_shard", "shard_keys",
                     "shuffle_keys", "serialize_generator_to_lmdb", "__version__"):
            assert name in dir(yogadl) and getattr(yogadl, name)
        yogadl.storage.LFSStorage, yogadl.dataref.LMDBDataRef, yogadl.constants.AWS_STORAGE
        yogadl.rw_coordinator.communication_protocol.READ_LOCK_GRANTED
        assert "tensorflow" not in sys.modules and len(os.listdir("/proc/self/task")) == 1
        try:
            yogadl.nonsense
        except AttributeError as error:
            assert "nonsense" in str(error)
        """,
        env={"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert sys.version_info >= (3, 9)
