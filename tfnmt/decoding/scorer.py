"""The Scorer: force-decodes given translations and reports their probability."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import tensorflow as tf

from tfnmt.decoding.inspector import TARGET, TRANSLATION, token_log_probs
from tfnmt.decoding.lines import WINDOW, length_batches, single_line, to_ids, to_strings
from tfnmt.decoding.search import length_penalty
from tfnmt.decoding.text import TEXT, Source
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor

Ids = Sequence[int]
Target = TypeVar("Target", str, Ids)


class Scored(NamedTuple):
    """The score of a translation."""

    log_prob: float  # natural logarithm of its probability
    score: float  # log_prob divided by the length penalty
    tokens: int  # EOS included
    text: str  # of these tokens, a single line
    truncated: bool  # whether a side was longer than the model reads


class Scorer:
    """Scores any number of translations, given as texts or as token ids.

    The score of ids is the score that the search gives them. A text may have been found with other
    tokens than those of the tokenizer, and then it gets another score.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._tokenize = tf.function(
            self._tokenize_target, input_signature=[TRANSLATION], autograph=False
        )
        self._graph = tf.function(self._score, input_signature=[TEXT, TARGET], autograph=False)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Scored]:
        """Score (source, target) texts, in order."""

        def tokenize(targets: list[str]) -> Source:
            return Source(*self._tokenize(to_strings(targets)))

        return self._score_all(pairs, tokenize)

    def score_ids(self, pairs: Iterable[tuple[str, Ids]]) -> Iterator[Scored]:
        """Score (source, token ids) pairs, in order. Ids are never truncated."""

        def pad(targets: list[Ids]) -> Source:
            return Source(to_ids(targets), tf.zeros([len(targets)], tf.bool))

        return self._score_all(pairs, pad)

    def _score_all(
        self, pairs: Iterable[tuple[str, Target]], encode: Callable[[list[Target]], Source]
    ) -> Iterator[Scored]:
        pairs = iter(pairs)
        while window := list(islice(pairs, WINDOW)):
            scored: dict[int, Scored] = {}
            for rows in length_batches([max(map(len, pair)) for pair in window]):
                sources, targets = zip(*(window[row] for row in rows), strict=True)
                scored |= zip(rows, self._score_batch(sources, encode(list(targets))), strict=True)
            yield from (scored[row] for row in range(len(window)))

    def _score_batch(self, sources: Sequence[str], target: Source) -> Iterator[Scored]:
        outputs = self._graph(to_strings(list(sources)), target.tokens)
        outputs["truncated"] |= target.truncated
        columns = (outputs[name].numpy().tolist() for name in Scored._fields)
        for log_prob, score, tokens, text, truncated in zip(*columns, strict=True):
            yield Scored(log_prob, score, tokens, single_line(text.decode()), truncated)

    def _tokenize_target(self, translation: Tensor) -> Source:
        codec, decoding = self.translator.codec, self.translator.decoding
        return codec.truncate(translation, decoding.max_translation_length)

    def _score(self, text: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return the fields of `Scored`, [B] each, for texts [B] and ids [B, T]."""
        codec, decoding = self.translator.codec, self.translator.decoding
        source = codec.encode(text)
        log_probs = token_log_probs(self.translator.transformer, source.tokens, target)
        log_prob = tf.reduce_sum(log_probs, axis=1)
        tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.int32)
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(tokens, decoding.length_penalty),
            "tokens": tokens,
            "text": codec.decode(target),
            "truncated": source.truncated,
        }
