import numpy as np

from tfnmt.tracing.forward import Forward


def mixing(forward: Forward, function: str, side: str) -> list[np.ndarray]:
    return [
        step.mixing
        for step in forward.steps
        if step.function == function and step.side == side and step.mixing is not None
    ]


def test_the_feed_forward_works_on_each_position_alone(forward: Forward) -> None:
    for side, length in (("encode", 4), ("decode", 3)):
        found = mixing(forward, "FeedForward.call", side)
        assert len(found) == 2
        for matrix in found:
            assert np.array_equal(matrix, [np.eye(length, dtype=bool)] * 2)


def test_the_encoder_mixes_all_real_positions(forward: Forward) -> None:
    found = mixing(forward, "MultiHeadAttention.look_around", "encode")
    assert len(found) == 2
    for matrix in found:
        assert matrix[0].all()
        assert matrix[1, :, :2].all()
        assert not matrix[1, :2, 2:].any()  # nothing real hangs on padding


def test_the_decoder_mixes_each_position_with_those_before(forward: Forward) -> None:
    found = mixing(forward, "MultiHeadAttention.look_around", "decode")
    assert len(found) == 2
    for matrix in found:
        assert np.array_equal(matrix, [np.tri(3, dtype=bool)] * 2)


def test_every_target_position_hangs_on_every_real_one_of_the_source(forward: Forward) -> None:
    found = mixing(forward, "MultiHeadAttention.call", "decode")
    assert len(found) == 2
    for matrix in found:
        assert matrix.shape == (2, 3, 4)
        assert matrix[0].all()
        assert np.array_equal(matrix[1], [[True, True, False, False]] * 3)
