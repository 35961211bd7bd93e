import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import ModelConfig, TrainingConfig
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import ForwardTrace, Losses, compute_losses
from tfnmt.tracing.steps import Step
from tfnmt.training.trainer import Trainer


def attention_steps(forward: ForwardTrace, stage: str, cross: bool = False) -> list[Step]:
    return [
        step
        for step in forward.steps
        if step.function == "attention_weights"
        and step.stage == stage
        and ("cross_attention" in step.path) == cross
    ]


def test_forward_trace_ends_with_the_logits_of_the_model(
    forward: ForwardTrace, transformer: Transformer, batch: Batch
) -> None:
    logits = np.array(transformer(batch.source, batch.target_in))
    assert np.array_equal(forward.steps[-1].get("result"), logits)
    assert np.array_equal(forward.logits, logits)


def test_attention_weights_match_call_with_attention(
    forward: ForwardTrace, transformer: Transformer, batch: Batch
) -> None:
    _, attention = transformer.call_with_attention(batch.source, batch.target_in)
    for steps, expected in (
        (attention_steps(forward, "encode"), attention.encoder),
        (attention_steps(forward, "decode"), attention.decoder),
        (attention_steps(forward, "decode", cross=True), attention.cross),
    ):
        traced = np.stack([step.get("result") for step in steps], axis=1)
        np.testing.assert_allclose(traced, expected, atol=1e-6)


def test_attention_weights_are_the_softmax_of_unmasked_scores(forward: ForwardTrace) -> None:
    steps = [step for step in forward.steps if step.function == "attention_weights"]
    assert len(steps) == 6
    for step in steps:
        assert step.mask is not None
        scores = np.exp(step.get("scores")) * step.mask
        expected = scores / scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(step.get("result"), expected, atol=1e-6)


def test_attention_masks_are_padding_and_causal_masks(forward: ForwardTrace) -> None:
    (encoder, *_), (decoder, *_), (cross, *_) = (
        attention_steps(forward, "encode"),
        attention_steps(forward, "decode"),
        attention_steps(forward, "decode", cross=True),
    )
    real = [[[[True, True, True, True]]], [[[True, True, False, False]]]]
    assert np.array_equal(encoder.mask, real)
    assert np.array_equal(cross.mask, real)
    assert np.array_equal(decoder.mask, [[np.tri(3, dtype=bool)]])


def test_tied_table_is_a_parameter_of_both_embeddings_and_of_the_logits(
    forward: ForwardTrace, small_config: ModelConfig
) -> None:
    steps = [step for step in forward.steps if step.function.startswith("Embedding")]
    functions = [step.function for step in steps]
    assert functions == ["Embedding.call", "Embedding.call", "Embedding.logits"]
    for step in steps:
        assert [parameter.name for parameter in step.parameters] == ["target_embedding/table"]
        assert step.parameters[0].shape == (20, small_config.d_model)


@pytest.fixture
def losses(forward: ForwardTrace, batch: Batch) -> Losses:
    return compute_losses(forward.logits, batch.target_out, 0.1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_loss_sums_match_training(
    forward: ForwardTrace, transformer: Transformer, batch: Batch, smoothing: float
) -> None:
    trainer = Trainer(transformer, TrainingConfig(label_smoothing=smoothing))
    data = tf.nest.map_structure(tf.constant, ((batch.source, batch.target_in), batch.target_out))
    sums = trainer.differentiate(data, tf.constant([1, 0])).sums
    losses = compute_losses(forward.logits, batch.target_out, smoothing)
    assert losses.smoothed.sum() == pytest.approx(float(sums.loss), rel=1e-5)
    assert losses.cross_entropy.sum() == pytest.approx(float(sums.cross_entropy), rel=1e-5)
    assert losses.real.sum() == float(sums.tokens)


def test_padding_has_zero_loss_and_zero_gradient(losses: Losses) -> None:
    assert not losses.real[1, 2]
    assert losses.smoothed[1, 2] == losses.cross_entropy[1, 2] == losses.entropy[1, 2] == 0
    assert not losses.gradients[1, 2].any()


def test_smoothed_loss_is_kl_divergence_plus_a_constant(losses: Losses) -> None:
    p = np.exp(losses.log_probs)
    divergence = (losses.target_probs * np.log(losses.target_probs / p)).sum(axis=-1) * losses.real
    np.testing.assert_allclose(losses.smoothed, divergence + losses.entropy, atol=1e-12)
    assert len(np.unique(losses.entropy[losses.real].round(12))) == 1


def test_loss_without_smoothing_is_the_cross_entropy(forward: ForwardTrace, batch: Batch) -> None:
    losses = compute_losses(forward.logits, batch.target_out, 0.0)
    np.testing.assert_array_equal(losses.smoothed, losses.cross_entropy)
    assert not losses.entropy.any()


def test_nudged_logit_changes_the_loss_by_its_gradient(losses: Losses) -> None:
    for place in ((0, 0, 9), (0, 1, 4), (1, 1, 2)):
        change = losses.nudged(*place, 1e-5).smoothed.sum() - losses.smoothed.sum()
        assert change / 1e-5 == pytest.approx(losses.gradients[place], abs=1e-5)
    assert losses.nudged(0, 0, 9, 3.0).cross_entropy[0, 0] < losses.cross_entropy[0, 0]


def test_nudged_logit_changes_no_other_position(losses: Losses) -> None:
    after = losses.nudged(0, 1, 4, 2.0)
    assert np.argwhere(after.smoothed != losses.smoothed).tolist() == [[0, 1]]
