"""The Searcher: source ids in, target ids out, with the limits and constraints of a configuration.

Letters: B rows, S source and T target length, K hypotheses per row, D d_model, V tokens of the
vocabulary, V' the vocabulary padded to a size that `top_k_sums` can search fast.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import tensorflow as tf

from tfnmt.config import DecodingConfig, SamplingConfig
from tfnmt.data.preparation.tokenizer import BOS, EOS, PAD
from tfnmt.decoding.constraints import (
    Constraint,
    forced_prefix,
    minimum_length,
    no_repeated_ngrams,
)
from tfnmt.decoding.search import (
    EXCLUDED_LOGIT,
    Cache,
    Hypotheses,
    SearchParameters,
    Step,
    beam_search,
    greedy_search,
    padded_size,
    sample,
)
from tfnmt.model.cache import DYNAMIC_CACHE, CacheLayout, StaticCache
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer


class Projection(Protocol):
    """The product of hidden states with the output embedding."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [B, T, D] to logits [B, T, V'] in float32."""


class OutputProjection(NamedTuple):
    """The output embedding, laid out for many small products.

    PAD and BOS never occur in a translation. The bias of the product excludes them, and the columns
    that pad the vocabulary, at no extra cost.
    """

    kernel: Tensor  # [D, V']
    bias: Tensor  # [V']

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [B, T, D] to logits [B, T, V'] in float32."""
        rows = tf.reshape(tf.cast(hidden, tf.float32), [-1, hidden.shape[-1]])  # [B * T, D]
        logits = tf.nn.bias_add(tf.matmul(rows, self.kernel), self.bias)
        return tf.reshape(logits, [-1, tf.shape(hidden)[1], self.bias.shape[0]])


def output_projection(transformer: Transformer) -> OutputProjection:
    """Lay out the output embedding of a Transformer with its current weights."""
    table = tf.convert_to_tensor(transformer.output_embedding.table)  # [V, D]
    size = table.shape[0]
    ids = tf.range(padded_size(size))
    allowed = (ids != PAD) & (ids != BOS) & (ids < size)
    return OutputProjection(
        kernel=tf.transpose(tf.pad(table, [[0, padded_size(size) - size], [0, 0]])),
        bias=tf.where(allowed, 0.0, EXCLUDED_LOGIT),
    )


class Searcher:
    """Finds translations of source ids by beam search, greedy search or sampling.

    Sources are [B, S] ids, padded with 0, each with EOS at its end.
    """

    def __init__(
        self, transformer: Transformer, decoding: DecodingConfig, prefix: Sequence[int] = ()
    ) -> None:
        """Create a searcher.

        Args:
            transformer: The model.
            decoding: Beam size, length penalty, length limits and constraints.
            prefix: Ids that every translation begins with.
        """
        self.transformer = transformer
        self.decoding = decoding
        self.prefix = list(prefix)

    def beam(self, source: Tensor, count: Tensor | int = 1) -> Hypotheses:
        """Search with the configured beam, greedily if its size is 1.

        Args:
            source: [B, S] ids.
            count: The number of hypotheses per row that do not depend on when the search stops.

        Returns:
            K hypotheses per row.
        """
        search = self._search
        step, cache = self._start(source, self.decoding.beam_size)
        return search(step, cache, self.limits(source), self._parameters(count))

    def static_beam(
        self, source: Tensor, output: Projection, steps: Tensor, count: Tensor | int = 1
    ) -> Hypotheses:
        """Search as `beam` does, with a preallocated cache and at most `steps` steps.

        LiteRT needs this, because tensors in its loops keep their shapes. With TensorFlow it is
        slower than `beam`: each step attends to the whole cache.

        Args:
            source: [B, S] ids.
            output: The output projection of the transformer.
            steps: Scalar T, the tokens that a hypothesis has room for.
            count: The number of hypotheses per row that do not depend on when the search stops.

        Returns:
            K hypotheses per row.
        """
        search, beams = self._search, self.decoding.beam_size
        step, cache = self._start(source, beams, StaticCache(steps), output)
        parameters = self._parameters(count)._replace(steps=steps)
        return search(step, cache, self.limits(source), parameters)

    def static_greedy(self, source: Tensor, output: Projection, steps: Tensor) -> Hypotheses:
        """Search as `greedy` does, with a preallocated cache and at most `steps` steps."""
        step, cache = self._start(source, 1, StaticCache(steps), output)
        parameters = self._parameters()._replace(steps=steps)
        return greedy_search(step, cache, self.limits(source), parameters)

    def greedy(self, source: Tensor) -> Hypotheses:
        """Take the most probable token at each step: one hypothesis per row of [B, S]."""
        step, cache = self._start(source, beams=1)
        return greedy_search(step, cache, self.limits(source), self._parameters())

    def sample(
        self, source: Tensor, sampling: SamplingConfig, random_numbers: Tensor
    ) -> Hypotheses:
        """Sample one hypothesis per row of [B, S], with random numbers [B, T] from [0, 1)."""
        step, cache = self._start(source, beams=1)
        parameters = self._parameters()
        return sample(step, cache, self.limits(source), parameters, sampling, random_numbers)

    def limits(self, source: Tensor) -> Tensor:
        """Return the maximum length of each translation, [B], with EOS; 0 for an empty source."""
        lengths = tf.math.count_nonzero(source, axis=1, dtype=tf.int32)
        return tf.where(lengths > 1, self.max_length(lengths), 0)

    def max_length(self, length: Tensor) -> Tensor:
        """Return the maximum translation length for source lengths; both include EOS.

        The prefix, the minimum length and EOS always fit.
        """
        decoding = self.decoding
        most = decoding.max_length or length + decoding.max_extra_length
        return tf.maximum(most, max(len(self.prefix), decoding.min_length) + 1)

    @property
    def _search(self) -> Callable[[Step, Cache, Tensor, SearchParameters], Hypotheses]:
        return greedy_search if self.decoding.beam_size == 1 else beam_search

    def _start(
        self,
        source: Tensor,
        beams: int,
        layout: CacheLayout = DYNAMIC_CACHE,
        output: Projection | None = None,
    ) -> tuple[Step, Cache]:
        """Encode sources [B, S]; return the step function and the cache of its first step."""
        output = output or output_projection(self.transformer)
        cache, context = self.transformer.start_decoding(source, beams, layout)

        def step(
            tokens: Tensor, parents: Tensor, position: Tensor, cache: Cache
        ) -> tuple[Tensor, Cache]:
            hidden, cache = self.transformer.decode_step(tokens, parents, position, cache, context)
            return output.logits(hidden), cache

        return step, cache

    def _parameters(self, count: Tensor | int = 1) -> SearchParameters:
        return SearchParameters(
            bos=BOS,
            eos=EOS,
            beam_size=self.decoding.beam_size,
            length_penalty=self.decoding.length_penalty,
            num_hypotheses=count,
            constraints=tuple(self._constraints()),
        )

    def _constraints(self) -> list[Constraint]:
        decoding = self.decoding
        constraints = []
        if decoding.min_length:
            constraints.append(minimum_length(decoding.min_length))
        if decoding.no_repeat_ngram is not None:
            constraints.append(no_repeated_ngrams(decoding.no_repeat_ngram, len(self.prefix)))
        if self.prefix:
            constraints.append(forced_prefix(tf.constant([self.prefix])))
        return constraints


def best_hypothesis(found: Hypotheses) -> dict[str, Tensor]:
    """Return the best hypothesis of each row: tokens [B, T] and score [B], 0 for an empty one."""
    tokens = found.tokens[:, 0]
    empty = tf.reduce_all(tokens == PAD, axis=1)
    return {"tokens": tokens, "score": tf.where(empty, 0.0, found.scores[:, 0])}


# --- Large batches --------------------------------------------------------------------------------

SPLIT_ROWS = 16
"""Batches with at least this many rows are split."""


def split_batches(
    search: Callable[..., Hypotheses], signature: Sequence[tf.TensorSpec]
) -> Callable[..., Hypotheses]:
    """Build the graph of a search that splits large batches into two halves, run side by side.

    The operations of a search have few rows. Two threads are therefore faster when
    each runs its own search than when both share the operations of one. Rows of similar length go
    together, so that the shorter half has less padding and ends earlier.

    Args:
        search: Maps sources [B, S], and further arguments that hold for all rows, to hypotheses.
        signature: The types of its arguments.
    """
    # One graph, called three times. Three copies would take longer to trace and to load.
    whole = tf.function(
        search, signature, autograph=False, experimental_attributes={"_noinline": True}
    )

    def split_search(sources: Tensor, *others: Tensor) -> Hypotheses:
        small = tf.shape(sources)[0] < SPLIT_ROWS
        in_halves = partial(_search_in_halves, whole, sources, *others)
        return tf.cond(small, partial(whole, sources, *others), in_halves)

    return tf.function(split_search, signature, autograph=False)


def _search_in_halves(
    search: Callable[..., Hypotheses], sources: Tensor, *others: Tensor
) -> Hypotheses:
    """Search the shorter and the longer half of the sources [B, S] side by side."""
    short, long, original = _halves(sources)
    return _concatenate(search(short, *others), search(long, *others), original)


def _halves(sources: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shorter and the longer half of sources [B, S], and the new place of each row."""
    lengths = tf.math.count_nonzero(sources, axis=1, dtype=tf.int32)  # [B]
    order = tf.argsort(lengths, stable=True)
    half = tf.shape(order)[0] // 2
    longest = tf.maximum(lengths[order[half - 1]], 1)
    short = tf.gather(sources, order[:half])[:, :longest]
    return short, tf.gather(sources, order[half:]), tf.math.invert_permutation(order)


def _concatenate(short: Hypotheses, long: Hypotheses, original: Tensor) -> Hypotheses:
    """Join the hypotheses of both halves and restore the order of the rows."""
    longest = tf.maximum(tf.shape(short.tokens)[2], tf.shape(long.tokens)[2])
    tokens = tf.concat([_pad(half.tokens, longest) for half in (short, long)], axis=0)
    scores = tf.concat([short.scores, long.scores], axis=0)  # [B, K]
    complete = tf.concat([short.complete, long.complete], axis=0)  # [B]
    return Hypotheses(*(tf.gather(each, original) for each in (tokens, scores, complete)))


def _pad(tokens: Tensor, length: Tensor) -> Tensor:
    """Pad [B, K, T] to a length."""
    return tf.pad(tokens, [[0, 0], [0, 0], [0, length - tf.shape(tokens)[2]]], constant_values=PAD)
