"""The learning rate (section 5.3)."""

import keras
from keras import ops

from tfnmt.model.layers import Tensor


class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """lrate = scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3.

    Steps count from 1: Keras calls this with the number of updates already made.
    """

    def __init__(self, d_model: int, warmup_steps: int, scale: float) -> None:
        super().__init__()
        self.factor = scale * d_model**-0.5
        self.warmup_steps = warmup_steps

    def __call__(self, updates: Tensor) -> Tensor:
        """The rate of the update that follows so many."""
        step = ops.cast(updates, "float32") + 1.0
        return self.factor * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
