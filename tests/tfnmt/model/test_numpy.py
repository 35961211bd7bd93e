"""The Transformer on padded batches matches the NumPy reference, which takes single sentences."""

from typing import Any

import keras
import numpy as np
import pytest

from tests.numpy_transformer import NumpyTransformer, Weights
from tfnmt.config import ModelConfig
from tfnmt.model.transformer import Transformer

V = 50
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
TARGET = np.array([[1, 11, 12, 13], [1, 14, 0, 0]])


def weights_of(model: keras.Model) -> Weights:
    """Return the weights as nested dictionaries, one level per part of their paths."""
    tree: Weights = {}
    for weight in model.weights:
        _, *folders, name = weight.path.split("/")
        branch: dict[str, Any] = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[name] = np.array(weight, dtype="float64")
    return tree


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_transformer_matches_the_numpy_reference(small_config: ModelConfig, tie: Any) -> None:
    config = small_config.model_copy(update={"tie_embeddings": tie})
    model = Transformer(config, V)
    random = np.random.default_rng(0)
    for weight in model.weights:  # also changes biases and gammas, which start as 0 and 1
        weight.assign_add(0.2 * random.standard_normal(weight.shape))
    reference = NumpyTransformer(weights_of(model), config)

    memories, memory_mask = model.encode(SOURCE)
    hiddens = model.decode(TARGET, memories, memory_mask)
    outputs = (memories, hiddens, model.logits(hiddens))
    for row in range(len(SOURCE)):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, TARGET))
        memory = reference.encode(source)
        hidden = reference.decode(target, memory)
        expected = (memory, hidden, reference.logits(hidden))
        for ours, theirs in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(np.array(ours)[row, : len(theirs)], theirs, atol=2e-5)
