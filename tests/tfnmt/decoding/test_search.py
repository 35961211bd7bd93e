"""Searches over step functions that look up logits in tables. No model is needed."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import SamplingConfig
from tfnmt.decoding.constraints import forced_prefix, minimum_length
from tfnmt.decoding.search import (
    BLOCK,
    EXCLUDED_LOGIT,
    SearchParameters,
    beam_search,
    greedy_search,
    length_penalty,
    log_sum_exp,
    padded_size,
    sample,
    top_k_sums,
)

BOS, EOS = 1, 2
A, B = 3, 4
Logits = Callable[[tuple[int, ...]], np.ndarray]


# --- Step functions -------------------------------------------------------------------------------


def step_of(logits: Logits, vocab_size: int) -> Any:
    """Return a step function whose cache is the prefix. A wrong parent gives wrong logits."""

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


def empty_prefixes(rows: int, max_length: int) -> Any:
    """Return the cache of the first step, with one empty prefix per row."""
    return tf.zeros([rows, 1, max_length], tf.int32)


def random_logits(seed: int, vocab_size: int) -> Logits:
    table: dict[tuple[int, ...], np.ndarray] = {}

    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        if prefix not in table:
            generator = np.random.default_rng([seed, *prefix])
            table[prefix] = 2 * generator.standard_normal(vocab_size)
        return table[prefix]

    return logits


def score_of(tokens: tuple[int, ...], logits: Logits, alpha: float) -> float:
    """Compute the score of ids by definition."""
    log_prob, prefix = 0.0, (BOS,)
    for token in tokens:
        values = logits(prefix)
        log_prob += values[token] - np.log(np.exp(values).sum())
        prefix += (token,)
    return log_prob / ((5 + len(tokens)) / 6) ** alpha


def all_sentences(vocab_size: int, max_length: int) -> list[tuple[int, ...]]:
    return [
        (*body, EOS)
        for length in range(max_length)
        for body in itertools.product([t for t in range(vocab_size) if t != EOS], repeat=length)
    ]


def hypothesis(hypotheses: Any, row: int = 0, rank: int = 0) -> tuple[tuple[int, ...], float]:
    """Return the ids of a hypothesis up to EOS, and its score."""
    tokens = hypotheses.tokens[row, rank].numpy().tolist()
    if EOS in tokens:
        tokens = tokens[: tokens.index(EOS) + 1]
    return tuple(tokens), float(hypotheses.scores[row, rank])


# --- Beam search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_beam_search_with_a_large_beam_equals_exhaustive_enumeration(
    seed: int, alpha: float
) -> None:
    vocab_size, max_length, count = 3, 4, 3
    logits = random_logits(seed, vocab_size)
    hypotheses = beam_search(
        step_of(logits, vocab_size),
        empty_prefixes(1, max_length),
        tf.constant([max_length]),
        SearchParameters(BOS, EOS, vocab_size**max_length, alpha, count),
    )
    sentences = all_sentences(vocab_size, max_length)
    scored = sorted(((score_of(s, logits, alpha), s) for s in sentences), reverse=True)
    for rank, (score, tokens) in enumerate(scored[:count]):
        assert hypothesis(hypotheses, rank=rank) == (tokens, pytest.approx(score, abs=1e-4))


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_search_returns_the_score_of_its_ids(beam_size: int, alpha: float) -> None:
    logits = random_logits(7, 6)
    hypotheses = beam_search(
        step_of(logits, 6),
        empty_prefixes(1, 8),
        tf.constant([8]),
        SearchParameters(BOS, EOS, beam_size, alpha),
    )
    tokens, score = hypothesis(hypotheses)
    assert score == pytest.approx(score_of(tokens, logits, alpha), abs=1e-4)


TREE = {
    #            +-- A 0.6 --+-- EOS 0.4    0.6 * 0.4 = 0.24, found by greedy search
    #            |           +-- B   0.6 -- EOS 0.3 (then worse)
    #      BOS --+
    #            +-- B 0.4 ----- EOS 0.9    0.4 * 0.9 = 0.36, the best
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


def test_beam_search_finds_a_branch_that_greedy_search_misses() -> None:
    arguments = step_of(tree_logits, 5), empty_prefixes(1, 4), tf.constant([4])
    greedy, _ = hypothesis(greedy_search(*arguments, SearchParameters(BOS, EOS, 1, 0.0)))
    tokens, score = hypothesis(beam_search(*arguments, SearchParameters(BOS, EOS, 2, 0.0)))
    assert greedy[0] == A
    assert tokens == (B, EOS)
    assert np.exp(score) == pytest.approx(0.4 * 0.9, abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_beam_of_one_without_length_penalty_is_greedy_search(seed: int) -> None:
    arguments = step_of(random_logits(seed, 5), 5), empty_prefixes(1, 7), tf.constant([7])
    greedy = hypothesis(greedy_search(*arguments, SearchParameters(BOS, EOS, 1, 0.0)))
    beam = hypothesis(beam_search(*arguments, SearchParameters(BOS, EOS, 1, 0.0)))
    assert beam == (greedy[0], pytest.approx(greedy[1], abs=1e-5))


@pytest.mark.parametrize("seed", range(6))
def test_beam_of_one_never_scores_below_greedy_search(seed: int) -> None:
    arguments = step_of(random_logits(seed, 5), 5), empty_prefixes(1, 7), tf.constant([7])
    greedy = hypothesis(greedy_search(*arguments, SearchParameters(BOS, EOS, 1, 1.0)))
    beam = hypothesis(beam_search(*arguments, SearchParameters(BOS, EOS, 1, 1.0)))
    assert beam[1] >= greedy[1] - 1e-5


def test_beam_search_returns_sorted_and_different_hypotheses() -> None:
    hypotheses = beam_search(
        step_of(random_logits(5, 6), 6),
        empty_prefixes(1, 12),
        tf.constant([12]),
        SearchParameters(BOS, EOS, 5, 0.6, 5),
    )
    scores = hypotheses.scores[0].numpy()
    assert (np.diff(scores) <= 0).all()
    assert len({tuple(tokens) for tokens in hypotheses.tokens[0].numpy().tolist()}) == 5


def count_calls(step: Any) -> tuple[Any, list[int]]:
    """Return a step function that records its positions, and the record."""
    calls: list[int] = []

    def counting_step(tokens: Any, parents: Any, position: Any, cache: Any) -> Any:
        calls.append(int(position))
        return step(tokens, parents, position, cache)

    return counting_step, calls


def test_beam_search_stops_exactly_when_nothing_can_improve() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        """Return 0.9 for EOS at every step: no longer hypothesis beats ending at once."""
        return np.log([1e-9, 1e-9, 0.9, 0.1])

    step, calls = count_calls(step_of(logits, 4))
    limits = tf.constant([30])
    beam_search(step, empty_prefixes(1, 30), limits, SearchParameters(BOS, EOS, 2, 0.0))
    assert calls == [0]
    # With alpha 1, the largest penalty is 205/6 = 34.2. After one step, log 0.1 / 34.2 exceeds
    # log 0.9, so the search continues. After two steps, log 0.01 / 34.2 no longer does.
    step, calls = count_calls(step_of(logits, 4))
    limits = tf.constant([200])
    beam_search(step, empty_prefixes(1, 200), limits, SearchParameters(BOS, EOS, 2, 1.0))
    assert 1 < len(calls) < 200


# --- Length penalty -------------------------------------------------------------------------------


def test_length_penalty_is_equation_14() -> None:
    assert length_penalty(1, 0.6).numpy() == pytest.approx(1.0)
    assert length_penalty(7, 0.6).numpy() == pytest.approx(2**0.6)
    assert length_penalty(7, 0.0).numpy() == 1.0


def test_length_penalty_can_prefer_the_longer_sentence() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        """Return 0.55 for EOS at once and 0.45 for A A A A A EOS."""
        probabilities = np.full(4, 1e-9)
        if prefix == (BOS,):
            probabilities[[EOS, A]] = 0.55, 0.45
        else:
            probabilities[A if len(prefix) < 6 else EOS] = 1.0
        return np.log(probabilities)

    def best(alpha: float) -> tuple[int, ...]:
        parameters = SearchParameters(BOS, EOS, 2, alpha)
        arguments = step_of(logits, 4), empty_prefixes(1, 8), tf.constant([8])
        return hypothesis(beam_search(*arguments, parameters))[0]

    assert best(0.0) == (EOS,)
    assert best(1.0) == (A, A, A, A, A, EOS)


# --- Limits and batches ---------------------------------------------------------------------------


def test_search_without_eos_returns_the_live_hypothesis() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.log([1e-30, 1e-30, 1e-30, 0.7, 0.3])

    parameters = SearchParameters(BOS, EOS, 2, 0.0)
    for search in (greedy_search, beam_search):
        hypotheses = search(step_of(logits, 5), empty_prefixes(1, 4), tf.constant([4]), parameters)
        assert hypotheses.tokens[0, 0].numpy().tolist() == [A, A, A, A]
        assert np.exp(hypotheses.scores[0, 0]) == pytest.approx(0.7**4, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_result_of_a_row_does_not_depend_on_the_batch(beam_size: int) -> None:
    logits = random_logits(3, 6)
    limits = [2, 9, 0, 5, 1]
    parameters = SearchParameters(BOS, EOS, beam_size, 0.6)
    step = step_of(logits, 6)
    for search in (greedy_search, beam_search):
        together = search(step, empty_prefixes(5, 9), tf.constant(limits), parameters)
        for row, limit in enumerate(limits):
            alone = search(step, empty_prefixes(1, 9), tf.constant([limit]), parameters)
            tokens = together.tokens[row, 0].numpy()
            np.testing.assert_array_equal(tokens[: max(limit, 1)], alone.tokens[0, 0].numpy())
            assert not tokens[limit:].any()
            if limit:
                score = together.scores[row, 0].numpy()
                assert score == pytest.approx(alone.scores[0, 0].numpy(), abs=1e-5)


def test_row_with_a_limit_of_0_gets_no_tokens_even_if_eos_is_likely() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.log(np.array([1e-9, 1e-9, 0.6, 0.2, 0.2]))  # EOS is 2

    parameters = SearchParameters(BOS, EOS, 3, 1.0)
    limits = tf.constant([4, 0])
    found = beam_search(step_of(logits, 5), empty_prefixes(2, 4), limits, parameters)
    assert not np.any(found.tokens[1])
    assert np.all(np.isneginf(found.scores[1]))
    assert np.any(found.tokens[0])


def test_search_of_no_rows_returns_no_hypotheses() -> None:
    parameters = SearchParameters(BOS, EOS, 2, 0.6)
    step = step_of(random_logits(0, 5), 5)
    for search in (greedy_search, beam_search):
        hypotheses = search(step, empty_prefixes(0, 4), tf.zeros([0], tf.int32), parameters)
        assert hypotheses.tokens.shape[0] == hypotheses.scores.shape[0] == 0


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_result_is_complete_if_more_steps_would_not_change_it(search: Any) -> None:
    step, limits = step_of(random_logits(3, 6), 6), tf.constant([9, 9, 2])
    parameters = SearchParameters(BOS, EOS, 3, 0.6)
    full = search(step, empty_prefixes(3, 9), limits, parameters)
    assert full.complete.numpy().all()
    complete = []
    for steps in range(1, 9):
        fewer = parameters._replace(steps=tf.constant(steps))
        found = search(step, empty_prefixes(3, 9), limits, fewer)
        complete.append(found.complete.numpy().tolist())
        for row in np.flatnonzero(found.complete):
            tokens = full.tokens[row, 0].numpy()
            np.testing.assert_array_equal(found.tokens[row, 0], tokens[:steps])
            assert not tokens[steps:].any()
            assert found.scores[row, 0] == full.scores[row, 0]
    assert not any(complete[0])
    assert all(complete[-1]) or search is greedy_search
    assert all(rows[2] for rows in complete[1:])  # its limit is two tokens


# --- Constraints ----------------------------------------------------------------------------------


def test_constraints_do_not_change_the_scores_of_the_model() -> None:
    """Search for the best sentence that begins with 3 and has at least three tokens."""
    vocab_size, max_length = 4, 4
    logits = random_logits(2, vocab_size)
    constraints = (forced_prefix(tf.constant([[3]])), minimum_length(3))
    parameters = SearchParameters(BOS, EOS, vocab_size**max_length, 0.6, 1, constraints)
    arguments = (
        step_of(logits, vocab_size),
        empty_prefixes(1, max_length),
        tf.constant([max_length]),
    )
    allowed = [s for s in all_sentences(vocab_size, max_length) if s[0] == 3 and len(s) > 3]
    score, tokens = max((score_of(s, logits, 0.6), s) for s in allowed)
    beam = hypothesis(beam_search(*arguments, parameters))
    assert beam == (tokens, pytest.approx(score, abs=1e-4))
    without_penalty = parameters._replace(length_penalty=0.0)
    greedy, score = hypothesis(greedy_search(*arguments, without_penalty))
    assert greedy[0] == 3
    assert score == pytest.approx(score_of(greedy, logits, 0.0), abs=1e-4)


def test_beam_search_never_returns_excluded_tokens_to_fill_the_beam() -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.array([EXCLUDED_LOGIT, EXCLUDED_LOGIT, 0.0, 1.0, EXCLUDED_LOGIT, EXCLUDED_LOGIT])

    parameters = SearchParameters(BOS, EOS, 4, 0.0, 4, (minimum_length(2),))
    hypotheses = beam_search(step_of(logits, 6), empty_prefixes(1, 4), tf.constant([4]), parameters)
    tokens = hypotheses.tokens[hypotheses.scores > -float("inf")].numpy()
    assert len(tokens) == 2  # EOS after two and after three tokens; the limit truncates none
    assert set(tokens.ravel().tolist()) == {0, EOS, A}


# --- Sampling -------------------------------------------------------------------------------------


def sampled_shares(rows: int, sampling: SamplingConfig, seed: int = 0) -> Any:
    """Sample one token per row from probabilities 0.1, 0.2, 0.3, 0.4 of EOS, 3, 4, 5.

    Returns:
        The share of each of the four tokens in the samples.
    """

    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.log([1e-9, 1e-9, 0.1, 0.2, 0.3, 0.4])

    random_numbers = np.random.default_rng(seed).random((rows, 1)).astype("float32")
    hypotheses = sample(
        step_of(logits, 6),
        empty_prefixes(rows, 1),
        tf.ones([rows], tf.int32),
        SearchParameters(BOS, EOS, 1, 0.0),
        sampling,
        random_numbers,
    )
    tokens = hypotheses.tokens[:, 0, 0].numpy()
    # Scores are the model's, whatever distribution was sampled from.
    probabilities = np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(np.exp(hypotheses.scores[:, 0]), probabilities[tokens], rtol=1e-5)
    return np.bincount(tokens, minlength=6)[2:] / rows


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (SamplingConfig(), [0.1, 0.2, 0.3, 0.4]),
        (SamplingConfig(top_k=2), [0, 0, 3 / 7, 4 / 7]),
        (SamplingConfig(top_k=1), [0, 0, 0, 1]),
        (SamplingConfig(top_p=0.65), [0, 0, 3 / 7, 4 / 7]),  # one token has less than 0.65
        (SamplingConfig(top_p=0.3), [0, 0, 0, 1]),
        (SamplingConfig(temperature=0.5), np.array([1, 4, 9, 16]) / 30),  # squares
        (SamplingConfig(temperature=1e-3), [0, 0, 0, 1]),
    ],
)
def test_samples_follow_the_configured_distribution(
    sampling: SamplingConfig, expected: Any
) -> None:
    np.testing.assert_allclose(sampled_shares(20_000, sampling), expected, atol=0.015)


@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(top_p=0.999)])
def test_smallest_and_largest_random_number_sample_allowed_tokens(
    sampling: SamplingConfig,
) -> None:
    def logits(prefix: tuple[int, ...]) -> np.ndarray:
        return np.array([EXCLUDED_LOGIT, EXCLUDED_LOGIT, 0.0, 0.1, EXCLUDED_LOGIT, -float("inf")])

    random_numbers = np.array([[0.0], [1.0]], "float32")  # a number just below 1 may round to 1
    hypotheses = sample(
        step_of(logits, 6),
        empty_prefixes(2, 1),
        tf.ones([2], tf.int32),
        SearchParameters(BOS, EOS, 1, 0.0),
        sampling,
        random_numbers,
    )
    assert set(hypotheses.tokens.numpy().ravel().tolist()) == {EOS, A}


def test_sample_of_a_row_depends_on_its_own_random_numbers_only() -> None:
    step, rows = step_of(random_logits(1, 6), 6), 5
    random_numbers = np.random.default_rng(3).random((rows, 9)).astype("float32")
    settings = (SearchParameters(BOS, EOS, 1, 0.6), SamplingConfig())
    together = sample(step, empty_prefixes(rows, 9), tf.fill([rows], 9), *settings, random_numbers)
    assert len({tuple(row) for row in together.tokens[:, 0].numpy().tolist()}) > 1
    for row in range(rows):
        own = random_numbers[row : row + 1]
        alone = sample(step, empty_prefixes(1, 9), tf.constant([9]), *settings, own)
        np.testing.assert_array_equal(together.tokens[row], alone.tokens[0])


# --- The largest logits ---------------------------------------------------------------------------


def random_values(rows: int, size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((rows, size)).astype("float32")


@pytest.mark.parametrize("size", [BLOCK, 8 * BLOCK, 40 * BLOCK, 40 * BLOCK + 1, 8])
@pytest.mark.parametrize("k", [1, 5, 8])
def test_top_k_sums_equals_a_sort(size: int, k: int) -> None:
    x, offsets = random_values(6, size).reshape(2, 3, size), random_values(2, 3)
    best, where = top_k_sums(tf.constant(x), tf.constant(offsets), k)
    sums = (x + offsets[:, :, None]).reshape(2, 3 * size)
    order = np.argsort(-sums, axis=1)[:, :k]
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(best, np.take_along_axis(sums, order, axis=1))


def test_top_k_sums_finds_values_that_are_all_in_one_block() -> None:
    x = random_values(1, 20 * BLOCK).reshape(1, 2, 10 * BLOCK)
    x[0, 1, 3 * BLOCK : 3 * BLOCK + 8] = np.arange(100, 108)
    _, where = top_k_sums(tf.constant(x), tf.zeros([1, 2]), 8)
    assert where.numpy().tolist() == [list(range(13 * BLOCK + 7, 13 * BLOCK - 1, -1))]


def test_top_k_sums_of_a_row_with_fewer_finite_values() -> None:
    x = np.full((1, 2, 20 * BLOCK), -np.inf, "float32")
    x[0, 0, 7], x[0, 1, 500] = 1.0, 2.0
    best, where = top_k_sums(tf.constant(x), tf.zeros([1, 2]), 4)
    assert where.numpy()[0, :2].tolist() == [20 * BLOCK + 500, 7]
    assert np.isneginf(best.numpy()[0, 2:]).all()


def test_top_k_sums_of_no_rows_is_empty() -> None:
    best, where = top_k_sums(tf.zeros([0, 2, 20 * BLOCK]), tf.zeros([0, 2]), 4)
    assert best.shape == where.shape == (0, 4)


@pytest.mark.parametrize("scale", [1, 50, 1000])
def test_log_sum_exp_equals_tensorflows_in_float64(scale: float) -> None:
    x = scale * random_values(6, 99)
    expected = tf.reduce_logsumexp(tf.constant(x, tf.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(log_sum_exp(tf.constant(x)), expected, rtol=1e-5)


def test_padded_size_is_a_multiple_of_the_block_size() -> None:
    assert [padded_size(size) for size in (1, BLOCK, BLOCK + 1)] == [BLOCK, BLOCK, 2 * BLOCK]
