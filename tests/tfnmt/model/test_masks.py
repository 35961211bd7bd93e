import numpy as np

from tfnmt.model.masks import causal_mask, padding_mask

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
