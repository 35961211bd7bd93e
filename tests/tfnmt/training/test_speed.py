"""The speed of training on this machine."""

import pytest

from tfnmt.config import build_config
from tfnmt.model.transformer import Transformer
from tfnmt.training import speed
from tfnmt.training.speed import step_work, training_speed, weight_count

CONFIG = build_config(
    {
        "data": {"batch_tokens": 512},
        "tokenizer": {"vocab_size": 500},
        "model": {"num_encoder_layers": 3, "num_decoder_layers": 2, "d_model": 32, "d_ff": 64},
    }
)


def test_weights_are_those_of_the_model_except_for_vectors() -> None:
    transformer = Transformer(CONFIG.model, CONFIG.tokenizer.vocab_size)
    matrices = sum(w.shape[0] * w.shape[1] for w in transformer.weights if len(w.shape) == 2)
    assert weight_count(CONFIG) == matrices


@pytest.mark.parametrize("key", ["r_drop", "simcut"])
def test_second_forward_pass_doubles_the_work_of_a_step(key: str) -> None:
    training = CONFIG.training.model_copy(update={key: 1.0})
    assert step_work(CONFIG.model_copy(update={"training": training})) == 2 * step_work(CONFIG)


def test_speed_is_the_work_of_the_measured_steps_by_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look at the clock is a second later: the loop looks once before each further step."""
    monkeypatch.setattr(speed, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(speed.time, "perf_counter", iter(range(100)).__next__)
    assert training_speed(CONFIG) == pytest.approx(3 * step_work(CONFIG) / 2)
