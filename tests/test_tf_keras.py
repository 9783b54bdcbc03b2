"""Keras: what a model sees in fit(), uninterrupted and resumed."""

from __future__ import annotations

import numpy as np
import pytest
from tf_support import grown, tf

from ydl.tensorflow import make_tf_dataset

RECORDS, BATCH, STEPS, EPOCHS = 100, 8, 5, 6  # 240 records: two epochs of 100, and a part


class Recorder(tf.keras.Model):
    """Learns nothing; notes the numbers that its training steps are given, in their order."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.weight = tf.Variable(1.0)

    def call(self, inputs):
        return inputs * self.weight

    def train_step(self, data):
        def note(numbers):
            self.seen.append(numbers.numpy().tolist())
            return numbers

        inputs = data[0] if isinstance(data, tuple) else data
        noted = tf.py_function(note, [inputs], inputs.dtype)
        with tf.control_dependencies([noted]):
            return {"loss": tf.constant(0.0)}


def what_fit_sees(dataset, epochs, strategy):
    scope = strategy.scope() if strategy else tf.init_scope()
    with scope:
        model = Recorder()
        model.compile(optimizer="sgd", loss="mse")
    model.fit(dataset, steps_per_epoch=STEPS, epochs=epochs, verbose=0)
    return model.seen


@pytest.fixture
def ref_of(ref_of, each_feed):
    """What a test caches here, it reads through both feeds."""
    return ref_of


@pytest.fixture
def ref(ref_of):
    return ref_of(tf.data.Dataset.range(RECORDS).map(lambda i: (tf.cast(i, tf.float32), i)))


@pytest.mark.parametrize("batched_by", ["ydl", "tf.data"])
@pytest.mark.parametrize("strategy", [None, "mirrored"])
def test_fit_resumed_in_mid_epoch_goes_on_as_if_uninterrupted(ref, strategy, batched_by):
    if strategy:
        strategy = tf.distribute.MirroredStrategy(["/cpu:0"])

    def dataset(steps_completed):
        stream = ref.stream(shuffle=True, shuffle_seed=11, start_offset=steps_completed * BATCH)
        if batched_by == "ydl":
            return make_tf_dataset(stream, BATCH, repeat=True)
        return make_tf_dataset(stream, repeat=True).batch(BATCH)

    stream = ref.stream(shuffle=True, shuffle_seed=11)
    order = np.concatenate([stream.record_numbers(epoch, 0, RECORDS) for epoch in range(3)])
    order = order[: STEPS * EPOCHS * BATCH].reshape(-1, BATCH).tolist()

    assert what_fit_sees(dataset(0), EPOCHS, strategy) == order
    # After epochs 1 and 3: in the middle of the first epoch of records, and of the second.
    for done in (1, 3):
        seen = what_fit_sees(dataset(done * STEPS), EPOCHS - done, strategy)
        assert seen == order[done * STEPS :]


def test_fit_and_evaluate_on_a_finite_dataset(ref):
    """One pass per epoch, each the stream's next one, and sizes that Keras can know."""
    stream = ref.stream(shuffle=True, shuffle_seed=11)
    dataset = make_tf_dataset(stream, batch_size=30)
    with tf.init_scope():
        model = Recorder()
        model.compile(optimizer="sgd", loss="mse")
    model.fit(dataset, epochs=2, verbose=0)
    assert [len(batch) for batch in model.seen] == [30, 30, 30, 10] * 2
    first, second = np.concatenate(model.seen).reshape(2, RECORDS).tolist()
    assert sorted(first) == sorted(second) == list(range(RECORDS))
    assert first != second


def test_a_model_of_several_inputs(ref_of):
    source = grown(
        lambda i: (
            {"image": tf.fill([4, 4], tf.cast(i, tf.float32)), "size": tf.fill([1], 1.0)},
            tf.cast(i, tf.float32),
        )
    )
    keras = tf.keras
    image, size = keras.Input([4, 4], name="image"), keras.Input([1], name="size")
    both = keras.layers.Concatenate()([keras.layers.Flatten()(image), size])
    model = keras.Model({"image": image, "size": size}, keras.layers.Dense(1)(both))
    model.compile(optimizer="sgd", loss="mse")
    ref = ref_of(source)
    dataset = make_tf_dataset(ref.stream(), batch_size=4)
    history = model.fit(dataset, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert model.predict(dataset, verbose=0).shape == (10, 1)
