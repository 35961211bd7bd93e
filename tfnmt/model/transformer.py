"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), as a Keras model.

Letters: B sentences, K hypotheses of each, S source, T target, D d_model, V pieces.
Ids are int32 and 0 is padding.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.attention import padding_mask
from tfnmt.model.cache import GROWING, Cache, Room
from tfnmt.model.decoder import Decoder, Fixed
from tfnmt.model.embedding import Embedding, sinusoids
from tfnmt.model.encoder import Encoder
from tfnmt.model.layers import Dropout, Tensor


class Attention(NamedTuple):
    """Attention weights of L layers with H heads each; a row of keys sums to 1."""

    encoder: Tensor  # [B, L, H, S, S]
    decoder: Tensor  # [B, L, H, T, T]
    cross: Tensor  # [B, L, H, T, S]


class Transformer(keras.Model):
    """Encoder and decoder with their embeddings; built, with random weights, once constructed.

    Functions that take a `seed` drop out with it; without one they infer.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(name="transformer")
        self.d_model = config.d_model
        embeddings = {
            name: Embedding(vocab_size, config.d_model, name=f"{name}_embedding")
            for name in _TABLES[config.tie_embeddings]
        }
        self.target_embedding = embeddings["target"]
        self.source_embedding = embeddings.get("source", self.target_embedding)
        self.output_embedding = embeddings.get("output", self.target_embedding)
        self.encoder = Encoder(config, name="encoder")
        self.decoder = Decoder(config, name="decoder")
        self.source_dropout = Dropout(config.dropout, name="source_dropout")
        self.target_dropout = Dropout(config.dropout, name="target_dropout")
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights."""
        for embedding in (self.source_embedding, self.target_embedding, self.output_embedding):
            if not embedding.built:
                embedding.build()
        for layer in (self.encoder, self.decoder, self.source_dropout, self.target_dropout):
            layer.build(None)

    def encode(self, source: Tensor, seed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[B, S] ids -> memory [B, S, D], memory_mask [B, 1, 1, S]."""
        memory_mask = padding_mask(source)
        x = self.source_dropout(self._embed(self.source_embedding, source), seed)
        return self.encoder(x, memory_mask, seed), memory_mask

    def decode(
        self, target_in: Tensor, memory: Tensor, memory_mask: Tensor, seed: Tensor | None = None
    ) -> Tensor:
        """[B, T] ids -> hidden [B, T, D].

        Padding comes last in a target, where no real position looks: it needs no mask.
        """
        x = self.target_dropout(self._embed(self.target_embedding, target_in), seed)
        return self.decoder(x, memory, memory_mask, seed)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]: what the softmax of the output makes probabilities of."""
        return self.output_embedding.logits(hidden)

    def call(self, source: Tensor, target_in: Tensor, seed: Tensor | None = None) -> Tensor:
        """[B, S] and [B, T] ids -> logits [B, T, V]."""
        memory, memory_mask = self.encode(source, seed)
        return self.logits(self.decode(target_in, memory, memory_mask, seed))

    def attend(self, source: Tensor, target_in: Tensor) -> tuple[Tensor, Attention]:
        """Reads [B, S] and [B, T] ids: hidden [B, T, D], and what every head attends to."""
        memory_mask = padding_mask(source)
        x = self._embed(self.source_embedding, source)
        memory, encoder = self.encoder.attend(x, memory_mask)
        x = self._embed(self.target_embedding, target_in)
        hidden, decoder, cross = self.decoder.attend(x, memory, memory_mask)
        return hidden, Attention(encoder, decoder, cross)

    def start_search(self, source: Tensor, beams: int, room: Room = GROWING) -> tuple[Cache, Fixed]:
        """Reads [B, S] ids; what decoding them in steps begins with: (cache, fixed).

        cache: what K = `beams` hypotheses have read, which is nothing; each step gives the next.
        fixed: what all steps read.
        """
        memory, memory_mask = self.encode(source)
        return self.decoder.start(memory, memory_mask, beams, room)

    def decode_step(
        self, tokens: Tensor, parents: Tensor, position: Tensor, cache: Cache, fixed: Fixed
    ) -> tuple[Tensor, Cache]:
        """Reads [B, K] ids, all at one position: hidden [B, K, D], and the cache after.

        Hypothesis k goes on from what was hypothesis parents[b, k] a step ago.
        """
        x = self.target_embedding(tokens) + self._positions(ops.reshape(position, (1,)))
        return self.decoder.step(x, parents, position, cache, fixed)

    def _embed(self, embedding: Embedding, tokens: Tensor) -> Tensor:
        """[B, T] ids -> [B, T, D], with their positions (sections 3.4 and 3.5)."""
        return embedding(tokens) + self._positions(ops.arange(ops.shape(tokens)[1]))

    def _positions(self, positions: Tensor) -> Tensor:
        return ops.cast(sinusoids(positions, self.d_model), self.compute_dtype)


_TABLES = {
    "all": ("target",),
    "target": ("source", "target"),
    "none": ("source", "target", "output"),
}
"""The embedding tables that there are for each way of tying; the missing ones are the target's."""
