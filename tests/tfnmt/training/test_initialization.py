"""Initial weights from another run."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tfnmt.config import Config, build_config, merge
from tfnmt.errors import UsageError
from tfnmt.model.transformer import Transformer
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import save_weights
from tfnmt.training.initialization import initialize_from_run

VOCAB_SIZE = 500


def config_from(run: Path, **sections: Any) -> Config:
    sections["training"] = {"init_from": str(run)}
    return build_config(merge(Run(run).config().model_dump(), sections))


@pytest.fixture(scope="module")
def deep_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two encoder layers and five decoder layers, of random weights."""
    run = tmp_path_factory.mktemp("deep") / "run"
    depths = {"num_encoder_layers": 2, "num_decoder_layers": 5}
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("averaged", "checkpoints"))
    config = build_config(merge(Run(run).config().model_dump(), {"model": depths}))
    (run / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    save_weights(Run(run).averaged, Transformer(config.model, VOCAB_SIZE), 12)
    return run


def weights_of(layer: Any) -> np.ndarray:
    return np.concatenate([np.ravel(weight) for weight in layer.get_weights()])


def test_initialize_loads_the_weights_of_a_run_of_the_same_shape(
    tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_from(tiny_run)
    transformer, expected = (Transformer(config.model, VOCAB_SIZE) for _ in range(2))
    initialize_from_run(transformer, config)
    expected.load_weights(Run(tiny_run).weights())
    np.testing.assert_array_equal(weights_of(transformer), weights_of(expected))
    line = f"tfnmt: initialized with averaged/00000012 of {tiny_run}\n"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(("layers", "kept"), [(1, [0]), (2, [0, 2]), (5, [0, 1, 2, 3, 4])])
def test_initialize_takes_layers_at_even_distances_of_a_deeper_run(
    deep_run: Path, layers: int, kept: list[int]
) -> None:
    config = config_from(deep_run, model={"num_encoder_layers": 2, "num_decoder_layers": layers})
    transformer = Transformer(config.model, VOCAB_SIZE)
    initialize_from_run(transformer, config)
    deep = Transformer(Run(deep_run).config().model, VOCAB_SIZE)
    deep.load_weights(Run(deep_run).weights())
    for block, number in zip(transformer.decoder.blocks, kept, strict=True):
        expected = weights_of(deep.decoder.blocks[number])
        np.testing.assert_array_equal(weights_of(block), expected)
    for part in "encoder", "source_embedding", "target_embedding", "output_embedding":
        expected = weights_of(getattr(deep, part))
        np.testing.assert_array_equal(weights_of(getattr(transformer, part)), expected)
    np.testing.assert_array_equal(
        weights_of(transformer.decoder.norm), weights_of(deep.decoder.norm)
    )


def test_initialize_refuses_a_run_of_another_shape_or_with_fewer_layers(tiny_run: Path) -> None:
    model = {"d_ff": 64, "num_encoder_layers": 2, "dropout": 0.3}
    config = config_from(tiny_run, model=model)
    with pytest.raises(UsageError, match=r" model\.num_encoder_layers, model\.d_ff; "):
        initialize_from_run(Transformer(config.model, VOCAB_SIZE), config)
