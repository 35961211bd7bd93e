"""Invariants of the whole model.

Letters as in the source: B batch, S source length, T target length, L layers, H heads, V vocabulary
size.
"""

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from tests.backend import needs_tensorflow
from tfnmt.config import ModelConfig
from tfnmt.errors import UserError
from tfnmt.model.attention import attention_weights, causal_mask
from tfnmt.model.cache import DYNAMIC_CACHE, CacheLayout, StaticCache
from tfnmt.model.decoder import DecoderLayer
from tfnmt.model.encoder import EncoderLayer
from tfnmt.model.transformer import Transformer

V = 50
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
TARGET = np.array([[1, 11, 12, 13], [1, 14, 15, 0]])


@pytest.fixture
def model(small_config: ModelConfig) -> Transformer:
    return Transformer(small_config, V)


def assert_close(actual: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(
        ops.convert_to_numpy(actual), ops.convert_to_numpy(expected), atol=atol
    )


# --- Weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d_model", "num_heads", "d_ff", "parameters"),
    [
        pytest.param(512, 8, 2048, 63_082_496, id="base"),
        pytest.param(1024, 16, 4096, 214_245_376, id="big", marks=pytest.mark.slow),
    ],
)
def test_transformer_has_the_size_of_the_paper(
    monkeypatch: pytest.MonkeyPatch, d_model: int, num_heads: int, d_ff: int, parameters: int
) -> None:
    def zeros(_: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        return ops.zeros(shape, dtype)

    # Random numbers for so many weights take seconds.
    for initializer in (keras.initializers.RandomNormal, keras.initializers.GlorotUniform):
        monkeypatch.setattr(initializer, "__call__", zeros)
    config = ModelConfig(
        num_encoder_layers=6,
        num_decoder_layers=6,
        d_model=d_model,
        num_heads=num_heads,
        d_ff=d_ff,
        norm_first=False,
    )
    assert Transformer(config, 37_000).count_params() == parameters


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_embeddings_share_tables_as_configured(tie: Any, tables: int) -> None:
    model = Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32, tie_embeddings=tie), V)
    assert sum(weight.name == "table" for weight in model.weights) == tables


def test_only_pre_norm_has_final_norms(model: Transformer, small_config: ModelConfig) -> None:
    norms = [w for w in model.weights if w.path.endswith(("coder/norm/gamma", "coder/norm/beta"))]
    assert len(norms) == (4 if small_config.norm_first else 0)


def test_saved_weights_give_the_same_logits(small_config: ModelConfig, tmp_path: Path) -> None:
    first, second = Transformer(small_config, V), Transformer(small_config, V)
    first.save_weights(tmp_path / "a.weights.h5")
    second.load_weights(tmp_path / "a.weights.h5")
    assert_close(second(SOURCE, TARGET), first(SOURCE, TARGET), atol=0)


def test_weights_that_unpack_to_far_more_are_refused(
    small_config: ModelConfig, tmp_path: Path
) -> None:
    """HDF5 can compress an array of a terabyte to a few bytes."""
    model, path = Transformer(small_config, V), tmp_path / "a.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        del file[names[0]]
        file.create_dataset(names[0], (500_000, 500_000), "float32", compression="gzip")
    with pytest.raises(UserError, match=r"damaged.*its arrays are larger than the file"):
        model.load_weights(path)


@pytest.mark.parametrize("kind", ["external data", "external link", "virtual"])
def test_weights_that_read_another_file_are_refused(
    small_config: ModelConfig, tmp_path: Path, kind: str
) -> None:
    model, path, other = Transformer(small_config, V), tmp_path / "a.weights.h5", tmp_path / "b.h5"
    model.save_weights(path)
    with h5py.File(path, "r+") as file:
        arrays: list[h5py.Dataset] = []
        file.visititems(lambda _, item: arrays.append(item) if hasattr(item, "shape") else None)
        name, shape = arrays[0].name, arrays[0].shape
        with h5py.File(other, "w") as secret:
            secret["x"] = np.ones(shape, "float32")
        del file[name]
        if kind == "external data":
            file.create_dataset(name, shape, "float32", external=[(str(other), 0, 10_000)])
        elif kind == "external link":
            file[name] = h5py.ExternalLink(str(other), "x")
        else:
            layout = h5py.VirtualLayout(shape, "float32")
            layout[:] = h5py.VirtualSource(str(other), "x", shape)
            file.create_virtual_dataset(name, layout)
    with pytest.raises(UserError, match="damaged, or of another model"):
        model.load_weights(path)


# --- Incremental decoding -------------------------------------------------------------------------


def test_incremental_decoding_matches_the_call(model: Transformer) -> None:
    expected = model(SOURCE, TARGET)
    cache, context = model.start_decoding(SOURCE, beams=1)
    parents = np.zeros((len(SOURCE), 1), "int32")
    for position in range(TARGET.shape[1]):
        tokens = TARGET[:, position : position + 1]
        hidden, cache = model.decode_step(tokens, parents, np.int32(position), cache, context)
        assert_close(model.logits(hidden)[:, 0], expected[:, position])


@pytest.mark.parametrize("layout", [DYNAMIC_CACHE, StaticCache(7)], ids=["dynamic", "static"])
def test_hypotheses_attend_to_their_own_ancestors_only(
    model: Transformer, layout: CacheLayout
) -> None:
    """With random parents, each hypothesis gives the logits of its own tokens decoded alone."""
    random, beams, rows = np.random.default_rng(0), 3, len(SOURCE)
    cache, context = model.start_decoding(SOURCE, beams, layout)
    hypotheses = np.zeros((rows, beams, 0), "int32")
    for position in range(5):
        parents = random.integers(0, beams, (rows, beams)).astype("int32")
        tokens = random.integers(4, V, (rows, beams)).astype("int32")
        hidden, cache = model.decode_step(tokens, parents, np.int32(position), cache, context)
        inherited = np.take_along_axis(hypotheses, parents[..., None], axis=1)
        hypotheses = np.concatenate([inherited, tokens[..., None]], axis=2)  # [B, K, T]
        for beam in range(beams):
            expected = model(SOURCE, hypotheses[:, beam])[:, -1]
            assert_close(model.logits(hidden)[:, beam], expected)


# --- Masks and padding ----------------------------------------------------------------------------


def test_later_tokens_change_no_earlier_logits(model: Transformer) -> None:
    changed = TARGET.copy()
    changed[:, 2] = 40
    before, after = model(SOURCE, TARGET), model(SOURCE, changed)
    assert_close(after[:, :2], before[:, :2], atol=1e-6)
    assert np.abs(np.array(after[:, 2:]) - np.array(before[:, 2:])).max() > 1e-2


def test_source_padding_changes_no_logits(model: Transformer) -> None:
    padded = np.pad(SOURCE, [(0, 0), (0, 4)])
    assert_close(model(padded, TARGET), model(SOURCE, TARGET))


def test_target_padding_changes_no_logits_before_it(model: Transformer) -> None:
    padded = np.pad(TARGET, [(0, 0), (0, 4)])
    assert_close(model(SOURCE, padded)[:, : TARGET.shape[1]], model(SOURCE, TARGET))


def test_sentence_gives_the_same_logits_alone_and_in_a_batch(model: Transformer) -> None:
    batch = model(SOURCE, TARGET)
    assert_close(model(SOURCE[1:, :3], TARGET[1:, :3])[0], batch[1, :3])


def test_decoder_needs_no_padding_mask_for_the_target(small_config: ModelConfig) -> None:
    layer = DecoderLayer(small_config)
    layer.build()
    random = np.random.default_rng(0)
    x, memory = (random.standard_normal((1, n, 16)).astype("float32") for n in (5, 3))
    cross = layer.cross_attention.project_keys_values(memory)
    memory_mask = np.ones((1, 1, 1, 3), bool)
    target_mask = np.array([[[[True, True, True, False, False]]]])
    causal = np.array(causal_mask(5))
    without = layer(x, causal, cross, memory_mask)
    with_mask = layer(x, causal & target_mask, cross, memory_mask)
    assert_close(with_mask[:, :3], without[:, :3], atol=1e-6)


# --- keras_nlp ------------------------------------------------------------------------------------


@needs_tensorflow
def test_encoder_layer_matches_keras_nlp(small_config: ModelConfig) -> None:
    import keras_nlp

    ours = EncoderLayer(small_config)
    ours.build()
    theirs = keras_nlp.layers.TransformerEncoder(
        intermediate_dim=32,
        num_heads=4,
        layer_norm_epsilon=1e-6,
        normalize_first=small_config.norm_first,
    )
    x = np.random.default_rng(0).standard_normal((2, 5, 16)).astype("float32")
    theirs.build(x.shape)
    assign_random_weights(ours, theirs)
    mask = SOURCE != 0
    assert_close(
        ours(x, mask[:, None, None, :])[1, :3],
        theirs(x, padding_mask=mask)[1, :3],
    )


@needs_tensorflow
def test_decoder_layer_matches_keras_nlp(small_config: ModelConfig) -> None:
    import keras_nlp

    ours = DecoderLayer(small_config)
    ours.build()
    theirs = keras_nlp.layers.TransformerDecoder(
        intermediate_dim=32,
        num_heads=4,
        layer_norm_epsilon=1e-6,
        normalize_first=small_config.norm_first,
    )
    random = np.random.default_rng(0)
    x, memory = (random.standard_normal((2, n, 16)).astype("float32") for n in (4, 5))
    theirs.build(x.shape, memory.shape)
    assign_random_weights(ours, theirs)
    mask = SOURCE != 0
    cross = ours.cross_attention.project_keys_values(memory)
    assert_close(
        ours(x, causal_mask(4), cross, mask[:, None, None, :]),
        theirs(x, memory, encoder_padding_mask=mask),
    )


KERAS_NLP_NAMES = {
    "self_attention/query": "self_attention/query",
    "self_attention/key": "self_attention/key",
    "self_attention/value": "self_attention/value",
    "self_attention/output": "self_attention/attention_output",
    "self_attention_residual/norm": "self_attention_layer_norm",
    "cross_attention/query": "cross_attention/query",
    "cross_attention/key": "cross_attention/key",
    "cross_attention/value": "cross_attention/value",
    "cross_attention/output": "cross_attention/attention_output",
    "cross_attention_residual/norm": "cross_attention_layer_norm",
    "feed_forward/inner": "feedforward_intermediate_dense",
    "feed_forward/outer": "feedforward_output_dense",
    "feed_forward_residual/norm": "feedforward_layer_norm",
}
"""The paths of our sublayers and their names in keras_nlp."""


def assign_random_weights(ours: Any, theirs: Any) -> None:
    """Give both layers the same random weights.

    The kernels of keras_nlp have an axis for the heads.
    """
    random = np.random.default_rng(1)
    their_weights = {weight.path: weight for weight in theirs.weights}
    for weight in ours.weights:
        owner, name = weight.path.split("/", 1)[1].rsplit("/", 1)
        value = random.standard_normal(weight.shape).astype("float32") * 0.3
        weight.assign(value)
        # Self-attention is named `self_attention_layer` in their encoder, not in their decoder.
        suffix = f"{KERAS_NLP_NAMES[owner]}/{name}"
        their_path = next(
            path
            for path in their_weights
            if path.replace("attention_layer/", "attention/").endswith(suffix)
        )
        their_weight = their_weights.pop(their_path)
        their_weight.assign(value.reshape(their_weight.shape))
    assert not their_weights, f"not assigned: {list(their_weights)}"


# --- Inspection -----------------------------------------------------------------------------------


def test_call_with_attention_returns_the_weights_of_the_call(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = []

    def record(*arguments: Any) -> Any:
        weights = attention_weights(*arguments)
        recorded.append(ops.convert_to_numpy(weights))
        return weights

    monkeypatch.setattr("tfnmt.model.attention.attention_weights", record)
    model(SOURCE, TARGET)
    # Two encoder layers, then self-attention and cross-attention of each decoder layer.
    encoder, decoder, cross = recorded[:2], recorded[2::2], recorded[3::2]

    hidden, attention = model.call_with_attention(SOURCE, TARGET)
    assert_close(model.logits(hidden), model(SOURCE, TARGET))
    assert_close(attention.encoder, np.stack(encoder, axis=1))
    assert_close(attention.decoder, np.stack(decoder, axis=1))
    assert_close(attention.cross, np.stack(cross, axis=1))
    assert attention.cross.shape == (2, 2, 4, 4, 5)  # [B, L, H, T, S]
    assert_close(ops.sum(attention.cross, axis=-1), np.ones((2, 2, 4, 4)))
    assert_close(attention.cross[1, :, :, :, 3:], np.zeros((2, 4, 4, 2)))  # padding
