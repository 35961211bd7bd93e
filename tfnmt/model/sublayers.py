"""The parts of encoder and decoder layers, and functions that create them from a configuration.

Letters: B batch, T length, D d_model.
"""

from typing import Any

import keras

from tfnmt.config import ModelConfig
from tfnmt.model.attention import MultiHeadAttention
from tfnmt.model.flash import FlashAttention
from tfnmt.model.layers import Dense, Dropout, LayerNorm, Tensor


class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network (section 3.3, equation 2).

        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

    Args:
        d_model: Width of input and output, D.
        d_ff: Width of the inner layer.
        dropout: Dropout rate of the inner layer. The paper uses 0.
        activation: Name of a Keras activation, `relu` in the paper.

    Call arguments:
        x: [B, T, D].
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        [B, T, D].
    """

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
        """Create the weights of both projections."""
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))
        self.dropout.build((None, None, self.d_ff))

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """Apply the network to each position of x [B, T, D]; return [B, T, D]."""
        return self.outer(self.dropout(self.inner(x), seed))


class Residual(keras.layers.Layer):
    """Residual connection and layer normalization around a sublayer f (sections 3.1 and 5.4).

        post-norm (the paper): Norm(x + Dropout(f(x)))
        pre-norm:              x + Dropout(f(Norm(x)))

    Only this class knows the difference. The sublayer runs between its two methods:

        x = residual.add(x, f(residual.sublayer_input(x)), seed)

    Args:
        d_model: Width of input and output, D.
        dropout: Dropout rate of the sublayer's output.
        norm_first: True for pre-norm, False for post-norm.
        norm_epsilon: Epsilon of the layer normalization.
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
        """Create the weights of the layer normalization."""
        self.norm.build((None, None, self.d_model))
        self.dropout.build((None, None, self.d_model))

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer, [B, T, D]: x, normalized with pre-norm."""
        return self.norm(x) if self.norm_first else x

    def add(self, x: Tensor, output: Tensor, seed: Tensor | None = None) -> Tensor:
        """Add the output of the sublayer to its residual x; normalize the sum with post-norm.

        Args:
            x: [B, T, D], as passed to `sublayer_input`.
            output: [B, T, D], the output of the sublayer.
            seed: [2], the dropout seed. None turns dropout off.

        Returns:
            [B, T, D].
        """
        total = x + self.dropout(output, seed)
        return total if self.norm_first else self.norm(total)


# --- From a configuration -------------------------------------------------------------------------


def make_attention(config: ModelConfig, name: str) -> MultiHeadAttention:
    """Create multi-head attention, for self-attention or cross-attention."""
    attention = FlashAttention if config.attention == "flash" else MultiHeadAttention
    return attention(config.d_model, config.num_heads, config.attention_dropout, name=name)


def make_feed_forward(config: ModelConfig, name: str) -> FeedForward:
    """Create a position-wise feed-forward network."""
    return FeedForward(
        config.d_model, config.d_ff, config.ffn_dropout, config.activation, name=name
    )


def make_residual(config: ModelConfig, name: str) -> Residual:
    """Create the residual connection around a sublayer."""
    return Residual(
        config.d_model, config.dropout, config.norm_first, config.norm_epsilon, name=name
    )


def make_final_norm(config: ModelConfig) -> keras.layers.Layer:
    """Create the layer after the last layer of a stack.

    With pre-norm it is a layer normalization, because the last sum is not normalized. With
    post-norm it does nothing.
    """
    if config.norm_first:
        return LayerNorm(epsilon=config.norm_epsilon, name="norm")
    return keras.layers.Identity(name="norm")
