import numpy as np
import pytest
from keras import ops

from tfnmt.model.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fuse_projections,
    merge_heads,
    padding_mask,
    project_heads,
    split_heads,
)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


# --- Masks ----------------------------------------------------------------------------------------

T, F = True, False


def test_padding_mask_is_true_at_real_tokens() -> None:
    tokens = np.array([[5, 6, 2], [7, 2, 0]])
    np.testing.assert_array_equal(padding_mask(tokens), [[[[T, T, T]]], [[[T, T, F]]]])


def test_causal_mask_allows_the_current_and_earlier_positions() -> None:
    expected = [
        [T, F, F, F],
        [T, T, F, F],
        [T, T, T, F],
        [T, T, T, T],
    ]
    np.testing.assert_array_equal(causal_mask(4), [[expected]])


# --- Scaled dot-product attention -----------------------------------------------------------------


def test_attention_weights_are_the_softmax_of_scaled_dot_products() -> None:
    query, keys = random(1, 1, 2, 4), random(1, 1, 3, 4)
    scores = query[0, 0] @ keys[0, 0].T / 2  # sqrt(4)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    weights = attention_weights(query, keys, np.ones((1, 1, 2, 3), bool))
    np.testing.assert_allclose(weights[0, 0], expected, atol=1e-6)


def test_attention_weights_are_zero_at_masked_keys_and_sum_to_one() -> None:
    mask = np.array([[[[True, False, True, False]]]])
    weights = ops.convert_to_numpy(attention_weights(random(1, 2, 3, 4), random(1, 2, 4, 4), mask))
    assert (weights[..., [1, 3]] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_attention_weights_are_finite_if_all_keys_are_masked() -> None:
    mask = np.zeros((1, 1, 1, 4), bool)
    assert np.isfinite(attention_weights(random(1, 2, 3, 4), random(1, 2, 4, 4), mask)).all()


# --- Heads ----------------------------------------------------------------------------------------


def test_merge_heads_inverts_split_heads() -> None:
    x = random(2, 5, 12)
    np.testing.assert_array_equal(merge_heads(split_heads(x, 3)), x)


def test_split_heads_slices_the_last_axis() -> None:
    x = random(1, 5, 12)
    np.testing.assert_array_equal(split_heads(x, 3)[0, 1], x[0, :, 4:8])


def test_fused_projection_matches_separate_projections() -> None:
    layer = MultiHeadAttention(8, 2, 0.0)
    layer.build()
    x = random(2, 5, 8)
    projections = (layer.query, layer.key, layer.value)
    for number, dense in enumerate(projections):
        dense.bias.assign(random(8) + number)
    projected = project_heads(x, fuse_projections(projections), 2)
    for fused, dense in zip(projected, projections, strict=True):
        np.testing.assert_allclose(fused, split_heads(dense(x), 2), atol=1e-6)


# --- Layer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_multi_head_attention_concatenates_its_heads(heads: int) -> None:
    layer = MultiHeadAttention(8, heads, 0.0)
    layer.build()
    x, memory = random(1, 3, 8), random(1, 5, 8)
    mask = np.ones((1, 1, 1, 5), bool)
    query, key, value = (
        np.array(dense(y))[0].reshape(-1, heads, 8 // heads)
        for dense, y in ((layer.query, x), (layer.key, memory), (layer.value, memory))
    )
    outputs = []
    for head in range(heads):
        scores = query[:, head] @ key[:, head].T / np.sqrt(8 / heads)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        outputs.append(weights @ value[:, head])
    expected = layer.output_projection(np.concatenate(outputs, axis=-1)[None])
    actual = layer(x, *layer.project_keys_values(memory), mask)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_self_attention_matches_the_call_with_keys_and_values_of_x() -> None:
    layer = MultiHeadAttention(8, 2, 0.0)
    layer.build()
    x, mask = random(2, 5, 8), np.tri(5, dtype=bool)[None, None]
    expected = layer(x, *layer.project_keys_values(x), mask)
    np.testing.assert_allclose(layer.self_attention(x, mask), expected, atol=1e-6)
