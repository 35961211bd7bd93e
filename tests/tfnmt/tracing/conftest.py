"""Fixtures: a batch with padding on both sides, a model, and the trace of its forward pass."""

import keras
import pytest

from tfnmt.config import ModelConfig
from tfnmt.data.batching.batches import Batch
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.forward import ForwardTrace, trace_forward
from tfnmt.tracing.traced_model import make_batch

VOCAB_SIZE = 20


@pytest.fixture
def batch() -> Batch:
    return make_batch([[5, 6, 7, 2], [8, 2]], [[9, 10, 2], [11, 2]])


@pytest.fixture
def transformer(small_config: ModelConfig) -> Transformer:
    keras.utils.set_random_seed(3)
    return Transformer(small_config, VOCAB_SIZE)


@pytest.fixture
def forward(transformer: Transformer, batch: Batch) -> ForwardTrace:
    return trace_forward(transformer, batch)
