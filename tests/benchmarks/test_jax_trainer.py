"""Training under Keras' JAX backend: KERAS_BACKEND=jax, in an environment with jax and optax."""

from typing import Any

import numpy as np
import pytest

from tests.backend import IS_JAX
from tfnmt.config import Config, build_config
from tfnmt.data.batching.batches import Batch
from tfnmt.errors import UsageError

if not IS_JAX:
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

from benchmarks.jax_trainer import JaxTrainer

V, SHAPE = 50, (3, 8)
MODEL = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2}


def make_config(dropout: float = 0.0, **training: Any) -> Config:
    model = MODEL | {"d_ff": 32, "dropout": dropout}
    return build_config({"data": {"corpus": "toy"}, "model": model, "training": training})


def make_batch(runs: int = 1) -> Batch:
    random = np.random.default_rng(0)
    source, target = random.integers(4, V, (2, *SHAPE)).astype("int32")
    source[2, 4:] = target[1, 5:] = 0
    target_in = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    target_in[target == 0] = 0
    return Batch(*(np.stack([ids] * runs) for ids in (source, target_in, target)))


def losses_of(*configs: Config, steps: int = 1) -> list[list[float]]:
    """Return the losses of each step, of all runs."""
    trainer = JaxTrainer(configs, V)
    trainer.compile([SHAPE])
    return [trainer.train(make_batch(len(configs))).tolist() for _ in range(steps)]


def test_loss_is_the_label_smoothed_cross_entropy_of_the_target_tokens() -> None:
    config = make_config(label_smoothing=0.2)
    trainer = JaxTrainer([config], V)
    transformer = trainer.load_weights(trainer.state.weights, run=0)
    source, target_in, target_out = (ids[0] for ids in make_batch())
    logits = np.array(transformer(source, target_in), "float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.full((*target_out.shape, V), 0.2 / V)
    np.put_along_axis(expected, target_out[..., None], 0.8 + 0.2 / V, axis=-1)
    loss = -(expected * log_probs).sum(-1)[target_out != 0].mean()
    ((found,),) = losses_of(config)
    assert found == pytest.approx(loss, rel=1e-5)


def test_simcut_adds_a_divergence_that_is_0_without_cut_tokens() -> None:
    ((without,),) = losses_of(make_config())
    ((none_cut, half_cut),) = losses_of(
        make_config(simcut=3.0, simcut_share=1e-9), make_config(simcut=3.0, simcut_share=0.5)
    )
    assert none_cut == pytest.approx(without, rel=1e-5)
    assert half_cut > without + 0.01


def test_runs_that_train_together_train_as_alone() -> None:
    configs = [
        make_config(0.1, seed=1, simcut=1.0, warmup_steps=5),
        make_config(0.2, seed=2, simcut=3.0, warmup_steps=5, learning_rate_scale=2.0),
    ]
    together = np.array(losses_of(*configs, steps=20))
    alone = np.hstack([losses_of(config, steps=20) for config in configs])
    # Later, rounding errors have grown.
    np.testing.assert_allclose(together[:4], alone[:4], rtol=1e-3)
    assert (together[-1] < together[0]).all()


def test_runs_of_different_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^training.warmup_steps: 7 in run 2, and 4000 in run 1;"):
        JaxTrainer([make_config(), make_config(warmup_steps=7)], V)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([make_config(r_drop=1.0)], "training.r_drop=1.0: not supported here; use null"),
        ([make_config(), make_config(simcut=1.0)], "training.simcut: set it in all runs"),
        ([make_config(), make_config(dropout=0.1)], "model.dropout: set it in all runs"),
    ],
)
def test_settings_that_change_the_step_are_refused(configs: list[Config], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JaxTrainer(configs, V)
