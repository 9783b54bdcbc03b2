"""A plain Keras script, without Determined, that goes on where it was stopped.

    python examples/keras_script.py DIR [--steps 200]

DIR keeps the cached datasets and the checkpoints. Stop it at any time (Ctrl-C) and run the same
line again: it trains on exactly those records that were still to come.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from ydl import YogaDL

RECORDS = 1000
BATCH = 32  # 1000 = 31 * 32 + 8: does not divide, and need not
STEPS_PER_CHECKPOINT = 50


def make_points(seed, records):
    """Points of R^4, each with the label: which of two half-spaces it lies in."""

    def point(i):
        x = tf.random.stateless_normal([4], seed=[seed, tf.cast(i, tf.int32)])
        return x, tf.cast(tf.reduce_sum(x) > 0.5, tf.float32)[None]

    return tf.data.Dataset.range(records).map(point)


def make_model():
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, activation="sigmoid")])
    model.build((None, 4))
    model.compile(tf.keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"])
    return model


def newest_checkpoint(directory):
    """Its path and the number of steps it was made after; (None, 0) where there is none yet."""
    steps = {
        path: int(found[1])
        for path in directory.glob("after-*.weights.h5")
        if (found := re.search(r"after-(\d+)", path.name))
    }
    path = max(steps, key=steps.get, default=None)
    return path, steps.get(path, 0)


def train(directory, steps):
    """Trains until `steps` steps are done in all; returns the model and its validation results."""
    directory.mkdir(parents=True, exist_ok=True)
    checkpoint, done = newest_checkpoint(directory)
    model = make_model()
    if checkpoint is not None:
        model.load_weights(str(checkpoint))
        print(f"resumed after step {done}, at record {done * BATCH} of all that are trained on")

    yogadl = YogaDL(
        config={"type": "shared_fs", "container_storage_path": str(directory / "cache")},
        seed=7,
        per_slot_batch_size=BATCH,
        offset_records=done * BATCH,
    )

    # repeat=True: endless, epoch after epoch, each in its own order; batches cross the ends of
    # epochs, so that steps * BATCH is the position, and fit() cannot mistake a resumed epoch's
    # length for that of all.
    @yogadl.cache_train_dataset("points", "1", shuffle=True, batch_size=BATCH, repeat=True)
    def make_training_set():
        return make_points(1, RECORDS)

    @yogadl.cache_validation_dataset("points", "1", batch_size=BATCH)
    def make_validation_set():
        return make_points(2, 200)

    def save(epoch, logs):
        after = (epoch + 1) * STEPS_PER_CHECKPOINT
        # A checkpoint is there whole or not at all, whatever happens to this process.
        unfinished = directory / "unfinished.weights.h5"
        model.save_weights(str(unfinished))
        unfinished.replace(directory / f"after-{after:06}.weights.h5")
        print(f"step {after}: loss {logs['loss']:.3f}, accuracy {logs['accuracy']:.3f}")

    model.fit(
        make_training_set(),
        # To Keras an "epoch" is what lies between two checkpoints.
        steps_per_epoch=STEPS_PER_CHECKPOINT,
        initial_epoch=done // STEPS_PER_CHECKPOINT,
        epochs=steps // STEPS_PER_CHECKPOINT,
        callbacks=[tf.keras.callbacks.LambdaCallback(on_epoch_end=save)],
        shuffle=False,  # it is shuffled
        verbose=0,
    )
    results = model.evaluate(make_validation_set(), verbose=0, return_dict=True)
    print(f"validation: loss {results['loss']:.3f}, accuracy {results['accuracy']:.3f}")
    return model, results


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--steps", type=int, default=200, help="in all; a multiple of 50")
    options = parser.parse_args(arguments)
    return train(options.directory, options.steps)


if __name__ == "__main__":
    main()
