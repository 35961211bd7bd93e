"""The tensors of the graph `inspect`, compared with the trace of the same model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import ModelConfig
from tfnmt.decoding.searcher import output_projection
from tfnmt.exporting.inspection import inspect
from tfnmt.exporting.litert import SharedOutputProjection, convert
from tfnmt.exporting.litert import _inspection_graph as inspection_graph
from tfnmt.litert.interpreters import Interpreters
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import ForwardTrace, trace_forward
from tfnmt.tracing.traced_model import make_batch

VOCAB_SIZE = 20
SOURCE, TARGET = [5, 6, 7, 2], [9, 10, 11, 12, 2]

TOLERANCE = 2e-5
"""Of float32: the graph, the trace and LiteRT sum in different orders."""

Tensors = dict[str, np.ndarray]


@pytest.fixture
def transformer(small_config: ModelConfig) -> Transformer:
    keras.utils.set_random_seed(3)
    return Transformer(small_config, VOCAB_SIZE)


@pytest.fixture
def forward(transformer: Transformer) -> ForwardTrace:
    return trace_forward(transformer, make_batch([SOURCE], [TARGET]))


@pytest.fixture
def tensors(transformer: Transformer) -> Tensors:
    output = output_projection(transformer)
    inspected = inspect(transformer, output, tf.constant([SOURCE]), tf.constant([TARGET]))
    return {name: np.asarray(each) for name, each in inspected.items()}


def traced(forward: ForwardTrace, function: str, variable: str, stage: str) -> list[np.ndarray]:
    return [
        step.get(variable)
        for step in forward.steps
        if (step.function, step.stage) == (function, stage)
    ]


def norms(states: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.linalg.norm(state, axis=-1) for state in states], axis=1)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_attention_weights_match_the_trace(tensors: Tensors, forward: ForwardTrace) -> None:
    encoder = traced(forward, "attention_weights", "result", "encode")
    decoder = traced(forward, "attention_weights", "result", "decode")
    close(tensors["encoder"], np.stack(encoder, axis=1))
    close(tensors["decoder"], np.stack(decoder[::2], axis=1))
    close(tensors["cross"], np.stack(decoder[1::2], axis=1))


def test_attention_rows_sum_to_1_and_later_positions_have_weight_0(tensors: Tensors) -> None:
    for name in "encoder", "decoder", "cross":
        np.testing.assert_allclose(tensors[name].sum(axis=-1), 1, atol=TOLERANCE)
    later = np.triu(np.ones((len(TARGET), len(TARGET)), bool), 1)
    assert (tensors["decoder"][..., later] == 0).all()


def test_embeddings_and_positions_add_up_to_the_traced_input(
    tensors: Tensors, forward: ForwardTrace
) -> None:
    for side, stage in ("source", "encode"), ("target", "decode"):
        (x,) = traced(forward, "Dropout.call", "x", stage)
        close(tensors[f"{side}_embeddings"] + tensors[f"{side}_positions"], x)


def test_norms_are_those_of_the_traced_residual_stream(
    tensors: Tensors, forward: ForwardTrace, transformer: Transformer
) -> None:
    pre_norm = transformer.encoder.blocks[0].feed_forward_residual.norm_first
    for name, stage, sublayers in ("encoder", "encode", 4), ("decoder", "decode", 6):
        total, output = (
            traced(forward, "Residual.add", variable, stage) for variable in ("total", "output")
        )
        normalized = traced(forward, "LayerNorm.call", "result", stage)
        last = normalized[-1] if stage == "encode" else forward.hidden
        states = total if pre_norm else normalized
        start = traced(forward, "Residual.add", "x", stage)[0]
        close(tensors[f"{name}_norms"], norms([start, *states, last]))
        close(tensors[f"{name}_updates"], norms(output))
        assert len(output) == sublayers


def test_log_probs_are_the_log_softmax_of_the_traced_logits(
    tensors: Tensors, forward: ForwardTrace
) -> None:
    logits = forward.logits[..., 2:]  # PAD and BOS are excluded
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    close(tensors["log_probs"][..., 2:VOCAB_SIZE], expected)
    np.testing.assert_allclose(np.exp(tensors["log_probs"]).sum(axis=-1), 1, atol=TOLERANCE)


@pytest.mark.slow  # a model is converted
def test_litert_file_returns_the_same_tensors(
    transformer: Transformer, tensors: Tensors, tmp_path: pytest.TempPathFactory
) -> None:
    graph = inspection_graph(transformer, SharedOutputProjection(transformer))
    path = tmp_path / "model.tflite"
    path.write_bytes(convert(transformer, [("inspect", graph)], "float32"))
    found = Interpreters(path, 1).run(
        "inspect", source=np.array([SOURCE], np.int32), target=np.array([TARGET], np.int32)
    )
    assert found.keys() == tensors.keys()
    for name, expected in tensors.items():
        close(found[name], expected[0])
