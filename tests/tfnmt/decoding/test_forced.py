"""Forced decoding against search, and against the steps one by one."""

import numpy as np
import tensorflow as tf

from tfnmt.config import ModelConfig
from tfnmt.decoding.forced import attend, shifted, token_log_probs
from tfnmt.model.transformer import Transformer

V = 40
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]], "int32")
TARGET = np.array([[11, 12, 13, 2], [14, 2, 0, 0]], "int32")


def test_a_target_is_read_one_piece_late_behind_bos() -> None:
    assert shifted(TARGET).numpy().tolist() == [[1, 11, 12, 13], [1, 14, 2, 0]]


def test_log_probs_are_those_of_the_steps_with_marks_impossible(small_config: ModelConfig) -> None:
    model = Transformer(small_config, V)
    found = token_log_probs(model, SOURCE, TARGET).numpy()
    logits = np.array(model(SOURCE, shifted(TARGET)))
    logits[:, :, :2] = -np.inf
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, column in ((0, 0), (0, 3), (1, 1)):
        expected = log_probs[row, column, TARGET[row, column]]
        np.testing.assert_allclose(found[row, column], expected, atol=1e-5)
    assert found[1].tolist()[2:] == [0, 0]
    assert (found[TARGET != 0] < 0).all()


def test_padding_changes_no_log_prob_and_no_attention(small_config: ModelConfig) -> None:
    model = Transformer(small_config, V)
    alone = token_log_probs(model, SOURCE[1:, :3], TARGET[1:, :2])
    together = token_log_probs(model, SOURCE, TARGET)
    np.testing.assert_allclose(together[1, :2], alone[0], atol=1e-5)
    log_probs, one = attend(model, SOURCE[1:, :3], TARGET[1:, :2])
    np.testing.assert_allclose(log_probs, alone, atol=1e-6)
    _, two = attend(model, SOURCE, TARGET)
    np.testing.assert_allclose(two.cross[1, :, :, :2, :3], one.cross[0], atol=1e-5)
    np.testing.assert_allclose(two.cross[1, :, :, :2, 3:], 0, atol=1e-7)
    assert tf.reduce_sum(two.decoder[0, 0, 0, 0, 1:]) == 0  # nothing later is seen
