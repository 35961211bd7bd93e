"""Greedy search, sampling and beam search over any step function.

Search knows no model: it calls `step(tokens [B, K], parents [B, K], position [], cache)` and gets
`(logits [B, K, V], cache)`. Hypothesis k of a row goes on from what was hypothesis parents[b, k]
before; the cache is the step's own matter.

Letters: B rows, K hypotheses (beams) of each, N = B x K, T the longest limit of any row, V pieces.

A row's result depends on that row alone: each has its own limit of pieces, and stops by itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfnmt.config import SamplingConfig
from tfnmt.decoding.constraints import Constraint
from tfnmt.model.layers import Tensor

Cache = Any
IMPOSSIBLE = tf.float32.min
"""Logit of what is never part of a translation; constraints have -inf for what may not come now."""

Step = Callable[[Tensor, Tensor, Tensor, Cache], tuple[Tensor, Cache]]


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
    num_hypotheses: int | Tensor = 1  # how many of a row's must be the best there are
    constraints: tuple[Constraint, ...] = ()
    steps: Tensor | None = None  # T, where it may not depend on the limits

    def longest(self, limits: Tensor) -> Tensor:
        """T, []: `steps` where it is given, or the largest of the limits, at least 1."""
        if self.steps is not None:
            return self.steps
        return tf.reduce_max(tf.concat([limits, [1]], axis=0))

    def constrained(self, logits: Tensor, tokens: Tensor, position: Tensor) -> Tensor:
        """[N, V] logits behind tokens [N, T], with -inf for what may not come."""
        for constrain in self.constraints:
            logits = constrain(logits, tokens, position)
        return logits


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
    cache: Cache


Choose = Callable[[Tensor, Tensor], Tensor]
"""logits [B, V], position [] -> the piece that comes next, [B]."""


def greedy_search(step: Step, cache: Cache, limits: Tensor, search: Search) -> Hypotheses:
    """The likeliest token at every step; `limits` [B] are the most pieces a row may get."""

    def choose(logits: Tensor, position: Tensor) -> Tensor:
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

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

    def choose(logits: Tensor, position: Tensor) -> Tensor:
        draw = draws[:, tf.minimum(position, tf.shape(draws)[1] - 1)]
        if sampling.top_k is None and sampling.top_p == 1:  # nothing is left out: no need to sort
            return _drawn(tf.nn.softmax(logits / sampling.temperature), draw)
        count = tf.shape(logits)[-1]
        likeliest = count if sampling.top_k is None else tf.minimum(count, sampling.top_k)
        best, pieces = tf.math.top_k(logits, k=likeliest)
        shares = tf.nn.softmax(best / sampling.temperature)  # [B, k]
        # Those with less than top_p of probability before them; the first one always.
        kept = tf.where(tf.cumsum(shares, axis=-1) - shares < sampling.top_p, shares, 0.0)
        return tf.gather(pieces, _drawn(kept, draw), batch_dims=1)

    return _follow(step, cache, limits, search, choose)


def _drawn(shares: Tensor, draw: Tensor) -> Tensor:
    """shares [B, k], draw [B] between 0 and 1 -> where a draw falls among them, [B]."""
    up_to = tf.cumsum(shares, axis=-1)
    total = up_to[:, -1]
    # Below the total, for then there is a share that reaches beyond it.
    drawn = tf.minimum(draw * total, tf.math.nextafter(total, tf.zeros_like(total)))
    return tf.math.count_nonzero(up_to <= drawn[:, None], axis=-1, dtype=tf.int32)


def _follow(step: Step, cache: Cache, limits: Tensor, search: Search, choose: Choose) -> Hypotheses:
    """One hypothesis a row, [B, 1, T], that goes on as `choose` says."""
    rows, longest = tf.shape(limits)[0], search.longest(limits)
    itself = tf.zeros([rows, 1], tf.int32)

    def body(*values: Any) -> State:
        state = State(*values)
        logits, cache = step(state.last[:, None], itself, state.position, state.cache)
        logits = logits[:, 0]  # [B, V]
        possible = search.constrained(logits, state.tokens, state.position)
        chosen = tf.where(state.done, 0, choose(possible, state.position))
        log_prob = tf.gather(logits, chosen, batch_dims=1) - normalizer(logits)[:, 0]
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
    end = _loop(lambda *s: ~tf.reduce_all(State(*s).done), body, start)
    lengths = tf.math.count_nonzero(end.tokens, axis=-1, dtype=tf.int32)
    scores = end.log_probs / length_penalty(lengths, search.length_penalty)
    return Hypotheses(end.tokens[:, None], scores[:, None])


# --- Beam -----------------------------------------------------------------------------------------


class Live(NamedTuple):
    """Hypotheses that go on, best first."""

    tokens: Tensor  # [B, K, T]
    last: Tensor  # [B, K] the last of the tokens
    log_probs: Tensor  # [B, K]; -inf where there is no hypothesis
    parents: Tensor  # [B, K] what hypothesis each was before its last token


class BeamState(NamedTuple):
    """The loop of `beam_search`: hypotheses that go on and hypotheses that ended, apart."""

    position: Tensor  # []
    live: Live
    finished: Hypotheses  # [B, K, T] and [B, K], best first; score -inf where there is none
    cache: Cache


class Candidates(NamedTuple):
    """The 2K likeliest ways to go on, best first, [B, 2K].

    Twice K, so that K remain to go on even where all of the first K end here.
    """

    token: Tensor  # the one that comes next
    log_probs: Tensor
    parents: Tensor  # the live hypothesis that each goes on from


def beam_search(step: Step, cache: Cache, limits: Tensor, search: Search) -> Hypotheses:
    """The best hypotheses of a beam of K = `search.beam_size`.

    cache: what the first step gets. limits: [B], the most pieces a row may get. Returns K
    hypotheses a row, the first `search.num_hypotheses` of which are the best there are. Where none
    ends within a row's limit, its live ones are given as they are, without eos.
    """

    def body(*values: Any) -> BeamState:
        state = BeamState(*values)
        before, position = state.live, state.position
        logits, cache = step(before.last, before.parents, position, state.cache)
        candidates = _candidates(logits, before, position, search)
        live = _keep_live(candidates, before, position, search)
        finished = _keep_finished(candidates, live, state, limits, search)
        in_limit = position + 1 < limits  # [B]
        live = live._replace(log_probs=tf.where(in_limit[:, None], live.log_probs, -float("inf")))
        return BeamState(position + 1, live, finished, cache)

    def can_improve(*values: Any) -> Tensor:
        return tf.reduce_any(_can_improve(BeamState(*values), limits, search))

    return _loop(can_improve, body, _start(cache, limits, search)).finished


def _start(cache: Cache, limits: Tensor, search: Search) -> BeamState:
    """One live hypothesis a row, empty; the other beams have probability 0."""
    rows, beams = tf.shape(limits)[0], search.beam_size
    only_first = tf.where(tf.range(beams) == 0, 0.0, -float("inf"))
    tokens = tf.zeros([rows, beams, search.longest(limits)], tf.int32)
    live = Live(
        tokens=tokens,
        last=tf.fill([rows, beams], search.bos),
        log_probs=tf.tile(only_first[None], [rows, 1]),
        parents=tf.zeros([rows, beams], tf.int32),
    )
    none = tf.fill([rows, beams], -float("inf"))
    return BeamState(tf.constant(0), live, Hypotheses(tokens, none), cache)


def _candidates(logits: Tensor, live: Live, position: Tensor, search: Search) -> Candidates:
    """The 2K likeliest of a row: they are among the 2K likeliest of each hypothesis."""
    beams, vocab_size = search.beam_size, logits.shape[-1]
    logits = tf.reshape(logits, [-1, vocab_size])  # [N, V]
    flat_tokens = tf.reshape(live.tokens, [-1, tf.shape(live.tokens)[2]])  # [N, T]
    few = min(2 * beams, vocab_size)
    best, tokens = top_k(search.constrained(logits, flat_tokens, position), few)  # [N, few]
    # Where fewer may come than are looked for, the rest is no hypothesis, and may be no piece.
    possible = best > IMPOSSIBLE
    tokens = tf.where(possible, tokens, 0)
    best = tf.where(possible, best - normalizer(logits), -float("inf"))
    log_probs = tf.reshape(best, [-1, beams, few]) + live.log_probs[..., None]
    best, where = tf.math.top_k(
        tf.reshape(log_probs, [-1, beams * few]), min(2 * beams, beams * few)
    )
    tokens = tf.gather(tf.reshape(tokens, [-1, beams * few]), where, batch_dims=1)
    return Candidates(tokens, best, where // few)


def _keep_live(candidates: Candidates, before: Live, position: Tensor, search: Search) -> Live:
    """The K best candidates that go on."""
    ends = candidates.token == search.eos
    best, where = tf.math.top_k(
        tf.where(ends, -float("inf"), candidates.log_probs), search.beam_size
    )
    last = tf.gather(candidates.token, where, batch_dims=1)
    parents = tf.gather(candidates.parents, where, batch_dims=1)
    return Live(_continue(before.tokens, parents, last, position), last, best, parents)


def _keep_finished(
    candidates: Candidates, live: Live, state: BeamState, limits: Tensor, search: Search
) -> Hypotheses:
    """The K best hypotheses that ended: of those from before and those that end here.

    An eos ends a hypothesis only from among the first K candidates: a beam of 1 then is greedy
    search, whose token is the likeliest. At a row's limit, with nothing ended, live ones count.
    """
    length, finished = state.position + 1, state.finished
    penalty = length_penalty(length, search.length_penalty)
    token, log_probs, parents = (each[:, : search.beam_size] for each in candidates)  # [B, K]
    ended = tf.where(token == search.eos, log_probs / penalty, -float("inf"))
    scores = tf.concat([finished.scores, ended], axis=1)  # [B, 2K]
    nothing = tf.reduce_all(scores == -float("inf"), axis=1)  # [B]
    cut = nothing & (length == limits)
    here = tf.where(cut[:, None], live.log_probs / penalty, -float("inf"))
    best, where = tf.math.top_k(tf.concat([scores, here], axis=1), search.beam_size)  # of [B, 3K]
    ending = _continue(state.live.tokens, parents, token, state.position)
    tokens = tf.concat([finished.tokens, ending, live.tokens], axis=1)  # [B, 3K, T]
    return Hypotheses(tf.gather(tokens, where, batch_dims=1), best)


def _can_improve(state: BeamState, limits: Tensor, search: Search) -> Tensor:
    """[B]: whether a live hypothesis can still come to beat one that counts.

    Log probabilities only fall, and dividing by the largest penalty raises them most: no
    continuation of the best live hypothesis scores above its log probability over the penalty at
    the row's limit. So the bound is exact: what a row stops with is what it would have ended with.
    """
    bound = state.live.log_probs[:, 0] / length_penalty(limits, search.length_penalty)
    worst = state.finished.scores[:, search.num_hypotheses - 1]
    return (bound > worst) & (state.position < limits)


# --- Tensors --------------------------------------------------------------------------------------


def _write(tokens: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """[..., T] with [...] at a position."""
    return tf.where(tf.range(tf.shape(tokens)[-1]) == position, new[..., None], tokens)


def _continue(tokens: Tensor, parents: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """[B, K, T] of the parents [B, n] with new tokens [B, n] at a position: [B, n, T]."""
    return _write(tf.gather(tokens, parents, batch_dims=1), new, position)


def _loop(condition: Callable[..., Tensor], body: Callable[..., Any], start: Any) -> Any:
    """A while loop; what begins with a size of 0 may grow in it."""
    shapes = tf.nest.map_structure(
        lambda tensor: tf.TensorShape([size or None for size in tensor.shape]), start
    )
    return type(start)(*tf.while_loop(condition, body, start, shapes))


BLOCK = 32
"""Numbers that are looked at together: about the square root of a vocabulary over k."""


def filled_up(size: int) -> int:
    """The next multiple of BLOCK: `top_k` takes its short way for nothing else."""
    return -(-size // BLOCK) * BLOCK


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and where they are, best first: [N, V] -> [N, k] and [N, k].

    All of them are in those k blocks whose largest numbers are largest: finding these first takes
    one pass and not a sort. Of equal numbers any may be taken.
    """
    size = x.shape[1]
    if size % BLOCK or size < k * BLOCK:
        return tf.math.top_k(x, k)
    blocks = tf.reshape(x, [-1, size // BLOCK, BLOCK])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=2), k)  # [N, k]
    few = tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [-1, k * BLOCK])
    best, where = tf.math.top_k(few, k)  # [N, k]
    block = tf.gather(chosen, where // BLOCK, batch_dims=1)
    return best, block * BLOCK + where % BLOCK


def normalizer(logits: Tensor) -> Tensor:
    """log sum exp of each row, [N, V] -> [N, 1]: what makes log probabilities of logits.

    The plain sum in two passes less than softmax and its largest; nothing overflows.
    """
    largest = tf.reduce_max(logits, axis=1, keepdims=True)
    shares = tf.exp(logits - largest)  # of the likeliest piece's probability
    return largest + tf.math.log(tf.reduce_sum(shares, axis=1, keepdims=True))
