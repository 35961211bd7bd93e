"""The encoder: a stack of layers (section 3.1, the left half of figure 1)."""

from typing import Any

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.layers import Tensor
from tfnmt.model.sublayers import attention, feed_forward, last_norm, residual


class EncoderLayer(keras.layers.Layer):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = attention(config, name="self_attention")
        self.self_attention_residual = residual(config, name="self_attention_residual")
        self.feed_forward = feed_forward(config, name="feed_forward")
        self.feed_forward_residual = residual(config, name="feed_forward_residual")

    def build(self, input_shape: Any = None) -> None:
        """Builds the sublayers."""
        self.self_attention.build()
        self.self_attention_residual.build()
        self.feed_forward.build()
        self.feed_forward_residual.build()

    def call(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """[B, S, D], mask [B, 1, 1, S] -> [B, S, D]."""
        entered = self.self_attention_residual.enter(x)
        attended = self.self_attention.look_around(entered, mask, seed)
        x = self.self_attention_residual.leave(x, attended, seed)

        entered = self.feed_forward_residual.enter(x)
        return self.feed_forward_residual.leave(x, self.feed_forward(entered, seed), seed)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        """What `call` attends to: [B, S, D] -> [B, H, S, S]."""
        entered = self.self_attention_residual.enter(x)
        keys, _ = self.self_attention.project(entered)
        return self.self_attention.weigh(entered, keys, mask)


class Encoder(keras.layers.Layer):
    """N layers, and a last norm where layers norm first."""

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocks = [
            EncoderLayer(config, name=f"layer_{number}")
            for number in range(config.num_encoder_layers)
        ]
        self.norm = last_norm(config)
        self.d_model = config.d_model

    def build(self, input_shape: Any = None) -> None:
        """Builds the layers."""
        for block in self.blocks:
            block.build()
        self.norm.build((None, None, self.d_model))

    def call(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """[B, S, D], mask [B, 1, 1, S] -> memory [B, S, D]."""
        for block in self.blocks:
            x = block(x, mask, seed)
        return self.norm(x)

    def attend(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What `call` gives, and what every layer attends to, [B, L, H, S, S]."""
        weights = []
        for block in self.blocks:
            weights.append(block.attention(x, mask))
            x = block(x, mask)
        return self.norm(x), ops.stack(weights, axis=1)
