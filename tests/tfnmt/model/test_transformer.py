"""Invariants of the whole model; letters as in the source: B, S, T, N, V."""

from pathlib import Path
from typing import Any

import keras_nlp
import numpy as np
import pytest
from keras import ops

from tfnmt.config import ModelConfig
from tfnmt.model.attention import attention_weights, causal_mask
from tfnmt.model.cache import GROWING, Bounded, Room
from tfnmt.model.decoder import DecoderLayer
from tfnmt.model.encoder import EncoderLayer
from tfnmt.model.transformer import Transformer

V = 50
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
TARGET = np.array([[1, 11, 12, 13], [1, 14, 15, 0]])
PAPER = {"norm_first": False, "num_encoder_layers": 6, "num_decoder_layers": 6}


@pytest.fixture
def model(small_config: ModelConfig) -> Transformer:
    return Transformer(small_config, V)


def close(actual: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(
        ops.convert_to_numpy(actual), ops.convert_to_numpy(expected), atol=atol
    )


def test_the_base_model_has_the_papers_size() -> None:
    base = ModelConfig(d_model=512, num_heads=8, d_ff=2048, **PAPER)
    assert Transformer(base, 37_000).count_params() == 63_082_496


@pytest.mark.slow
def test_the_big_model_has_the_papers_size() -> None:
    big = ModelConfig(d_model=1024, num_heads=16, d_ff=4096, **PAPER)
    assert Transformer(big, 37_000).count_params() == 214_245_376


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_embeddings_share_tables_as_configured(tie: Any, tables: int) -> None:
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32, tie_embeddings=tie), V)
    assert sum(weight.name == "table" for weight in model.weights) == tables


def test_step_by_step_gives_the_logits_of_the_whole(model: Transformer) -> None:
    whole = model(SOURCE, TARGET)
    cache, fixed = model.start_search(SOURCE, beams=1)
    parents = np.zeros((len(SOURCE), 1), "int32")
    for position in range(TARGET.shape[1]):
        tokens = TARGET[:, position : position + 1]
        hidden, cache = model.decode_step(tokens, parents, np.int32(position), cache, fixed)
        close(model.logits(hidden)[:, 0], whole[:, position])


@pytest.mark.parametrize("room", [GROWING, Bounded(7)], ids=["growing", "bounded"])
def test_hypotheses_read_their_own_past_whoever_they_go_on_from(
    model: Transformer, room: Room
) -> None:
    """K tokens a step and random parents give what each hypothesis gives alone."""
    random, beams, rows = np.random.default_rng(0), 3, len(SOURCE)
    cache, fixed = model.start_search(SOURCE, beams, room)
    pasts = np.zeros((rows, beams, 0), "int32")
    for position in range(5):
        parents = random.integers(0, beams, (rows, beams)).astype("int32")
        tokens = random.integers(4, V, (rows, beams)).astype("int32")
        hidden, cache = model.decode_step(tokens, parents, np.int32(position), cache, fixed)
        inherited = np.take_along_axis(pasts, parents[..., None], axis=1)
        pasts = np.concatenate([inherited, tokens[..., None]], axis=2)  # [B, K, T]
        for beam in range(beams):
            close(model.logits(hidden)[:, beam], model(SOURCE, pasts[:, beam])[:, -1])


def test_a_later_token_cannot_change_an_earlier_logit(model: Transformer) -> None:
    changed = TARGET.copy()
    changed[:, 2] = 40
    before, after = model(SOURCE, TARGET), model(SOURCE, changed)
    close(after[:, :2], before[:, :2], atol=1e-6)
    assert np.abs(np.array(after[:, 2:]) - np.array(before[:, 2:])).max() > 1e-2


def test_padding_of_the_source_changes_nothing(model: Transformer) -> None:
    padded = np.pad(SOURCE, [(0, 0), (0, 4)])
    close(model(padded, TARGET), model(SOURCE, TARGET))


def test_padding_of_the_target_changes_nothing_before_it(model: Transformer) -> None:
    padded = np.pad(TARGET, [(0, 0), (0, 4)])
    close(model(SOURCE, padded)[:, : TARGET.shape[1]], model(SOURCE, TARGET))


def test_a_sentence_gives_the_same_alone_and_in_a_batch(model: Transformer) -> None:
    together = model(SOURCE, TARGET)
    close(model(SOURCE[1:, :3], TARGET[1:, :3])[0], together[1, :3])


def test_with_padding_last_the_decoder_needs_no_mask_of_it(small_config: ModelConfig) -> None:
    layer = DecoderLayer(small_config)
    layer.build()
    random = np.random.default_rng(0)
    x, memory = (random.standard_normal((1, n, 16)).astype("float32") for n in (5, 3))
    cross = layer.cross_attention.project(memory)
    everywhere = np.ones((1, 1, 1, 3), bool)
    real = np.array([[[[True, True, True, False, False]]]])
    causal = np.array(causal_mask(5))
    without = layer(x, causal, cross, everywhere)
    close(layer(x, causal & real, cross, everywhere)[:, :3], without[:, :3], atol=1e-6)


def test_only_pre_norm_has_last_norms(model: Transformer, small_config: ModelConfig) -> None:
    norms = [w for w in model.weights if w.path.endswith(("coder/norm/gamma", "coder/norm/beta"))]
    assert len(norms) == (4 if small_config.norm_first else 0)


def test_saved_weights_give_the_same_logits(small_config: ModelConfig, tmp_path: Path) -> None:
    first, second = Transformer(small_config, V), Transformer(small_config, V)
    first.save_weights(tmp_path / "a.weights.h5")
    second.load_weights(tmp_path / "a.weights.h5")
    close(second(SOURCE, TARGET), first(SOURCE, TARGET), atol=0)


def test_our_encoder_layer_is_keras_nlps_on_the_same_weights(small_config: ModelConfig) -> None:
    ours = EncoderLayer(small_config)
    ours.build()
    theirs = keras_nlp.layers.TransformerEncoder(
        intermediate_dim=32, num_heads=4, layer_norm_epsilon=1e-6,
        normalize_first=small_config.norm_first,
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((2, 5, 16)).astype("float32")
    theirs.build(x.shape)
    give_weights(ours, theirs)
    mask = SOURCE != 0
    close(
        ours(x, mask[:, None, None, :])[1, :3],
        theirs(x, padding_mask=mask)[1, :3],
    )


def test_our_decoder_layer_is_keras_nlps_on_the_same_weights(small_config: ModelConfig) -> None:
    ours = DecoderLayer(small_config)
    ours.build()
    theirs = keras_nlp.layers.TransformerDecoder(
        intermediate_dim=32, num_heads=4, layer_norm_epsilon=1e-6,
        normalize_first=small_config.norm_first,
    )  # fmt: skip
    random = np.random.default_rng(0)
    x, memory = (random.standard_normal((2, n, 16)).astype("float32") for n in (4, 5))
    theirs.build(x.shape, memory.shape)
    give_weights(ours, theirs)
    mask = SOURCE != 0
    close(
        ours(x, causal_mask(4), ours.cross_attention.project(memory), mask[:, None, None, :]),
        theirs(x, memory, encoder_padding_mask=mask),
    )


NAMES = {
    "self_attention/query": "self_attention/query", "self_attention/key": "self_attention/key",
    "self_attention/value": "self_attention/value",
    "self_attention/output": "self_attention/attention_output",
    "self_attention_residual/norm": "self_attention_layer_norm",
    "cross_attention/query": "cross_attention/query", "cross_attention/key": "cross_attention/key",
    "cross_attention/value": "cross_attention/value",
    "cross_attention/output": "cross_attention/attention_output",
    "cross_attention_residual/norm": "cross_attention_layer_norm",
    "feed_forward/inner": "feedforward_intermediate_dense",
    "feed_forward/outer": "feedforward_output_dense",
    "feed_forward_residual/norm": "feedforward_layer_norm",
}  # fmt: skip
"""Our sublayers and keras_nlp's names of them."""


def give_weights(ours: Any, theirs: Any) -> None:
    """Random weights for both; keras_nlp keeps the heads apart in the shapes of its kernels."""
    random = np.random.default_rng(1)
    their_weights = {weight.path: weight for weight in theirs.weights}
    for weight in ours.weights:
        owner, name = weight.path.split("/", 1)[1].rsplit("/", 1)
        value = random.standard_normal(weight.shape).astype("float32") * 0.3
        weight.assign(value)
        # Their encoder calls its self-attention `self_attention_layer`, their decoder does not.
        path = next(
            path for path in their_weights
            if path.replace("attention_layer/", "attention/").endswith(f"{NAMES[owner]}/{name}")
        )  # fmt: skip
        their_weight = their_weights.pop(path)
        their_weight.assign(value.reshape(their_weight.shape))
    assert not their_weights, f"not given: {list(their_weights)}"


def test_attention_is_what_the_forward_pass_attends_with(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(*arguments: Any) -> Any:
        weights = attention_weights(*arguments)
        seen.append(ops.convert_to_numpy(weights))
        return weights

    monkeypatch.setattr("tfnmt.model.attention.attention_weights", note)
    model(SOURCE, TARGET)
    encoder, (own, cross) = seen[:2], (seen[2::2], seen[3::2])

    hidden, attention = model.attend(SOURCE, TARGET)
    close(model.logits(hidden), model(SOURCE, TARGET))
    close(attention.encoder, np.stack(encoder, axis=1))
    close(attention.decoder, np.stack(own, axis=1))
    close(attention.cross, np.stack(cross, axis=1))
    assert attention.cross.shape == (2, 2, 4, 4, 5)  # [B, L, H, T, S]
    close(ops.sum(attention.cross, axis=-1), np.ones((2, 2, 4, 4)))
    close(attention.cross[1, :, :, :, 3:], np.zeros((2, 4, 4, 2)))  # padding
