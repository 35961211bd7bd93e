"""The Keras backend of the tests of the model: TensorFlow, or JAX with KERAS_BACKEND=jax."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import pytest

IS_JAX = keras.backend.backend() == "jax"

SEED_DTYPE = "uint32" if IS_JAX else "int32"
"""The dtype of dropout seeds."""

needs_tensorflow = pytest.mark.skipif(IS_JAX, reason="the test of a feature of TensorFlow")


def pullback(
    function: Callable[..., Any], inputs: Sequence[Any], variables: Sequence[Any] = ()
) -> tuple[Any, Callable[[Any], list[Any]]]:
    """Return the value of a function, and its vector-Jacobian product.

    Args:
        function: Maps the inputs to a tensor, or to several.
        inputs: Tensors.
        variables: Keras variables that the function reads.

    Returns:
        The value, and a function that maps a gradient of the value to those of the inputs and
        variables, in this order.
    """
    if IS_JAX:
        return _jax_pullback(function, inputs, variables)
    return _tensorflow_pullback(function, inputs, variables)


def _jax_pullback(
    function: Callable[..., Any], inputs: Sequence[Any], variables: Sequence[Any]
) -> tuple[Any, Callable[[Any], list[Any]]]:
    import jax

    def stateless(inputs: list[Any], values: list[Any]) -> Any:
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*inputs)

    values = [variable.value for variable in variables]
    value, pull = jax.vjp(stateless, [keras.ops.convert_to_tensor(x) for x in inputs], values)
    return value, lambda gradient: [*(each for side in pull(gradient) for each in side)]


def _tensorflow_pullback(
    function: Callable[..., Any], inputs: Sequence[Any], variables: Sequence[Any]
) -> tuple[Any, Callable[[Any], list[Any]]]:
    import tensorflow as tf

    inputs = [tf.convert_to_tensor(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
    by = [*inputs, *(variable.value for variable in variables)]

    def pull(gradient: Any) -> list[Any]:
        gradients = tape.gradient(value, by, output_gradients=gradient)
        return [tf.convert_to_tensor(each) for each in gradients]  # those of tables are sparse

    return value, pull
