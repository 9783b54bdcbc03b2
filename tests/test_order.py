"""Which record comes when: the core against numpy.random.RandomState and a model of yogadl."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import numbers, storage_in

from ydl import _core

SIZES = (0, 1, 2, 3, 10, 1000, 65539, 10**6)
SEEDS = [0, 1, 2**31, 2**32 - 1, *np.random.RandomState(1).randint(2**32, size=46).tolist()]


def _shuffled(n, seed):
    order = np.arange(n)
    np.random.RandomState(seed).shuffle(order)
    return order


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1000])
def test_random_state_shuffles_arrays_and_lists_alike(n):
    """Which the tests below rely on, since arrays are faster."""
    for seed in SEEDS[:10]:
        as_list = list(range(n))
        np.random.RandomState(seed).shuffle(as_list)
        assert as_list == _shuffled(n, seed).tolist()


@pytest.mark.parametrize("n", SIZES)
def test_shuffle_is_that_of_random_state(n):
    assert len(SEEDS) == 50
    for seed in SEEDS:
        np.testing.assert_array_equal(_core.shuffle(n, seed), _shuffled(n, seed))


# ---- the model of yogadl 0.1.4 ----


def model_epoch(n, rank, shards, drop, shuffle, skip, seed, epoch):
    """One epoch of one rank, as yogadl computes it."""
    kept = n - n % shards if drop else n
    keys = np.arange(kept)[rank::shards]
    if shuffle:
        np.random.RandomState(seed if skip else (seed + epoch) % 2**32).shuffle(keys)
    return keys


@pytest.fixture(scope="module")
def refs(tmp_path_factory):
    """Datasets of n records, each built once."""
    storage = storage_in(tmp_path_factory.mktemp("orders"))
    built = {}

    def get(n):
        if n not in built:
            storage.submit(numbers(n), "n", str(n))
            built[n] = storage.fetch("n", str(n))
        return built[n]

    return get


@settings(
    max_examples=2500,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    n=st.one_of(st.integers(0, 24), st.sampled_from([100, 1023, 1025, 3000])),
    offset=st.integers(0, 7000),
    shuffle=st.booleans(),
    skip=st.booleans(),
    seed=st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 3, 2**32 - 1)),
    shards=st.integers(1, 9),
    rank=st.integers(0, 8),
    drop=st.booleans(),
    start_epoch=st.integers(0, 3),
)
def test_three_epochs_equal_the_model(
    refs, n, offset, shuffle, skip, seed, shards, rank, drop, start_epoch
):
    rank %= shards
    stream = refs(n).stream(
        offset, shuffle, skip, seed, rank, shards, drop, start_epoch=start_epoch
    )
    model = [n, rank, shards, drop, shuffle, skip, seed]
    length = len(model_epoch(*model, 0))
    assert len(stream) == length
    first, skipped = divmod(offset, length) if length else (0, 0)
    for i in range(3):
        epoch = start_epoch + first + i
        expected = model_epoch(*model, epoch)
        assert stream.record_numbers(epoch, 0, n + 1).tolist() == expected.tolist()
        expected = expected[skipped if i == 0 else 0 :]
        assert list(stream) == expected.tolist()


@given(data=st.data())
@settings(max_examples=200, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_shards_are_disjoint_and_cover(refs, data):
    n, shards = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 9))
    drop = data.draw(st.booleans())
    served = []
    for rank in range(shards):
        served += list(
            refs(n).stream(
                shuffle=True, shuffle_seed=1, shard_rank=rank, num_shards=shards,
                drop_shard_remainder=drop,
            )
        )  # fmt: skip
    assert sorted(served) == list(range(n - n % shards if drop else n))


@pytest.mark.parametrize("form", ["records", "batches", "chunks"])
def test_endless_iterators_cross_epochs_and_use_none_up(refs, form):
    stream = refs(10).stream(start_offset=13, shuffle=True, shuffle_seed=5)
    expected = np.concatenate(
        [model_epoch(10, 0, 1, False, True, False, 5, epoch) for epoch in range(1, 5)]
    )[3:]
    for _ in range(2):
        iterator = stream.iterate(form, 4, endless=True)
        items = [next(iterator)[0] for _ in range(27 if form == "records" else 7)]
        iterator.close()
        served = np.concatenate([np.atleast_1d(item) for item in items])
        assert served.tolist()[:27] == expected[:27].tolist()
    assert list(stream) == expected[:7].tolist()
    assert list(refs(0).stream().iterate(form, 4, endless=True)) == []


# From 2^16 records of a shard on, the next epoch's order is made while this one's is read.
@pytest.mark.parametrize("n", [1000, 2**16 - 1, 2**16, 200_000])
@pytest.mark.parametrize("skip", [False, True])
def test_orders_are_the_same_made_ahead_or_not(refs, n, skip):
    options = {"shuffle": True, "shuffle_seed": 3, "skip_shuffle_at_epoch_end": skip}
    models = [model_epoch(n, 0, 1, False, True, skip, 3, epoch) for epoch in range(6)]

    def served(stream, rows, count=None):
        """Of the next epoch, all or the first `count` batches."""
        batches = list(itertools.islice(stream.batches(rows), count))
        return np.concatenate(batches)

    ahead = refs(n).stream(**options)
    assert np.array_equal(served(ahead, 999), models[0])
    # Dropped before its middle: the order of epoch 2 is made when it is wanted.
    assert np.array_equal(served(ahead, n // 10, 2), models[1][: n // 10 * 2])
    # Dropped behind it: that of epoch 3 may be in the making.
    assert np.array_equal(served(ahead, n // 10, 6), models[2][: n // 10 * 6])
    assert ahead.record_numbers(5, 0, n).tolist() == models[5].tolist()
    assert np.array_equal(served(ahead, n), models[3])
    assert np.array_equal(served(ahead, 999), models[4])

    for epoch in range(3):
        alone = refs(n).stream(start_epoch=epoch, **options)
        assert np.array_equal(served(alone, 999), models[epoch])

    both = refs(n).stream(**options)
    pair = [both.batches(997), both.batches(997)]
    turns = list(zip(*pair))
    for epoch in range(2):
        assert np.array_equal(np.concatenate([turn[epoch] for turn in turns]), models[epoch])
    assert np.array_equal(served(both, 997), models[2])

    endless = refs(n).stream(**options).iterate("batches", 1000, endless=True)
    items = [next(endless)[0] for _ in range(3 * n // 1000)]
    endless.close()
    assert np.array_equal(np.concatenate(items), np.concatenate(models[:3])[: len(items) * 1000])


@pytest.mark.parametrize("scope", ["shard", "global"])
def test_a_resumed_epoch_and_the_ones_after_it(refs, scope):
    """Which in global scope have another order object, so that ranks stay equally long."""
    n, shards = 300_000, 4
    where = {"start_offset": 40_000} if scope == "shard" else {"global_offset": 160_001}
    for rank in (0, 3):
        streams = [
            refs(n).stream(
                shuffle=True, shuffle_seed=3, shard_rank=rank, num_shards=shards,
                drop_shard_remainder=True, shuffle_scope=scope, **where,
            )
            for _ in range(2)
        ]  # fmt: skip
        for epoch in range(3):
            first = streams[0].start.record if epoch == 0 else 0
            served = np.concatenate(list(streams[0].batches(5000)))
            assert served.tolist() == streams[1].record_numbers(epoch, first, n).tolist()


def test_the_core_wants_an_order_of_its_reader(refs):
    options = {
        "rank": 0, "num_shards": 1, "drop_shard_remainder": False, "shuffle": False,
        "reshuffle": False, "seed": 0, "shuffle_scope": "shard", "cut": 0,
    }  # fmt: skip
    loading = {
        "epoch": 0, "position": 0, "batch_records": 1, "drop_remainder": False,
        "endless": False, "form": "batches", "threads": 0, "depth": 1, "group": 1,
    }  # fmt: skip
    reader = refs(10)._handle.reader()
    order = _core.Order(10, **options)
    assert order.length == 10 and len(list(_core.Loader(reader, order, **loading))) == 10
    with pytest.raises(ValueError, match="order is one of 11 records, and the reader has 10"):
        _core.Loader(reader, _core.Order(11, **options), **loading)
    for wrong in [(order, order), (reader, reader), (reader, None)]:
        with pytest.raises(TypeError, match="expected a Reader and an Order"):
            _core.Loader(*wrong, **loading)
    with pytest.raises(AttributeError):
        order.length = 11
    large = _core.Order(2**64 - 1, **options)
    assert large.length == 2**64 - 1
    assert large.numbers(0, 2**64 - 3, 5).tolist() == [2**64 - 3, 2**64 - 2]
    with pytest.raises(MemoryError, match="record numbers of epoch 7"):
        options.update(shuffle=True, reshuffle=True)
        _core.Order(2**64 - 1, **options).numbers(7, 0, 1)


def test_huge_offsets_and_epochs(refs):
    for offset, start_epoch in [(10**18, 0), (2**63 - 1, 2**63 - 1), (3, 2**63 - 1)]:
        stream = refs(10).stream(offset, True, shuffle_seed=7, start_epoch=start_epoch)
        epoch, skipped = divmod(offset, 10)
        expected = model_epoch(10, 0, 1, False, True, False, 7, start_epoch + epoch)
        assert list(stream) == expected[skipped:].tolist()
