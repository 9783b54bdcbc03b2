"""A DataRef of one's own: records that stay where they are, served the way ydl serves a cache.

    python examples/custom_data_ref.py

Wherever records can be read by number there is nothing to cache. Here they are the lines of a text
file. What makes them a dataset that is sharded, shuffled and resumed is a stream() that gives the
numbers in the right order, and ydl.GeneratorFromKeys does that.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

import ydl
import ydl.tensorflow


class LinesRef(ydl.DataRef):
    """The lines of a text file, as bytes, without their ends."""

    def __init__(self, path):
        self._path = path
        self._starts = []  # of each line in the file, in bytes
        position = 0
        with open(path, "rb") as lines:
            for line in lines:
                self._starts.append(position)
                position += len(line)

    def __len__(self):
        return len(self._starts)

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
        keys = ydl.shard_keys(
            self._starts, shard_rank, num_shards, drop_shard_remainder=drop_shard_remainder
        )
        epochs = ydl.GeneratorFromKeys(
            keys=keys,
            initial_offset=start_offset,
            read_val_from_key_fn=self._read,
            shuffle_at_start=shuffle,
            shuffle_after_epoch=shuffle and not skip_shuffle_at_epoch_end,
            shuffle_seed=shuffle_seed,
        )
        return ydl.Stream(
            iterator_fn=epochs.instantiate_generator,
            length=len(keys),
            output_types=tf.string,
            output_shapes=tf.TensorShape([]),
        )

    def _read(self, start):
        with open(self._path, "rb") as lines:
            lines.seek(start)
            return lines.readline().rstrip(b"\n")


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "lines.txt")
        with open(path, "w") as lines:
            lines.writelines(f"line {number}\n" for number in range(12))

        ref = LinesRef(path)
        print(f"{len(ref)} lines; what rank 1 of 2 gets, in batches of 4:")
        stream = ref.stream(shuffle=True, shuffle_seed=7, shard_rank=1, num_shards=2)
        dataset = ydl.tensorflow.make_tf_dataset(stream, batch_size=4)
        epochs = []
        for epoch in range(2):
            batches = [batch.tolist() for batch in dataset.as_numpy_iterator()]
            print(f"  epoch {epoch}:", *batches)
            epochs.append([line for batch in batches for line in batch])

        # A stream that starts at record 4 of epoch 1 gives what was left then.
        resumed = ref.stream(6 + 4, shuffle=True, shuffle_seed=7, shard_rank=1, num_shards=2)
        left = list(ydl.tensorflow.make_tf_dataset(resumed).as_numpy_iterator())
        print("  resumed at record 4 of epoch 1:", left)
        return epochs, left


if __name__ == "__main__":
    main()
