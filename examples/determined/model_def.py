"""A trial for Determined whose two datasets come from a ydl cache.

Three things differ from a trial that was written for Determined's data layer: the import, the
object that holds the decorators, and wrap_dataset(..., shard_dataset=False).
"""

import determined.keras
import tensorflow as tf

from ydl import YogaDL


def make_ones(records):
    """Elements x = [1.0], y = [1.0]: not batched, so that any batch size can use the cache."""
    return tf.data.Dataset.range(records).map(lambda i: (tf.ones([1]), tf.ones([1])))


class OneVarTrial(determined.keras.TFKerasTrial):
    """Learns the one weight of y = w * x."""

    def __init__(self, context):
        self.context = context
        self.batch_size = context.get_per_slot_batch_size()
        self.yogadl = YogaDL(
            config=context.get_data_config()["data_layer"],
            dist=context.distributed,
            per_slot_batch_size=self.batch_size,
            seed=context.get_trial_seed(),
            # How many records of its shard each rank has trained on. Exact, because repeat=True
            # below lets batches cross the ends of epochs. (context.env is private to Determined.)
            offset_records=context.env.steps_completed * self.batch_size,
        )

    def build_training_data_loader(self):
        @self.yogadl.cache_train_dataset(
            "ones", "1", shuffle=True, batch_size=self.batch_size, repeat=True
        )
        def make_training_set():
            return make_ones(100)

        # Each rank has its own shard already: Determined must not shard once more.
        return self.context.wrap_dataset(make_training_set(), shard_dataset=False)

    def build_validation_data_loader(self):
        @self.yogadl.cache_validation_dataset("ones", "1", batch_size=self.batch_size)
        def make_validation_set():
            return make_ones(100)

        return self.context.wrap_dataset(make_validation_set(), shard_dataset=False)

    def build_model(self):
        layer = tf.keras.layers.Dense(
            1, use_bias=False, kernel_initializer="zeros", input_shape=(1,)
        )
        model = self.context.wrap_model(tf.keras.Sequential([layer]))
        optimizer = tf.keras.optimizers.SGD(self.context.get_hparam("learning_rate"))
        model.compile(self.context.wrap_optimizer(optimizer), "mse")
        return model
