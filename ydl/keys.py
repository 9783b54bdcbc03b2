"""Helpers of yogadl that work on a list of keys: sharding, shuffling, a generator over them.

ydl itself does the same in C on record numbers (csrc/order); these serve a user's own DataRef.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, Optional, TypeVar

import numpy as np

from ydl import arguments

Key = TypeVar("Key")


def sequential_shard(keys: list[Key], shard_index: int, num_shards: int) -> list[Key]:
    """The shard_index-th of num_shards contiguous pieces of keys, whose sizes differ by at most
    one: the first len(keys) % num_shards of them have one more."""
    size, remainder = divmod(len(keys), num_shards)
    start = size * shard_index + min(shard_index, remainder)
    return keys[start : start + size + (shard_index < remainder)]


def non_sequential_shard(keys: list[Key], shard_index: int, num_shards: int) -> list[Key]:
    """Every num_shards-th key, from shard_index on."""
    return keys[shard_index::num_shards]


def shard_keys(
    keys: list[Key],
    shard_index: int,
    num_shards: int,
    sequential: bool = False,
    drop_shard_remainder: bool = False,
) -> list[Key]:
    """One rank's keys. drop_shard_remainder: all ranks get equally many, the last
    len(keys) % num_shards keys are left out.

    ValueError unless 0 <= shard_index < num_shards.
    """
    num_shards = arguments.integer("num_shards", num_shards, minimum=1)
    shard_index = arguments.integer("shard_index", shard_index)
    if shard_index >= num_shards:
        raise ValueError(f"shard_index is {shard_index}, but there are {num_shards} shards")
    if drop_shard_remainder:
        keys = keys[: len(keys) - len(keys) % num_shards]
    take = sequential_shard if sequential else non_sequential_shard
    return take(keys, shard_index, num_shards)


def shuffle_keys(keys: list[Key], seed: Optional[int] = None) -> list[Key]:
    """Shuffles keys in place, as numpy.random.RandomState(seed) does, and returns them."""
    shuffle: Callable[[Any], None] = np.random.RandomState(seed).shuffle  # typed for arrays only
    shuffle(keys)
    return keys


class GeneratorFromKeys:
    """Generators over keys, of which each one is the next epoch.

    initial_offset: keys to skip: whole epochs, then keys of the first one.
    shuffle_at_start: shuffle with shuffle_seed; shuffle_after_epoch: and with shuffle_seed + epoch
    (mod 2**32) in later epochs. Without shuffle_after_epoch all epochs have one order, which
    shuffle_seed=None leaves to chance.
    """

    def __init__(
        self,
        keys: list[Any],
        initial_offset: int,
        read_val_from_key_fn: Callable[[Any], Any],
        shuffle_at_start: bool,
        shuffle_after_epoch: bool,
        shuffle_seed: Optional[int],
    ) -> None:
        if shuffle_after_epoch and not shuffle_at_start:
            raise ValueError("shuffle_after_epoch=True needs shuffle_at_start=True")
        if shuffle_after_epoch and shuffle_seed is None:
            raise ValueError("shuffle_after_epoch=True needs a shuffle_seed, which is None")
        if shuffle_at_start and shuffle_seed is None:
            shuffle_seed = int(np.random.SeedSequence().generate_state(1)[0])
        offset = arguments.integer("initial_offset", initial_offset)
        self._keys = keys
        self._epoch, self._skip = divmod(offset, len(keys)) if keys else (0, 0)
        self._read = read_val_from_key_fn
        self._seed = None if shuffle_seed is None else arguments.seed(shuffle_seed)
        self._shuffle = shuffle_at_start
        self._reshuffle = shuffle_after_epoch

    def instantiate_generator(self) -> Iterator[Any]:
        """The next epoch's values, from its first one to be pulled on."""
        epoch, skip = self._epoch, self._skip
        self._epoch, self._skip = epoch + 1, 0
        keys = self._keys
        if self._shuffle and self._seed is not None:
            seed = (self._seed + epoch) % 2**32 if self._reshuffle else self._seed
            keys = shuffle_keys(list(keys), seed)
        for key in keys[skip:]:
            yield self._read(key)
