"""The devices and hosts of a training run.

Several hosts run the same command. TF_CONFIG or Slurm names the hosts to each of them. Each worker
reads the whole plan of batches and feeds its own replicas. The first one, the chief, writes files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.cluster_resolver.slurm_cluster_resolver import expand_hostlist

from tfnmt.data.batching.batches import Batches
from tfnmt.errors import UserError, graph_error_reason
from tfnmt.runtime import cluster
from tfnmt.runtime.startup import PARALLEL_STREAMS

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
"""Errors that TensorFlow raises when another worker is lost."""


def make_strategy() -> tf.distribute.Strategy:
    """Create the distribution strategy.

    Call it before TensorFlow computes anything, because several hosts must be known by then.

    Returns:
        MultiWorkerMirroredStrategy for several hosts, MirroredStrategy for several GPUs (or
        logical CPUs), otherwise the default strategy.
    """
    if cluster.uses_slurm():
        _set_tf_config()
    if cluster.uses_tf_config():
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices(device_kind())
    if len(devices) == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def _set_tf_config() -> None:
    """Set TF_CONFIG from Slurm's variables.

    TensorFlow's SlurmClusterResolver fails without nvidia-smi, sorts host d10 before d9, unlike
    Slurm, and replaces the CUDA_VISIBLE_DEVICES that Slurm sets.
    """
    hosts = expand_hostlist(os.environ["SLURM_STEP_NODELIST"])
    os.environ["TF_CONFIG"] = cluster.slurm_tf_config(hosts)


def device_kind() -> str:
    """Return `GPU` if TensorFlow sees one, otherwise `CPU`."""
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"


def streams_per_replica(strategy: tf.distribute.Strategy) -> int:
    """Return the parallel streams of a replica: its share of this host's, or one on a GPU."""
    if device_kind() == "GPU":
        return 1
    here = 1 if cluster.is_distributed() else strategy.num_replicas_in_sync
    return max(PARALLEL_STREAMS // here, 1)


def wait_for_workers(strategy: tf.distribute.Strategy) -> None:
    """Wait until all workers have called this. A launcher may end all when the first one exits."""

    @tf.function(autograph=False)
    def count() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

    if cluster.is_distributed():
        strategy.run(count)


@contextmanager
def report_lost_worker() -> Iterator[None]:
    """Convert the loss of another worker into a one-line UserError."""
    try:
        yield
    except LOST as error:
        reason = graph_error_reason(error.message) or error.message.splitlines()[0]
        raise UserError(
            f"TF_CONFIG: another worker was lost ({reason[:120]}); start the same command on all "
            "workers again to resume from the last checkpoint"
        ) from error


def distribute_batches(strategy: tf.distribute.Strategy, batches: Batches, first_step: int) -> Any:
    """Create the endless distributed dataset of batches, one shard per replica.

    Args:
        strategy: The distribution strategy.
        batches: The batches of the training run.
        first_step: The step of the first batch.

    Returns:
        A distributed dataset of `((source, target_in), target_out)`, ids of shape [B, T].
    """
    ids = tf.TensorSpec((None, None), tf.int32)
    replicas = strategy.num_replicas_in_sync

    def feed(context: tf.distribute.InputContext) -> tf.data.Dataset:
        # A worker feeds only its own replicas, which have consecutive numbers.
        own = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * own

        def generate() -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray]]:
            for number, batch in enumerate(batches.since(first_step, replicas)):
                if first <= number % replicas < first + own:
                    yield (batch.source, batch.target_in), batch.target_out

        # TensorFlow gives the elements to the replicas in turn.
        return tf.data.Dataset.from_generator(
            generate, output_signature=((ids, ids), ids)
        ).prefetch(2 * own)

    return strategy.distribute_datasets_from_function(feed)
