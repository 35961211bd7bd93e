"""Shared by all tests: the TensorFlow set-up of the commands, small models, and a small run."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tfnmt.config import ModelConfig
from tfnmt.runtime.startup import configure_threads, set_environment

# Set these first. Otherwise the first command that a test calls would set them for all later tests,
# and a different number of threads sums floating-point numbers in a different order.
if os.environ.get("KERAS_BACKEND") != "jax":  # which has only the tests of the model
    set_environment()
    configure_threads()

TINY = {
    "data.max_pairs": 400,
    "data.batch_tokens": 256,
    "data.max_length": 40,
    "tokenizer.vocab_size": 500,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.dropout": 0.1,
    "training.max_steps": 12,
    "training.warmup_steps": 5,
    "training.checkpoint_steps": 6,
    "training.validation_steps": 1000,
    "training.average_last": 2,
    "decoding.max_source_length": 64,
    "decoding.max_extra_length": 5,
}
"""Changes to the toy preset, after which training takes seconds and learns almost nothing."""

TWO_WAY = TINY | {
    "training.validation_steps": 12,
    "decoding.beam_size": 2,
    "decoding.max_source_length": 16,
}
"""The same for a model of two directions."""

SLOW_FOLDERS = ("cluster", "containers", "fuzz", "system")
"""Folders whose tests are all slow: they start processes, or try many inputs."""

Call = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in SLOW_FOLDERS."""
    for item in items:
        if item.path.relative_to(Path(__file__).parent).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)


def settings(changes: dict[str, object]) -> list[str]:
    """Return configuration keys as --set flags."""
    return [f"--set={key}={value}" for key, value in changes.items()]


@pytest.fixture(scope="session")
def call() -> Call:
    """Call the `main` of a command in this process: `call(translate, "--model=...", "text")`."""

    def run(command: ModuleType, *arguments: object) -> None:
        values = copy.deepcopy(command.FLAGS)
        positional = values([command.__name__, *map(str, arguments)])[1:]
        command.main(values, positional)

    return run


@pytest.fixture(scope="session")
def tiny_run(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the toy corpus; it has learned almost nothing."""
    from tfnmt import train

    folder = tmp_path_factory.mktemp("tiny")
    folders = (f"--run_dir={folder / 'run'}", f"--cache_dir={folder / 'cache'}")
    call(train, "--dataset=toy", *folders, *settings(TINY))
    return folder / "run"


@pytest.fixture(scope="session")
def two_way_run(call: Call, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two directions on the toy corpus, en-de and de-en."""
    from tfnmt import train

    folder = tmp_path_factory.mktemp("two_way")
    folders = (f"--run_dir={folder / 'run'}", f"--cache_dir={folder / 'cache'}")
    call(train, "--dataset=toy", "--directions=en-de,de-en", *folders, *settings(TWO_WAY))
    return folder / "run"


@pytest.fixture(scope="session")
def tiny_export(call: Call, tiny_run: Path, shared_folder: Path) -> Path:
    """An export of that run; shared by all pytest processes, whose runs are bitwise identical."""
    return _export(call, tiny_run, shared_folder / "tiny_export")


@pytest.fixture(scope="session")
def tiny_litert(call: Call, tiny_run: Path, shared_folder: Path) -> Path:
    """A LiteRT export of that run, shared in the same way: the folder of its version."""
    return _export(call, tiny_run, shared_folder / "tiny_litert", "--format=litert") / "1"


@pytest.fixture(scope="session")
def two_way_export(call: Call, two_way_run: Path, shared_folder: Path) -> Path:
    """An export of the run of two directions, shared in the same way."""
    return _export(call, two_way_run, shared_folder / "two_way_export")


@pytest.fixture(scope="session")
def two_way_litert(call: Call, two_way_run: Path, shared_folder: Path) -> Path:
    """A LiteRT export of that run, shared in the same way: the folder of its version."""
    return _export(call, two_way_run, shared_folder / "two_way_litert", "--format=litert") / "1"


@pytest.fixture(scope="session")
def litertjs() -> Path:
    """The files of LiteRT.js in the cache. Tests download nothing."""
    from tfnmt.exporting.litertjs import CACHED

    if not CACHED.is_dir():
        pytest.skip("LiteRT.js is not in the cache; python -m tfnmt.export --format=web loads it")
    return CACHED


@pytest.fixture(scope="session")
def web_export(call: Call, litertjs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A web export of the model that comes with tfnmt."""
    from tfnmt import export
    from tfnmt.loading.registry import DEFAULT_MODEL

    folder = tmp_path_factory.mktemp("web") / "export"
    call(export, "--format=web", f"--model={DEFAULT_MODEL}", f"--output={folder}")
    return folder


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all pytest processes share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _export(call: Call, run: Path, folder: Path, *flags: str) -> Path:
    from tfnmt import export
    from tfnmt.runtime.files import file_lock

    with file_lock(folder.with_suffix(".lock"), "another process exports"):
        if not (folder / "1").exists():
            call(export, f"--model={run}", f"--output={folder}", *flags)
    return folder


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def small_config(request: pytest.FixtureRequest) -> ModelConfig:
    """A Transformer with a few thousand parameters, pre-norm and post-norm."""
    return ModelConfig(
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=16,
        num_heads=4,
        d_ff=32,
        dropout=0.0,
        norm_first=request.param,
    )
