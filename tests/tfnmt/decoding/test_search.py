"""Search over step functions that are tables: no model is needed to see what it does."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import SamplingConfig
from tfnmt.decoding.constraints import at_least, beginning_with
from tfnmt.decoding.search import (
    BLOCK,
    IMPOSSIBLE,
    Search,
    beam_search,
    filled_up,
    greedy_search,
    length_penalty,
    normalizer,
    sample,
    top_k,
)

BOS, EOS = 1, 2
Logits = Callable[[tuple[int, ...]], np.ndarray]


def step_of(logits: Logits, vocab_size: int) -> Any:
    """A step whose cache is the prefix itself: going on from a wrong one gives wrong logits."""

    def look_up(
        tokens: np.ndarray, parents: np.ndarray, position: np.ndarray, cache: np.ndarray
    ) -> Any:
        prefixes = np.take_along_axis(cache, parents[..., None], axis=1)  # [B, K, T]
        prefixes[:, :, position] = tokens
        found = [
            [logits(tuple(prefix[: position + 1].tolist())) for prefix in row] for row in prefixes
        ]
        return np.reshape(found, (*tokens.shape, vocab_size)).astype("float32"), prefixes

    def step(tokens: Any, parents: Any, position: Any, cache: Any) -> Any:
        found, prefixes = tf.numpy_function(
            look_up, [tokens, parents, position, cache], [tf.float32, tf.int32]
        )
        found.set_shape([None, None, vocab_size])
        return found, prefixes

    return step


def prefixes(rows: int, longest: int) -> Any:
    """A cache of nothing; every hypothesis goes on from this one."""
    return tf.zeros([rows, 1, longest], tf.int32)


def random_logits(seed: int, vocab_size: int) -> Logits:
    table: dict[tuple[int, ...], np.ndarray] = {}

    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        if prefix not in table:
            random = np.random.default_rng([seed, *prefix])
            table[prefix] = 2 * random.standard_normal(vocab_size)
        return table[prefix]

    return logits


def score_of(tokens: tuple[int, ...], logits: Logits, alpha: float) -> float:
    """The score of ids by definition."""
    log_prob, prefix = 0.0, (BOS,)
    for token in tokens:
        found = logits(prefix)
        log_prob += found[token] - np.log(np.exp(found).sum())
        prefix += (token,)
    return log_prob / ((5 + len(tokens)) / 6) ** alpha


def every_sentence(vocab_size: int, longest: int) -> list[tuple[int, ...]]:
    return [
        (*body, EOS)
        for length in range(longest)
        for body in itertools.product([t for t in range(vocab_size) if t != EOS], repeat=length)
    ]


def found(hypotheses: Any, row: int = 0, rank: int = 0) -> tuple[tuple[int, ...], float]:
    """A hypothesis as ids up to its eos, and its score."""
    tokens = hypotheses.tokens[row, rank].numpy().tolist()
    if EOS in tokens:
        tokens = tokens[: tokens.index(EOS) + 1]
    return tuple(tokens), float(hypotheses.scores[row, rank])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_everything_finds_what_enumeration_finds(seed: int, alpha: float) -> None:
    vocab_size, longest, best = 3, 4, 3
    logits = random_logits(seed, vocab_size)
    hypotheses = beam_search(
        step_of(logits, vocab_size), prefixes(1, longest), tf.constant([longest]),
        Search(BOS, EOS, vocab_size**longest, alpha, best),
    )  # fmt: skip
    scored = sorted(
        ((score_of(s, logits, alpha), s) for s in every_sentence(vocab_size, longest)), reverse=True
    )
    for rank, (score, tokens) in enumerate(scored[:best]):
        assert found(hypotheses, rank=rank) == (tokens, pytest.approx(score, abs=1e-4))


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_score_is_that_of_its_ids(beam_size: int, alpha: float) -> None:
    logits = random_logits(7, 6)
    hypotheses = beam_search(
        step_of(logits, 6), prefixes(1, 8), tf.constant([8]), Search(BOS, EOS, beam_size, alpha)
    )
    tokens, score = found(hypotheses)
    assert score == pytest.approx(score_of(tokens, logits, alpha), abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy_without_length_penalty(seed: int) -> None:
    step, cache, limits = step_of(random_logits(seed, 5), 5), prefixes(1, 7), tf.constant([7])
    greedy = greedy_search(step, cache, limits, Search(BOS, EOS, 1, 0.0))
    beam = beam_search(step, cache, limits, Search(BOS, EOS, 1, 0.0))
    assert found(beam) == (found(greedy)[0], pytest.approx(found(greedy)[1], abs=1e-5))


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_never_scores_below_greedy(seed: int) -> None:
    step, cache, limits = step_of(random_logits(seed, 5), 5), prefixes(1, 7), tf.constant([7])
    greedy = greedy_search(step, cache, limits, Search(BOS, EOS, 1, 1.0))
    beam = beam_search(step, cache, limits, Search(BOS, EOS, 1, 1.0))
    assert found(beam)[1] >= found(greedy)[1] - 1e-5


A, B = 3, 4
TREE = {
    #            +-- A 0.6 --+-- eos 0.4    0.6 * 0.4 = 0.24, greedy's
    #            |           +-- B   0.6 -- eos 0.3 (then worse)
    #      bos --+
    #            +-- B 0.4 ----- eos 0.9    0.4 * 0.9 = 0.36, the best
    (BOS,): {A: 0.6, B: 0.4},
    (BOS, A): {B: 0.6, EOS: 0.4},
    (BOS, A, B): {EOS: 0.3, A: 0.35, B: 0.35},
    (BOS, B): {EOS: 0.9, A: 0.1},
}


def tree_logits(prefix: tuple[int, ...]) -> np.ndarray:
    probabilities = np.full(5, 1e-9)
    for token, probability in TREE.get(prefix, {EOS: 1.0}).items():
        probabilities[token] = probability
    return np.log(probabilities)


def test_a_beam_finds_the_branch_that_greedy_passes_by() -> None:
    step, cache, limits = step_of(tree_logits, 5), prefixes(1, 4), tf.constant([4])
    greedy, _ = found(greedy_search(step, cache, limits, Search(BOS, EOS, 1, 0.0)))
    tokens, score = found(beam_search(step, cache, limits, Search(BOS, EOS, 2, 0.0)))
    assert greedy[0] == A
    assert tokens == (B, EOS)
    assert np.exp(score) == pytest.approx(0.4 * 0.9, abs=1e-4)


def test_length_penalty_is_equation_14() -> None:
    assert length_penalty(1, 0.6).numpy() == pytest.approx(1.0)
    assert length_penalty(7, 0.6).numpy() == pytest.approx(2**0.6)
    assert length_penalty(7, 0.0).numpy() == 1.0


def test_a_length_penalty_can_turn_the_longer_sentence_into_the_better_one() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        """eos at once: 0.55. A A A A A eos: 0.45."""
        probabilities = np.full(4, 1e-9)
        if prefix == (BOS,):
            probabilities[[EOS, A]] = 0.55, 0.45
        else:
            probabilities[A if len(prefix) < 6 else EOS] = 1.0
        return np.log(probabilities)

    def best(alpha: float) -> tuple[int, ...]:
        search = Search(BOS, EOS, 2, alpha)
        return found(beam_search(step_of(logits, 4), prefixes(1, 8), tf.constant([8]), search))[0]

    assert best(0.0) == (EOS,)
    assert best(1.0) == (A, A, A, A, A, EOS)


def counting(step: Any) -> tuple[Any, list[int]]:
    calls: list[int] = []

    def counted(tokens: Any, parents: Any, position: Any, cache: Any) -> Any:
        calls.append(int(position))
        return step(tokens, parents, position, cache)

    return counted, calls


def test_search_stops_when_nothing_can_get_better_and_not_before() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        """eos with 0.9 at every step: nothing that goes on can beat ending at once."""
        return np.log([1e-9, 1e-9, 0.9, 0.1])

    step, calls = counting(step_of(logits, 4))
    beam_search(step, prefixes(1, 30), tf.constant([30]), Search(BOS, EOS, 2, 0.0))
    assert calls == [0]
    # With alpha 1 a hypothesis of 30 pieces divides by 35/6: log 0.1 / 5.8 is above log 0.9 / 1 no
    # more after a few steps, but it was after one.
    step, calls = counting(step_of(logits, 4))
    beam_search(step, prefixes(1, 200), tf.constant([200]), Search(BOS, EOS, 2, 1.0))
    assert 1 < len(calls) < 200


def test_without_any_eos_the_live_hypothesis_is_given_as_it_is() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.log([1e-30, 1e-30, 1e-30, 0.7, 0.3])

    for search in (greedy_search, beam_search):
        hypotheses = search(
            step_of(logits, 5), prefixes(1, 4), tf.constant([4]), Search(BOS, EOS, 2, 0.0)
        )
        assert hypotheses.tokens[0, 0].numpy().tolist() == [A, A, A, A]
        assert np.exp(hypotheses.scores[0, 0]) == pytest.approx(0.7**4, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_row_gets_the_same_whatever_its_neighbours_and_their_limits(beam_size: int) -> None:
    logits = random_logits(3, 6)
    limits = [2, 9, 0, 5, 1]
    search = Search(BOS, EOS, beam_size, 0.6)
    for run in (greedy_search, beam_search):
        together = run(step_of(logits, 6), prefixes(5, 9), tf.constant(limits), search)
        for row, limit in enumerate(limits):
            alone = run(step_of(logits, 6), prefixes(1, 9), tf.constant([limit]), search)
            tokens = together.tokens[row, 0].numpy()
            np.testing.assert_array_equal(tokens[: max(limit, 1)], alone.tokens[0, 0].numpy())
            assert not tokens[limit:].any()
            if limit:
                score = together.scores[row, 0].numpy()
                assert score == pytest.approx(alone.scores[0, 0].numpy(), abs=1e-5)


def test_hypotheses_are_sorted_and_differ() -> None:
    hypotheses = beam_search(
        step_of(random_logits(5, 6), 6), prefixes(1, 12), tf.constant([12]),
        Search(BOS, EOS, 5, 0.6, 5),
    )  # fmt: skip
    scores = hypotheses.scores[0].numpy()
    assert (np.diff(scores) <= 0).all()
    assert len({tuple(tokens) for tokens in hypotheses.tokens[0].numpy().tolist()}) == 5


def test_no_rows_give_no_hypotheses() -> None:
    for search in (greedy_search, beam_search):
        hypotheses = search(
            step_of(random_logits(0, 5), 5), prefixes(0, 4), tf.zeros([0], tf.int32),
            Search(BOS, EOS, 2, 0.6),
        )  # fmt: skip
        assert hypotheses.tokens.shape[0] == hypotheses.scores.shape[0] == 0


def test_constraints_leave_the_scores_of_the_model_as_they_are() -> None:
    """The best of all sentences that begin with 3 and do not end before three pieces."""
    vocab_size, longest = 4, 4
    logits = random_logits(2, vocab_size)
    constraints = (beginning_with(tf.constant([[3]])), at_least(3))
    search = Search(BOS, EOS, vocab_size**longest, 0.6, 1, constraints)
    step, cache, limits = step_of(logits, vocab_size), prefixes(1, longest), tf.constant([longest])
    allowed = [s for s in every_sentence(vocab_size, longest) if s[0] == 3 and len(s) > 3]
    score, tokens = max((score_of(s, logits, 0.6), s) for s in allowed)
    assert found(beam_search(step, cache, limits, search)) == (
        tokens, pytest.approx(score, abs=1e-4)
    )  # fmt: skip
    without_penalty = search._replace(length_penalty=0.0)
    greedy, score = found(greedy_search(step, cache, limits, without_penalty))
    assert greedy[0] == 3
    assert score == pytest.approx(score_of(greedy, logits, 0.0), abs=1e-4)


def drawn(rows: int, sampling: SamplingConfig, seed: int = 0) -> Any:
    """Samples of one piece each from a distribution of 0.1, 0.2, 0.3 and 0.4 over eos, 3, 4, 5."""

    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.log([1e-9, 1e-9, 0.1, 0.2, 0.3, 0.4])

    draws = np.random.default_rng(seed).random((rows, 1)).astype("float32")
    hypotheses = sample(
        step_of(logits, 6), prefixes(rows, 1), tf.ones([rows], tf.int32),
        Search(BOS, EOS, 1, 0.0), sampling, draws,
    )  # fmt: skip
    tokens = hypotheses.tokens[:, 0, 0].numpy()
    shares = np.bincount(tokens, minlength=6) / rows
    probabilities = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(
        np.exp(hypotheses.scores[:, 0]), probabilities[tokens], rtol=1e-5
    )  # of the model, whatever was drawn from
    return shares[2:]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingConfig(), [0.1, 0.2, 0.3, 0.4]),
        (SamplingConfig(top_k=2), [0, 0, 3 / 7, 4 / 7]),
        (SamplingConfig(top_k=1), [0, 0, 0, 1]),
        (SamplingConfig(top_p=0.65), [0, 0, 3 / 7, 4 / 7]),  # 0.4 and 0.3: less would be below 0.65
        (SamplingConfig(top_p=0.3), [0, 0, 0, 1]),
        (SamplingConfig(temperature=0.5), np.array([1, 4, 9, 16]) / 30),  # squares
        (SamplingConfig(temperature=1e-3), [0, 0, 0, 1]),
    ],
)
def test_samples_follow_the_distribution_they_are_drawn_from(
    sampling: SamplingConfig, expected: Any
) -> None:
    np.testing.assert_allclose(drawn(20_000, sampling), expected, atol=0.015)


@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(top_p=0.999)])
def test_the_smallest_and_the_largest_draw_give_pieces_that_may_come(
    sampling: SamplingConfig,
) -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.array([IMPOSSIBLE, IMPOSSIBLE, 0.0, 0.1, IMPOSSIBLE, -float("inf")])

    draws = np.array([[0.0], [1.0]], "float32")  # 1: what rounding may make of a draw just below
    hypotheses = sample(
        step_of(logits, 6), prefixes(2, 1), tf.ones([2], tf.int32),
        Search(BOS, EOS, 1, 0.0), sampling, draws,
    )  # fmt: skip
    assert set(hypotheses.tokens.numpy().ravel().tolist()) == {EOS, A}


def test_a_sample_is_decided_by_its_own_draws_alone() -> None:
    logits, rows = random_logits(1, 6), 5
    draws = np.random.default_rng(3).random((rows, 9)).astype("float32")
    arguments = (Search(BOS, EOS, 1, 0.6), SamplingConfig())
    together = sample(step_of(logits, 6), prefixes(rows, 9), tf.fill([rows], 9), *arguments, draws)
    assert len({tuple(row) for row in together.tokens[:, 0].numpy().tolist()}) > 1
    for row in range(rows):
        alone = sample(
            step_of(logits, 6), prefixes(1, 9), tf.constant([9]), *arguments, draws[row : row + 1]
        )
        np.testing.assert_array_equal(together.tokens[row], alone.tokens[0])


def test_where_fewer_pieces_may_come_than_a_beam_holds_no_other_ones_come() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.array([IMPOSSIBLE, IMPOSSIBLE, 0.0, 1.0, IMPOSSIBLE, IMPOSSIBLE])

    constrained = Search(BOS, EOS, 4, 0.0, 4, (at_least(2),))
    hypotheses = beam_search(step_of(logits, 6), prefixes(1, 4), tf.constant([4]), constrained)
    tokens = hypotheses.tokens[hypotheses.scores > -float("inf")].numpy()
    assert len(tokens) == 2  # after two pieces and after three; and the limit cuts none off
    assert set(tokens.ravel().tolist()) == {0, EOS, A}


def numbers(rows: int, size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((rows, size)).astype("float32")


@pytest.mark.parametrize("size", [BLOCK, 8 * BLOCK, 40 * BLOCK, 40 * BLOCK + 1, 8])
@pytest.mark.parametrize("k", [1, 5, 8])
def test_the_largest_are_those_of_a_sort(size: int, k: int) -> None:
    x = numbers(6, size)
    best, where = top_k(tf.constant(x), k)
    order = np.argsort(-x, axis=1)[:, :k]
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(best, np.take_along_axis(x, order, axis=1))


def test_the_largest_may_all_be_in_one_block() -> None:
    x = numbers(1, 20 * BLOCK)
    x[0, 3 * BLOCK : 3 * BLOCK + 8] = np.arange(100, 108)
    _, where = top_k(tf.constant(x), 8)
    assert where.numpy().tolist() == [list(range(3 * BLOCK + 7, 3 * BLOCK - 1, -1))]


def test_the_largest_of_rows_with_little_that_is_possible() -> None:
    x = np.full((1, 20 * BLOCK), -np.inf, "float32")
    x[0, [7, 500]] = 1.0, 2.0
    best, where = top_k(tf.constant(x), 4)
    assert where.numpy()[0, :2].tolist() == [500, 7]
    assert np.isneginf(best.numpy()[0, 2:]).all()


def test_no_rows_have_no_largest() -> None:
    best, where = top_k(tf.zeros([0, 20 * BLOCK]), 4)
    assert best.shape == where.shape == (0, 4)


@pytest.mark.parametrize("scale", [1, 50, 1000])
def test_the_normalizer_is_log_sum_exp(scale: float) -> None:
    x = scale * numbers(6, 99)
    expected = tf.reduce_logsumexp(tf.constant(x, tf.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(normalizer(tf.constant(x)), expected, rtol=1e-5)


def test_sizes_are_filled_up_to_whole_blocks() -> None:
    assert [filled_up(size) for size in (1, BLOCK, BLOCK + 1)] == [BLOCK, BLOCK, 2 * BLOCK]
