"""The Scorer: how probable a translation is that somebody else made."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import tensorflow as tf

from tfnmt.decoding.inspector import TRANSLATION, token_log_probs
from tfnmt.decoding.lines import WINDOW, batches, to_tensor
from tfnmt.decoding.search import length_penalty
from tfnmt.decoding.text import TEXT
from tfnmt.decoding.translator import Translator
from tfnmt.model.layers import Tensor

Pair = tuple[str, str]


class Scored(NamedTuple):
    """What a model thinks of a translation; eos is one of the tokens."""

    log_prob: float
    score: float  # log_prob over length penalty
    tokens: int


class Scorer:
    """Scores pairs of any number, as search would score the pieces that the target is cut into."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.count = 0  # pairs scored
        self.cut = 0  # of which a side was longer than is read
        self.changed = 0  # whose target reads otherwise when put together again
        self._graph = tf.function(self._score, input_signature=[TEXT, TRANSLATION], autograph=False)

    def score(self, pairs: Iterable[Pair]) -> Iterator[Scored]:
        """What each (source, target) comes to, in order."""
        pairs = iter(pairs)
        while window := list(islice(pairs, WINDOW)):
            yield from self._score_window(window)

    def _score_window(self, pairs: list[Pair]) -> list[Scored]:
        scored = [Scored(0.0, 0.0, 0)] * len(pairs)
        lengths = [max(map(len, pair)) for pair in pairs]
        for rows in batches(lengths):
            sides = [to_tensor([pairs[row][side] for row in rows]) for side in (0, 1)]
            found = {name: value.numpy() for name, value in self._graph(*sides).items()}
            self.count += len(rows)
            self.cut += int(found["cut"].sum())
            self.changed += int(found["changed"].sum())
            columns = (found[name].tolist() for name in Scored._fields)
            for row, values in zip(rows, zip(*columns, strict=True), strict=True):
                scored[row] = Scored(*values)
        return scored

    def _score(self, text: Tensor, translation: Tensor) -> dict[str, Tensor]:
        """log_prob, score and tokens, cut and changed, [B] each."""
        codec, decoding = self.translator.codec, self.translator.decoding
        source = codec.cut(text, decoding.max_source_length)
        target = codec.cut(translation, decoding.longest)
        log_probs = token_log_probs(self.translator.transformer, source.tokens, target.tokens)
        log_prob = tf.reduce_sum(log_probs, axis=1)
        tokens = tf.math.count_nonzero(target.tokens, axis=1, dtype=tf.int32)
        cut = source.truncated | target.truncated
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(tokens, decoding.length_penalty),
            "tokens": tokens,
            "cut": cut,
            "changed": ~cut & (codec.decode(target.tokens) != translation),
        }
