"""Adam (section 5.3) that can skip a step."""

from typing import Any

import keras
import tensorflow as tf

from tfnmt.model.layers import Tensor


class GuardedAdam(keras.optimizers.Adam):
    """Keras' Adam with one operation per weight; a skipped step changes no weight and no moment.

    The condition is evaluated for each weight. It cannot surround the whole step, because the
    replicas communicate in it.
    """

    _accepted: Tensor = True

    def apply_if(self, accepted: Tensor, gradients: list[Tensor], factor: Tensor = 1.0) -> None:
        """Apply the gradients if the step is accepted. The step is counted in either case.

        Args:
            accepted: A boolean scalar, [].
            gradients: The gradients of the trainable weights.
            factor: A scalar, [], by which the gradients are multiplied.
        """
        self._accepted = accepted
        factor = self._if_accepted(factor, 0.0)
        # With a factor of 0, multiply_no_nan returns 0 even for gradients that are not finite.
        self.apply([tf.math.multiply_no_nan(gradient, factor) for gradient in gradients])

    @property
    def moving_averages(self) -> list[Any]:
        """Return the moving averages of the trainable weights, empty without `use_ema`."""
        return self._model_variables_moving_average if self.use_ema else []

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        """Update moments and weight in one operation. Keras' own step needs about twenty."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=self._if_accepted(tf.cast(learning_rate, tf.float32), 0.0),
            beta1=self._if_accepted(self.beta_1, 1.0),
            beta2=self._if_accepted(self.beta_2, 1.0),
            epsilon=self.epsilon,
            grad=gradient,
        )

    def finalize_variable_values(self, var_list: list[Any]) -> None:
        """Leave the weights unchanged.

        When `fit` ends, Keras would replace the weights with their moving averages, before the last
        checkpoint is written. A resumed training run would then differ from an uninterrupted one.
        """

    def _if_accepted(self, value: Tensor, otherwise: float) -> Tensor:
        """Return the value, or for a skipped step `otherwise`, which changes nothing."""
        return tf.where(self._accepted, value, tf.constant(otherwise))
