"""Flash attention computes the same as standard attention, with the same weights."""

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from tests.backend import SEED_DTYPE, needs_tensorflow, pullback
from tfnmt.config import ModelConfig
from tfnmt.model import flash
from tfnmt.model.attention import MultiHeadAttention, attention_weights, causal_mask
from tfnmt.model.flash import FlashAttention, flash_attention
from tfnmt.model.transformer import Transformer

SEED = ops.array([1, 2], SEED_DTYPE)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most lengths then need several blocks, and are no multiple of one."""
    monkeypatch.setattr(flash, "MAX_BLOCK", 4)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32")


def dense(query: Any, keys: Any, values: Any, mask: Any, dropout: Any = 1.0) -> Any:
    """Standard attention, except that `dropout` is a given mask; queries are scaled."""
    scale = query.shape[-1] ** 0.5
    return ops.matmul(attention_weights(query * scale, keys, mask) * dropout, values)


def value_and_gradients(function: Any, *inputs: Any) -> list[Any]:
    """Return the value and the gradients by all inputs, each output weighted differently."""
    value, pull = pullback(function, inputs)
    return [value, *pull(random(*value.shape, seed=9))]


def assert_close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


# --- The function ---------------------------------------------------------------------------------

lengths = st.sampled_from([1, 3, 4, 9, 14])


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 3), queries=lengths, keys=lengths, data=st.data())
def test_flash_attention_matches_standard_attention(
    rows: int, queries: int, keys: int, data: st.DataObject
) -> None:
    """With any mask: all keys of a query may be masked, and there may be a single query."""
    shape = (rows, 1, data.draw(st.sampled_from([1, queries])), keys)
    share = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    mask = np.random.default_rng(queries * keys).random(shape) < share
    inputs = random(rows, 2, queries, 4), random(rows, 2, keys, 4), random(rows, 2, keys, 4, seed=1)
    assert_close(
        value_and_gradients(lambda *each: flash_attention(*each, mask), *inputs),
        value_and_gradients(lambda *each: dense(*each, mask), *inputs),
    )


@pytest.mark.parametrize("length", [1, 4, 9])
def test_flash_attention_without_a_mask_is_causal(length: int) -> None:
    inputs = tuple(random(2, 2, length, 4, seed=number) for number in range(3))
    assert_close(
        value_and_gradients(lambda *each: flash_attention(*each, None), *inputs),
        value_and_gradients(lambda *each: dense(*each, causal_mask(length)), *inputs),
    )


def test_flash_attention_with_dropout_matches_standard_attention_with_the_same_mask() -> None:
    layer = make_layer(dropout=0.5)
    block_mask = layer._dropout_mask(SEED)
    blocks = [block_mask((2, 2, 7, 4), ops.array(n, "int32")) for n in range(3)]
    dropout = ops.concatenate(blocks, axis=-1)
    mask = np.random.default_rng(0).random((2, 1, 1, 12)) < 0.7
    inputs = random(2, 2, 7, 4), random(2, 2, 12, 4), random(2, 2, 12, 4, seed=1)
    assert_close(
        value_and_gradients(lambda *each: flash_attention(*each, mask, block_mask), *inputs),
        value_and_gradients(lambda *each: dense(*each, mask, dropout), *inputs),
    )


def test_flash_attention_of_diverged_scores_is_finite() -> None:
    inputs = 1e3 * random(1, 1, 6, 4), 1e3 * random(1, 1, 6, 4), random(1, 1, 6, 4)
    found = value_and_gradients(lambda *each: flash_attention(*each, None), *inputs)
    assert all(np.isfinite(each).all() for each in found)


# --- The layer ------------------------------------------------------------------------------------


def make_layer(kind: type[MultiHeadAttention] = FlashAttention, dropout: float = 0.0) -> Any:
    keras.utils.set_random_seed(1)
    layer = kind(16, 2, dropout, name="attention")
    layer.build()
    return layer


def test_flash_attention_layer_without_a_seed_is_the_standard_one() -> None:
    x, mask = random(2, 9, 16), causal_mask(9)
    found, expected = (
        make_layer(kind).self_attention(x, mask) for kind in (FlashAttention, MultiHeadAttention)
    )
    np.testing.assert_array_equal(found, expected)


def test_dropout_masks_of_blocks_differ_and_repeat() -> None:
    mask = make_layer(dropout=0.5)._dropout_mask(SEED)
    first, second, again = (
        np.array(mask((20, 50), ops.array(block, "int32"))) for block in (0, 1, 0)
    )
    np.testing.assert_array_equal(first, again)
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.08)


@needs_tensorflow
@pytest.mark.parametrize("is_compiled", [True, False], ids=["xla", "graph of any length"])
def test_compiled_flash_attention_matches_the_eager_one(is_compiled: bool) -> None:
    import tensorflow as tf

    any_length = [tf.TensorSpec((None, None, 16))]
    options = {"jit_compile": True} if is_compiled else {"input_signature": any_length}
    layer = make_layer(dropout=0.5)

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.sin(layer.self_attention(x, None, SEED)))
        return tape.gradient(total, x)

    x = tf.constant(random(2, 11, 16))
    compiled = tf.function(gradient, autograph=False, **options)
    np.testing.assert_allclose(compiled(x), gradient(x), atol=1e-5)


def test_flash_attention_in_bfloat16_is_close_to_float32() -> None:
    inputs = [random(2, 2, 9, 4, seed=number) for number in range(3)]
    rounded = [ops.cast(each, "bfloat16") for each in inputs]
    found = flash_attention(*rounded, None)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    np.testing.assert_allclose(
        ops.cast(found, "float32"), flash_attention(*inputs, None), atol=0.05
    )


@pytest.mark.skipif(not flash._has_kernel(ops.zeros(1, "bfloat16")), reason="needs JAX and a GPU")
@pytest.mark.parametrize("mask", [None, np.arange(64) < 50], ids=["causal", "padding"])
def test_kernel_matches_standard_attention(mask: Any) -> None:
    kinds = FlashAttention, MultiHeadAttention
    layers = [kind(128, 2, 0.0, dtype="mixed_bfloat16") for kind in kinds]
    for layer in layers:
        layer.build()
        layer.set_weights([0.1 * random(*weight.shape, seed=1) for weight in layer.weights])
    standard_mask = causal_mask(64) if mask is None else mask[None, None, None]
    masks = (None if mask is None else standard_mask), standard_mask
    found, expected = (
        value_and_gradients(partial(layer.self_attention, mask=each, seed=SEED), random(2, 64, 128))
        for layer, each in zip(layers, masks, strict=True)
    )
    for one, other in zip(found, expected, strict=True):
        difference = np.abs(ops.cast(one, "float32") - ops.cast(other, "float32"))
        assert np.max(difference) < 0.03 * np.max(np.abs(ops.cast(other, "float32")))


@needs_tensorflow
def test_memory_has_no_tensor_of_all_weights() -> None:
    """No tensor of a training step has both the length of queries and that of keys."""
    import tensorflow as tf

    layer = make_layer(dropout=0.5)

    @tf.function(autograph=False)
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(layer.self_attention(x, None, SEED))
        return tape.gradient(total, x)

    graph = gradient.get_concrete_function(tf.TensorSpec((2, 101, 16))).graph
    graphs = [graph, *(function.graph for function in graph._functions.values())]
    shapes = [out.shape for each in graphs for op in each.get_operations() for out in op.outputs]
    assert any(101 in shape for shape in shapes if shape.rank)
    assert not [shape for shape in shapes if shape.rank and list(shape).count(101) > 1]


# --- The Transformer ------------------------------------------------------------------------------

SOURCE = np.array([[5, 6, 7, 8, 9, 2], [9, 10, 2, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
TARGET = np.array([[1, 11, 12, 13, 14], [1, 14, 0, 0, 0], [1, 5, 0, 0, 0]])


def make_transformers(config: ModelConfig) -> tuple[Transformer, Transformer]:
    """A standard and a flash model with the same weights."""
    standard, other = (
        Transformer(config.model_copy(update={"attention": kind}), 20)
        for kind in ("standard", "flash")
    )
    other.set_weights(standard.get_weights())
    return standard, other


def test_flash_attention_changes_neither_weights_nor_paths(small_config: ModelConfig) -> None:
    standard, other = make_transformers(small_config)
    assert [weight.path for weight in other.weights] == [w.path for w in standard.weights]
    layers, others = standard._flatten_layers(), other._flatten_layers()
    assert [layer.path for layer in layers] == [layer.path for layer in others]


def train(model: Transformer) -> Any:
    memory, memory_mask = model.encode(SOURCE, SEED)
    return model.decode(TARGET, memory, memory_mask, SEED)


def test_transformer_trains_the_same_with_flash_attention(small_config: ModelConfig) -> None:
    config = small_config.model_copy(update={"dropout": 0.3})
    results = []
    for model in make_transformers(config):
        hidden, pull = pullback(partial(train, model), (), model.trainable_variables)
        results.append([hidden, *pull(ops.cos(hidden))])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_attention_weights_and_outputs_are_standard_outside_of_training(
    small_config: ModelConfig,
) -> None:
    """So are those of decoding, `align`, `attention`, `trace` and the plots."""
    standard, other = make_transformers(small_config)
    found, expected = (
        keras.tree.flatten([model(SOURCE, TARGET), model.call_with_attention(SOURCE, TARGET)])
        for model in (other, standard)
    )
    for one, same in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, same)
