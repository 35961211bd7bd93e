import numpy as np

from tfnmt.config import ModelConfig
from tfnmt.data.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import Forward
from tfnmt.tracing.steps import Step


def attention_steps(forward: Forward, side: str, cross: bool = False) -> list[Step]:
    return [
        step
        for step in forward.steps
        if step.function == "attention_weights"
        and step.side == side
        and ("cross_attention" in step.place) == cross
    ]


def test_the_trace_ends_with_the_models_own_logits(
    forward: Forward, transformer: Transformer, batch: Batch
) -> None:
    logits = np.array(transformer(batch.source, batch.target_in))
    assert np.array_equal(forward.steps[-1].get("result"), logits)
    assert np.array_equal(forward.logits, logits)


def test_attention_is_what_forced_decoding_tells(
    forward: Forward, transformer: Transformer, batch: Batch
) -> None:
    _, attention = transformer.attend(batch.source, batch.target_in)
    for steps, expected in (
        (attention_steps(forward, "encode"), attention.encoder),
        (attention_steps(forward, "decode"), attention.decoder),
        (attention_steps(forward, "decode", cross=True), attention.cross),
    ):
        traced = np.stack([step.get("result") for step in steps], axis=1)
        np.testing.assert_allclose(traced, expected, atol=1e-6)


def test_weights_are_the_softmax_of_the_scores_that_the_mask_leaves(forward: Forward) -> None:
    steps = [step for step in forward.steps if step.function == "attention_weights"]
    assert len(steps) == 6
    for step in steps:
        assert step.mask is not None
        scores = np.exp(step.get("scores")) * step.mask
        expected = scores / scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(step.get("result"), expected, atol=1e-6)


def test_each_side_has_its_mask(forward: Forward) -> None:
    (encoder, *_), (decoder, *_), (cross, *_) = (
        attention_steps(forward, "encode"),
        attention_steps(forward, "decode"),
        attention_steps(forward, "decode", cross=True),
    )
    real = [[[[True, True, True, True]]], [[[True, True, False, False]]]]
    assert np.array_equal(encoder.mask, real)
    assert np.array_equal(cross.mask, real)
    assert np.array_equal(decoder.mask, [[np.tri(3, dtype=bool)]])


def test_the_tied_table_is_named_where_it_embeds_and_where_it_predicts(
    forward: Forward, small_config: ModelConfig
) -> None:
    steps = [step for step in forward.steps if step.function.startswith("Embedding")]
    assert [step.function for step in steps] == [
        "Embedding.call", "Embedding.call", "Embedding.logits"
    ]  # fmt: skip
    for step in steps:
        assert [parameter.name for parameter in step.parameters] == ["target_embedding/table"]
        assert step.parameters[0].shape == (20, small_config.d_model)
