"""The Searcher: ids in, ids out. It is the one place that search is called from."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfnmt.config import DecodingConfig
from tfnmt.data.tokenizer import BOS, EOS, PAD
from tfnmt.decoding.constraints import (
    Constraint,
    at_least,
    beginning_with,
    without_repeats,
)
from tfnmt.decoding.output import OutputProjection, output_projection
from tfnmt.decoding.search import (
    Cache,
    Hypotheses,
    Search,
    Step,
    beam_search,
    greedy_search,
)
from tfnmt.decoding.step import start
from tfnmt.model.cache import Bounded
from tfnmt.model.transformer import Transformer

Tensor = Any
Find = Callable[[Step, Cache, Tensor, Search], Hypotheses]
"""A search: step, cache, limits [B], what it goes by -> hypotheses."""


class Searcher:
    """Finds translations of ids, within the bounds of a configuration."""

    def __init__(
        self, transformer: Transformer, decoding: DecodingConfig, prefix: Sequence[int] = ()
    ) -> None:
        """Every translation begins with the pieces of the prefix."""
        self.transformer = transformer
        self.decoding = decoding
        self.prefix = list(prefix)

    def beam(self, source: Tensor, count: Tensor | int = 1) -> Hypotheses:
        """K hypotheses of sources [B, S], the first `count` the best there are."""
        return self.find(source, *self._asked, count)

    def compilable(self, source: Tensor, output: OutputProjection) -> Hypotheses:
        """What `beam` finds, by shapes that the shape of the sources decides and nothing else.

        A compiler asks for that. Uncompiled it is the slower one: each step attends to all the
        room that there is for a translation. `output` is that of the transformer.
        """
        find, beams = self._asked
        steps = self._most(tf.shape(source)[1])
        step, cache = start(self.transformer, output, source, beams, Bounded(steps))
        return find(step, cache, self._limits(source), self._search(beams)._replace(steps=steps))

    def find(
        self, source: Tensor, find: Find, beams: int = 1, count: Tensor | int = 1
    ) -> Hypotheses:
        """What a search finds for sources [B, S], eos last."""
        output = output_projection(self.transformer)
        step, cache = start(self.transformer, output, source, beams)
        search = self._search(beams)._replace(num_hypotheses=count)
        return find(step, cache, self._limits(source), search)

    @property
    def _asked(self) -> tuple[Find, int]:
        """The search that was asked for, and its beams."""
        beams = self.decoding.beam_size
        return (greedy_search if beams == 1 else beam_search), beams

    def _search(self, beams: int) -> Search:
        penalty, constraints = self.decoding.length_penalty, self._constraints()
        return Search(BOS, EOS, beams, penalty, constraints=constraints)

    def _constraints(self) -> tuple[Constraint, ...]:
        decoding = self.decoding
        constraints = []
        if decoding.min_length:
            constraints.append(at_least(decoding.min_length))
        if decoding.no_repeat_ngram is not None:
            constraints.append(without_repeats(decoding.no_repeat_ngram, since=len(self.prefix)))
        if self.prefix:
            constraints.append(beginning_with(tf.constant([self.prefix])))
        return tuple(constraints)

    def _limits(self, source: Tensor) -> Tensor:
        """[B]: the most pieces that a translation may have, eos counted; 0 for a text of none."""
        lengths = tf.math.count_nonzero(source, axis=1, dtype=tf.int32)
        return tf.where(lengths > 1, self._most(lengths), 0)

    def _most(self, length: Tensor) -> Tensor:
        """The most pieces for sources of a length; both with eos.

        The prefix, the least pieces and an eos have room in any case.
        """
        decoding = self.decoding
        most = decoding.max_length or length + decoding.max_extra_length
        return tf.maximum(most, max(len(self.prefix), decoding.min_length) + 1)


def first(found: Hypotheses) -> dict[str, Tensor]:
    """The best hypothesis of each source: tokens [B, T] and score [B], which is 0 for none."""
    tokens = found.tokens[:, 0]
    nothing = tf.reduce_all(tokens == PAD, axis=1)
    return {"tokens": tokens, "score": tf.where(nothing, 0.0, found.scores[:, 0])}
