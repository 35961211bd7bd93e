"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), as a Keras model.

Letters: B batch, K hypotheses per sentence, S source length, T target length, L layers, H heads,
D d_model, V vocabulary size.
"""

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import keras
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.errors import UserError
from tfnmt.model.attention import padding_mask
from tfnmt.model.cache import DYNAMIC_CACHE, CacheLayout, KVCache
from tfnmt.model.decoder import Decoder, DecodingContext
from tfnmt.model.embedding import Embedding, sinusoids
from tfnmt.model.encoder import Encoder
from tfnmt.model.layers import Dropout, Tensor


class AttentionWeights(NamedTuple):
    """Attention weights of all layers and heads; they sum to 1 over the last axis."""

    encoder: Tensor  # [B, L, H, S, S]
    decoder: Tensor  # [B, L, H, T, T]
    cross: Tensor  # [B, L, H, T, S]


class Transformer(keras.Model):
    """Encoder and decoder with their embeddings (figure 1).

    The constructor creates random weights. Ids are int32, with 0 for padding. Methods with a `seed`
    apply dropout if they get one, and none otherwise.

    Args:
        config: The shape of the model.
        vocab_size: V, the same for source and target.

    Call arguments:
        source: [B, S] ids.
        target_in: [B, T] ids, from BOS on.
        seed: [2], the dropout seed. None turns dropout off.

    Output:
        Logits, [B, T, V].
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(name="transformer")
        self.d_model = config.d_model
        embeddings = {
            name: Embedding(vocab_size, config.d_model, name=f"{name}_embedding")
            for name in _EMBEDDING_TABLES[config.tie_embeddings]
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
        """Create the weights of all layers."""
        for embedding in (self.source_embedding, self.target_embedding, self.output_embedding):
            if not embedding.built:
                embedding.build()
        for layer in (self.encoder, self.decoder, self.source_dropout, self.target_dropout):
            layer.build(None)

    def load_weights(self, filepath: Any, **options: Any) -> None:
        """Load weights that `save_weights` wrote.

        Raises:
            FileNotFoundError: There is no such file.
            UserError: The file is damaged, or its weights have other shapes.
        """
        try:
            _check_size(Path(filepath))
            super().load_weights(filepath, **options)
        except FileNotFoundError:
            raise
        except Exception as error:  # h5py and Keras raise many types
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{filepath}: damaged, or of another model than its run describes ({reason}); copy "
                "the complete run folder again"
            ) from error

    # --- Whole targets ----------------------------------------------------------------------------

    def encode(
        self, source: Tensor, seed: Tensor | None = None, kept: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode source ids.

        Args:
            source: [B, S] ids.
            seed: [2], the dropout seed. None turns dropout off.
            kept: [B, S], 0 at tokens whose embedding becomes zero (token cutoff), else 1.

        Returns:
            The encoder output (`memory`) [B, S, D], and its mask [B, 1, 1, S].
        """
        memory_mask = padding_mask(source)
        x = self.source_dropout(self._embed(self.source_embedding, source, kept), seed)
        return self.encoder(x, memory_mask, seed), memory_mask

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        seed: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """Decode whole targets (teacher forcing).

        Targets need no padding mask. Their padding comes last, so the causal mask hides it from all
        real positions.

        Args:
            target_in: [B, T] ids, from BOS on.
            memory: [B, S, D], the encoder output.
            memory_mask: [B, 1, 1, S], True at real source tokens.
            seed: [2], the dropout seed. None turns dropout off.
            kept: [B, T], 0 at tokens whose embedding becomes zero (token cutoff), else 1.

        Returns:
            Hidden states, [B, T, D].
        """
        x = self.target_dropout(self._embed(self.target_embedding, target_in, kept), seed)
        return self.decoder(x, memory, memory_mask, seed)

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states to logits: [..., D] -> [..., V]."""
        return self.output_embedding.logits(hidden)

    def call(self, source: Tensor, target_in: Tensor, seed: Tensor | None = None) -> Tensor:
        """Return the logits [B, T, V] of source [B, S] and target_in [B, T]."""
        memory, memory_mask = self.encode(source, seed)
        return self.logits(self.decode(target_in, memory, memory_mask, seed))

    def call_with_attention(
        self, source: Tensor, target_in: Tensor
    ) -> tuple[Tensor, AttentionWeights]:
        """Encode and decode without dropout, and also return the attention weights.

        Args:
            source: [B, S] ids.
            target_in: [B, T] ids, from BOS on.

        Returns:
            Hidden states [B, T, D], and the attention weights of all layers and heads.
        """
        memory_mask = padding_mask(source)
        x = self._embed(self.source_embedding, source)
        memory, encoder = self.encoder.call_with_attention(x, memory_mask)
        x = self._embed(self.target_embedding, target_in)
        hidden, decoder, cross = self.decoder.call_with_attention(x, memory, memory_mask)
        return hidden, AttentionWeights(encoder, decoder, cross)

    # --- Incremental decoding ---------------------------------------------------------------------

    def start_decoding(
        self, source: Tensor, beams: int, layout: CacheLayout = DYNAMIC_CACHE
    ) -> tuple[KVCache, DecodingContext]:
        """Encode source ids and prepare for incremental decoding.

        Args:
            source: [B, S] ids.
            beams: K, the number of hypotheses per sentence.
            layout: How the cache stores the tokens of each step.

        Returns:
            The cache of the first step, which has no tokens, and the context of all steps.
        """
        memory, memory_mask = self.encode(source)
        return self.decoder.start(memory, memory_mask, beams, layout)

    def decode_step(
        self,
        tokens: Tensor,
        parents: Tensor,
        position: Tensor,
        cache: KVCache,
        context: DecodingContext,
    ) -> tuple[Tensor, KVCache]:
        """Decode one token of each hypothesis; all tokens have the same position.

        Args:
            tokens: [B, K] ids.
            parents: [B, K]. Hypothesis k continues hypothesis parents[b, k] of the previous step.
            position: Scalar, the position of the tokens; 0 in the first step.
            cache: The cache that the previous step, or `start_decoding`, returned.
            context: The context that `start_decoding` returned.

        Returns:
            Hidden states [B, K, D], and the cache of the next step.
        """
        x = self.target_embedding(tokens) + self._positions(ops.reshape(position, (1,)))
        return self.decoder.step(x, parents, position, cache, context)

    def _embed(self, embedding: Embedding, tokens: Tensor, kept: Tensor | None = None) -> Tensor:
        """Embed ids [B, T] and add the positional encoding, [B, T, D] (sections 3.4 and 3.5).

        Token cutoff leaves the positional encoding unchanged.
        """
        embedded = embedding(tokens)
        if kept is not None:
            embedded *= kept[..., None]
        return embedded + self._positions(ops.arange(ops.shape(tokens)[1]))

    def _positions(self, positions: Tensor) -> Tensor:
        return ops.cast(sinusoids(positions, self.d_model), self.compute_dtype)


def _check_size(path: Path) -> None:
    """Raise a ValueError if an array is larger than the file, whose arrays are not compressed.

    Otherwise a small file could use up the memory: Keras reads arrays before it compares shapes.
    """
    with h5py.File(path) as file:
        arrays: list[h5py.Dataset] = []
        file.visititems(lambda _, item: arrays.append(item) if hasattr(item, "nbytes") else None)
        if sum(array.nbytes for array in arrays) > path.stat().st_size:
            raise ValueError("its arrays are larger than the file")


_EMBEDDING_TABLES = {
    "all": ("target",),
    "target": ("source", "target"),
    "none": ("source", "target", "output"),
}
"""The embedding tables for each value of `tie_embeddings`. The target table replaces the others."""
