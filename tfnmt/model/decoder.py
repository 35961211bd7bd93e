"""The decoder: a stack of layers (section 3.1, the right half of figure 1).

It runs in two ways that give the same numbers: `call` reads a whole target at once (teacher
forcing), `step` reads one token a row and remembers keys and values in a cache.

Letters: B sentences, N = B x K rows (K beams a sentence), T target, S source, D d_model, H heads.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.attention import project_heads
from tfnmt.model.masks import causal_mask, past_mask
from tfnmt.model.sublayers import attention, feed_forward, last_norm, residual

Tensor = Any


class KeysValues(NamedTuple):
    """What one attention layer remembers, of one kind or the other."""

    keys: Tensor  # self-attention [N, H, T, D/H], memory [B, H, S, D/H]
    values: Tensor  # the same


Cache = tuple[KeysValues, ...]
"""An item a layer."""


class DecoderLayer(keras.layers.Layer):
    """Masked self-attention, attention to the memory, then the feed-forward network."""

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.self_attention = attention(config, name="self_attention")
        self.self_attention_residual = residual(config, name="self_attention_residual")
        self.cross_attention = attention(config, name="cross_attention")
        self.cross_attention_residual = residual(config, name="cross_attention_residual")
        self.feed_forward = feed_forward(config, name="feed_forward")
        self.feed_forward_residual = residual(config, name="feed_forward_residual")

    def build(self, input_shape: Any = None) -> None:
        """Builds the sublayers."""
        self.self_attention.build()
        self.self_attention_residual.build()
        self.cross_attention.build()
        self.cross_attention_residual.build()
        self.feed_forward.build()
        self.feed_forward_residual.build()

    def call(
        self,
        x: Tensor,
        mask: Tensor,
        cross: KeysValues,
        memory_mask: Tensor,
        seed: Tensor | None = None,
    ) -> Tensor:
        """x [B, T, D], mask [1, 1, T, T], cross [B, H, S, D/H] -> [B, T, D]."""
        x = self._look_back(x, mask, seed)

        entered = self.cross_attention_residual.enter(x, seed)
        attended = self.cross_attention(entered, *cross, memory_mask, seed)
        x = self.cross_attention_residual.leave(x, attended, seed)
        return self._transform(x, seed)

    def step(
        self, x: Tensor, position: Tensor, cache: KeysValues, cross: KeysValues, memory_mask: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """One token: x [N, 1, D] -> [N, 1, D], and the cache with this position filled in."""
        entered = self.self_attention_residual.enter(x)
        cache = _remember(cache, self.self_attention.project(entered), position)
        mask = past_mask(position, ops.shape(cache.keys)[2])
        attended = self.self_attention(entered, *cache, mask)
        x = self.self_attention_residual.leave(x, attended)

        # The beams of a sentence read the same memory: they stand where positions stand elsewhere.
        entered = self.cross_attention_residual.enter(x)
        beams = _group(entered, ops.shape(memory_mask)[0])  # [B, K, D]
        attended = self.cross_attention(beams, *cross, memory_mask)
        x = self.cross_attention_residual.leave(x, ops.reshape(attended, ops.shape(x)))
        return self._transform(x, None), cache

    def attention(
        self, x: Tensor, mask: Tensor, cross: KeysValues, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What `call` attends to: [B, H, T, T] in the target, [B, H, T, S] in the memory."""
        entered = self.self_attention_residual.enter(x)
        keys, _ = self.self_attention.project(entered)
        own = self.self_attention.weigh(entered, keys, mask)

        entered = self.cross_attention_residual.enter(self._look_back(x, mask, None))
        return own, self.cross_attention.weigh(entered, cross.keys, memory_mask)

    def _look_back(self, x: Tensor, mask: Tensor, seed: Tensor | None) -> Tensor:
        entered = self.self_attention_residual.enter(x, seed)
        attended = self.self_attention.look_around(entered, mask, seed)
        return self.self_attention_residual.leave(x, attended, seed)

    def _transform(self, x: Tensor, seed: Tensor | None) -> Tensor:
        entered = self.feed_forward_residual.enter(x, seed)
        return self.feed_forward_residual.leave(x, self.feed_forward(entered, seed), seed)


class Decoder(keras.layers.Layer):
    """N layers, and a last norm where layers norm first."""

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = config.num_heads
        self.d_model = config.d_model
        self.blocks = [
            DecoderLayer(config, name=f"layer_{number}")
            for number in range(config.num_decoder_layers)
        ]
        self.norm = last_norm(config)

    def build(self, input_shape: Any = None) -> None:
        """Builds the layers."""
        for block in self.blocks:
            block.build()
        self.norm.build((None, None, self.d_model))

    def call(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """x [B, T, D], memory [B, S, D] -> hidden [B, T, D]; no position sees a later one."""
        mask = causal_mask(ops.shape(x)[1])
        for block, cross in zip(self.blocks, self.project(memory), strict=True):
            x = block(x, mask, cross, memory_mask, seed)
        return self.norm(x, training=seed is not None)

    def attend(
        self, x: Tensor, memory: Tensor, memory_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What `call` gives, and what layers attend to: [B, L, H, T, T] and [B, L, H, T, S]."""
        mask = causal_mask(ops.shape(x)[1])
        weights = []
        for block, cross in zip(self.blocks, self.project(memory), strict=True):
            weights.append(block.attention(x, mask, cross, memory_mask))
            x = block(x, mask, cross, memory_mask)
        own, across = zip(*weights, strict=True)
        return self.norm(x), ops.stack(own, axis=1), ops.stack(across, axis=1)

    def project(self, memory: Tensor) -> Cache:
        """Each layer's keys and values of the memory."""
        attentions = [block.cross_attention for block in self.blocks]
        projections = [dense for each in attentions for dense in (each.key, each.value)]
        projected = project_heads(memory, projections, self.num_heads)
        return tuple(map(KeysValues, projected[::2], projected[1::2]))

    def empty_cache(self, rows: Tensor, max_length: Tensor) -> Cache:
        """Room for `max_length` positions of `rows` rows in every layer."""
        shape = (rows, self.num_heads, max_length, self.d_model // self.num_heads)
        empty = ops.zeros(shape, dtype=self.compute_dtype)
        return tuple(KeysValues(empty, empty) for _ in self.blocks)

    def step(
        self, x: Tensor, position: Tensor, cache: Cache, cross: Cache, memory_mask: Tensor
    ) -> tuple[Tensor, Cache]:
        """One token a row: x [N, 1, D] -> hidden [N, 1, D], and the cache after it."""
        caches = []
        for block, layer_cache, layer_cross in zip(self.blocks, cache, cross, strict=True):
            x, layer_cache = block.step(x, position, layer_cache, layer_cross, memory_mask)
            caches.append(layer_cache)
        return self.norm(x), tuple(caches)


def _group(x: Tensor, sentences: Tensor) -> Tensor:
    """[N, 1, D] -> [B, K, D], also where there is no sentence."""
    beams = ops.shape(x)[0] // ops.maximum(sentences, 1)
    return ops.reshape(x, (sentences, beams, x.shape[-1]))


def _remember(cache: KeysValues, new: tuple[Tensor, Tensor], position: Tensor) -> KeysValues:
    """The cache with the new keys and values, [N, H, 1, D/H], at a position."""
    here = ops.equal(ops.arange(ops.shape(cache.keys)[2]), position)[None, None, :, None]
    return KeysValues(ops.where(here, new[0], cache.keys), ops.where(here, new[1], cache.values))
