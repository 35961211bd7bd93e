"""The sublayers that encoder and decoder are made of, as a configuration describes them."""

from typing import Any

import keras

from tfnmt.config import ModelConfig
from tfnmt.model.attention import MultiHeadAttention
from tfnmt.model.layers import Dense, Dropout, LayerNorm, Tensor


class FeedForward(keras.layers.Layer):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, equation 2: at each position alone."""

    def __init__(
        self, d_model: int, d_ff: int, dropout: float, activation: str, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.inner = Dense(d_ff, activation=activation, name="inner")
        self.outer = Dense(d_model, name="outer")
        self.dropout = Dropout(dropout, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Builds both projections."""
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))
        self.dropout.build((None, None, self.d_ff))

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.outer(self.dropout(self.inner(x), seed))


class Residual(keras.layers.Layer):
    """Post-norm, the paper's: Norm(x + Dropout(f(x))). Pre-norm: x + Dropout(f(Norm(x))).

    The one place that knows the difference. A sublayer f runs between `enter` and `leave`:

        x = residual.leave(x, f(residual.enter(x)), seed)
    """

    def __init__(
        self, d_model: int, dropout: float, norm_first: bool, norm_epsilon: float, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.norm_first = norm_first
        self.norm = LayerNorm(epsilon=norm_epsilon, name="norm")
        self.dropout = Dropout(dropout, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        """Builds the norm."""
        self.norm.build((None, None, self.d_model))
        self.dropout.build((None, None, self.d_model))

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer reads: [B, T, D]."""
        return self.norm(x) if self.norm_first else x

    def leave(self, x: Tensor, output: Tensor, seed: Tensor | None = None) -> Tensor:
        """What the next sublayer gets: [B, T, D]."""
        total = x + self.dropout(output, seed)
        return total if self.norm_first else self.norm(total)


Layer = Any


def attention(config: ModelConfig, name: str) -> MultiHeadAttention:
    """Multi-head attention, of any kind: the kind is in what it is given."""
    return MultiHeadAttention(config.d_model, config.num_heads, config.attention_dropout, name=name)


def feed_forward(config: ModelConfig, name: str) -> FeedForward:
    """The position-wise feed-forward network."""
    return FeedForward(
        config.d_model, config.d_ff, config.ffn_dropout, config.activation, name=name
    )


def residual(config: ModelConfig, name: str) -> Residual:
    """The connection around a sublayer."""
    return Residual(
        config.d_model, config.dropout, config.norm_first, config.norm_epsilon, name=name
    )


def last_norm(config: ModelConfig) -> Layer:
    """What follows the last layer: a norm where layers norm first, nothing where they norm last."""
    if config.norm_first:
        return LayerNorm(epsilon=config.norm_epsilon, name="norm")
    return keras.layers.Identity(name="norm")
