"""The helpers on lists of keys."""

from __future__ import annotations

import numpy as np
import pytest

import ydl as yogadl


def test_sequential_shards_are_contiguous_cover_and_differ_by_at_most_one():
    for n in range(12):
        keys = [f"{i:08}".encode() for i in range(n)]
        for num_shards in range(1, 15):
            shards = [yogadl.sequential_shard(keys, i, num_shards) for i in range(num_shards)]
            assert [key for shard in shards for key in shard] == keys
            sizes = [len(shard) for shard in shards]
            assert max(sizes) - min(sizes) <= 1


def test_non_sequential_shards_take_turns():
    keys = list(range(7))
    assert yogadl.non_sequential_shard(keys, 1, 3) == [1, 4]
    assert yogadl.shard_keys(keys, 0, 3) == [0, 3, 6]
    assert yogadl.shard_keys(keys, 0, 3, drop_shard_remainder=True) == [0, 3]
    assert yogadl.shard_keys(keys, 0, 3, sequential=True) == [0, 1, 2]
    assert yogadl.shard_keys([], 2, 3, drop_shard_remainder=True) == []


@pytest.mark.parametrize("index, shards", [(3, 3), (-1, 3), (0, 0)])
def test_shard_keys_refuses_ranks_that_do_not_exist(index, shards):
    with pytest.raises(ValueError, match=str(index if shards else 0)):
        yogadl.shard_keys([1, 2, 3], index, shards)


def test_shuffle_keys_is_that_of_random_state():
    keys = list(range(10))
    expected = list(range(10))
    np.random.RandomState(3).shuffle(expected)
    assert yogadl.shuffle_keys(keys, 3) is keys
    assert keys == expected


def _generate(keys, offset, shuffle, reshuffle, seed):
    return yogadl.GeneratorFromKeys(
        keys=keys,
        initial_offset=offset,
        read_val_from_key_fn=lambda key: key,
        shuffle_at_start=shuffle,
        shuffle_after_epoch=reshuffle,
        shuffle_seed=seed,
    )


def test_generator_counts_epochs_from_the_offset():
    generator = _generate(list(range(4)), 6, True, True, 2**32 - 1)
    first = list(range(4))
    np.random.RandomState(0).shuffle(first)  # 2**32 - 1 + epoch 1 wraps to 0
    assert list(generator.instantiate_generator()) == first[2:]
    second = list(range(4))
    np.random.RandomState(1).shuffle(second)
    assert list(generator.instantiate_generator()) == second


def test_generator_without_reshuffling_keeps_one_order_and_leaves_the_keys():
    keys = list(range(50))
    generator = _generate(keys, 0, True, False, None)
    first, second = (list(generator.instantiate_generator()) for _ in range(2))
    assert first == second != keys
    assert keys == list(range(50))
    assert list(_generate([], 3, True, True, 1).instantiate_generator()) == []


def test_generator_refuses_contradictions():
    with pytest.raises(ValueError, match="shuffle_seed"):
        _generate([1], 0, True, True, None)
    with pytest.raises(ValueError, match="shuffle_at_start"):
        _generate([1], 0, False, True, 1)


def test_lmdb_names_explain_what_replaced_them():
    with pytest.raises(yogadl.errors.UnsupportedError, match="fetch"):
        yogadl.LmdbAccess(lmdb_path="/x/cache.mdb")
    with pytest.raises(yogadl.errors.UnsupportedError, match="submit"):
        yogadl.serialize_generator_to_lmdb(iter([]), None, None, "/x/cache.mdb")
