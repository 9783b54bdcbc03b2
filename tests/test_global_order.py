"""shuffle_scope="global": the sequence that all ranks share, and resuming in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import numbers, storage_in

from ydl import YogaDL, _core

# ---- the permutation, as csrc/order/permutation.h has it ----

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def _mix(z):
    z = (z ^ z >> 30) * MIX_1 & WORD
    z = (z ^ z >> 27) * MIX_2 & WORD
    return z ^ z >> 31


def _f(x, key):
    z = (x ^ key) * MIX_1 & WORD
    z ^= z >> 32
    return (z * MIX_2 & WORD) >> 32


class Permutation:
    def __init__(self, seed, epoch, n):
        self.n = n
        last = max(n - 1, 255)
        self.columns = 2 ** (last.bit_length() // 2)
        self.rows = last // self.columns + 1
        state = _mix(seed + GOLDEN & WORD)
        state = _mix((state ^ epoch) + GOLDEN & WORD)
        state = _mix((state ^ n) + GOLDEN & WORD)
        self.keys = [_mix(state + i * GOLDEN & WORD) for i in range(1, 9)]

    def __getitem__(self, place):
        x = place
        while True:
            row, column = divmod(x, self.columns)
            for first, second in zip(self.keys[::2], self.keys[1::2]):
                row = (row + (_f(column, first) * self.rows >> 32)) % self.rows
                column = (column + _f(row, second)) % self.columns
            x = row * self.columns + column
            if x < self.n:
                return x


def sequence(n, epoch, shuffle=True, skip=False, seed=0):
    """An epoch's record numbers, of all ranks."""
    if not shuffle:
        return list(range(n))
    permutation = Permutation(seed, 0 if skip else epoch, n)
    return [permutation[place] for place in range(n)]


def core_numbers(n, seed, epoch, start, count, rank=0, num_shards=1):
    order = _core.Order(
        n, rank=rank, num_shards=num_shards, drop_shard_remainder=False, shuffle=True,
        reshuffle=True, seed=seed, shuffle_scope="global", cut=0,
    )  # fmt: skip
    return order.numbers(epoch, start, count).tolist()


SIZES = st.one_of(
    st.integers(1, 40),
    st.integers(1, 2**63),
    st.builds(lambda e, d: 2**e + d, st.integers(8, 62), st.integers(-2, 2)),
)
SEEDS = st.integers(0, 2**32 - 1)
EPOCHS = st.one_of(st.integers(0, 9), st.integers(0, 2**63))


@settings(max_examples=300, deadline=None)
@given(n=SIZES, seed=SEEDS, epoch=EPOCHS, data=st.data())
def test_places_have_the_records_that_the_header_says(n, seed, epoch, data):
    start = data.draw(st.integers(0, n - 1))
    permutation = Permutation(seed, epoch, n)
    expected = [permutation[place] for place in range(start, min(start + 5, n))]
    assert core_numbers(n, seed, epoch, start, 5) == expected
    shards = data.draw(st.integers(1, n))
    place = data.draw(st.integers(0, (n - 1) // shards)) * shards
    assert core_numbers(n, seed, epoch, place // shards, 1, 0, shards) == [permutation[place]]


@settings(max_examples=300, deadline=None)
@given(n=st.one_of(st.integers(0, 600), st.sampled_from([4095, 4097, 65537])), seed=SEEDS,
       epoch=EPOCHS)  # fmt: skip
def test_an_epoch_is_a_permutation(n, seed, epoch):
    assert sorted(core_numbers(n, seed, epoch, 0, n)) == list(range(n))


def test_seeds_epochs_and_sizes_give_unrelated_orders():
    """Of two unrelated orders, about one place has the same record in both."""
    n = 5000
    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (0, 2), (2**32 - 1, 0), (0, 2**32)]
    orders = [np.array(core_numbers(n, seed, epoch, 0, n)) for seed, epoch in keys]
    orders.append(np.array(core_numbers(n + 1, 0, 0, 0, n)))
    for a, b in itertools.combinations(orders, 2):
        assert (a == b).sum() < 12
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.08
        assert abs(np.corrcoef(np.roll(a, 1), b)[0, 1]) < 0.08
    for order in orders:
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.08
        assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 0.08


# ---- streams ----


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


def streams(ref, num_shards, **options):
    return [
        ref.stream(shard_rank=rank, num_shards=num_shards, shuffle_scope="global", **options)
        for rank in range(num_shards)
    ]


def interleave(parts, first_rank=0):
    """The ranks' records in turn, from first_rank on, until a rank has none left; the others then
    have none either, since the sequence ends in turn, too."""
    iterators = list(map(iter, parts))
    merged = []
    for turn in itertools.count(first_rank):
        try:
            merged.append(next(iterators[turn % len(iterators)]))
        except StopIteration:
            break
    assert [list(iterator) for iterator in iterators] == [[] for _ in iterators]
    return merged


def property_test(max_examples):
    def decorate(test):
        return settings(
            max_examples=max_examples,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )(test)

    return decorate


N = st.one_of(st.integers(0, 24), st.sampled_from([100, 257, 1025]))
SHARDS = st.integers(1, 9)
ORDERS = st.fixed_dictionaries(
    {"shuffle": st.booleans(), "skip": st.booleans(), "seed": SEEDS}
)  # fmt: skip


def arguments_of(order):
    return {
        "shuffle": order["shuffle"],
        "skip_shuffle_at_epoch_end": order["skip"],
        "shuffle_seed": order["seed"],
    }


@property_test(300)
@given(n=N, shards=SHARDS, drop=st.booleans(), order=ORDERS, start_epoch=st.integers(0, 3))
def test_ranks_take_turns_in_the_sequence(refs, n, shards, drop, order, start_epoch):
    ranks = streams(
        refs(n), shards, drop_shard_remainder=drop, start_epoch=start_epoch, **arguments_of(order)
    )
    kept = n - n % shards if drop else n
    for epoch in range(start_epoch, start_epoch + 3):
        expected = sequence(n, epoch, **order)[:kept]
        for rank, stream in enumerate(ranks):
            assert len(stream) == len(expected[rank::shards])
            assert stream.starts_at_epoch_begin
            assert stream.record_numbers(epoch, 0, n + 1).tolist() == expected[rank::shards]
        assert interleave(ranks) == expected


@property_test(300)
@given(n=N, shards=SHARDS, rank=st.integers(0, 8), drop=st.booleans(), order=ORDERS,
       offset=st.integers(0, 3000))  # fmt: skip
def test_start_offset_counts_the_shards_records(refs, n, shards, rank, drop, order, offset):
    rank %= shards
    options = {"drop_shard_remainder": drop, **arguments_of(order)}
    stream = streams(refs(n), shards, start_offset=offset, **options)[rank]
    epoch, record = divmod(offset, len(stream)) if len(stream) else (0, 0)
    whole = streams(refs(n), shards, start_epoch=epoch, **options)[rank]
    assert list(stream) == list(whole)[record:]
    assert list(stream) == list(whole)


@property_test(800)
@given(n=N, shards=SHARDS, drop=st.booleans(), order=ORDERS, start_epoch=st.integers(0, 2),
       offset=st.integers(0, 2500))  # fmt: skip
def test_any_number_of_ranks_goes_on_from_any_place(
    refs, n, shards, drop, order, start_epoch, offset
):
    ranks = streams(
        refs(n), shards, drop_shard_remainder=drop, start_epoch=start_epoch, global_offset=offset,
        **arguments_of(order),
    )  # fmt: skip
    epoch, place = divmod(offset, n) if n else (0, 0)
    epoch += start_epoch
    kept = n
    if drop:
        kept = n - (n - place) % shards
        if n < shards:
            place = kept = 0
        elif n - place < shards:
            epoch, place, kept = epoch + 1, 0, n - n % shards
    expected = sequence(n, epoch, **order)[:kept]
    for rank, stream in enumerate(ranks):
        assert stream.record_numbers(epoch, 0, n + 1).tolist() == expected[rank::shards]
        left = len(range(place + (rank - place) % shards, kept, shards))
        assert stream.starts_at_epoch_begin == (left == len(stream))
        assert stream.start == (epoch, len(expected[rank::shards]) - left)
    first_epoch = [list(stream) for stream in ranks]
    assert interleave(first_epoch, first_rank=place) == expected[place:]
    assert not drop or len({len(records) for records in first_epoch}) == 1
    # Later epochs are those of a job that was never interrupted.
    assert interleave(ranks) == sequence(n, epoch + 1, **order)[: n - n % shards if drop else n]


@property_test(300)
@given(n=st.integers(1, 40), shards=SHARDS, order=ORDERS, form=st.sampled_from(["records",
       "batches"]), offset=st.integers(0, 120), batch=st.integers(1, 7))  # fmt: skip
def test_endless_ranks_go_on_through_the_ends_of_epochs(
    refs, n, shards, order, form, offset, batch
):
    ranks = streams(
        refs(n), shards, drop_shard_remainder=True, global_offset=offset, **arguments_of(order)
    )
    iterators = [stream.iterate(form, batch, endless=True) for stream in ranks]
    if n < shards:
        assert [list(iterator) for iterator in iterators] == [[]] * shards
        return
    kept = n - n % shards
    epoch, place = divmod(offset, n)
    sequences = [sequence(n, epoch + i, **order)[:kept] for i in range(5)]
    expected = list(itertools.chain(sequences[0][place:], *sequences[1:]))
    each = min(len(expected) // shards, 2 * kept // shards + 2)
    served = []
    for iterator in iterators:
        items = (np.atleast_1d(item[0]).tolist() for item in iterator)
        served.append(list(itertools.islice(itertools.chain.from_iterable(items), each)))
        iterator.close()
    first_rank = min(place, kept)
    turns = [served[(first_rank + i) % shards][i // shards] for i in range(each * shards)]
    assert turns == expected[: each * shards]


@property_test(300)
@given(data=st.data(), n=st.integers(1, 200), order=ORDERS)
def test_a_job_that_changes_its_ranks_again_and_again_misses_nothing(refs, data, n, order):
    """Each run takes some records of the epoch, and the next one has another number of ranks."""
    seen, place = [], 0
    while place < n:
        shards = data.draw(st.integers(1, 6))
        rounds = data.draw(st.integers(1, 20))
        ranks = streams(refs(n), shards, global_offset=place, **arguments_of(order))
        served = interleave([list(stream) for stream in ranks], first_rank=place)
        seen += served[: rounds * shards]
        place = len(seen)
    assert seen == sequence(n, 0, **order)


def test_batches_and_tuples_of_a_resumed_epoch(refs):
    ranks = streams(refs(100), 4, shuffle=True, shuffle_seed=3, drop_shard_remainder=True,
                    global_offset=51)  # fmt: skip
    expected = sequence(100, 0, seed=3)
    for rank, stream in enumerate(ranks):
        served = list(stream.batches(5))
        assert [len(batch) for batch in served] == [5, 5, 2]
        assert np.concatenate(served).tolist() == expected[51 + (rank - 51) % 4 : 99 : 4]
        served = np.concatenate(list(stream.batches(5)))
        assert served.tolist() == sequence(100, 1, seed=3)[rank::4]


def test_huge_offsets_and_epochs(refs):
    ref = refs(10)
    for offset, epoch in [(10**18 + 7, 0), (2**63 - 1, 2**63 - 1), (3, 2**63 - 1)]:
        stream = ref.stream(
            shuffle=True, shuffle_seed=7, shuffle_scope="global", start_epoch=epoch,
            global_offset=offset,
        )  # fmt: skip
        expected = sequence(10, epoch + offset // 10, seed=7)
        assert list(stream) == expected[offset % 10 :]


def test_a_dropped_iterator_of_a_resumed_epoch_says_what_is_skipped(refs, caplog):
    stream = streams(refs(10), 3, global_offset=4, drop_shard_remainder=True)[0]
    assert next(iter(stream)) == 6  # places 4 to 9 are left, of which rank 0 has 6 and 9
    assert list(stream) == [0, 3, 6]
    assert "epoch 0 began at record 2 of this shard's 4" in caplog.text
    assert "records 3 to 3 of it are skipped" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"shuffle_scope": "rank"}, ValueError, "must be one of 'shard', 'global', not 'rank'"),
        ({"shuffle_scope": None}, ValueError, "must be one of 'shard', 'global', not None"),
        ({"global_offset": 3}, ValueError, "global_offset is 3, .* shuffle_scope is 'shard'"),
        ({"global_offset": 0, "shuffle_scope": "shard"}, ValueError, "shuffle_scope='global'"),
        (
            {"global_offset": 3, "start_offset": 2, "shuffle_scope": "global"},
            ValueError,
            "start_offset is 2 and global_offset is 3",
        ),
        ({"global_offset": -1, "shuffle_scope": "global"}, ValueError, "at least 0, not -1"),
        ({"global_offset": 1.0, "shuffle_scope": "global"}, TypeError, "global_offset must be an"),
        ({"global_offset": 2**63, "shuffle_scope": "global"}, ValueError, "must be at most"),
        (
            {"shuffle": True, "skip_shuffle_at_epoch_end": True, "shuffle_scope": "global"},
            ValueError,
            "needs a shuffle_seed, the same on all ranks",
        ),
    ],
)
def test_wrong_arguments_are_named(refs, options, error, message):
    with pytest.raises(error, match=message):
        refs(10).stream(**options)


def test_the_core_refuses_what_is_no_order():
    options = {
        "rank": 0,
        "num_shards": 1,
        "drop_shard_remainder": False,
        "cut": 0,
        "shuffle": True,
        "reshuffle": True,
        "seed": 0,
        "shuffle_scope": "global",
    }
    for name, value, message in [
        ("shuffle_scope", "all", "'shard' or 'global', not 'all'"),
        ("cut", 11, "leave out 11 of 10 records"),
        ("rank", 1, "no shard 1 among 1"),
        ("num_shards", 0, "no shard 0 among 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            _core.Order(10, **{**options, name: value})


# ---- through TensorFlow ----


def test_tf_datasets_of_a_shared_sequence(refs):
    tf = pytest.importorskip("tensorflow")
    from ydl.tensorflow import make_tf_dataset

    def ints(dataset):
        return [int(x) for item in dataset.as_numpy_iterator() for x in np.atleast_1d(item)]

    options = {"shuffle": True, "shuffle_seed": 5, "drop_shard_remainder": True}
    expected = sequence(103, 0, seed=5)
    for offset in (0, 2, 38, 101):
        begin, kept, epoch = offset, 103 - (103 - offset) % 4, expected
        if 103 - offset < 4:
            begin, kept, epoch = 0, 100, sequence(103, 1, seed=5)
        for batch in (None, 8):
            ranks = streams(refs(103), 4, global_offset=offset, **options)
            datasets = [make_tf_dataset(stream, batch_size=batch) for stream in ranks]
            served = [ints(dataset) for dataset in datasets]
            assert interleave(served, first_rank=begin) == epoch[begin:kept]
            for dataset, records in zip(datasets, served):
                cardinality = int(dataset.cardinality())
                whole = len(records) == 25
                assert cardinality == (
                    (25 if batch is None else 4) if whole else tf.data.UNKNOWN_CARDINALITY
                )
                assert len(ints(dataset)) == 25  # the next epoch

    endless = make_tf_dataset(
        streams(refs(103), 4, global_offset=38, **options)[2], batch_size=8, repeat=True
    )
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY
    served = ints(endless.take(5))
    rest = expected[38:100:4] + sequence(103, 1, seed=5)[2:100:4]
    assert served == rest[:40]


def test_decorated_functions_share_one_sequence(tmp_path, caplog):
    tf = pytest.importorskip("tensorflow")

    class Rank:
        size = 3
        local_rank = 0

        def __init__(self, rank):
            self.rank = rank

    def dataset(rank, kind="train", **options):
        config = {"type": "shared_fs", "container_storage_path": str(tmp_path)}
        yogadl = YogaDL(config, dist=Rank(rank), seed=9, offset_records=2)
        decorate = getattr(yogadl, f"cache_{kind}_dataset")
        decorated = decorate("range", "1", shuffle=True, shuffle_scope="global", **options)
        return decorated(lambda: tf.data.Dataset.range(20))()

    caplog.set_level("INFO", logger="ydl")
    served = [list(map(int, dataset(rank).as_numpy_iterator())) for rank in range(3)]
    assert interleave(served) == sequence(20, 0, seed=9)[6:18]
    assert "leaves in each epoch 2 of the 20 records" in caplog.text
    served = [list(map(int, dataset(rank, "validation").as_numpy_iterator())) for rank in range(3)]
    assert interleave(served) == sequence(20, 0, seed=9)

    config = {"type": "shared_fs", "container_storage_path": str(tmp_path)}
    with pytest.raises(ValueError, match="'shard', 'global', not 'rank'"):
        YogaDL(config).cache_train_dataset("range", "1", shuffle_scope="rank")
