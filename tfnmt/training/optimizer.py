"""Adam (section 5.3), which can leave a step out."""

from typing import Any

import keras
from keras import ops

Tensor = Any


class GuardedAdam(keras.optimizers.Adam):
    """Keras' Adam; a step that is not accepted leaves weights and moments as they were.

    The condition is looked at in each assignment: around the whole step there can be none, because
    the replicas meet in it.
    """

    _accepted: Tensor = True

    def apply_if(self, accepted: Tensor, gradients: list[Tensor]) -> None:
        """Applies the gradients where `accepted` [] is true; counts the step in any case."""
        self._accepted = accepted
        self.apply(gradients)

    @property
    def moving_averages(self) -> list[Any]:
        """Of the weights, in their order; none where none are kept."""
        return self._model_variables_moving_average if self.use_ema else []

    def assign_add(self, variable: Any, value: Tensor) -> None:
        """Adds, or does not."""
        super().assign_add(variable, self._guarded(value))

    def assign_sub(self, variable: Any, value: Tensor) -> None:
        """Subtracts, or does not."""
        super().assign_sub(variable, self._guarded(value))

    def _guarded(self, value: Tensor) -> Tensor:
        return ops.where(self._accepted, value, ops.zeros_like(value))
