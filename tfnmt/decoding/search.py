"""Greedy search, sampling and beam search over any step function.

Search knows no model: it calls `step(tokens [N], position [], cache) -> (logits [N, V], cache)`,
where N is B rows or B x K (K beams a row), and reorders nothing but the cache.

Letters: B rows, K beams, N = B x K, T the longest limit of any row, V pieces.

A row's result depends on that row alone: each has its own limit of pieces, and stops by itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfnmt.config import SamplingConfig
from tfnmt.decoding.constraints import Constraint

Tensor = Any
Cache = Any
Step = Callable[[Tensor, Tensor, Cache], tuple[Tensor, Cache]]


class Hypotheses(NamedTuple):
    """What a search found, the best first."""

    tokens: Tensor  # [B, n, T] ids: eos is the last one, unless the limit cut it off; then 0
    scores: Tensor  # [B, n] log probability over length penalty


class Search(NamedTuple):
    """What a search goes by."""

    bos: int
    eos: int
    beam_size: int
    length_penalty: float  # alpha
    num_hypotheses: int = 1  # how many of a row's hypotheses must be the best there are
    constraints: tuple[Constraint, ...] = ()

    def log_probs(self, logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        """[N, V] logits behind tokens [N, T] as log probabilities, -inf for what may not come."""
        log_probs = tf.nn.log_softmax(logits)
        for constrain in self.constraints:
            log_probs = constrain(log_probs, tokens, position)
        return log_probs


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """((5 + n) / 6)^alpha, n pieces with eos (Wu et al., 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


# --- One hypothesis -------------------------------------------------------------------------------


class State(NamedTuple):
    """The loop of a search that follows one hypothesis a row."""

    position: Tensor  # []
    last: Tensor  # [B] the tokens before this position
    tokens: Tensor  # [B, T] found so far
    log_probs: Tensor  # [B]
    done: Tensor  # [B]
    cache: Cache  # [B, ...]


Choose = Callable[[Tensor, Tensor], Tensor]
"""log_probs [B, V], position [] -> the piece that comes next, [B]."""


def greedy_search(step: Step, cache: Cache, limits: Tensor, search: Search) -> Hypotheses:
    """The likeliest token at every step; `limits` [B] are the most pieces a row may get."""

    def choose(log_probs: Tensor, position: Tensor) -> Tensor:
        return tf.argmax(log_probs, axis=-1, output_type=tf.int32)

    return _follow(step, cache, limits, search, choose)


def sample(
    step: Step,
    cache: Cache,
    limits: Tensor,
    search: Search,
    sampling: SamplingConfig,
    draws: Tensor,
) -> Hypotheses:
    """A token drawn at every step, by draws [B, T] that are uniform between 0 and 1.

    Randomness comes from outside, so that a row's draws can be its own, whatever else is in the
    batch. Scores are those of the model, whatever was drawn from.
    """

    def choose(log_probs: Tensor, position: Tensor) -> Tensor:
        count = tf.shape(log_probs)[-1]
        if sampling.top_k is not None:
            count = tf.minimum(count, sampling.top_k)
        best, pieces = tf.math.top_k(log_probs, k=count)  # [B, k]
        shares = tf.nn.softmax(best / sampling.temperature)
        up_to = tf.cumsum(shares, axis=-1)
        # Those with less than top_p of probability before them; the first one always.
        kept = tf.where(up_to - shares < sampling.top_p, shares, 0.0)
        up_to = tf.cumsum(kept, axis=-1)
        draw = draws[:, tf.minimum(position, tf.shape(draws)[1] - 1)]
        drawn = draw[:, None] * up_to[:, -1:]
        chosen = tf.reduce_sum(tf.cast(up_to <= drawn, tf.int32), axis=-1)
        possible = tf.math.count_nonzero(kept, axis=-1, dtype=tf.int32)
        return tf.gather(pieces, tf.minimum(chosen, possible - 1), batch_dims=1)

    return _follow(step, cache, limits, search, choose)


def _follow(step: Step, cache: Cache, limits: Tensor, search: Search, choose: Choose) -> Hypotheses:
    """One hypothesis a row, [B, 1, T], that goes on as `choose` says."""
    rows, longest = tf.shape(limits)[0], tf.reduce_max(tf.concat([limits, [1]], axis=0))

    def body(*values: Any) -> State:
        state = State(*values)
        logits, cache = step(state.last, state.position, state.cache)
        log_probs = search.log_probs(logits, state.tokens, state.position)
        chosen = tf.where(state.done, 0, choose(log_probs, state.position))
        log_prob = tf.gather(log_probs, chosen, batch_dims=1)
        length = state.position + 1
        return State(
            position=length,
            last=chosen,
            tokens=_write(state.tokens, chosen, state.position),
            log_probs=state.log_probs + tf.where(state.done, 0.0, log_prob),
            done=state.done | (chosen == search.eos) | (length >= limits),
            cache=cache,
        )

    start = State(
        position=tf.constant(0),
        last=tf.fill([rows], search.bos),
        tokens=tf.zeros([rows, longest], tf.int32),
        log_probs=tf.zeros([rows]),
        done=limits < 1,
        cache=cache,
    )
    end = State(*tf.while_loop(lambda *s: ~tf.reduce_all(State(*s).done), body, start))
    lengths = tf.math.count_nonzero(end.tokens, axis=-1, dtype=tf.int32)
    scores = end.log_probs / length_penalty(lengths, search.length_penalty)
    return Hypotheses(end.tokens[:, None], scores[:, None])


# --- Beam -----------------------------------------------------------------------------------------


class BeamState(NamedTuple):
    """The loop of `beam_search`: hypotheses that go on and hypotheses that ended, apart."""

    position: Tensor  # []
    live_tokens: Tensor  # [B, K, T]
    live_log_probs: Tensor  # [B, K], best first; -inf where there is no hypothesis
    finished_tokens: Tensor  # [B, K, T]
    finished_scores: Tensor  # [B, K], best first; -inf where there is no hypothesis
    cache: Cache  # [N, ...], of the live ones


class Candidates(NamedTuple):
    """The 2K likeliest ways to go on, best first.

    Twice K, so that K remain to go on even where all of the first K end here.
    """

    tokens: Tensor  # [B, 2K, T]
    log_probs: Tensor  # [B, 2K]
    beams: Tensor  # [B, 2K] the live hypothesis each one comes from
    ends: Tensor  # [B, 2K] whether its last token is eos


def beam_search(step: Step, cache: Cache, limits: Tensor, search: Search) -> Hypotheses:
    """The best hypotheses of a beam of K = `search.beam_size`.

    cache: [B, ...], not yet repeated for the beams. limits: [B], the most pieces a row may get.
    Returns `search.num_hypotheses` hypotheses a row. Where no hypothesis ends within a row's limit,
    its live ones are given as they are, without eos.
    """

    def body(*values: Any) -> BeamState:
        state = BeamState(*values)
        candidates, cache = _expand(state, step, search)
        live = _keep_live(candidates, search.beam_size)
        finished = _keep_finished(state, candidates, live, limits, search)
        in_limit = state.position + 1 < limits  # [B]
        return BeamState(
            position=state.position + 1,
            live_tokens=live.tokens,
            live_log_probs=tf.where(in_limit[:, None], live.log_probs, -float("inf")),
            finished_tokens=finished.tokens,
            finished_scores=finished.scores,
            cache=_reorder(cache, live.beams),
        )

    def can_improve(*values: Any) -> Tensor:
        return tf.reduce_any(_can_improve(BeamState(*values), limits, search))

    start = _start(cache, limits, search)
    end = BeamState(*tf.while_loop(can_improve, body, start, _shapes(start)))
    count = search.num_hypotheses
    return Hypotheses(end.finished_tokens[:, :count], end.finished_scores[:, :count])


def _start(cache: Cache, limits: Tensor, search: Search) -> BeamState:
    """One live hypothesis a row, empty; the other beams have probability 0."""
    rows, beams = tf.shape(limits)[0], search.beam_size
    longest = tf.reduce_max(tf.concat([limits, [1]], axis=0))
    only_first = tf.where(tf.range(beams) == 0, 0.0, -float("inf"))
    return BeamState(
        position=tf.constant(0),
        live_tokens=tf.zeros([rows, beams, longest], tf.int32),
        live_log_probs=tf.tile(only_first[None], [rows, 1]),
        finished_tokens=tf.zeros([rows, beams, longest], tf.int32),
        finished_scores=tf.fill([rows, beams], -float("inf")),
        cache=tf.nest.map_structure(lambda tensor: tf.repeat(tensor, beams, axis=0), cache),
    )


def _expand(state: BeamState, step: Step, search: Search) -> tuple[Candidates, Cache]:
    """Asks the step for every live hypothesis' next token and takes the 2K likeliest of a row."""
    beams = search.beam_size
    before = state.live_tokens[:, :, tf.maximum(state.position - 1, 0)]  # [B, K]
    last = tf.where(state.position == 0, search.bos, before)
    logits, cache = step(tf.reshape(last, [-1]), state.position, state.cache)  # [N, V]
    vocab_size = tf.shape(logits)[-1]
    flat_tokens = tf.reshape(state.live_tokens, [tf.shape(logits)[0], -1])  # [N, T]
    log_probs = search.log_probs(logits, flat_tokens, state.position)
    log_probs = tf.reshape(log_probs, [-1, beams, vocab_size])  # [B, K, V]
    log_probs += state.live_log_probs[:, :, None]
    flat = tf.reshape(log_probs, [-1, beams * vocab_size])  # [B, K * V]
    best, where = tf.math.top_k(flat, k=tf.minimum(2 * beams, beams * vocab_size))  # [B, 2K]
    beam, token = where // vocab_size, where % vocab_size
    tokens = tf.gather(state.live_tokens, beam, batch_dims=1)  # [B, 2K, T]
    return Candidates(_write(tokens, token, state.position), best, beam, token == search.eos), cache


def _keep_live(candidates: Candidates, beams: int) -> Candidates:
    """The K best candidates that go on."""
    log_probs = tf.where(candidates.ends, -float("inf"), candidates.log_probs)
    best, where = tf.math.top_k(log_probs, k=beams)
    return Candidates(
        tokens=tf.gather(candidates.tokens, where, batch_dims=1),
        log_probs=best,
        beams=tf.gather(candidates.beams, where, batch_dims=1),
        ends=tf.gather(candidates.ends, where, batch_dims=1),
    )


def _keep_finished(
    state: BeamState, candidates: Candidates, live: Candidates, limits: Tensor, search: Search
) -> Hypotheses:
    """The K best hypotheses that ended: of those from before and those that end here.

    An eos ends a hypothesis only from among the first K candidates: a beam of 1 then is greedy
    search, whose token is the likeliest. At a row's limit, with nothing ended, live ones count.
    """
    beams = search.beam_size
    length = state.position + 1
    penalty = length_penalty(length, search.length_penalty)
    ending = candidates.ends[:, :beams]
    ended = tf.where(ending, candidates.log_probs[:, :beams] / penalty, -float("inf"))  # [B, K]
    scores = tf.concat([state.finished_scores, ended], axis=1)  # [B, 2K]
    nothing = tf.reduce_all(scores == -float("inf"), axis=1)  # [B]
    cut = nothing & (length == limits)
    scores = tf.concat(
        [scores, tf.where(cut[:, None], live.log_probs / penalty, -float("inf"))], axis=1
    )  # [B, 3K]
    tokens = tf.concat(
        [state.finished_tokens, candidates.tokens[:, :beams], live.tokens], axis=1
    )  # [B, 3K, T]
    best, where = tf.math.top_k(scores, k=beams)
    return Hypotheses(tf.gather(tokens, where, batch_dims=1), best)


def _can_improve(state: BeamState, limits: Tensor, search: Search) -> Tensor:
    """[B]: whether a live hypothesis can still come to beat one that counts.

    Log probabilities only fall, and dividing by the largest penalty raises them most: no
    continuation of the best live hypothesis scores above its log probability over the penalty at
    the row's limit. So the bound is exact: what a row stops with is what it would have ended with.
    """
    bound = state.live_log_probs[:, 0] / length_penalty(limits, search.length_penalty)
    worst = state.finished_scores[:, search.num_hypotheses - 1]
    return (bound > worst) & (state.position < limits)


# --- Tensors --------------------------------------------------------------------------------------


def _write(tokens: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """[..., T] with [...] at a position."""
    return tf.where(tf.range(tf.shape(tokens)[-1]) == position, new[..., None], tokens)


def _reorder(cache: Cache, beams: Tensor) -> Cache:
    """The cache [N, ...] of the hypotheses that [B, K] beams continue."""
    rows, count = tf.shape(beams)[0], beams.shape[1]
    flat = tf.reshape(beams + count * tf.range(rows)[:, None], [-1])  # [N]
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, flat), cache)


def _shapes(state: BeamState) -> Any:
    """Loop invariants: only the sizes that are known when the loop is traced."""
    return tf.nest.map_structure(lambda tensor: tensor.shape, state)
