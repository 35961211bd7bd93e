"""The Searcher: ids in, ids out. It is the one place that search is called from."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfnmt.config import DecodingConfig
from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD
from tfnmt.decoding.constraints import (
    Constraint,
    at_least,
    beginning_with,
    without_repeats,
)
from tfnmt.decoding.search import (
    IMPOSSIBLE,
    Cache,
    Hypotheses,
    Search,
    Step,
    beam_search,
    filled_up,
    greedy_search,
)
from tfnmt.model.cache import GROWING, Bounded, Room
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer


class OutputProjection(NamedTuple):
    """The output embedding, laid out for many small products with it.

    Padding and bos are never part of a translation: a bias keeps them away, as it does the columns
    that fill the vocabulary up, at no cost of its own.
    """

    kernel: Tensor  # [D, V']
    bias: Tensor  # [V']

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, V']."""
        rows = tf.reshape(tf.cast(hidden, tf.float32), [-1, hidden.shape[-1]])
        logits = tf.nn.bias_add(tf.matmul(rows, self.kernel), self.bias)
        return tf.reshape(logits, [-1, tf.shape(hidden)[1], self.bias.shape[0]])


def output_projection(transformer: Transformer) -> OutputProjection:
    """That of a Transformer, as its weights are now."""
    table = tf.convert_to_tensor(transformer.output_embedding.table)  # [V, D]
    size = table.shape[0]
    places = tf.range(filled_up(size))
    possible = (places != PAD) & (places != BOS) & (places < size)
    return OutputProjection(
        kernel=tf.transpose(tf.pad(table, [[0, filled_up(size) - size], [0, 0]])),
        bias=tf.where(possible, 0.0, IMPOSSIBLE),
    )


def start(
    transformer: Transformer,
    output: OutputProjection,
    source: Tensor,
    beams: int,
    room: Room = GROWING,
) -> tuple[Step, Cache]:
    """Reads sources [B, S]; how K = `beams` hypotheses of each go on, and what they begin with."""
    cache, fixed = transformer.start_search(source, beams, room)

    def step(
        tokens: Tensor, parents: Tensor, position: Tensor, cache: Cache
    ) -> tuple[Tensor, Cache]:
        hidden, cache = transformer.decode_step(tokens, parents, position, cache, fixed)
        return output.logits(hidden), cache

    return step, cache


Finds = Callable[..., Hypotheses]
"""Sources [B, S], padding last, and what else there is for all rows alike -> hypotheses of each."""

MANY = 16
"""Rows. From here on two loops were measured to take less time than one: docs/performance.md."""


def in_halves(find: Finds, signature: Sequence[tf.TensorSpec]) -> Finds:
    """The graph of a search which takes many rows apart, so that two processors have one half each.

    A search's operations have few rows: two threads get more done with a search each than with
    each operation of one search shared. Rows of like length go together: the shorter half has less
    padding to read and ends sooner.
    """
    # One graph that is called three times. Three copies of it would take longer to make ready.
    whole = tf.function(
        find, signature, autograph=False, experimental_attributes={"_noinline": True}
    )

    def search(sources: Tensor, *others: Tensor) -> Hypotheses:
        def apart() -> Hypotheses:
            short, long, back = _halves(sources)
            return _together(whole(short, *others), whole(long, *others), back)

        many = tf.shape(sources)[0] >= MANY
        return tf.cond(many, apart, lambda: whole(sources, *others))

    return tf.function(search, signature, autograph=False)


def _halves(sources: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shorter and the longer of sources [B, S], and where each row of these went, [B]."""
    lengths = tf.math.count_nonzero(sources, axis=1, dtype=tf.int32)  # [B]
    order = tf.argsort(lengths, stable=True)
    half = tf.shape(order)[0] // 2
    longest = tf.maximum(lengths[order[half - 1]], 1)
    short = tf.gather(sources, order[:half])[:, :longest]
    return short, tf.gather(sources, order[half:]), tf.math.invert_permutation(order)


def _together(short: Hypotheses, long: Hypotheses, back: Tensor) -> Hypotheses:
    """Hypotheses of both halves, in the order of the rows that they were."""
    longest = tf.maximum(tf.shape(short.tokens)[2], tf.shape(long.tokens)[2])
    tokens = tf.concat([_padded(half.tokens, longest) for half in (short, long)], axis=0)
    scores = tf.concat([short.scores, long.scores], axis=0)  # [B, K]
    return Hypotheses(tf.gather(tokens, back), tf.gather(scores, back))


def _padded(tokens: Tensor, length: Tensor) -> Tensor:
    """[B, K, T] with padding up to a length."""
    return tf.pad(tokens, [[0, 0], [0, 0], [0, length - tf.shape(tokens)[2]]], constant_values=PAD)


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
