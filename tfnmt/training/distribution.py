"""The devices and hosts that a training is spread over.

Several hosts run the same command, told of one another by TF_CONFIG, or by Slurm. Each reads the
whole plan of batches and feeds its own replicas; the first one, the chief, writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tfnmt.data.batching.batches import Batches
from tfnmt.errors import UserError
from tfnmt.runtime import cluster
from tfnmt.runtime.startup import LANES

PORT = 44_100
"""The first port that workers under Slurm listen at."""

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
"""What TensorFlow raises where another worker is gone."""


def make_strategy() -> tf.distribute.Strategy:
    """MultiWorkerMirroredStrategy over the hosts, where there are several.

    Else MirroredStrategy over the GPUs, or over the logical CPUs, where there is more than one.
    Several hosts must be known before TensorFlow computes anything.
    """
    if cluster.by_tf_config():
        return tf.distribute.MultiWorkerMirroredStrategy()
    if cluster.by_slurm():
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=PORT)
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    devices = tf.config.list_logical_devices(device_kind())
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def device_kind() -> str:
    """What is trained on: `GPU` where TensorFlow sees one, else `CPU`."""
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"


def lanes_of(strategy: tf.distribute.Strategy) -> int:
    """The lanes of a replica: its share of the processors' on the same host, one on a GPU."""
    if device_kind() == "GPU":
        return 1
    here = 1 if cluster.is_spread() else strategy.num_replicas_in_sync
    return max(LANES // here, 1)


@contextmanager
def together() -> Iterator[None]:
    """Turns the loss of another worker into a line."""
    try:
        yield
    except LOST as error:
        raise UserError(
            "TF_CONFIG: another worker has gone; start the same command on all of them again, it "
            f"goes on from the last checkpoint ({error.message.splitlines()[0][:120]})"
        ) from error


def distribute_batches(strategy: tf.distribute.Strategy, batches: Batches, first_step: int) -> Any:
    """Endless batches from a step on, `((source, target_in), target_out)`: a shard per replica."""
    ids = tf.TensorSpec((None, None), tf.int32)
    replicas = strategy.num_replicas_in_sync

    def feed(context: tf.distribute.InputContext) -> tf.data.Dataset:
        # A worker feeds its own replicas alone, which follow one another.
        own = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * own

        def generate() -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray]]:
            for number, batch in enumerate(batches.since(first_step, replicas)):
                if first <= number % replicas < first + own:
                    yield (batch.source, batch.target_in), batch.target_out

        # TensorFlow hands the elements to the replicas in turn.
        return tf.data.Dataset.from_generator(
            generate, output_signature=((ids, ids), ids)
        ).prefetch(2 * own)

    return strategy.distribute_datasets_from_function(feed)
