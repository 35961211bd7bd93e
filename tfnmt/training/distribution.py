"""The devices that a training is spread over."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfnmt.data.batches import Batches


def make_strategy() -> tf.distribute.Strategy:
    """MirroredStrategy over the GPUs, or over the logical CPUs, where there is more than one."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def distribute_batches(strategy: tf.distribute.Strategy, batches: Batches, first_step: int) -> Any:
    """Endless batches from a step on, `((source, target_in), target_out)`: a shard a replica."""
    ids = tf.TensorSpec((None, None), tf.int32)

    def feed(_: tf.distribute.InputContext) -> tf.data.Dataset:
        def generate() -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray]]:
            for batch in batches.since(first_step, strategy.num_replicas_in_sync):
                yield (batch.source, batch.target_in), batch.target_out

        # TensorFlow hands the elements to the replicas in turn.
        return tf.data.Dataset.from_generator(
            generate, output_signature=((ids, ids), ids)
        ).prefetch(2 * strategy.num_replicas_in_sync)

    return strategy.distribute_datasets_from_function(feed)
