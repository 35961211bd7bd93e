"""Adam (section 5.3), which can leave a step out."""

from typing import Any

import keras
import tensorflow as tf

from tfnmt.model.layers import Tensor


class GuardedAdam(keras.optimizers.Adam):
    """Keras' Adam, one operation per weight; a step not accepted leaves weights and moments alone.

    The condition is looked at for each weight: around the whole step there can be none, because the
    replicas meet in it.
    """

    _accepted: Tensor = True

    def apply_if(self, accepted: Tensor, gradients: list[Tensor], factor: Tensor = 1.0) -> None:
        """Applies the gradients times a factor [] where `accepted` [] is true.

        Counts the step in any case.
        """
        self._accepted = accepted
        factor = self._unless_left_out(factor, 0.0)
        # Nothing times a factor of 0 is other than 0, nor is what is not finite.
        self.apply([tf.math.multiply_no_nan(gradient, factor) for gradient in gradients])

    @property
    def moving_averages(self) -> list[Any]:
        """Of the weights, in their order; none where none are kept."""
        return self._model_variables_moving_average if self.use_ema else []

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        """Moments and weight in one pass. Keras' own takes some twenty operations a weight."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=self._unless_left_out(tf.cast(learning_rate, tf.float32), 0.0),
            beta1=self._unless_left_out(self.beta_1, 1.0),
            beta2=self._unless_left_out(self.beta_2, 1.0),
            epsilon=self.epsilon,
            grad=gradient,
        )

    def finalize_variable_values(self, var_list: list[Any]) -> None:
        """Leaves the weights as they are.

        Keras would put their moving averages in their place when `fit` ends, before the last
        checkpoint is written: a training that went on from there would not be the same.
        """

    def _unless_left_out(self, value: Tensor, otherwise: float) -> Tensor:
        """The value, or what changes nothing: decays of 1, rate and gradient of 0."""
        return tf.where(self._accepted, value, tf.constant(otherwise))
