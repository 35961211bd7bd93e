"""The sublayers that encoder and decoder are made of, as a configuration describes them."""

from typing import Any

import keras

from tfnmt.config import ModelConfig
from tfnmt.model.attention import MultiHeadAttention
from tfnmt.model.feed_forward import FeedForward
from tfnmt.model.norm import LayerNorm
from tfnmt.model.residual import Residual

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
