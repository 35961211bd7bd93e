import keras
import numpy as np
import pytest

from tfnmt.model.dense import Dense, length


@pytest.mark.parametrize("activation", [None, "relu"])
def test_it_is_keras_dense_with_another_product(activation: str | None) -> None:
    layer = Dense(5, activation=activation)
    layer.build((None, None, 3))
    layer.bias.assign(np.arange(5.0) - 2)
    theirs = keras.layers.Dense(5, activation=activation)
    theirs.build((None, None, 3))
    theirs.set_weights(layer.get_weights())
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    np.testing.assert_allclose(layer(x), theirs(x), atol=1e-6)


def test_a_length_that_is_known_costs_no_operation() -> None:
    assert length(np.zeros((2, 7, 3))) == 7
