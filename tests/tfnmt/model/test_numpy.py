"""The Transformer, padded and in batches, is the one in plain NumPy, sentence by sentence."""

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
    """The weights by their paths, as nested dictionaries."""
    tree: Weights = {}
    for weight in model.weights:
        _, *folders, name = weight.path.split("/")
        branch: dict[str, Any] = tree
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[name] = np.array(weight, dtype="float64")
    return tree


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_memory_hidden_and_logits_are_numpys(small_config: ModelConfig, tie: Any) -> None:
    config = small_config.model_copy(update={"tie_embeddings": tie})
    model = Transformer(config, V)
    random = np.random.default_rng(0)
    for weight in model.weights:  # biases and gains, too, must not be 0 or 1
        weight.assign_add(0.2 * random.standard_normal(weight.shape))
    plain = NumpyTransformer(weights_of(model), config)

    memories, memory_mask = model.encode(SOURCE)
    hiddens = model.decode(TARGET, memories, memory_mask)
    every_logits = model.logits(hiddens)
    for row in range(len(SOURCE)):
        source, target = (ids[row][ids[row] != 0].tolist() for ids in (SOURCE, TARGET))
        memory = plain.encode(source)
        hidden = plain.decode(target, memory)
        for ours, theirs in (
            (memories, memory), (hiddens, hidden), (every_logits, plain.logits(hidden))
        ):  # fmt: skip
            np.testing.assert_allclose(np.array(ours)[row, : len(theirs)], theirs, atol=2e-5)
