"""What the tests share: TensorFlow set up as the commands set it up, small models, a small run."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tfnmt.config import ModelConfig
from tfnmt.runtime.startup import set_environment, share_processors

# From the first: a command that a test calls would make these settings for all tests after it, and
# another number of threads adds up in another order.
set_environment()
share_processors()

TINY = {
    "data.max_pairs": 400, "data.batch_tokens": 256, "data.max_length": 40,
    "tokenizer.vocab_size": 500, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.d_model": 16, "model.num_heads": 2, "model.d_ff": 32, "model.dropout": 0.1,
    "training.max_steps": 12, "training.warmup_steps": 5, "training.checkpoint_steps": 6,
    "training.validation_steps": 1000, "training.average_last": 2,
    "decoding.max_source_length": 64, "decoding.max_extra_length": 5,
}  # fmt: skip
"""The toy preset, made so small that a training takes seconds and learns nothing."""

Call = Callable[..., None]


def settings(changes: dict[str, object]) -> list[str]:
    """Configuration keys as flags."""
    return [f"--set={key}={value}" for key, value in changes.items()]


@pytest.fixture(scope="session")
def call() -> Call:
    """Runs a command's `main` in this process: `call(translate, "--model=...", "text")`."""

    def run(command: ModuleType, *arguments: object) -> None:
        values = copy.deepcopy(command.FLAGS)
        positional = values([command.__name__, *map(str, arguments)])[1:]
        command.main(values, positional)

    return run


@pytest.fixture(scope="session")
def tiny_run(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the train command on the toy corpus; it has learnt next to nothing."""
    from tfnmt import train

    folder = tmp_path_factory.mktemp("tiny")
    call(
        train, "--dataset=toy", f"--run_dir={folder / 'run'}", f"--cache_dir={folder / 'cache'}",
        *settings(TINY),
    )  # fmt: skip
    return folder / "run"


@pytest.fixture(scope="session")
def tiny_export(call: Call, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That run, exported: once for all processes of pytest, whose runs are the same to the bit."""
    from tfnmt import export
    from tfnmt.runtime.files import exclusive

    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tiny_export"
    with exclusive(folder.with_suffix(".lock"), "another process exports"):
        if not (folder / "1").exists():
            call(export, f"--model={tiny_run}", f"--output={folder}")
    return folder


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def small_config(request: pytest.FixtureRequest) -> ModelConfig:
    """A Transformer of a few thousand weights, with both places of the norm."""
    return ModelConfig(
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=16,
        num_heads=4,
        d_ff=32,
        dropout=0.0,
        norm_first=request.param,
    )
