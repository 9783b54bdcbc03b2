"""What ydl does, in a minute: `make demo`.

    python examples/demo.py [--dir DIR]

Two datasets are cached in a directory (a temporary one, unless --dir names one to keep) and read
from there by other processes: a trial's, in the shape of Determined's migration guide, and 60,000
images of the size of MNIST's. Then training on two ranks is stopped in mid-epoch and resumed, and
what comes after is compared, record by record, with what would have come.

Every process is a new Python, so that nothing survives but the directory. Exit status 1 where
something is not as it should be.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

IMAGES = 60_000
RANKS = 2
SEED = 7
BATCH = 128
# Where training is stopped: in this epoch (the first one is number 0), after a part of its steps.
STOP_EPOCH = 2
STOP_PART = 3 / 7


# ---- the datasets -------------------------------------------------------------------------------


def make_images(records):
    """Elements (uint8[28,28], int64): noise that is the same in every run, and a label."""
    import tensorflow as tf

    def image(i):
        seed = tf.stack([i, SEED])
        pixels = tf.random.stateless_uniform([28, 28], seed, 0, 256, tf.int32)
        return tf.cast(pixels, tf.uint8), i % 10

    return tf.data.Dataset.range(records).map(image, num_parallel_calls=tf.data.AUTOTUNE)


class StandInContext:
    """What the trial below asks of Determined."""

    def __init__(self, directory):
        self.distributed = SimpleNamespace(rank=0, size=1, local_rank=0)
        self.env = SimpleNamespace(steps_completed=0)
        self._directory = directory

    def get_per_slot_batch_size(self):
        return 8

    def get_trial_seed(self):
        return SEED

    def get_hparams(self):
        return {"learning_rate": 0.1}

    def get_data_config(self):
        storage = {"type": "shared_fs", "container_storage_path": str(self._directory)}
        return {"data_layer": storage}

    def wrap_dataset(self, dataset, shard_dataset=True):
        assert not shard_dataset, "each rank's dataset is its shard already"
        return dataset


class OneVarTrial:
    """Learns w of y = w * x from ones. As in the guide, one record is a whole batch."""

    def __init__(self, context):
        from ydl import YogaDL

        self.context = context
        self.builds = []
        self.yogadl = YogaDL(
            config=context.get_data_config()["data_layer"],
            dist=context.distributed,
            per_slot_batch_size=context.get_per_slot_batch_size(),
            seed=context.get_trial_seed(),
            # One record is one step: were it one element, this would be steps * batch size.
            offset_records=context.env.steps_completed,
        )

    def build_training_data_loader(self):
        @self.yogadl.cache_train_dataset("ones", "1", shuffle=True)
        def make_training_set():
            self.builds.append("train")
            return self._batches_of_ones()

        return self.context.wrap_dataset(make_training_set(), shard_dataset=False)

    def build_validation_data_loader(self):
        @self.yogadl.cache_validation_dataset("ones", "1")
        def make_validation_set():
            self.builds.append("validation")
            return self._batches_of_ones()

        return self.context.wrap_dataset(make_validation_set(), shard_dataset=False)

    def build_model(self):
        import tensorflow as tf

        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
        )
        model.compile(tf.keras.optimizers.SGD(self.context.get_hparams()["learning_rate"]), "mse")
        return model

    def _batches_of_ones(self):
        import tensorflow as tf

        ones = tf.data.Dataset.range(100).map(lambda i: (tf.ones([1]), tf.ones([1])))
        return ones.batch(self.context.get_per_slot_batch_size())


# ---- 1 and 2: cold and warm, the same code ------------------------------------------------------


def start(directory, records, expect):
    """What a start of training does: both datasets, and one pass over each."""
    tensorflow, seconds = timed(importlib.import_module, "tensorflow")
    print(f"  TensorFlow {tensorflow.__version__} imported in {seconds:.1f} s")
    print("  the guide's trial, whose records are batches of 8 ones")
    trial = OneVarTrial(StandInContext(directory))
    training_set, seconds = timed(trial.build_training_data_loader)
    report("training set", trial.builds == ["train"], expect, training_set, seconds)
    validation_set, seconds = timed(trial.build_validation_data_loader)
    report("validation set", "validation" in trial.builds, expect, validation_set, seconds)
    model = trial.build_model()
    history = model.fit(
        training_set, validation_data=validation_set, shuffle=False, verbose=0
    ).history
    (loss,), (validation_loss,) = history["loss"], history["val_loss"]
    print(f"    {'fit, one epoch':17}loss {loss:.4f}, validation loss {validation_loss:.4f}")

    print(f"  {records:,} x (uint8[28,28], int64)")
    (dataset, built), seconds = timed(image_set, directory, records, batch_size=BATCH)
    report("image set", built, expect, dataset, seconds)
    read, seconds = timed(lambda: sum(len(labels) for _, labels in dataset.as_numpy_iterator()))
    check(read == records, f"{read} records came")
    print(
        f"    {'one epoch':17}{rate(read, seconds)}, shuffled, in batches of {BATCH};"
        f" {where(0, 1, 0)}"
    )


def image_set(directory, records, rank=0, ranks=1, offset=0, start_epoch=0, **options):
    """The cached dataset, and whether it was built for this call."""
    from ydl import YogaDL

    yogadl = YogaDL(
        config={"type": "shared_fs", "container_storage_path": str(directory)},
        dist=SimpleNamespace(rank=rank, size=ranks, local_rank=rank),
        per_slot_batch_size=BATCH,
        seed=SEED,
        offset_records=offset,
        start_epoch=start_epoch,
    )
    builds = []

    @yogadl.cache_train_dataset("images", str(records), shuffle=True, **options)
    def make_image_set():
        builds.append(1)
        return make_images(records)

    return make_image_set(), bool(builds)


def report(name, built, expect, dataset, seconds):
    did = "built" if built else "reused"
    check(expect in (did, "either"), f"the {name} was {did}, not {expect}")
    records = len(dataset.ydl_stream)
    text = rate(records, seconds) if built else f"{records:,} records, opened in {seconds:.2f} s"
    print(f"    {name:17}{did}: {text}")


# ---- 3 and 4: two ranks, stopped and resumed ----------------------------------------------------


def train(directory, records, rank, state):
    """The uninterrupted run. Notes which records come after the point where the other one stops."""
    after = {}

    # Epoch by epoch; the last batch of each is smaller.
    dataset, _ = image_set(directory, records, rank, RANKS, batch_size=BATCH)
    epochs = [fingerprints(dataset) for _ in range(STOP_EPOCH + 2)]
    shard = sum(map(len, epochs[0]))
    check(shard % BATCH != 0, "the batch size divides the shard: that would be too easy")
    stop = int(len(epochs[0]) * STOP_PART)
    after["start_epoch"] = epochs[STOP_EPOCH][stop:] + epochs[STOP_EPOCH + 1]
    after["epoch"] = epochs[STOP_EPOCH]

    # Endless; batches cross the ends of epochs.
    dataset, _ = image_set(directory, records, rank, RANKS, batch_size=BATCH, repeat=True)
    steps = STOP_EPOCH * len(epochs[0]) + stop
    rest = len(after["start_epoch"])
    after["repeat"] = fingerprints(dataset.take(steps + rest))[steps:]

    np.savez(
        state,
        shard=shard,
        stop=stop,
        steps=steps,
        rest=rest,
        **{name: np.concatenate(batches) for name, batches in after.items()},
    )
    print(
        f"  rank {rank} of {RANKS}: {shard:,} records an epoch, {len(epochs[0])} steps of {BATCH}"
        f" (the last one of {len(epochs[0][-1])})"
    )


def resume(directory, records, rank, state):
    """The run that was stopped, started again: compares with what train() noted."""
    noted = np.load(state)
    shard, stop, steps, rest = (int(noted[name]) for name in ("shard", "stop", "steps", "rest"))
    print(f"  rank {rank} of {RANKS}, stopped in epoch {STOP_EPOCH} after step {stop}")

    offset = stop * BATCH
    dataset, _ = image_set(
        directory, records, rank, RANKS, offset, start_epoch=STOP_EPOCH, batch_size=BATCH
    )
    came = [*fingerprints(dataset), *fingerprints(dataset)]  # the rest of this epoch, and the next
    compare("start_epoch", came, noted["start_epoch"])
    print(f"      start_epoch={STOP_EPOCH}, offset_records={stop} * {BATCH} = {offset:,}")
    epoch, record = divmod(steps * BATCH, shard)
    print(f"      (all {steps} steps * {BATCH} would be record {record:,} of epoch {epoch}: wrong,")
    print("      because the last batch of each epoch was smaller)")

    offset = steps * BATCH
    dataset, _ = image_set(directory, records, rank, RANKS, offset, batch_size=BATCH, repeat=True)
    compare("repeat=True", fingerprints(dataset.take(rest)), noted["repeat"])
    print(f"      offset_records={steps} * {BATCH} = {offset:,}")


def compare(name, batches, expected):
    came = np.concatenate(batches)
    check(np.array_equal(came, expected), f"{name}: other records came than without the stop")
    print(f"    {name}: OK, the {len(came):,} records that follow are the same, in the same order")


def fingerprints(batches):
    """One 64-bit number per record, made of all its bytes; an array for each batch."""
    weights = np.random.RandomState(0).randint(1, 2**62, 28 * 28 // 8).astype(np.uint64) * 2 + 1
    return [
        (images.reshape(len(images), -1).view(np.uint64) * weights).sum(axis=1)
        + labels.astype(np.uint64)
        for images, labels in batches.as_numpy_iterator()
    ]


# ---- running and printing -----------------------------------------------------------------------


def timed(function, *arguments, **options):
    begin = time.perf_counter()
    value = function(*arguments, **options)
    return value, time.perf_counter() - begin


def rate(records, seconds):
    return f"{records:,} records in {seconds:.2f} s ({records / seconds:,.0f} records/s)"


def where(rank, ranks, offset):
    return f"rank {rank} of {ranks}, offset {offset:,}"


def check(condition, problem):
    if not condition:
        sys.exit(f"FAILED: {problem}")


class Wrapped(logging.Formatter):
    """What ydl itself says, set off from what this script prints."""

    def format(self, record):
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        text = f"ydl: {record.getMessage()}"
        return textwrap.fill(
            text,
            width,
            initial_indent="    | ",
            subsequent_indent="    |      ",
            break_long_words=False,
            break_on_hyphens=False,
        )


STAGES = {"start": start, "train": train, "resume": resume}


def run_stage(directory, records, stage, *arguments):
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Wrapped())
    logger = logging.getLogger("ydl")
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if stage == "train" else logging.INFO)
    STAGES[stage](directory, records, *arguments)


def launch(directory, records, stage, *arguments):
    """A stage in a process of its own, whose messages of TensorFlow we keep to ourselves."""
    command = [sys.executable, __file__, "--dir", str(directory), "--records", str(records)]
    return subprocess.Popen(
        [*command, "--stage", stage, *map(str, arguments)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes):
    """Waits for all, prints what they said, and goes on only where none failed."""
    finished = [(process.communicate(), process.returncode) for process in processes]
    for (output, _), _ in finished:
        print(output, end="", flush=True)
    for (_, errors), status in finished:
        if status != 0:
            sys.exit(errors.strip() or f"FAILED: a process ended with status {status}")


def run_all(directory, records):
    begin = time.perf_counter()
    empty = not any(directory.iterdir())
    print(f"The cache is in {directory}")
    print("\n1. Cold" if empty else "\n1. With what is there from before")
    finish(launch(directory, records, "start", "built" if empty else "either"))
    print("\n2. Warm: another process, the same code")
    finish(launch(directory, records, "start", "reused"))

    with tempfile.TemporaryDirectory() as notes:
        states = [Path(notes, f"rank{rank}.npz") for rank in range(RANKS)]
        print(f"\n3. Training on {RANKS} ranks, uninterrupted")
        finish(*(launch(directory, records, "train", *item) for item in enumerate(states)))
        everything = np.concatenate([np.load(state)["epoch"] for state in states])
        check(len(everything) == records, f"{len(everything)} records in an epoch of all ranks")
        check(len(np.unique(everything)) == records, "a record came twice in one epoch")
        print(f"  together: each of the {records:,} records once an epoch")

        print("\n4. The same, stopped and resumed")
        finish(*(launch(directory, records, "resume", *item) for item in enumerate(states)))
    print(f"\nAll is as it should be, after {time.perf_counter() - begin:.0f} s.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dir", type=Path, help="keep the cache here, for another demo")
    parser.add_argument("--records", type=int, default=IMAGES, help="how many images (%(default)s)")
    parser.add_argument("--stage", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        stage, *arguments = options.stage
        if stage != "start":
            arguments[0] = int(arguments[0])
        run_stage(options.dir, options.records, stage, *arguments)
    elif options.dir:
        options.dir.mkdir(parents=True, exist_ok=True)
        run_all(options.dir.resolve(), options.records)
    else:
        with tempfile.TemporaryDirectory(prefix="ydl-demo-") as directory:
            run_all(Path(directory), options.records)


if __name__ == "__main__":
    main()
