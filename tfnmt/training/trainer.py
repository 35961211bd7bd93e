"""One update of the weights, exact on any number of replicas."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfnmt.config import Config, TrainingConfig
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.cluster import is_spread
from tfnmt.training.distribution import lanes_of
from tfnmt.training.loss import Sums, smoothed_cross_entropy
from tfnmt.training.optimizer import GuardedAdam
from tfnmt.training.schedule import NoamSchedule

PART_SEED = 1_000_003
"""Keeps the dropout of a step's parts apart from that of other steps, of which there are fewer."""


class Part(NamedTuple):
    """What some rows of a batch come to: sums, so that parts can be added up."""

    gradients: list[Tensor]  # of the summed loss
    sums: Sums


class Trainer(keras.Model):
    """What `fit` trains: the Transformer under teacher forcing.

    The gradient is that of the summed loss over all replicas and all parts that a replica works on,
    side by side or one after another, divided by the true number of target tokens, then clipped,
    then applied: N replicas take the step that one replica takes on the same batch. (Keras' own
    train_step would clip before it reduces, and average means of unequal size.) A step whose
    gradient is not finite changes neither weights nor moments.
    """

    def __init__(
        self,
        transformer: Transformer,
        config: TrainingConfig,
        stop: tf.Variable | None = None,
        lanes: int = 1,
    ) -> None:
        """`stop` [] is this worker's wish to end: made outside the strategy, it is not shared.

        A replica works on so many parts side by side as it has `lanes`.
        """
        super().__init__(name="trainer")
        self.stop = tf.Variable(0.0, trainable=False) if stop is None else stop
        self.transformer = transformer
        self.config = config
        self.lanes = lanes
        # A function of its own, so that all lanes together are traced but once.
        self._lane = tf.function(
            self._differentiate_in_turn, reduce_retracing=True, autograph=False
        )
        self.compile(make_optimizer(config, transformer.d_model), jit_compile=False)
        self.optimizer.build(transformer.trainable_variables)
        self.built = True

    def train_step(self, data: Any) -> dict[str, Tensor]:
        """An update on `((source, target_in), target_out)`, ids of shape [B, S], [B, T], [B, T].

        Returns means over the real tokens of all replicas, their number, the gradient's norm before
        clipping, the learning rate, the share of target slots that is padding, whether the step was
        skipped (1 or 0), and whether any worker wishes to end.
        """
        context = tf.distribute.get_replica_context()
        gradients, sums = self.differentiate(data, self._dropout_seed(context))
        slots = tf.cast(self.config.readings * tf.size(data[1]), tf.float32)
        gradients, sums, slots, stop = context.all_reduce(
            "SUM", (gradients, sums, slots, self.stop.read_value())
        )
        # A batch of padding alone has no token to divide by, and a gradient of 0.
        tokens = tf.maximum(sums.tokens, 1.0)
        norm = tf.linalg.global_norm(gradients) / tokens
        factor = 1 / tokens
        if self.config.clip_norm is not None:
            factor *= self.config.clip_norm / tf.maximum(norm, self.config.clip_norm)
        learning_rate = self.optimizer.learning_rate  # of this update; applying it counts on
        finite = tf.math.is_finite(norm) & tf.math.is_finite(sums.loss)
        # Keras sums over the replicas once more.
        self.optimizer.apply_if(finite, gradients, factor / context.num_replicas_in_sync)
        return {
            "loss": sums.loss / tokens,
            "cross_entropy": sums.cross_entropy / tokens,
            "accuracy": sums.correct / tokens,
            "tokens": sums.tokens,
            "gradient_norm": norm,
            "learning_rate": learning_rate,
            "padding": 1 - sums.tokens / slots,
            "skipped": tf.cast(~finite, tf.float32),
            "stop": stop,
        }

    def request_stop(self) -> None:
        """Ends the training after this step; of several workers, all after the next one."""
        if is_spread():
            self.stop.assign(1.0)
        else:
            self.stop_training = True

    def write_weights(self, other: Transformer) -> None:
        """Gives another Transformer the weights, or their moving averages where there are some."""
        averages = self.optimizer.moving_averages
        averaged = self.transformer.trainable_variables if averages else []
        kept = {id(weight): average for weight, average in zip(averaged, averages, strict=True)}
        for theirs, ours in zip(other.variables, self.transformer.variables, strict=True):
            theirs.assign(kept.get(id(ours), ours))

    def make_train_function(self, force: bool = False) -> None:
        """One step a call, on every replica of this worker; its results are the first replica's.

        Keras 3.15's own does not run where there are several workers (keras issue 20585).
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
        """The gradients of the mean loss of a batch, as they are before clipping; for pictures."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        part = self.differentiate(data, tf.stack([self.config.seed, step]))
        return [gradient / part.sums.tokens for gradient in part.gradients]

    def differentiate(self, data: Any, seed: Tensor) -> Part:
        """Loss and gradient of a replica's rows, of which each lane takes a share."""
        if self.lanes == 1:
            return self._differentiate_in_turn(data, seed)
        shares = [
            self._lane(
                tf.nest.map_structure(lambda ids, n=lane: self._share(ids, n), data),
                seed + tf.constant([lane * PART_SEED, 0]),
            )
            for lane in range(self.lanes)
        ]
        return tf.nest.map_structure(lambda *summands: tf.add_n(summands), *shares)

    def _share(self, ids: Tensor, lane: int) -> Tensor:
        """The rows of a lane, [<= B / lanes, T]; where there are too few, one of padding."""
        missing = tf.maximum(self.lanes - tf.shape(ids)[0], 0)
        return tf.pad(ids, [[0, missing], [0, 0]])[lane :: self.lanes]

    def _differentiate_in_turn(self, data: Any, seed: Tensor) -> Part:
        """Loss and gradient of some rows, in parts where memory asks for that."""
        if self.config.device_tokens is None:
            return self._differentiate_part(data, seed)
        (source, _), target_out = data
        rows = tf.shape(source)[0]
        longest = tf.maximum(tf.shape(source)[1], tf.shape(target_out)[1])
        limit = self.config.device_tokens // (self.config.readings * self.lanes)
        size = tf.maximum(limit // longest, 1)  # rows of a part

        def add(start: Tensor, total: Part) -> tuple[Tensor, Part]:
            some = tf.nest.map_structure(lambda ids: ids[start : start + size], data)
            part = self._differentiate_part(some, seed + tf.stack([0, start * PART_SEED]))
            return start + size, tf.nest.map_structure(tf.add, total, part)

        # One after another: TensorFlow's own ten at once would hold the memory of ten.
        _, total = tf.while_loop(
            lambda start, _: start < rows, add, (0, self._nothing()), parallel_iterations=1
        )
        return total

    def _differentiate_part(self, data: Any, seed: Tensor) -> Part:
        """Loss and gradient of some rows."""
        inputs, target_out = data
        source, target_in = tf.nest.map_structure(self._repeated, inputs)
        variables = [variable.value for variable in self.transformer.trainable_variables]
        with tf.GradientTape() as tape:
            memory, memory_mask = self.transformer.encode(source, seed)
            hidden = self.transformer.decode(target_in, memory, memory_mask, seed)
            sums = self._loss(hidden, target_out)
        gradients = tape.gradient(sums.loss, variables)
        return Part([tf.convert_to_tensor(gradient) for gradient in gradients], sums)

    def _loss(self, hidden: Tensor, target_out: Tensor) -> Sums:
        """The loss of hidden [R*B, T, D], R readings of B rows one after another."""
        table = self.transformer.output_embedding.table
        config = self.config
        return smoothed_cross_entropy(
            hidden, table, target_out, config.label_smoothing, config.r_drop
        )

    def _repeated(self, ids: Tensor) -> Tensor:
        return tf.tile(ids, [self.config.readings, 1])

    def _nothing(self) -> Part:
        """The sums before the first part."""
        zeros = [tf.zeros(v.shape, tf.float32) for v in self.transformer.trainable_variables]
        return Part(zeros, Sums(*(tf.constant(0.0) for _ in Sums._fields)))

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Does nothing: model and optimizer are built already.

        Keras 3.15 would average the replicas' first batches here, which differ in shape.
        """

    def _dropout_seed(self, context: Any) -> Tensor:
        """[2]: the run's seed, and a number that no other step and replica has."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        turn = step * context.num_replicas_in_sync + context.replica_id_in_sync_group
        return tf.stack([self.config.seed, turn])


def make_optimizer(config: TrainingConfig, d_model: int) -> GuardedAdam:
    """Adam on the paper's schedule (section 5.3)."""
    return GuardedAdam(
        NoamSchedule(d_model, config.warmup_steps, config.learning_rate_scale),
        beta_1=config.adam_beta_1,
        beta_2=config.adam_beta_2,
        epsilon=config.adam_epsilon,
        use_ema=config.ema_decay is not None,
        ema_momentum=config.ema_decay or 0.0,
    )


def make_trainer(config: Config, vocab_size: int, strategy: tf.distribute.Strategy) -> Trainer:
    """A new Transformer, and what trains it, on every device."""
    # oneDNN's product with bias in one does not look whether its result found room, and crashes.
    tf.config.optimizer.set_experimental_options({"remapping": False})
    stop = tf.Variable(0.0, trainable=False)
    keras.config.set_dtype_policy(config.training.precision)
    with strategy.scope():
        keras.utils.set_random_seed(config.training.seed)
        transformer = Transformer(config.model, vocab_size)
        _freeze(transformer, config.training.freeze)
        return Trainer(transformer, config.training, stop, lanes_of(strategy))


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
