from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfnmt.training.loss import Sums, r_drop, simcut, smoothed_cross_entropy

V, D = 11, 6
TARGET = np.array([[4, 5, 2, 0], [10, 2, 0, 0]])


@pytest.fixture
def hidden() -> Any:
    return tf.Variable(np.random.default_rng(0).standard_normal((2, 4, D)).astype("float32"))


@pytest.fixture
def table() -> Any:
    return tf.Variable(np.random.default_rng(1).standard_normal((V, D)).astype("float32"))


def log_softmax(hidden: Any, table: Any) -> Any:
    return tf.nn.log_softmax(tf.matmul(hidden, table, transpose_b=True))


def smoothed_targets(smoothing: float) -> np.ndarray:
    """Return the distribution of section 5.4 at every position, [B, T, V]."""
    return (1 - smoothing) * np.eye(V, dtype="float32")[TARGET] + smoothing / V


def gradients(function: Any, *variables: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        value = function()
    return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, variables)]


# --- Label smoothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_loss_is_the_cross_entropy_with_the_smoothed_distribution(
    hidden: Any, table: Any, smoothing: float
) -> None:
    real = TARGET != 0
    losses = -tf.reduce_sum(smoothed_targets(smoothing) * log_softmax(hidden, table), -1).numpy()
    sums = smoothed_cross_entropy(hidden, table, TARGET, smoothing)
    assert sums.loss.numpy() == pytest.approx(losses[real].sum(), rel=1e-5)
    assert sums.tokens.numpy() == 5


def test_loss_is_the_kl_divergence_plus_a_constant_with_the_same_gradient(
    hidden: Any, table: Any
) -> None:
    targets = smoothed_targets(0.1)
    real = (TARGET != 0).astype("float32")[..., None]

    def divergence() -> Any:
        return tf.reduce_sum(real * targets * (np.log(targets) - log_softmax(hidden, table)))

    def loss() -> Any:
        return smoothed_cross_entropy(hidden, table, TARGET, 0.1).loss

    entropy = -(real * targets * np.log(targets)).sum()
    assert loss().numpy() == pytest.approx(divergence().numpy() + entropy, rel=1e-5)
    found = gradients(loss, hidden, table)
    expected = gradients(divergence, hidden, table)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_loss_without_smoothing_is_the_cross_entropy(hidden: Any, table: Any) -> None:
    sums = smoothed_cross_entropy(hidden, table, TARGET, 0.0)
    logits = tf.matmul(hidden, table, transpose_b=True)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(TARGET, logits).numpy()
    assert sums.loss.numpy() == pytest.approx(expected[TARGET != 0].sum(), rel=1e-5)
    assert sums.cross_entropy.numpy() == pytest.approx(sums.loss.numpy())


def test_smoothing_does_not_change_the_reported_cross_entropy(hidden: Any, table: Any) -> None:
    smoothed = smoothed_cross_entropy(hidden, table, TARGET, 0.3)
    unsmoothed = smoothed_cross_entropy(hidden, table, TARGET, 0.0)
    assert smoothed.cross_entropy.numpy() == pytest.approx(unsmoothed.cross_entropy.numpy())
    assert smoothed.loss.numpy() != pytest.approx(unsmoothed.loss.numpy())


# --- Tokens ---------------------------------------------------------------------------------------


def test_padding_changes_neither_loss_nor_gradient(hidden: Any, table: Any) -> None:
    def compute(values: np.ndarray) -> tuple[Sums, list[Any]]:
        variable = tf.Variable(values)

        def loss() -> Any:
            return smoothed_cross_entropy(variable, table, TARGET, 0.1).loss

        sums = smoothed_cross_entropy(variable, table, TARGET, 0.1)
        return sums, gradients(loss, variable, table)

    values = hidden.numpy()
    changed = np.where((TARGET == 0)[..., None], 99.0, values).astype("float32")
    (before, by_before), (after, by_after) = compute(values), compute(changed)
    np.testing.assert_allclose(after, before)
    np.testing.assert_allclose(by_after[1], by_before[1])
    assert not by_after[0].numpy()[TARGET == 0].any()


def test_correct_counts_tokens_that_are_the_most_probable(hidden: Any, table: Any) -> None:
    best = tf.argmax(log_softmax(hidden, table), -1).numpy()
    expected = ((best == TARGET) & (TARGET != 0)).sum()
    assert smoothed_cross_entropy(hidden, table, TARGET, 0.1).correct.numpy() == expected
    all_correct = np.where(TARGET != 0, best, 0)
    assert (all_correct[TARGET != 0] != 0).all()
    assert smoothed_cross_entropy(hidden, table, all_correct, 0.1).correct.numpy() == 5


def test_loss_of_a_confident_error_is_finite(table: Any) -> None:
    hidden = tf.constant(np.full((1, 1, D), 200.0, "float32"))
    worst = int(tf.argmin(tf.reduce_sum(table, -1)))
    sums = smoothed_cross_entropy(hidden, table, np.array([[max(worst, 1)]]), 0.1)
    logits = tf.matmul(hidden, table, transpose_b=True)
    exact = tf.nn.sparse_softmax_cross_entropy_with_logits([[max(worst, 1)]], logits)
    assert sums.cross_entropy.numpy() == pytest.approx(float(exact[0, 0]), rel=1e-5)


def test_sums_of_a_batch_of_padding_are_zero(hidden: Any, table: Any) -> None:
    sums = smoothed_cross_entropy(hidden, table, np.zeros((2, 4), "int32"), 0.1)
    assert [float(value) for value in sums] == [0, 0, 0, 0]


def test_bfloat16_rounds_the_gradient_but_not_the_loss(hidden: Any, table: Any) -> None:
    rounded = tf.Variable(tf.cast(hidden, tf.bfloat16))
    exact = tf.Variable(tf.cast(rounded, tf.float32))

    def loss(of: Any) -> Any:
        return lambda: smoothed_cross_entropy(of, table, TARGET, 0.1).loss

    assert loss(rounded)().numpy() == loss(exact)().numpy()
    found = gradients(loss(rounded), rounded, table)
    expected = gradients(loss(exact), exact, table)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(tf.cast(one, tf.float32), other, atol=0.03)
        assert np.abs(tf.cast(one, tf.float32).numpy() - other.numpy()).max() > 0


# --- R-Drop ---------------------------------------------------------------------------------------


@pytest.fixture
def both_hidden() -> Any:
    """Hidden states of two forward passes over TARGET, one after the other, [2B, T, D]."""
    return tf.Variable(np.random.default_rng(2).standard_normal((4, 4, D)).astype("float32"))


def naive_r_drop(both_hidden: Any, table: Any, alpha: float) -> Any:
    """Sum two cross entropies and alpha times the mean of both KL divergences, as defined."""
    real = (TARGET != 0).astype("float32")
    p, q = tf.split(log_softmax(both_hidden, table), 2)
    cross_entropy = -tf.gather(p + q, TARGET, batch_dims=2)
    divergence = tf.reduce_sum(tf.exp(p) * (p - q) + tf.exp(q) * (q - p), -1) / 2
    return tf.reduce_sum(real * (cross_entropy + alpha * divergence))


@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_r_drop_adds_the_mean_of_both_kl_divergences(
    both_hidden: Any, table: Any, alpha: float
) -> None:
    def ours() -> Any:
        return smoothed_cross_entropy(both_hidden, table, TARGET, 0.0, r_drop(alpha)).loss

    def naive() -> Any:
        return naive_r_drop(both_hidden, table, alpha)

    assert ours().numpy() == pytest.approx(naive().numpy(), rel=1e-5)
    found = gradients(ours, both_hidden, table)
    expected = gradients(naive, both_hidden, table)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_r_drop_of_equal_forward_passes_is_zero(hidden: Any, table: Any) -> None:
    once = smoothed_cross_entropy(hidden, table, TARGET, 0.1)
    twice = smoothed_cross_entropy(tf.tile(hidden, [2, 1, 1]), table, TARGET, 0.1, r_drop(5.0))
    np.testing.assert_allclose(twice, [2 * value for value in once], rtol=1e-5)


def test_r_drop_does_not_change_the_reported_cross_entropy(both_hidden: Any, table: Any) -> None:
    weak, strong = (
        smoothed_cross_entropy(both_hidden, table, TARGET, 0.1, r_drop(alpha))
        for alpha in (1e-6, 5.0)
    )
    assert strong.cross_entropy.numpy() == pytest.approx(weak.cross_entropy.numpy())
    assert strong.loss.numpy() > weak.loss.numpy() + 1


# --- SimCut ---------------------------------------------------------------------------------------


def naive_simcut(both_hidden: Any, table: Any, alpha: float, smoothing: float) -> Any:
    """Sum the cross entropy of the first pass and alpha times KL(first||second), as defined."""
    real = (TARGET != 0).astype("float32")
    p, q = tf.split(log_softmax(both_hidden, table), 2)
    cross_entropy = -tf.reduce_sum(smoothed_targets(smoothing) * p, -1)
    divergence = tf.reduce_sum(tf.exp(p) * (p - q), -1)
    return tf.reduce_sum(real * (cross_entropy + alpha * divergence))


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_simcut_adds_the_kl_divergence_from_the_intact_input_with_both_gradients(
    both_hidden: Any, table: Any, alpha: float
) -> None:
    def ours() -> Any:
        return smoothed_cross_entropy(both_hidden, table, TARGET, 0.1, simcut(alpha)).loss

    def naive() -> Any:
        return naive_simcut(both_hidden, table, alpha, 0.1)

    assert ours().numpy() == pytest.approx(naive().numpy(), rel=1e-5)
    found = gradients(ours, both_hidden, table)
    expected = gradients(naive, both_hidden, table)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_simcut_of_weight_zero_is_the_cross_entropy_of_the_first_pass(
    both_hidden: Any, table: Any
) -> None:
    first = tf.Variable(both_hidden[:2])

    def plain() -> Any:
        return smoothed_cross_entropy(first, table, TARGET, 0.1).loss

    def weightless() -> Any:
        return smoothed_cross_entropy(both_hidden, table, TARGET, 0.1, simcut(0.0)).loss

    sums = smoothed_cross_entropy(both_hidden, table, TARGET, 0.1, simcut(0.0))
    np.testing.assert_allclose(sums, smoothed_cross_entropy(first, table, TARGET, 0.1), rtol=1e-6)
    by_first, by_table = gradients(plain, first, table)
    by_both, by_same_table = gradients(weightless, both_hidden, table)
    np.testing.assert_allclose(by_both[:2], by_first, atol=1e-6)
    np.testing.assert_array_equal(by_both[2:], np.zeros((2, 4, D)))
    np.testing.assert_allclose(by_same_table, by_table, atol=1e-6)
