"""The decoder: a stack of layers (section 3.1, the right half of figure 1).

It runs in two ways that give the same numbers: `call` reads a whole target at once (teacher
forcing), `step` reads the next token of K hypotheses a sentence, which stand where positions stand
in `call`, and remembers keys and values in a cache.

Letters: B sentences, K hypotheses (beams) of each, T target, S source, D d_model, H heads, R steps
that a cache has room for.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.attention import Joined, causal_mask, join, project_heads
from tfnmt.model.cache import Cache, KeysValues, Room
from tfnmt.model.layers import Tensor
from tfnmt.model.sublayers import attention, feed_forward, last_norm, residual

Put = Callable[[Tensor, Tensor], Tensor]
"""What was read before, what is new -> both."""


class Fixed(NamedTuple):
    """What all steps of a search read, and none changes."""

    memory_mask: Tensor  # [B, 1, 1, S]
    cross: tuple[KeysValues, ...]  # of the memory, a layer
    joined: tuple[Joined, ...]  # the projections of self-attention, a layer
    room: Room  # in which the cache is kept


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
        return self._look_over(x, cross, memory_mask, seed)

    def step(
        self,
        x: Tensor,
        mask: Tensor,
        past: KeysValues,
        put: Put,
        joined: Joined,
        cross: KeysValues,
        memory_mask: Tensor,
    ) -> tuple[Tensor, KeysValues]:
        """A token of each hypothesis: x [B, K, D] -> [B, K, D], and the past with it."""
        entered = self.self_attention_residual.enter(x)
        query, *new = project_heads(entered, joined, self.self_attention.num_heads)
        past = KeysValues(*map(put, past, new))
        attended = self.self_attention.attend(query, *past, mask)
        x = self.self_attention_residual.leave(x, attended)
        return self._look_over(x, cross, memory_mask, None), past

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
        entered = self.self_attention_residual.enter(x)
        attended = self.self_attention.look_around(entered, mask, seed)
        return self.self_attention_residual.leave(x, attended, seed)

    def _look_over(
        self, x: Tensor, cross: KeysValues, memory_mask: Tensor, seed: Tensor | None
    ) -> Tensor:
        """Attention to the memory, and the feed-forward network."""
        entered = self.cross_attention_residual.enter(x)
        attended = self.cross_attention(entered, *cross, memory_mask, seed)
        x = self.cross_attention_residual.leave(x, attended, seed)

        entered = self.feed_forward_residual.enter(x)
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
        return self.norm(x)

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

    def project(self, memory: Tensor) -> tuple[KeysValues, ...]:
        """Each layer's keys and values of the memory."""
        attentions = [block.cross_attention for block in self.blocks]
        projections = [dense for each in attentions for dense in (each.key, each.value)]
        projected = project_heads(memory, join(projections), self.num_heads)
        return tuple(map(KeysValues, projected[::2], projected[1::2]))

    def start(
        self, memory: Tensor, memory_mask: Tensor, beams: int, room: Room
    ) -> tuple[Cache, Fixed]:
        """What K = `beams` hypotheses begin with: nothing read, and what all steps share."""
        rows, size = ops.shape(memory)[0], room.steps * beams
        depth = self.d_model // self.num_heads
        empty = ops.zeros((rows, self.num_heads, size, depth), dtype=self.compute_dtype)
        cache = Cache(
            own=ops.zeros((rows, beams, size)),
            layers=tuple(KeysValues(empty, empty) for _ in self.blocks),
        )
        joined = tuple(block.self_attention.join() for block in self.blocks)
        return cache, Fixed(memory_mask, self.project(memory), joined, room)

    def step(
        self, x: Tensor, parents: Tensor, position: Tensor, cache: Cache, fixed: Fixed
    ) -> tuple[Tensor, Cache]:
        """The next token of each hypothesis: x [B, K, D] -> hidden [B, K, D], and the cache after.

        Hypothesis k goes on from what was hypothesis parents[b, k] a step ago.
        """
        put = partial(fixed.room.put, position=position)
        own = _inherit(cache.own, parents, put)
        mask = ops.greater(own, 0)[:, None]  # [B, 1, K, R * K]
        layers = []
        for block, past, joined, cross in zip(
            self.blocks, cache.layers, fixed.joined, fixed.cross, strict=True
        ):
            x, past = block.step(x, mask, past, put, joined, cross, fixed.memory_mask)
            layers.append(past)
        return self.norm(x), Cache(own, tuple(layers))


def _inherit(own: Tensor, parents: Tensor, put: Put) -> Tensor:
    """[B, K, R * K]: the past of its parent, and its new token."""
    beams = parents.shape[1]
    inherited = ops.matmul(ops.one_hot(parents, beams, dtype=own.dtype), own)
    new = ops.broadcast_to(ops.eye(beams, dtype=own.dtype), (ops.shape(own)[0], beams, beams))
    return put(inherited, new)
