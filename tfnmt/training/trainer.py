"""One training step, exact on any number of replicas."""

from collections.abc import Callable
from enum import IntEnum
from itertools import starmap
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfnmt.config import Config, TrainingConfig
from tfnmt.model.layers import Dropout, Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.cluster import is_distributed
from tfnmt.training.distribution import streams_per_replica
from tfnmt.training.loss import Consistency, Sums, r_drop, simcut, smoothed_cross_entropy
from tfnmt.training.optimizer import GuardedAdam
from tfnmt.training.schedule import NoamSchedule

PART_SEED = 1_000_003
"""Separates the dropout seeds of streams (added to the run's seed) and of accumulated parts (added
to the number of step and replica). After 1,000,003 steps times replicas, a part may repeat the
dropout mask of another step."""


class Part(NamedTuple):
    """Sums over some rows of a batch. Parts can be added up."""

    gradients: list[Tensor]  # of the summed loss
    sums: Sums


class Stop(IntEnum):
    """A reason of a worker to stop all workers."""

    ENDED = 0  # a limit of the training run is reached
    INTERRUPTED = 1  # by a signal


class Trainer(keras.Model):
    """The model that `fit` trains: the Transformer with teacher forcing.

    The loss and its gradient are summed over all replicas, parallel streams and accumulated parts.
    The sum is divided by the true number of target tokens, then clipped, then applied. So without
    dropout, N replicas make the same step as one replica on the same batch. (Keras' own train_step
    would clip before it reduces, and average means of unequal size.) A step whose gradient is not
    finite changes neither weights nor moments.
    """

    def __init__(
        self,
        transformer: Transformer,
        config: TrainingConfig,
        stop: tf.Variable | None = None,
        streams: int = 1,
    ) -> None:
        """Create a trainer.

        Args:
            transformer: The model.
            config: Optimizer, loss, precision and gradient accumulation.
            stop: For each reason of `Stop`, 1 if this worker wants to stop, [2]. Created outside
                the strategy, it is not mirrored.
            streams: The number of parallel streams that a replica divides its rows into.
        """
        super().__init__(name="trainer")
        self.stop = make_stop() if stop is None else stop
        self.transformer = transformer
        self.config = config
        self.streams = streams
        self.consistency = make_consistency(config)
        self.source_cutoff = Dropout(config.simcut_share, name="source_cutoff")
        self.target_cutoff = Dropout(config.simcut_share, name="target_cutoff")
        for layer in (self.source_cutoff, self.target_cutoff):
            layer.build(None)
        in_parts = config.device_tokens is not None
        self.differentiate = self._accumulate if in_parts else self._differentiate
        if streams > 1:  # as one function, it is traced once for all streams
            self.differentiate = tf.function(
                self.differentiate, reduce_retracing=True, autograph=False
            )
        self.compile(make_optimizer(config, transformer.d_model), jit_compile=False)
        self.optimizer.build(transformer.trainable_variables)
        self.built = True

    def train_step(self, data: Any) -> dict[str, Tensor]:
        """Make one step.

        Args:
            data: `((source, target_in), target_out)`, ids [B, S], [B, T] and [B, T].

        Returns:
            loss, cross_entropy, accuracy: Means over the target tokens of all replicas.
            tokens: The number of target tokens.
            gradient_norm: The norm before clipping.
            learning_rate: The learning rate of the step.
            padding: The share of padding.
            skipped: 1 if the gradient was not finite, otherwise 0.
            ended, interrupted: The number of replicas whose worker wants to stop for this reason.
        """
        context = tf.distribute.get_replica_context()
        shares = self._divide(data, self._dropout_seed(context))
        gradients, sums = add_parts(list(starmap(self.differentiate, shares)))
        positions = tf.stack([tf.math.count_nonzero(data[1], dtype=tf.int32), tf.size(data[1])])
        gradients, sums, positions, stop = context.all_reduce(
            "SUM", (gradients, sums, tf.cast(positions, tf.float32), self.stop.read_value())
        )
        # A batch of padding only has no token to divide by, and a gradient of 0.
        tokens = tf.maximum(sums.tokens, 1.0)
        norm = tf.linalg.global_norm(gradients) / tokens
        factor = 1 / tokens
        if self.config.clip_norm is not None:
            factor *= self.config.clip_norm / tf.maximum(norm, self.config.clip_norm)
        learning_rate = self.optimizer.learning_rate  # of this step: applying it counts the step
        finite = tf.math.is_finite(norm) & tf.math.is_finite(sums.loss)
        # Keras sums over the replicas again.
        self.optimizer.apply_if(finite, gradients, factor / context.num_replicas_in_sync)
        return {
            "loss": sums.loss / tokens,
            "cross_entropy": sums.cross_entropy / tokens,
            "accuracy": sums.correct / tokens,
            "tokens": sums.tokens,
            "gradient_norm": norm,
            "learning_rate": learning_rate,
            "padding": 1 - positions[0] / positions[1],
            "skipped": tf.cast(~finite, tf.float32),
            "ended": stop[Stop.ENDED],
            "interrupted": stop[Stop.INTERRUPTED],
        }

    def request_stop(self, reason: Stop) -> None:
        """Stop after this step. Several workers all stop after the next one."""
        if is_distributed():
            self.stop.assign(tf.one_hot(reason, len(Stop)))
        else:
            self.stop_training = True

    def write_weights(self, other: Transformer) -> None:
        """Copy the weights, or their moving averages if there are any, to another Transformer."""
        averages = self.optimizer.moving_averages
        weights = self.transformer.trainable_variables if averages else []
        average_of = {
            id(weight): average for weight, average in zip(weights, averages, strict=True)
        }
        for theirs, ours in zip(other.variables, self.transformer.variables, strict=True):
            theirs.assign(average_of.get(id(ours), ours))

    def make_train_function(self, force: bool = False) -> None:
        """Build the function that `fit` calls for each step, on every replica of this worker.

        Its results are those of the first replica. Keras 3.15's own function does not run with
        several workers (keras issue 20585).
        """
        strategy = self.distribute_strategy

        @tf.function(reduce_retracing=True, autograph=False)
        def train(iterator: Any) -> dict[str, Tensor]:
            results = strategy.run(self.train_step, (next(iterator),))
            return {
                name: strategy.experimental_local_results(value)[0]
                for name, value in results.items()
            }

        self.train_function: Callable[[Any], dict[str, Tensor]] = train

    @tf.function(reduce_retracing=True, autograph=False)
    def gradients(self, data: Any) -> list[Tensor]:
        """Return the gradients of a batch's mean loss before clipping, for histograms."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        shares = self._divide(data, tf.stack([self.config.seed, step]))
        part = add_parts(list(starmap(self.differentiate, shares)))
        return [gradient / part.sums.tokens for gradient in part.gradients]

    def _divide(self, data: Any, seed: Tensor) -> list[tuple[Any, Tensor]]:
        """Divide a replica's rows among the parallel streams: the data and the seed of each."""
        if self.streams == 1:
            return [(data, seed)]
        return [
            (
                tf.nest.map_structure(lambda ids, n=stream: self._share(ids, n), data),
                seed + tf.constant([stream * PART_SEED, 0]),
            )
            for stream in range(self.streams)
        ]

    def _share(self, ids: Tensor, stream: int) -> Tensor:
        """Return the rows of a stream, [<= B / streams, T]. Without any, one row of padding."""
        missing = tf.maximum(self.streams - tf.shape(ids)[0], 0)
        return tf.pad(ids, [[0, missing], [0, 0]])[stream :: self.streams]

    def _differentiate(self, data: Any, seed: Tensor) -> Part:
        """Return the summed loss of some rows and its gradients.

        R-Drop and SimCut run R = 2 forward passes: hidden is [R * B, T, D].
        """
        inputs, target_out = data
        source, target_in = tf.nest.map_structure(self._repeat, inputs)
        variables = [variable.value for variable in self.transformer.trainable_variables]
        with tf.GradientTape() as tape:
            kept = self._kept(self.source_cutoff, inputs[0], seed)
            memory, memory_mask = self.transformer.encode(source, seed, kept)
            kept = self._kept(self.target_cutoff, inputs[1], seed)
            hidden = self.transformer.decode(target_in, memory, memory_mask, seed, kept)
            table = self.transformer.output_embedding.table
            smoothing = self.config.label_smoothing
            sums = smoothed_cross_entropy(hidden, table, target_out, smoothing, self.consistency)
        gradients = tape.gradient(sums.loss, variables)
        return Part([tf.convert_to_tensor(gradient) for gradient in gradients], sums)

    def _accumulate(self, data: Any, seed: Tensor) -> Part:
        """Accumulate the gradients of parts that fit into `device_tokens`, one after another."""
        (source, _), target_out = data
        rows = tf.shape(source)[0]
        longest = tf.maximum(tf.shape(source)[1], tf.shape(target_out)[1])
        assert self.config.device_tokens is not None
        limit = self.config.device_tokens // (self.config.forward_passes * self.streams)
        size = tf.maximum(limit // longest, 1)  # rows of a part

        def add(start: Tensor, total: Part) -> tuple[Tensor, Part]:
            some = tf.nest.map_structure(lambda ids: ids[start : start + size], data)
            part = self._differentiate(some, seed + tf.stack([0, start * PART_SEED]))
            return start + size, tf.nest.map_structure(tf.add, total, part)

        # TensorFlow's default of ten parallel iterations would take the memory of ten parts.
        _, total = tf.while_loop(
            lambda start, _: start < rows, add, (0, self._zero_part()), parallel_iterations=1
        )
        return total

    def _kept(self, cutoff: Dropout, ids: Tensor, seed: Tensor) -> Tensor | None:
        """Return 0 at the tokens that SimCut cuts off, all in the second pass, [2B, T]."""
        if self.config.simcut is None:
            return None
        dtype = self.transformer.compute_dtype
        kept = cutoff.kept(keras.ops.shape(ids), dtype, seed)
        return tf.concat([tf.ones_like(kept), kept], axis=0)

    def _repeat(self, ids: Tensor) -> Tensor:
        return tf.tile(ids, [self.config.forward_passes, 1])

    def _zero_part(self) -> Part:
        zeros = [tf.zeros(v.shape, tf.float32) for v in self.transformer.trainable_variables]
        return Part(zeros, Sums(*(tf.constant(0.0) for _ in Sums._fields)))

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Do nothing: model and optimizer are built already.

        Keras 3.15 would average the first batches of the replicas here, which differ in shape.
        """

    def _dropout_seed(self, context: Any) -> Tensor:
        """Return the run's seed and a number that no other step and replica has, [2]."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        number = step * context.num_replicas_in_sync + context.replica_id_in_sync_group
        return tf.stack([self.config.seed, number])


def make_consistency(config: TrainingConfig) -> Consistency | None:
    """Return the loss term of R-Drop or SimCut, or None without both."""
    if config.simcut is not None:
        return simcut(config.simcut)
    return None if config.r_drop is None else r_drop(config.r_drop)


def make_stop() -> tf.Variable:
    """Create the variable that stops training, [2]: 0 for each reason."""
    return tf.Variable(tf.zeros(len(Stop)), trainable=False)


def add_parts(parts: list[Part]) -> Part:
    """Add up the parts of a batch."""
    if len(parts) == 1:
        return parts[0]
    return tf.nest.map_structure(lambda *summands: tf.add_n(summands), *parts)


def make_optimizer(config: TrainingConfig, d_model: int) -> GuardedAdam:
    """Create Adam with the paper's learning-rate schedule (section 5.3)."""
    return GuardedAdam(
        NoamSchedule(d_model, config.warmup_steps, config.learning_rate_scale),
        beta_1=config.adam_beta_1,
        beta_2=config.adam_beta_2,
        epsilon=config.adam_epsilon,
        use_ema=config.ema_decay is not None,
        ema_momentum=config.ema_decay or 0.0,
    )


def make_trainer(config: Config, vocab_size: int, strategy: tf.distribute.Strategy) -> Trainer:
    """Create a Transformer with random weights, and its trainer, on all devices."""
    # oneDNN's fused product with bias does not check its allocation, and crashes without memory.
    tf.config.optimizer.set_experimental_options({"remapping": False})
    stop = make_stop()
    keras.config.set_dtype_policy(config.training.precision)
    with strategy.scope():
        keras.utils.set_random_seed(config.training.seed)
        transformer = Transformer(config.model, vocab_size)
        _freeze(transformer, config.training.freeze)
        return Trainer(transformer, config.training, stop, streams_per_replica(strategy))


def _freeze(transformer: Transformer, parts: tuple[str, ...]) -> None:
    layers: dict[str, tuple[keras.layers.Layer, ...]] = {
        "embeddings": (
            transformer.source_embedding,
            transformer.target_embedding,
            transformer.output_embedding,
        ),
        "encoder": (transformer.encoder,),
        "decoder": (transformer.decoder,),
    }
    for part in parts:
        for layer in layers[part]:
            layer.trainable = False
