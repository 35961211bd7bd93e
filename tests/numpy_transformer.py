"""The Transformer's forward pass in plain NumPy: figure 1 of the paper, short enough to read once.

The layers of `tfnmt.model` are tested against it. It takes one sentence at a time, so it needs no
batches and no padding. It has neither dropout nor a cache.

Letters: S source length, T target length, D d_model, H heads, V vocabulary size.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfnmt.config import ModelConfig

Array = npt.NDArray[np.floating[Any]]
Weights = dict[str, Any]
"""Nested dictionaries: weights["decoder"]["layer_0"]["cross_attention"]["query"]["kernel"]."""


class NumpyTransformer:
    """Reference implementation of `tfnmt.model.transformer.Transformer`, from its weights."""

    def __init__(self, weights: Weights, config: ModelConfig) -> None:
        self.weights = weights
        self.config = config

    def encode(self, source: Sequence[int]) -> Array:
        """Encode S ids; return the encoder output [S, D]."""
        x = self._embed("source", source)
        for layer in self._layers("encoder", self.config.num_encoder_layers):
            x = self._sublayer(layer, "self_attention", x, lambda w, y: self._attend(w, y, y))
            x = self._sublayer(layer, "feed_forward", x, feed_forward)
        return self._final_norm("encoder", x)

    def decode(self, target_in: Sequence[int], memory: Array) -> Array:
        """Decode T ids with the encoder output [S, D]; return hidden states [T, D]."""
        x = self._embed("target", target_in)
        causal = np.tri(len(x), dtype=bool)  # [T, T], position t attends to 0 to t
        for layer in self._layers("decoder", self.config.num_decoder_layers):
            x = self._sublayer(
                layer, "self_attention", x, lambda w, y: self._attend(w, y, y, causal)
            )
            x = self._sublayer(layer, "cross_attention", x, lambda w, y: self._attend(w, y, memory))
            x = self._sublayer(layer, "feed_forward", x, feed_forward)
        return self._final_norm("decoder", x)

    def logits(self, hidden: Array) -> Array:
        """Project hidden states to logits: [T, D] -> [T, V] (section 3.4)."""
        return hidden @ self._table("output").T

    def _embed(self, name: str, tokens: Sequence[int]) -> Array:
        """Embed ids and add positional encodings, [T, D] (sections 3.4 and 3.5)."""
        width = self.config.d_model
        angles = np.arange(len(tokens))[:, None] / 10000 ** (np.arange(0, width, 2) / width)
        positions = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, width)
        return self._table(name)[list(tokens)] * np.sqrt(width) + positions

    def _table(self, name: str) -> Array:
        """Return an embedding table [V, D]; the target table replaces a missing one."""
        return self.weights.get(f"{name}_embedding", self.weights["target_embedding"])["table"]

    def _layers(self, stack: str, count: int) -> list[Weights]:
        return [self.weights[stack][f"layer_{number}"] for number in range(count)]

    def _sublayer(
        self, layer: Weights, name: str, x: Array, function: Callable[[Weights, Array], Array]
    ) -> Array:
        """Return Norm(x + f(x)), or x + f(Norm(x)) with pre-norm (section 3.1)."""
        norm = layer[f"{name}_residual"]["norm"]
        if self.config.norm_first:
            return x + function(layer[name], self._norm(norm, x))
        return self._norm(norm, x + function(layer[name], x))

    def _final_norm(self, stack: str, x: Array) -> Array:
        return self._norm(self.weights[stack]["norm"], x) if self.config.norm_first else x

    def _norm(self, weights: Weights, x: Array) -> Array:
        scale = np.sqrt(x.var(axis=-1, keepdims=True) + self.config.norm_epsilon)
        normalized = (x - x.mean(axis=-1, keepdims=True)) / scale
        return normalized * weights["gamma"] + weights["beta"]

    def _attend(
        self, weights: Weights, x: Array, memory: Array, mask: Array | bool = True
    ) -> Array:
        """Return Concat(head_1, ..., head_H) W^O, head = softmax(Q K^T / sqrt(d_k)) V.

        Section 3.2. The mask is True where a query may attend to a key.
        """
        inputs = {"query": x, "key": memory, "value": memory}
        queries, keys, values = (
            np.split(dense(weights[name], each), self.config.num_heads, axis=-1)
            for name, each in inputs.items()
        )  # H arrays [T or S, D/H] each
        heads = []
        for q, k, v in zip(queries, keys, values, strict=True):
            scores = np.where(mask, q @ k.T / np.sqrt(k.shape[-1]), -np.inf)  # [T, S]
            exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads.append(exponentials / exponentials.sum(axis=-1, keepdims=True) @ v)
        return dense(weights["output"], np.concatenate(heads, axis=-1))


def dense(weights: Weights, x: Array) -> Array:
    """Return x W + b."""
    return x @ weights["kernel"] + weights["bias"]


def feed_forward(weights: Weights, x: Array) -> Array:
    """Return max(0, x W_1 + b_1) W_2 + b_2 (section 3.3)."""
    return dense(weights["outer"], np.maximum(0, dense(weights["inner"], x)))
