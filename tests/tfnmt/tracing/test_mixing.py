import numpy as np

from tfnmt.tracing.forward import ForwardTrace


def mixing(forward: ForwardTrace, function: str, stage: str) -> list[np.ndarray]:
    return [
        step.mixing
        for step in forward.steps
        if step.function == function and step.stage == stage and step.mixing is not None
    ]


def test_feed_forward_processes_each_position_separately(forward: ForwardTrace) -> None:
    for stage, length in (("encode", 4), ("decode", 3)):
        found = mixing(forward, "FeedForward.call", stage)
        assert len(found) == 2
        for matrix in found:
            assert np.array_equal(matrix, [np.eye(length, dtype=bool)] * 2)


def test_encoder_self_attention_mixes_all_real_positions(forward: ForwardTrace) -> None:
    found = mixing(forward, "MultiHeadAttention.self_attention", "encode")
    assert len(found) == 2
    for matrix in found:
        assert matrix[0].all()
        assert matrix[1, :, :2].all()
        assert not matrix[1, :2, 2:].any()  # no real position depends on padding


def test_decoder_self_attention_mixes_each_position_with_earlier_ones(
    forward: ForwardTrace,
) -> None:
    found = mixing(forward, "MultiHeadAttention.self_attention", "decode")
    assert len(found) == 2
    for matrix in found:
        assert np.array_equal(matrix, [np.tri(3, dtype=bool)] * 2)


def test_cross_attention_mixes_every_real_source_position_into_the_target(
    forward: ForwardTrace,
) -> None:
    found = mixing(forward, "MultiHeadAttention.call", "decode")
    assert len(found) == 2
    for matrix in found:
        assert matrix.shape == (2, 3, 4)
        assert matrix[0].all()
        assert np.array_equal(matrix[1], [[True, True, False, False]] * 3)
