"""One update of the weights, exact on any number of replicas."""

from typing import Any

import keras
import tensorflow as tf

from tfnmt.config import TrainingConfig
from tfnmt.model.transformer import Transformer
from tfnmt.training.loss import smoothed_cross_entropy
from tfnmt.training.schedule import NoamSchedule

Tensor = Any


def make_optimizer(config: TrainingConfig, d_model: int) -> keras.optimizers.Optimizer:
    """Adam on the paper's schedule (section 5.3)."""
    return keras.optimizers.Adam(
        NoamSchedule(d_model, config.warmup_steps, config.learning_rate_scale),
        beta_1=config.adam_beta_1,
        beta_2=config.adam_beta_2,
        epsilon=config.adam_epsilon,
    )


class Trainer(keras.Model):
    """What `fit` trains: the Transformer under teacher forcing.

    The gradient is that of the summed loss over all replicas, divided by the true number of target
    tokens, then clipped, then applied: N replicas take the step that one replica takes on the same
    batch. (Keras' own train_step would clip before it reduces, and average means of unequal size.)
    """

    def __init__(self, transformer: Transformer, config: TrainingConfig) -> None:
        super().__init__(name="trainer")
        self.transformer = transformer
        self.config = config
        self.compile(make_optimizer(config, transformer.d_model), jit_compile=False)
        self.optimizer.build(transformer.trainable_variables)
        self.built = True

    def train_step(self, data: Any) -> dict[str, Tensor]:
        """An update on `((source, target_in), target_out)`, ids of shape [B, S], [B, T], [B, T].

        Returns means over the real tokens of all replicas, their number, the gradient's norm before
        clipping, and the learning rate.
        """
        (source, target_in), target_out = data
        context = tf.distribute.get_replica_context()
        variables = [variable.value for variable in self.transformer.trainable_variables]
        with tf.GradientTape() as tape:
            seed = self._dropout_seed(context)
            memory, memory_mask = self.transformer.encode(source, seed)
            hidden = self.transformer.decode(target_in, memory, memory_mask, seed)
            table = self.transformer.output_embedding.table
            sums = smoothed_cross_entropy(hidden, table, target_out, self.config.label_smoothing)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(sums.loss, variables)]

        gradients, sums = context.all_reduce("SUM", (gradients, sums))
        # A batch of padding alone has no token to divide by, and a gradient of 0.
        tokens = tf.maximum(sums.tokens, 1.0)
        gradients = [gradient / tokens for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        if self.config.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self.config.clip_norm, norm)
        learning_rate = self.optimizer.learning_rate  # of this update; applying it counts on
        # Keras sums over the replicas once more.
        replicas = context.num_replicas_in_sync
        self.optimizer.apply([gradient / replicas for gradient in gradients])
        return {
            "loss": sums.loss / tokens,
            "cross_entropy": sums.cross_entropy / tokens,
            "accuracy": sums.correct / tokens,
            "tokens": sums.tokens,
            "gradient_norm": norm,
            "learning_rate": learning_rate,
        }

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Does nothing: model and optimizer are built already.

        Keras 3.15 would average the replicas' first batches here, which differ in shape.
        """

    def _dropout_seed(self, context: Any) -> Tensor:
        """[2]: the run's seed, and a number that no other step and replica has."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        turn = step * context.num_replicas_in_sync + context.replica_id_in_sync_group
        return tf.stack([self.config.seed, turn])
