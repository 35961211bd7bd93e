"""The decoder: a stack of layers (section 3.1, the right half of figure 1).

It runs in two ways that give the same numbers:

- The call reads whole targets [B, T] at once (teacher forcing).
- `start` and `step` decode incrementally. A step reads one token of each of K hypotheses per
  sentence and adds its keys and values to a cache. The K hypotheses take the place of the T
  positions of the call.

Letters: B batch, K hypotheses per sentence, T target length, S source length, H heads, D d_model,
L layers, R steps that the cache has room for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.attention import (
    FusedProjection,
    causal_mask,
    fuse_projections,
    project_heads,
)
from tfnmt.model.cache import CacheLayout, KeysValues, KVCache
from tfnmt.model.layers import Tensor
from tfnmt.model.sublayers import (
    make_attention,
    make_feed_forward,
    make_final_norm,
    make_residual,
)

Write = Callable[[Tensor, Tensor], Tensor]
"""Adds the entries of a step to cached ones: (cached, new) -> both."""


class LayerContext(NamedTuple):
    """Tensors that one decoder layer reads in every step and never changes."""

    qkv: FusedProjection  # of self-attention
    cross: KeysValues  # precomputed cross-attention keys and values, [B, H, S, D/H]
    memory_mask: Tensor  # [B, 1, 1, S], the same for all layers


class DecodingContext(NamedTuple):
    """Everything that a decoding step reads and never changes."""

    layers: tuple[LayerContext, ...]
    layout: CacheLayout


class DecoderLayer(keras.layers.Layer):
    """One decoder layer: masked self-attention, cross-attention, feed-forward (section 3.1).

    Args:
        config: Width, heads, dropout rates, and pre-norm or post-norm.

    Call arguments:
        x: [B, T, D].
        mask: [1, 1, T, T], the causal mask. None in training with flash attention.
        cross: Keys and values of the encoder output, [B, H, S, D/H] each.
        memory_mask: [B, 1, 1, S], True at real source tokens.
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        [B, T, D].
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = make_attention(config, name="self_attention")
        self.self_attention_residual = make_residual(config, name="self_attention_residual")
        self.cross_attention = make_attention(config, name="cross_attention")
        self.cross_attention_residual = make_residual(config, name="cross_attention_residual")
        self.feed_forward = make_feed_forward(config, name="feed_forward")
        self.feed_forward_residual = make_residual(config, name="feed_forward_residual")

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of the sublayers."""
        self.self_attention.build()
        self.self_attention_residual.build()
        self.cross_attention.build()
        self.cross_attention_residual.build()
        self.feed_forward.build()
        self.feed_forward_residual.build()

    def call(
        self,
        x: Tensor,
        mask: Tensor | None,
        cross: KeysValues,
        memory_mask: Tensor,
        seed: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer to whole targets x [B, T, D]; return [B, T, D]."""
        x = self._self_attention(x, mask, seed)
        return self._cross_attention_and_feed_forward(x, cross, memory_mask, seed)

    def step(
        self, x: Tensor, mask: Tensor, past: KeysValues, write: Write, context: LayerContext
    ) -> tuple[Tensor, KeysValues]:
        """Apply the layer to one token of each hypothesis.

        Args:
            x: [B, K, D].
            mask: [B, 1, K, R * K], True where the cached token belongs to hypothesis k.
            past: Cached keys and values of self-attention, before this step.
            write: Adds keys or values of this step to the cached ones.
            context: The tensors of this layer that no step changes.

        Returns:
            [B, K, D], and `past` with the keys and values of this step.
        """
        attention_input = self.self_attention_residual.sublayer_input(x)
        query, *new = project_heads(attention_input, context.qkv, self.self_attention.num_heads)
        past = KeysValues(*map(write, past, new))
        attended = self.self_attention.attend(query, *past, mask)
        x = self.self_attention_residual.add(x, attended)
        x = self._cross_attention_and_feed_forward(x, context.cross, context.memory_mask, None)
        return x, past

    def attention_weights(
        self, x: Tensor, mask: Tensor, cross: KeysValues, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the attention weights of the call without dropout.

        Returns:
            Weights of self-attention [B, H, T, T] and of cross-attention [B, H, T, S].
        """
        attention_input = self.self_attention_residual.sublayer_input(x)
        self_weights = self.self_attention.self_attention_weights(attention_input, mask)

        x = self._self_attention(x, mask, None)
        attention_input = self.cross_attention_residual.sublayer_input(x)
        cross_weights = self.cross_attention.attention_weights(
            attention_input, cross.keys, memory_mask
        )
        return self_weights, cross_weights

    def _self_attention(self, x: Tensor, mask: Tensor | None, seed: Tensor | None) -> Tensor:
        attention_input = self.self_attention_residual.sublayer_input(x)
        attended = self.self_attention.self_attention(attention_input, mask, seed)
        return self.self_attention_residual.add(x, attended, seed)

    def _cross_attention_and_feed_forward(
        self, x: Tensor, cross: KeysValues, memory_mask: Tensor, seed: Tensor | None
    ) -> Tensor:
        attention_input = self.cross_attention_residual.sublayer_input(x)
        attended = self.cross_attention(attention_input, *cross, memory_mask, seed)
        x = self.cross_attention_residual.add(x, attended, seed)

        transformed = self.feed_forward(self.feed_forward_residual.sublayer_input(x), seed)
        return self.feed_forward_residual.add(x, transformed, seed)


class Decoder(keras.layers.Layer):
    """A stack of decoder layers; with pre-norm, a layer normalization follows the last one.

    Args:
        config: The number of layers, and their shapes.

    Call arguments:
        x: [B, T, D], embedded target tokens.
        memory: [B, S, D], the encoder output.
        memory_mask: [B, 1, 1, S], True at real source tokens.
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        Hidden states, [B, T, D].
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = config.num_heads
        self.d_model = config.d_model
        self.flash = config.attention == "flash"
        self.blocks = [
            DecoderLayer(config, name=f"layer_{number}")
            for number in range(config.num_decoder_layers)
        ]
        self.norm = make_final_norm(config)

    def build(self, input_shape: Any = None) -> None:
        """Create the weights of all layers."""
        for block in self.blocks:
            block.build()
        self.norm.build((None, None, self.d_model))

    def call(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """Decode whole targets x [B, T, D]; no position attends to a later one."""
        in_blocks = self.flash and seed is not None
        mask = None if in_blocks else causal_mask(ops.shape(x)[1])
        for block, cross in zip(self.blocks, self.project_memory(memory), strict=True):
            x = block(x, mask, cross, memory_mask, seed)
        return self.norm(x)

    def call_with_attention(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decode whole targets without dropout, and also return the attention weights.

        Args:
            x: [B, T, D], embedded target tokens.
            memory: [B, S, D], the encoder output.
            memory_mask: [B, 1, 1, S], True at real source tokens.

        Returns:
            Hidden states [B, T, D], weights of self-attention [B, L, H, T, T], and weights of
            cross-attention [B, L, H, T, S].
        """
        mask = causal_mask(ops.shape(x)[1])
        weights = []
        for block, cross in zip(self.blocks, self.project_memory(memory), strict=True):
            weights.append(block.attention_weights(x, mask, cross, memory_mask))
            x = block(x, mask, cross, memory_mask)
        self_weights, cross_weights = zip(*weights, strict=True)
        return self.norm(x), ops.stack(self_weights, axis=1), ops.stack(cross_weights, axis=1)

    def project_memory(self, memory: Tensor) -> tuple[KeysValues, ...]:
        """Return the cross-attention keys and values of each layer, as one matrix product.

        Args:
            memory: [B, S, D], the encoder output.

        Returns:
            For each layer, keys and values [B, H, S, D/H].
        """
        attentions = [block.cross_attention for block in self.blocks]
        projections = [dense for each in attentions for dense in (each.key, each.value)]
        projected = project_heads(memory, fuse_projections(projections), self.num_heads)
        return tuple(map(KeysValues, projected[::2], projected[1::2]))

    def start(
        self, memory: Tensor, memory_mask: Tensor, beams: int, layout: CacheLayout
    ) -> tuple[KVCache, DecodingContext]:
        """Prepare for incremental decoding.

        Args:
            memory: [B, S, D], the encoder output.
            memory_mask: [B, 1, 1, S], True at real source tokens.
            beams: K, the number of hypotheses per sentence.
            layout: How the cache stores the tokens of each step.

        Returns:
            The cache of the first step, which has no tokens, and the context of all steps.
        """
        rows, size = ops.shape(memory)[0], layout.steps * beams
        depth = self.d_model // self.num_heads
        empty = ops.zeros((rows, self.num_heads, size, depth), dtype=self.compute_dtype)
        cache = KVCache(
            ancestry=ops.zeros((rows, beams, size)),
            layers=tuple(KeysValues(empty, empty) for _ in self.blocks),
        )
        qkv = [block.self_attention.fused_qkv() for block in self.blocks]
        layers = tuple(
            LayerContext(each_qkv, cross, memory_mask)
            for each_qkv, cross in zip(qkv, self.project_memory(memory), strict=True)
        )
        return cache, DecodingContext(layers, layout)

    def step(
        self,
        x: Tensor,
        parents: Tensor,
        position: Tensor,
        cache: KVCache,
        context: DecodingContext,
    ) -> tuple[Tensor, KVCache]:
        """Decode one token of each hypothesis.

        Args:
            x: [B, K, D], the embedded tokens.
            parents: [B, K]. Hypothesis k continues hypothesis parents[b, k] of the previous step.
            position: Scalar, the position of the tokens; 0 in the first step.
            cache: The cache that the previous step, or `start`, returned.
            context: The context that `start` returned.

        Returns:
            Hidden states [B, K, D], and the cache of the next step.
        """
        write = partial(context.layout.write, position=position)
        ancestry = _extend_ancestry(cache.ancestry, parents, write)
        mask = ops.expand_dims(ops.greater(ancestry, 0), 1)  # [B, 1, K, R * K]
        layers = []
        for block, past, layer_context in zip(
            self.blocks, cache.layers, context.layers, strict=True
        ):
            x, past = block.step(x, mask, past, write, layer_context)
            layers.append(past)
        return self.norm(x), KVCache(ancestry, tuple(layers))


def _extend_ancestry(ancestry: Tensor, parents: Tensor, write: Write) -> Tensor:
    """Give each hypothesis the ancestry of its parent and its own new token, [B, K, R * K]."""
    beams = parents.shape[1]
    inherited = ops.matmul(ops.one_hot(parents, beams, dtype=ancestry.dtype), ancestry)
    identity = ops.eye(beams, dtype=ancestry.dtype)
    new = ops.broadcast_to(identity, (ops.shape(ancestry)[0], beams, beams))
    return write(inherited, new)
