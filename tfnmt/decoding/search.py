"""Greedy search, sampling and beam search over any step function.

The search does not know the model. It calls `step(tokens [B, K], parents [B, K], position [],
cache)` and gets `(logits [B, K, V], cache)`. Hypothesis k of a row continues the hypothesis
`parents[b, k]` of the previous step. Only the step function interprets the cache.

Letters: B rows, K hypotheses (beams) per row, N = B * K, T the largest length limit of the batch,
V tokens of the vocabulary.

The result of a row depends on that row only. Each row has its own length limit and stops on its
own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfnmt.config import SamplingConfig
from tfnmt.decoding.constraints import Constraint
from tfnmt.model.layers import Tensor

Cache = Any
EXCLUDED_LOGIT = tf.float32.min
"""Logit of tokens that no translation may contain. Constraints use -inf for tokens that are
excluded at the current position only."""

Step = Callable[[Tensor, Tensor, Tensor, Cache], tuple[Tensor, Cache]]
"""The step function: tokens, parents, position, cache -> logits, cache."""


class Hypotheses(NamedTuple):
    """The hypotheses of a search, best first."""

    tokens: Tensor  # [B, n, T] ids; ends with EOS unless truncated by the limit; padded with 0
    scores: Tensor  # [B, n] log probability divided by the length penalty
    complete: Tensor  # [B] whether more steps would leave them unchanged


class SearchParameters(NamedTuple):
    """Parameters of greedy search, sampling and beam search."""

    bos: int
    eos: int
    beam_size: int
    length_penalty: float  # alpha
    num_hypotheses: int | Tensor = 1  # this many per row do not depend on when the search stops
    constraints: tuple[Constraint, ...] = ()
    steps: Tensor | None = None  # T, if it must not depend on the limits; the search ends there

    def max_steps(self, limits: Tensor) -> Tensor:
        """Return T, a scalar: `steps` if given, otherwise the largest limit, at least 1."""
        if self.steps is not None:
            return self.steps
        return tf.reduce_max(tf.concat([limits, [1]], axis=0))

    def constrain(self, logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        """Set the logits [N, V] of excluded continuations of tokens [N, T] to -inf."""
        for constraint in self.constraints:
            logits = constraint(logits, tokens, position)
        return logits


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """Return ((5 + n) / 6)^alpha for n tokens with EOS (Wu et al., 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


# --- Greedy search and sampling -------------------------------------------------------------------


class SingleState(NamedTuple):
    """Loop state of a search that keeps one hypothesis per row."""

    position: Tensor  # []
    last: Tensor  # [B] the token before this position
    tokens: Tensor  # [B, T] chosen so far
    log_probs: Tensor  # [B]
    done: Tensor  # [B]
    cache: Cache


Choose = Callable[[Tensor, Tensor], Tensor]
"""logits [B, V], position [] -> the next token, [B]."""


def greedy_search(
    step: Step, cache: Cache, limits: Tensor, parameters: SearchParameters
) -> Hypotheses:
    """Take the most probable token at every step.

    Args:
        step: The step function, called with K = 1.
        cache: The cache of the first step.
        limits: [B], the maximum number of tokens of each row, EOS included.
        parameters: `beam_size` and `num_hypotheses` are ignored.

    Returns:
        One hypothesis per row.
    """

    def choose(logits: Tensor, position: Tensor) -> Tensor:
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    return _search_single(step, cache, limits, parameters, choose)


def sample(
    step: Step,
    cache: Cache,
    limits: Tensor,
    parameters: SearchParameters,
    sampling: SamplingConfig,
    random_numbers: Tensor,
) -> Hypotheses:
    """Sample a token at every step.

    The caller supplies the random numbers, so the result of a row does not depend on the batch.
    Scores are those of the model's own distribution, without temperature, top-k and top-p.

    Args:
        step: The step function, called with K = 1.
        cache: The cache of the first step.
        limits: [B], the maximum number of tokens of each row, EOS included.
        parameters: `beam_size` and `num_hypotheses` are ignored.
        sampling: Temperature, top-k and top-p.
        random_numbers: [B, T], uniform between 0 and 1, one for each token.

    Returns:
        One hypothesis per row.
    """

    def choose(logits: Tensor, position: Tensor) -> Tensor:
        number = random_numbers[:, tf.minimum(position, tf.shape(random_numbers)[1] - 1)]
        if sampling.top_k is None and sampling.top_p == 1:  # the whole vocabulary: no need to sort
            return _sample_index(tf.nn.softmax(logits / sampling.temperature), number)
        vocab_size = tf.shape(logits)[-1]
        k = vocab_size if sampling.top_k is None else tf.minimum(vocab_size, sampling.top_k)
        best, tokens = tf.math.top_k(logits, k=k)
        probabilities = tf.nn.softmax(best / sampling.temperature)  # [B, k]
        # Keep tokens with less than top_p of probability before them. The first is always kept.
        before = tf.cumsum(probabilities, axis=-1) - probabilities
        kept = tf.where(before < sampling.top_p, probabilities, 0.0)
        return tf.gather(tokens, _sample_index(kept, number), batch_dims=1)

    return _search_single(step, cache, limits, parameters, choose)


def _sample_index(weights: Tensor, number: Tensor) -> Tensor:
    """Map weights [B, k] and numbers [B] between 0 and 1 to sampled indices [B]."""
    cumulative = tf.cumsum(weights, axis=-1)
    total = cumulative[:, -1]
    # Stay below the total, so that one cumulative weight always exceeds the threshold.
    threshold = tf.minimum(number * total, tf.math.nextafter(total, tf.zeros_like(total)))
    return tf.math.count_nonzero(cumulative <= threshold[:, None], axis=-1, dtype=tf.int32)


def _search_single(
    step: Step, cache: Cache, limits: Tensor, parameters: SearchParameters, choose: Choose
) -> Hypotheses:
    """Decode one hypothesis per row, [B, 1, T]. `choose` returns the token of each step."""
    rows, max_steps = tf.shape(limits)[0], parameters.max_steps(limits)
    own_parent = tf.zeros([rows, 1], tf.int32)

    def body(*values: Any) -> SingleState:
        state = SingleState(*values)
        logits, cache = step(tf.expand_dims(state.last, 1), own_parent, state.position, state.cache)
        logits = logits[:, 0]  # [B, V]
        allowed = parameters.constrain(logits, state.tokens, state.position)
        chosen = tf.where(state.done, 0, choose(allowed, state.position))
        log_prob = tf.gather(logits, chosen, batch_dims=1) - log_sum_exp(logits)[:, 0]
        length = state.position + 1
        return SingleState(
            position=length,
            last=chosen,
            tokens=_write(state.tokens, chosen, state.position),
            log_probs=state.log_probs + tf.where(state.done, 0.0, log_prob),
            done=state.done | (chosen == parameters.eos) | (length >= limits),
            cache=cache,
        )

    start = SingleState(
        position=tf.constant(0),
        last=tf.fill([rows], parameters.bos),
        tokens=tf.zeros([rows, max_steps], tf.int32),
        log_probs=tf.zeros([rows]),
        done=limits < 1,
        cache=cache,
    )

    def running(*values: Any) -> Tensor:
        state = SingleState(*values)
        return ~tf.reduce_all(state.done) & (state.position < max_steps)

    end = _loop(running, body, start)
    lengths = tf.math.count_nonzero(end.tokens, axis=-1, dtype=tf.int32)
    scores = end.log_probs / length_penalty(lengths, parameters.length_penalty)
    return Hypotheses(end.tokens[:, None], scores[:, None], end.done)


# --- Beam search ----------------------------------------------------------------------------------


class Live(NamedTuple):
    """The unfinished hypotheses, best first."""

    tokens: Tensor  # [B, K, T]
    last: Tensor  # [B, K] the last of the tokens
    log_probs: Tensor  # [B, K]; -inf for an empty place in the beam
    parents: Tensor  # [B, K] the hypothesis of the previous step that each one continues


class Finished(NamedTuple):
    """The finished hypotheses, best first."""

    tokens: Tensor  # [B, K, T]
    scores: Tensor  # [B, K]; -inf for an empty place


class BeamState(NamedTuple):
    """Loop state of `beam_search`. Unfinished and finished hypotheses are stored separately."""

    position: Tensor  # []
    live: Live
    finished: Finished
    cache: Cache


class Candidates(NamedTuple):
    """The 2K most probable continuations of a row, best first, [B, 2K].

    Each live hypothesis has one continuation with EOS, so at most K of the 2K end here, and K stay
    unfinished.
    """

    token: Tensor  # the next token
    log_probs: Tensor
    parents: Tensor  # the live hypothesis that each one continues


def beam_search(
    step: Step, cache: Cache, limits: Tensor, parameters: SearchParameters
) -> Hypotheses:
    """Find the best hypotheses with a beam of K = `parameters.beam_size`.

    The stopping bound is exact: a row stops when no live hypothesis can still enter its first
    `num_hypotheses` results.

    Args:
        step: The step function.
        cache: The cache of the first step.
        limits: [B], the maximum number of tokens of each row, EOS included.
        parameters: Beam size, length penalty, constraints and BOS and EOS ids.

    Returns:
        K hypotheses per row. If none ends within a row's limit, its live hypotheses are returned
        without EOS.
    """

    def body(*values: Any) -> BeamState:
        state = BeamState(*values)
        before, position = state.live, state.position
        logits, cache = step(before.last, before.parents, position, state.cache)
        candidates = _candidates(logits, before, position, parameters)
        live = _keep_live(candidates, before, position, parameters)
        finished = _keep_finished(candidates, live, state, limits, parameters)
        in_limit = position + 1 < limits  # [B]
        log_probs = tf.where(tf.expand_dims(in_limit, 1), live.log_probs, -float("inf"))
        live = live._replace(log_probs=log_probs)
        return BeamState(position + 1, live, finished, cache)

    start = _start(cache, limits, parameters)
    max_steps = tf.shape(start.live.tokens)[2]

    def running(*values: Any) -> Tensor:
        state = BeamState(*values)
        improving = tf.reduce_any(_can_improve(state, limits, parameters))
        return improving & (state.position < max_steps)

    end = _loop(running, body, start)
    complete = ~_can_improve(end, limits, parameters)
    return Hypotheses(end.finished.tokens, end.finished.scores, complete)


def _start(cache: Cache, limits: Tensor, parameters: SearchParameters) -> BeamState:
    """Return one empty live hypothesis per row, and none for a row with a limit of 0.

    The other places have probability 0.
    """
    rows, beams = tf.shape(limits)[0], parameters.beam_size
    exists = (tf.range(beams) == 0) & (limits[:, None] > 0)  # [B, K]
    tokens = tf.zeros([rows, beams, parameters.max_steps(limits)], tf.int32)
    live = Live(
        tokens=tokens,
        last=tf.fill([rows, beams], parameters.bos),
        log_probs=tf.where(exists, 0.0, -float("inf")),
        parents=tf.zeros([rows, beams], tf.int32),
    )
    none = tf.fill([rows, beams], -float("inf"))
    return BeamState(tf.constant(0), live, Finished(tokens, none), cache)


def _candidates(
    logits: Tensor, live: Live, position: Tensor, parameters: SearchParameters
) -> Candidates:
    """Return the best 2K of a row."""
    beams, vocab_size = parameters.beam_size, logits.shape[-1]
    flat = tf.reshape(logits, [-1, vocab_size])  # [N, V]
    flat_tokens = tf.reshape(live.tokens, [-1, tf.shape(live.tokens)[2]])  # [N, T]
    allowed = parameters.constrain(flat, flat_tokens, position)
    offsets = live.log_probs - tf.reshape(log_sum_exp(flat), [-1, beams])  # [B, K]
    best, where = top_k_sums(
        tf.reshape(allowed, [-1, beams, vocab_size]), offsets, min(2 * beams, beams * vocab_size)
    )
    # If fewer tokens are allowed, the rest are invalid.
    valid = best > EXCLUDED_LOGIT / 2
    tokens = tf.where(valid, where % vocab_size, 0)
    return Candidates(tokens, tf.where(valid, best, -float("inf")), where // vocab_size)


def _keep_live(
    candidates: Candidates, before: Live, position: Tensor, parameters: SearchParameters
) -> Live:
    """Return the K best candidates that do not end here."""
    ends = candidates.token == parameters.eos
    best, where = tf.math.top_k(
        tf.where(ends, -float("inf"), candidates.log_probs), parameters.beam_size
    )
    last = tf.gather(candidates.token, where, batch_dims=1)
    parents = tf.gather(candidates.parents, where, batch_dims=1)
    return Live(_extend(before.tokens, parents, last, position), last, best, parents)


def _keep_finished(
    candidates: Candidates,
    live: Live,
    state: BeamState,
    limits: Tensor,
    parameters: SearchParameters,
) -> Finished:
    """Return the K best finished hypotheses: the earlier ones and those that end here.

    EOS ends a hypothesis only among the first K candidates. A beam of 1 is then exactly greedy
    search. If a row reaches its limit and nothing has ended, its live hypotheses count.
    """
    length, finished = state.position + 1, state.finished
    penalty = length_penalty(length, parameters.length_penalty)
    token, log_probs, parents = (each[:, : parameters.beam_size] for each in candidates)  # [B, K]
    ended = tf.where(token == parameters.eos, log_probs / penalty, -float("inf"))
    scores = tf.concat([finished.scores, ended], axis=1)  # [B, 2K]
    nothing = tf.reduce_all(scores == -float("inf"), axis=1)  # [B]
    truncated = nothing & (length == limits)
    here = tf.where(tf.expand_dims(truncated, 1), live.log_probs / penalty, -float("inf"))
    best, where = tf.math.top_k(tf.concat([scores, here], axis=1), parameters.beam_size)
    ending = _extend(state.live.tokens, parents, token, state.position)
    tokens = tf.concat([finished.tokens, ending, live.tokens], axis=1)  # [B, 3K, T]
    return Finished(tf.gather(tokens, where, batch_dims=1), best)


def _can_improve(state: BeamState, limits: Tensor, parameters: SearchParameters) -> Tensor:
    """Return for each row, [B], whether a live hypothesis can still displace a kept one.

    Log probabilities are negative and only decrease, and the penalty is largest at the row's limit.
    So the score of a continuation is at most the log probability of the best live hypothesis
    divided by that penalty. Stopping at this bound does not change the result.
    """
    bound = state.live.log_probs[:, 0] / length_penalty(limits, parameters.length_penalty)
    worst = state.finished.scores[:, parameters.num_hypotheses - 1]
    return (bound > worst) & (state.position < limits)


# --- The largest logits ---------------------------------------------------------------------------

BLOCK = 32
"""Logits that `top_k_sums` groups together, about sqrt(V / k)."""


def padded_size(size: int) -> int:
    """Return the next multiple of BLOCK. `top_k_sums` has a fast path for such sizes only."""
    return -(-size // BLOCK) * BLOCK


def top_k_sums(x: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest sums of each row, x[b, h, v] + offsets[b, h], best first.

    All of them lie in the k blocks with the largest maxima. Finding those blocks first takes one
    pass over the vocabulary instead of a sort. Among equal sums, any may be returned.

    Args:
        x: [B, K, V].
        offsets: [B, K].
        k: The number of sums, small compared with K * V.

    Returns:
        Sums and their indices h * V + v, [B, k] each.
    """
    beams, size = x.shape[1:]
    offsets = tf.expand_dims(offsets, 2)  # [B, K, 1]
    if size % BLOCK or beams * size < k * BLOCK:
        return tf.math.top_k(tf.reshape(x + offsets, [-1, beams * size]), k)
    count = size // BLOCK
    blocks = tf.reshape(x, [-1, beams * count, BLOCK])
    largest = tf.reshape(tf.reduce_max(blocks, axis=2), [-1, beams, count]) + offsets
    _, chosen = tf.math.top_k(tf.reshape(largest, [-1, beams * count]), k)  # [B, k]
    few = tf.gather(blocks, chosen, batch_dims=1) + tf.gather(
        offsets, chosen // count, batch_dims=1
    )
    best, where = tf.math.top_k(tf.reshape(few, [-1, k * BLOCK]), k)
    block = tf.gather(chosen, where // BLOCK, batch_dims=1)
    return best, block * BLOCK + where % BLOCK


def log_sum_exp(logits: Tensor) -> Tensor:
    """Return the log-sum-exp of each row, [N, V] -> [N, 1].

    Subtracting it turns logits into log probabilities. It reads the logits two times less than a
    softmax, and nothing overflows.
    """
    largest = tf.reduce_max(logits, axis=1, keepdims=True)
    ratios = tf.exp(logits - largest)  # relative to the most probable token
    return largest + tf.math.log(tf.reduce_sum(ratios, axis=1, keepdims=True))


# --- Token tensors --------------------------------------------------------------------------------


def _write(tokens: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """Put new tokens [...] into tokens [..., T] at a position."""
    return tf.where(tf.range(tf.shape(tokens)[-1]) == position, tf.expand_dims(new, -1), tokens)


def _extend(tokens: Tensor, parents: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """Extend the parents [B, n] in tokens [B, K, T] with new tokens [B, n]; returns [B, n, T]."""
    return _write(tf.gather(tokens, parents, batch_dims=1), new, position)


def _loop(condition: Callable[..., Tensor], body: Callable[..., Any], start: Any) -> Any:
    """Run a while loop. Dimensions that start with size 0 may grow."""
    shapes = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([size or None for size in tensor.shape]), start
    )
    return type(start)(*tf.while_loop(condition, body, start, shapes))
