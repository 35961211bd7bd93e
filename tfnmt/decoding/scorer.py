"""The Scorer: force-decodes given translations and reports their probability."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import tensorflow as tf

from tfnmt.decoding.inspector import TRANSLATION, token_log_probs
from tfnmt.decoding.lines import WINDOW, length_batches, to_string_tensor
from tfnmt.decoding.search import length_penalty
from tfnmt.decoding.text import TEXT
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor

Pair = tuple[str, str]


class Scored(NamedTuple):
    """The score of a translation."""

    log_prob: float  # natural logarithm of its probability
    score: float  # log_prob divided by the length penalty
    tokens: int  # EOS included


class Scorer:
    """Scores any number of pairs as the search would score the tokens of the target.

    Attributes:
        count: Pairs scored so far.
        truncated: Pairs with a side longer than the model reads.
        changed: Pairs whose target gives another text when it is tokenized and detokenized.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.count = 0
        self.truncated = 0
        self.changed = 0
        self._graph = tf.function(self._score, input_signature=[TEXT, TRANSLATION], autograph=False)

    def score(self, pairs: Iterable[Pair]) -> Iterator[Scored]:
        """Score (source, target) pairs, in order."""
        pairs = iter(pairs)
        while window := list(islice(pairs, WINDOW)):
            yield from self._score_window(window)

    def _score_window(self, pairs: list[Pair]) -> list[Scored]:
        scored = [Scored(0.0, 0.0, 0)] * len(pairs)
        lengths = [max(map(len, pair)) for pair in pairs]
        for rows in length_batches(lengths):
            sides = [to_string_tensor([pairs[row][side] for row in rows]) for side in (0, 1)]
            outputs = {name: value.numpy() for name, value in self._graph(*sides).items()}
            self.count += len(rows)
            self.truncated += int(outputs["truncated"].sum())
            self.changed += int(outputs["changed"].sum())
            columns = (outputs[name].tolist() for name in Scored._fields)
            for row, values in zip(rows, zip(*columns, strict=True), strict=True):
                scored[row] = Scored(*values)
        return scored

    def _score(self, text: Tensor, translation: Tensor) -> dict[str, Tensor]:
        """Return log_prob, score, tokens, truncated and changed, [B] each."""
        codec, decoding = self.translator.codec, self.translator.decoding
        source = codec.truncate(text, decoding.max_source_length)
        target = codec.truncate(translation, decoding.max_translation_length)
        log_probs = token_log_probs(self.translator.transformer, source.tokens, target.tokens)
        log_prob = tf.reduce_sum(log_probs, axis=1)
        tokens = tf.math.count_nonzero(target.tokens, axis=1, dtype=tf.int32)
        truncated = source.truncated | target.truncated
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(tokens, decoding.length_penalty),
            "tokens": tokens,
            "truncated": truncated,
            "changed": ~truncated & (codec.decode(target.tokens) != translation),
        }
