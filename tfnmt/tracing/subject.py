"""A model to look into: a run's, or the tiny one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.batching.batches import Batch, gather
from tfnmt.data.batching.plan import Pairs
from tfnmt.data.preparation.storage import Sentences
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.decoding.searcher import Searcher, first
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.tracing import tiny

TINY = ModelConfig(
    num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=32, dropout=0,
    norm_first=False,
)  # fmt: skip
"""Small enough for every tensor to be seen whole; norm comes last, as in the paper."""


class Subject(NamedTuple):
    """A model, and the way from its text to ids and back."""

    transformer: Transformer
    pieces: list[str]  # by their ids
    decoding: DecodingConfig
    search: Callable[[Tensor], dict[str, Tensor]]
    """Ids of sources [B, S] -> tokens [B, T] and score [B] of translations."""
    decode: Callable[[Sequence[int]], str]

    def names(self, ids: Sequence[int]) -> list[str]:
        """The pieces of some ids."""
        return [self.pieces[number] for number in ids]


def of_translator(translator: Translator, tokenizer: Tokenizer) -> Subject:
    """What a run translates with."""

    def decode(ids: Sequence[int]) -> str:
        (text,) = translator.detokenize(tf.constant([ids], tf.int32))["translation"].numpy()
        return str(text.decode())

    return Subject(
        translator.transformer, tokenizer.pieces(), translator.decoding, translator.search, decode
    )


def tiny_subject(decoding: DecodingConfig) -> Subject:
    """A Transformer over the two words, untrained."""
    transformer = Transformer(TINY, len(tiny.PIECES))
    searcher = Searcher(transformer, decoding)

    def search(tokens: Tensor) -> dict[str, Tensor]:
        return first(searcher.beam(tokens))

    return Subject(transformer, tiny.PIECES, decoding, search, tiny.decode)


def make_batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    """Ids, eos included, as a training has them; but each side only as long as its longest."""
    lengths = [max(map(len, side)) for side in (sources, targets)]
    rows = np.arange(len(sources))
    batch = gather(Pairs(_sentences(sources), _sentences(targets), rows), max(lengths))
    return Batch(
        batch.source[:, : lengths[0]],
        batch.target_in[:, : lengths[1]],
        batch.target_out[:, : lengths[1]],
    )


def _sentences(ids: list[list[int]]) -> Sentences:
    return Sentences(np.concatenate(ids), np.cumsum([0, *map(len, ids)]))
