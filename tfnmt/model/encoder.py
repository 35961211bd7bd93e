"""The encoder: a stack of layers (section 3.1, the left half of figure 1).

Letters: B batch, S source length, H heads, D d_model, L layers.
"""

from typing import Any

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.layers import Tensor
from tfnmt.model.sublayers import (
    make_attention,
    make_feed_forward,
    make_final_norm,
    make_residual,
)


class EncoderLayer(keras.layers.Layer):
    """One encoder layer: self-attention, then the feed-forward network (section 3.1).

    Args:
        config: Width, heads, dropout rates, and pre-norm or post-norm.

    Call arguments:
        x: [B, S, D].
        mask: [B, 1, 1, S], True at real tokens.
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        [B, S, D].
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = make_attention(config, name="self_attention")
        self.self_attention_residual = make_residual(config, name="self_attention_residual")
        self.feed_forward = make_feed_forward(config, name="feed_forward")
        self.feed_forward_residual = make_residual(config, name="feed_forward_residual")

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the sublayers."""
        self.self_attention.build()
        self.self_attention_residual.build()
        self.feed_forward.build()
        self.feed_forward_residual.build()

    def call(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """Apply the layer to x [B, S, D] with a mask [B, 1, 1, S]; return [B, S, D]."""
        attention_input = self.self_attention_residual.sublayer_input(x)
        attended = self.self_attention.self_attention(attention_input, mask, seed)
        x = self.self_attention_residual.add(x, attended, seed)

        transformed = self.feed_forward(self.feed_forward_residual.sublayer_input(x), seed)
        return self.feed_forward_residual.add(x, transformed, seed)

    def attention_weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights of the call without dropout, [B, H, S, S]."""
        attention_input = self.self_attention_residual.sublayer_input(x)
        return self.self_attention.self_attention_weights(attention_input, mask)


class Encoder(keras.layers.Layer):
    """A stack of encoder layers; with pre-norm, a layer normalization follows the last one.

    Args:
        config: The number of layers, and their shapes.

    Call arguments:
        x: [B, S, D], embedded source tokens.
        mask: [B, 1, 1, S], True at real tokens.
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        The encoder output (`memory`), [B, S, D].
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocks = [
            EncoderLayer(config, name=f"layer_{number}")
            for number in range(config.num_encoder_layers)
        ]
        self.norm = make_final_norm(config)
        self.d_model = config.d_model

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of all layers."""
        for block in self.blocks:
            block.build()
        self.norm.build((None, None, self.d_model))

    def call(self, x: Tensor, mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """Encode x [B, S, D] with a mask [B, 1, 1, S]; return the encoder output [B, S, D]."""
        for block in self.blocks:
            x = block(x, mask, seed)
        return self.norm(x)

    def call_with_attention(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode without dropout, and also return the attention weights.

        Args:
            x: [B, S, D], embedded source tokens.
            mask: [B, 1, 1, S], True at real tokens.

        Returns:
            The encoder output [B, S, D], and attention weights [B, L, H, S, S].
        """
        weights = []
        for block in self.blocks:
            weights.append(block.attention_weights(x, mask))
            x = block(x, mask)
        return self.norm(x), ops.stack(weights, axis=1)
