"""The learning-rate schedule (section 5.3)."""

import keras
from keras import ops

from tfnmt.model.layers import Tensor


class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """lrate = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3.

    The paper counts steps from 1. Keras calls the schedule with the number of steps already made.
    """

    def __init__(self, d_model: int, warmup_steps: int, scale: float) -> None:
        """Create a schedule.

        Args:
            d_model: The width of the model.
            warmup_steps: Steps in which the learning rate grows linearly.
            scale: A factor of the learning rate; 1 in the paper.
        """
        super().__init__()
        self.factor = scale * d_model**-0.5
        self.warmup_steps = warmup_steps

    def __call__(self, steps: Tensor) -> Tensor:
        """Return the learning rate of the step after `steps` steps."""
        step = ops.cast(steps, "float32") + 1.0
        return self.factor * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
