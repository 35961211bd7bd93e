"""The model of a trace: that of a run, or the tiny model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.batching.batches import Batch, gather
from tfnmt.data.batching.plan import Pairs
from tfnmt.data.preparation.storage import TokenArray
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.decoding.searcher import Searcher, best_hypothesis
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.tracing import tiny

TINY_CONFIG = ModelConfig(
    num_encoder_layers=1,
    num_decoder_layers=1,
    d_model=8,
    num_heads=2,
    d_ff=32,
    dropout=0,
    norm_first=False,
)
"""Small enough to show every tensor whole; post-norm, as in the paper."""


class TracedModel(NamedTuple):
    """A model with its vocabulary, its search and its detokenizer."""

    transformer: Transformer
    vocabulary: list[str]  # tokens by id
    decoding: DecodingConfig
    search: Callable[[Tensor], dict[str, Tensor]]
    """Source ids [B, S] -> the translations' `tokens` [B, T] and `score` [B]."""
    decode: Callable[[Sequence[int]], str]
    """Ids of a translation -> its text."""

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids as strings."""
        return [self.vocabulary[number] for number in ids]


def traced_translator(translator: Translator, tokenizer: Tokenizer) -> TracedModel:
    """Return the model of a run for tracing.

    Args:
        translator: The translator of the run.
        tokenizer: The tokenizer of the same run.
    """

    def decode(ids: Sequence[int]) -> str:
        (text,) = translator.detokenize(tf.constant([ids], tf.int32))["translation"].numpy()
        return str(text.decode())

    return TracedModel(
        translator.transformer, tokenizer.tokens(), translator.decoding, translator.search, decode
    )


def tiny_model(decoding: DecodingConfig) -> TracedModel:
    """Create the tiny model with random weights."""
    transformer = Transformer(TINY_CONFIG, len(tiny.VOCABULARY))
    searcher = Searcher(transformer, decoding)

    def search(tokens: Tensor) -> dict[str, Tensor]:
        return best_hypothesis(searcher.beam(tokens))

    return TracedModel(transformer, tiny.VOCABULARY, decoding, search, tiny.decode)


def make_batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    """Make a training batch in which each side is only as long as its longest sentence.

    Args:
        sources: Ids of each source, EOS included.
        targets: Ids of each target, EOS included.
    """
    lengths = [max(map(len, side)) for side in (sources, targets)]
    rows = np.arange(len(sources))
    batch = gather(Pairs(_sentences(sources), _sentences(targets), rows), max(lengths))
    return Batch(
        batch.source[:, : lengths[0]],
        batch.target_in[:, : lengths[1]],
        batch.target_out[:, : lengths[1]],
    )


def _sentences(ids: list[list[int]]) -> TokenArray:
    return TokenArray(np.concatenate(ids), np.cumsum([0, *map(len, ids)]))
