import numpy as np
import pytest
from keras import ops

from tfnmt.model.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    join,
    merge_heads,
    padding_mask,
    project_heads,
    split_heads,
)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def test_merging_heads_undoes_splitting_them() -> None:
    x = random(2, 5, 12)
    np.testing.assert_array_equal(merge_heads(split_heads(x, 3)), x)


def test_a_head_is_a_slice_of_the_width_not_of_the_positions() -> None:
    x = random(1, 5, 12)
    np.testing.assert_array_equal(split_heads(x, 3)[0, 1], x[0, :, 4:8])


def test_weights_are_the_softmax_of_scaled_products() -> None:
    query, keys = random(1, 1, 2, 4), random(1, 1, 3, 4)
    scores = query[0, 0] @ keys[0, 0].T / 2  # the root of 4
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    weights = attention_weights(query, keys, np.ones((1, 1, 2, 3), bool))
    np.testing.assert_allclose(weights[0, 0], expected, atol=1e-6)


def test_masked_keys_get_no_weight_and_the_rest_gets_all() -> None:
    mask = np.array([[[[True, False, True, False]]]])
    weights = ops.convert_to_numpy(attention_weights(random(1, 2, 3, 4), random(1, 2, 4, 4), mask))
    assert (weights[..., [1, 3]] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_a_query_without_any_key_stays_finite() -> None:
    mask = np.zeros((1, 1, 1, 4), bool)
    assert np.isfinite(attention_weights(random(1, 2, 3, 4), random(1, 2, 4, 4), mask)).all()


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_is_its_heads_side_by_side(heads: int) -> None:
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
    actual = layer(x, *layer.project(memory), mask)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_projections_together_are_what_each_is_alone() -> None:
    layer = MultiHeadAttention(8, 2, 0.0)
    layer.build()
    x = random(2, 5, 8)
    projections = (layer.query, layer.key, layer.value)
    for number, dense in enumerate(projections):
        dense.bias.assign(random(8) + number)
    for together, dense in zip(project_heads(x, join(projections), 2), projections, strict=True):
        np.testing.assert_allclose(together, split_heads(dense(x), 2), atol=1e-6)


def test_a_text_that_looks_around_attends_to_itself() -> None:
    layer = MultiHeadAttention(8, 2, 0.0)
    layer.build()
    x, mask = random(2, 5, 8), np.tri(5, dtype=bool)[None, None]
    expected = layer(x, *layer.project(x), mask)
    np.testing.assert_allclose(layer.look_around(x, mask), expected, atol=1e-6)


T, F = True, False


def test_padding_mask_is_true_at_real_tokens() -> None:
    tokens = np.array([[5, 6, 2], [7, 2, 0]])
    np.testing.assert_array_equal(padding_mask(tokens), [[[[T, T, T]]], [[[T, T, F]]]])


def test_causal_mask_lets_a_position_see_itself_and_what_came_before() -> None:
    expected = [
        [T, F, F, F],
        [T, T, F, F],
        [T, T, T, F],
        [T, T, T, T],
    ]
    np.testing.assert_array_equal(causal_mask(4), [[expected]])
