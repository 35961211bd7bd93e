"""The Translator: text in, text out. What is validated, evaluated and served is this one object."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from tfnmt.config import Config, DecodingConfig
from tfnmt.data.tokenizer import BOS, EOS, PAD, Tokenizer
from tfnmt.decoding.constraints import without_marks
from tfnmt.decoding.search import Hypotheses, Search, Step, beam_search, greedy_search
from tfnmt.decoding.text import TEXT, TextCodec
from tfnmt.model.transformer import Transformer

Tensor = Any


class Translator:
    """Translates batches of strings in one graph, whatever their number and length.

    `translate` searches as the configuration says, `greedy` takes the likeliest piece at each step.
    Both map text [B] to a dictionary: translation [B], score [B] (log probability over length
    penalty) and truncated [B] (whether the source was cut). A text of no pieces gives '' and 0.
    """

    def __init__(
        self, transformer: Transformer, tokenizer_model: bytes, decoding: DecodingConfig
    ) -> None:
        self.transformer = transformer
        self.codec = TextCodec(tokenizer_model, decoding.max_source_length)
        self.decoding = decoding
        # Nothing in there is for AutoGraph to rewrite, and its looking costs seconds.
        self.translate = tf.function(self._translate, input_signature=[TEXT], autograph=False)
        self.greedy = tf.function(self._greedy, input_signature=[TEXT], autograph=False)

    def search(self, source: Tensor) -> Hypotheses:
        """[B, S] ids, eos last -> the best hypothesis: tokens [B, 1, T], scores [B, 1]."""
        decoding = self.decoding
        if decoding.beam_size == 1:
            return self.search_greedily(source)
        search = Search(BOS, EOS, decoding.beam_size, decoding.length_penalty)
        limits = self._limits(source)
        step, cache = self._start(source, limits)
        return beam_search(step, cache, limits, search)

    def search_greedily(self, source: Tensor) -> Hypotheses:
        """The same with the likeliest piece at every step."""
        limits = self._limits(source)
        step, cache = self._start(source, limits)
        return greedy_search(step, cache, limits, Search(BOS, EOS, 1, self.decoding.length_penalty))

    def _translate(self, text: Tensor) -> dict[str, Tensor]:
        source = self.codec.encode(text)
        return self._answer(self.search(source.tokens), source.truncated)

    def _greedy(self, text: Tensor) -> dict[str, Tensor]:
        source = self.codec.encode(text)
        return self._answer(self.search_greedily(source.tokens), source.truncated)

    def _answer(self, hypotheses: Hypotheses, truncated: Tensor) -> dict[str, Tensor]:
        tokens = hypotheses.tokens[:, 0]
        nothing = tf.reduce_all(tokens == PAD, axis=1)
        return {
            "translation": self.codec.decode(tokens),
            "score": tf.where(nothing, 0.0, hypotheses.scores[:, 0]),
            "truncated": truncated,
        }

    def _limits(self, source: Tensor) -> Tensor:
        """[B]: the most pieces that a translation may have, eos counted; 0 for a text of none."""
        pieces = tf.math.count_nonzero(source, axis=1, dtype=tf.int32) - 1  # without eos
        return tf.where(pieces > 0, pieces + 1 + self.decoding.max_extra_length, 0)

    def _start(self, source: Tensor, limits: Tensor) -> tuple[Step, Any]:
        """The step function of some sources, and the cache that it starts with."""
        memory, memory_mask = self.transformer.encode(source)
        longest = tf.reduce_max(tf.concat([limits, [1]], axis=0))
        cache, cross = self.transformer.start_cache(memory, longest)

        def step(tokens: Tensor, position: Tensor, cache: Any) -> tuple[Tensor, Any]:
            logits, cache = self.transformer.decode_step(
                tokens, position, cache, cross, memory_mask
            )
            return without_marks(tf.cast(logits, tf.float32)), cache

        return step, cache


def load_translator(
    weights: Path, config: Config, tokenizer_model: bytes, decoding: DecodingConfig
) -> Translator:
    """The Translator of a run's weights."""
    transformer = Transformer(config.model, Tokenizer(tokenizer_model).vocab_size)
    transformer.load_weights(weights)
    return Translator(transformer, tokenizer_model, decoding)
