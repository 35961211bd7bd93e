"""The Transformer's forward pass in plain NumPy: figure 1 of the paper, to be read in one go.

The layers of `tfnmt.model` are tested against it. It reads one sentence at a time, so it knows no
batch and no padding; it drops nothing out and keeps no cache.

Letters: S source, T target, D d_model, H heads, V pieces.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfnmt.config import ModelConfig

Array = npt.NDArray[np.floating[Any]]
Weights = dict[str, Any]
"""A folder for each part: weights["decoder"]["layer_0"]["cross_attention"]["query"]["kernel"]."""


class NumpyTransformer:
    """What `tfnmt.model.transformer.Transformer` computes, from its weights."""

    def __init__(self, weights: Weights, config: ModelConfig) -> None:
        self.weights = weights
        self.config = config

    def encode(self, source: Sequence[int]) -> Array:
        """S ids -> memory [S, D]."""
        x = self._embed("source", source)
        for layer in self._layers("encoder", self.config.num_encoder_layers):
            x = self._sublayer(layer, "self_attention", x, lambda at, y: self._attend(at, y, y))
            x = self._sublayer(layer, "feed_forward", x, feed_forward)
        return self._last_norm("encoder", x)

    def decode(self, target_in: Sequence[int], memory: Array) -> Array:
        """T ids, memory [S, D] -> hidden [T, D]."""
        x = self._embed("target", target_in)
        past = np.tri(len(x), dtype=bool)  # [T, T], position t sees 0 .. t
        for layer in self._layers("decoder", self.config.num_decoder_layers):
            x = self._sublayer(
                layer, "self_attention", x, lambda at, y: self._attend(at, y, y, past)
            )
            x = self._sublayer(
                layer, "cross_attention", x, lambda at, y: self._attend(at, y, memory)
            )
            x = self._sublayer(layer, "feed_forward", x, feed_forward)
        return self._last_norm("decoder", x)

    def logits(self, hidden: Array) -> Array:
        """[T, D] -> [T, V] (section 3.4)."""
        return hidden @ self._table("output").T

    def _embed(self, name: str, tokens: Sequence[int]) -> Array:
        """Ids -> [T, D]: scaled rows of the table, and where they stand (sections 3.4 and 3.5)."""
        width = self.config.d_model
        angles = np.arange(len(tokens))[:, None] / 10000 ** (np.arange(0, width, 2) / width)
        positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, width)
        return self._table(name)[list(tokens)] * np.sqrt(width) + positions

    def _table(self, name: str) -> Array:
        """[V, D]; a table that is not there is the target's."""
        return self.weights.get(f"{name}_embedding", self.weights["target_embedding"])["table"]

    def _layers(self, part: str, count: int) -> list[Weights]:
        return [self.weights[part][f"layer_{number}"] for number in range(count)]

    def _sublayer(
        self, layer: Weights, name: str, x: Array, function: Callable[[Weights, Array], Array]
    ) -> Array:
        """Norm(x + f(x)), or x + f(Norm(x)) where norms come first (section 3.1)."""
        at = layer[f"{name}_residual"]["norm"]
        if self.config.norm_first:
            return x + function(layer[name], self._norm(at, x))
        return self._norm(at, x + function(layer[name], x))

    def _last_norm(self, part: str, x: Array) -> Array:
        return self._norm(self.weights[part]["norm"], x) if self.config.norm_first else x

    def _norm(self, at: Weights, x: Array) -> Array:
        deviation = np.sqrt(x.var(axis=-1, keepdims=True) + self.config.norm_epsilon)
        return (x - x.mean(axis=-1, keepdims=True)) / deviation * at["gamma"] + at["beta"]

    def _attend(self, at: Weights, x: Array, memory: Array, mask: Array | bool = True) -> Array:
        """Concat(head_1, ..., head_h) W^O, each head softmax(Q K^T / sqrt(d_k)) V (section 3.2)."""
        given = {"query": x, "key": memory, "value": memory}
        queries, keys, values = (
            np.split(dense(at[name], of), self.config.num_heads, axis=-1)  # H of [T or S, D/H]
            for name, of in given.items()
        )
        heads = []
        for q, k, v in zip(queries, keys, values, strict=True):
            scores = np.where(mask, q @ k.T / np.sqrt(k.shape[-1]), -np.inf)  # [T, S]
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(shares / shares.sum(axis=-1, keepdims=True) @ v)
        return dense(at["output"], np.concatenate(heads, axis=-1))


def dense(at: Weights, x: Array) -> Array:
    """x W + b."""
    return x @ at["kernel"] + at["bias"]


def feed_forward(at: Weights, x: Array) -> Array:
    """max(0, x W_1 + b_1) W_2 + b_2 (section 3.3)."""
    return dense(at["outer"], np.maximum(0, dense(at["inner"], x)))
