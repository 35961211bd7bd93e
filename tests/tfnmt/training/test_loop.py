"""Training runs in this process: their start, their end, and resuming them."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.system.trainings import logged_losses, weights
from tfnmt.config import Config, build_config, merge
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.runs.checkpoints import averaged_steps
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import OPTIMIZER, STATE
from tfnmt.training.loop import Training, restore_or_initialize, train
from tfnmt.training.trainer import Trainer, make_trainer
from tfnmt.training.validation import Evaluate, Validation

FIGURE = tf.io.encode_png(tf.zeros([2, 2, 3], tf.uint8)).numpy()

BASE: dict[str, Any] = {
    "data": {
        "corpus": "copy",
        "source": "digits",
        "target": "copied",
        "max_pairs": 300,
        "max_length": 32,
        "batch_tokens": 160,
        "bpe_dropout": 0.1,
    },
    "tokenizer": {"vocab_size": 280},
    "model": {
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "dropout": 0.3,
    },
    "training": {
        "max_steps": 12,
        "max_epochs": None,
        "warmup_steps": 5,
        "simcut": 3.0,
        "log_steps": 1,
        "validation_steps": 1,
        "checkpoint_steps": 4,
        "average_last": 3,
        "keep_last": 3,
    },
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    config = build_config(BASE)
    corpus = open_corpus(config.data, config.training.seed, Path("data"))
    return prepare(config, corpus, tmp_path_factory.mktemp("cache"))


Validate = Callable[[int], float]
"""Called for each validation with its number, which is its step; returns BLEU."""


def constant(number: int) -> float:
    return 0.0


def train_run(
    path: Path, prepared: Prepared, validate: Validate = constant, **settings: Any
) -> int | None:
    """Start or resume a run with a validation that translates nothing; return its signal."""
    config = build_config(merge(BASE, {"training": settings}))
    run = Run(path)
    if run.exists():
        run.accept_changes(config)
    else:
        run.create(config, prepared.tokenizer.model, prepared.folder.name)
    newest = run.checkpoints().newest()

    def make_evaluate(transformer: Transformer) -> Evaluate:
        step = int(newest.name) if newest else 0

        def evaluate() -> Validation:
            nonlocal step
            step += 1
            return Validation(validate(step), [], FIGURE)

        return evaluate

    plan = make_plan(config, prepared)
    return train(Training(config, prepared, plan, run, make_evaluate))


# --- The start of a run ---------------------------------------------------------------------------


def changed_config(run: Path, **sections: Any) -> Config:
    return build_config(merge(Run(run).config().model_dump(), sections))


def trainer_of(run: Path, config: Config) -> Trainer:
    vocab_size = Tokenizer(Run(run).tokenizer_model()).vocab_size
    return make_trainer(config, vocab_size, tf.distribute.get_strategy())


def test_init_from_is_not_needed_to_resume(tiny_run: Path, tmp_path: Path) -> None:
    config = changed_config(tiny_run, training={"init_from": str(tmp_path / "gone")})
    trainer = trainer_of(tiny_run, config)
    assert restore_or_initialize(Run(tiny_run), trainer, config).step == 12
    with pytest.raises(UserError, match=r"gone: .*config\.yaml"):
        restore_or_initialize(Run(tmp_path / "new"), trainer, config)


def test_run_with_standard_attention_resumes_and_initializes_flash_attention(
    tiny_run: Path, tmp_path: Path
) -> None:
    flash = changed_config(tiny_run, model={"attention": "flash"})
    Run(tiny_run).check_config(flash)
    resumed, initialized = trainer_of(tiny_run, flash), trainer_of(tiny_run, flash)
    assert restore_or_initialize(Run(tiny_run), resumed, flash).step == 12
    config = changed_config(
        tiny_run, training={"init_from": str(tiny_run)}, model={"attention": "flash"}
    )
    restore_or_initialize(Run(tmp_path), initialized, config)
    standard = trainer_of(tiny_run, changed_config(tiny_run))
    restore_or_initialize(Run(tiny_run), standard, flash)
    for one, other in zip(resumed.variables, standard.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    standard.transformer.load_weights(Run(tiny_run).weights())
    expected = standard.transformer.variables
    for one, other in zip(initialized.transformer.variables, expected, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("part", ["embeddings", "encoder", "decoder"])
def test_frozen_part_keeps_its_weights_while_the_others_learn(tiny_run: Path, part: str) -> None:
    trainer = trainer_of(tiny_run, changed_config(tiny_run, training={"freeze": [part]}))
    before = {weight.path: weight.numpy() for weight in trainer.transformer.variables}
    ids = tf.constant([[5, 6, 7, 2]])
    trainer.train_step(((ids, tf.constant([[1, 8, 9, 10]])), tf.constant([[8, 9, 10, 2]])))
    changed = {
        weight.path
        for weight in trainer.transformer.variables
        if not np.array_equal(weight.numpy(), before[weight.path])
    }
    frozen = {path for path in before if f"/{part.removesuffix('s')}" in path.replace("_", "/")}
    assert frozen
    assert changed
    assert not changed & frozen
    assert any("decoder" in path for path in changed) == (part != "decoder")


# --- The end of a run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        ({"max_minutes": 1e-6}, {1}),
        ({"max_tokens": 300}, {2, 3, 4}),  # at most 160 target tokens in a batch
        ({"patience": 1}, {4}),
    ],
)
def test_training_ends_at_its_first_limit(
    prepared: Prepared, tmp_path: Path, limit: dict[str, float], steps: set[int]
) -> None:
    scores = [10.0, 20.0, 30.0, 30.0, 99.0, 99.0, 99.0]
    assert train_run(tmp_path, prepared, lambda step: scores[step - 1], **limit) is None
    run = Run(tmp_path)
    summary = json.loads(run.summary_path.read_text())
    assert summary["step"] in steps
    assert run.finished
    if "max_tokens" in limit:
        assert 300 <= summary["tokens"] < 300 + 160


# --- Resuming -------------------------------------------------------------------------------------


class KilledError(BaseException):
    """Ends training immediately, without saving."""


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """Restore the signal handlers, which a killed training run does not restore."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def uninterrupted(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps with dropout, BPE-dropout and SimCut."""
    path = tmp_path_factory.mktemp("uninterrupted")
    assert train_run(path, prepared) is None
    return path


def assert_same_training(found: Path, expected: Path) -> None:
    """Compare losses, weights, optimizer state and progress bit by bit."""
    assert logged_losses(Run(found)) == logged_losses(Run(expected))
    assert len(logged_losses(Run(found))) == 12
    np.testing.assert_array_equal(weights(Run(found)), weights(Run(expected)))
    newest = [Run(path).checkpoints().newest() for path in (found, expected)]
    with np.load(newest[0] / OPTIMIZER) as one, np.load(newest[1] / OPTIMIZER) as other:
        assert sorted(one) == sorted(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    states = [json.loads((path / STATE).read_text()) for path in newest]
    timeless = [
        {key: value for key, value in state.items() if key not in ("seconds", "busy")}
        for state in states
    ]
    assert timeless[0] == timeless[1]


def test_killed_training_resumes_from_the_last_checkpoint_exactly(
    prepared: Prepared,
    uninterrupted: Path,
    tmp_path: Path,
    signal_handlers: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def killed(step: int) -> float:
        if step == 7:
            raise KilledError
        return 0.0

    with pytest.raises(KilledError):
        train_run(tmp_path, prepared, killed)
    assert [path.name for path in Run(tmp_path).checkpoints().all()] == ["00000004"]
    assert train_run(tmp_path, prepared) is None
    assert f"{tmp_path}: resuming after step 4\n" in capsys.readouterr().err
    assert_same_training(tmp_path, uninterrupted)


def test_stopped_training_saves_and_resumes_exactly(
    prepared: Prepared,
    uninterrupted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGTERM comes during step 6, which is still finished and saved."""

    def stop(step: int) -> float:
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.0

    before = signal.getsignal(signal.SIGTERM)
    assert train_run(tmp_path, prepared, stop) == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    run = Run(tmp_path)
    assert [path.name for path in run.checkpoints().all()] == ["00000004", "00000006"]
    assert not run.finished
    assert train_run(tmp_path, prepared) is None
    assert f"{tmp_path}: resuming after step 6\n" in capsys.readouterr().err
    assert_same_training(tmp_path, uninterrupted)
    checkpoints = [path.name for path in run.checkpoints().all()]
    assert checkpoints == ["00000004", "00000008", "00000012"]  # without the irregular one


def test_checkpoint_of_an_interruption_displaces_no_regular_checkpoint(
    prepared: Prepared, tmp_path: Path
) -> None:
    """Training is stopped between the last two regular checkpoints, which are averaged."""

    def stop(step: int) -> float:
        if step == 11:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.0

    settings = {"checkpoint_steps": 2, "keep_last": 2, "average_last": 2}
    assert train_run(tmp_path, prepared, stop, **settings) == signal.SIGTERM
    run = Run(tmp_path)
    assert [path.name for path in run.checkpoints().all()] == ["00000008", "00000010", "00000011"]
    assert train_run(tmp_path, prepared, **settings) is None
    assert [path.name for path in run.checkpoints().all()] == ["00000010", "00000012"]
    assert averaged_steps(run.weights().parent) == [10, 12]


def test_resuming_with_another_interval_keeps_the_regular_checkpoints(
    prepared: Prepared, tmp_path: Path
) -> None:
    train_run(tmp_path, prepared, checkpoint_steps=2, max_steps=4)
    train_run(tmp_path, prepared, checkpoint_steps=3, max_steps=6)
    checkpoints = [path.name for path in Run(tmp_path).checkpoints().all()]
    assert checkpoints == ["00000002", "00000004", "00000006"]


def test_training_killed_after_a_validation_and_before_a_checkpoint_starts_again(
    prepared: Prepared, uninterrupted: Path, tmp_path: Path
) -> None:
    def kill(step: int) -> float:
        if step == 2:
            raise InterruptedError
        return 0.0

    with pytest.raises(InterruptedError):
        train_run(tmp_path, prepared, kill)
    assert [path.name for path in Run(tmp_path).best.all()] == ["00000001"]
    assert train_run(tmp_path, prepared) is None
    assert_same_training(tmp_path, uninterrupted)


def test_finished_training_with_a_later_end_continues_exactly(
    prepared: Prepared, tmp_path: Path
) -> None:
    """With a moving average. tests/system/test_training.py has the case without one."""
    ema_decay = 0.9
    straight, extended = tmp_path / "straight", tmp_path / "extended"
    assert train_run(straight, prepared, ema_decay=ema_decay) is None
    assert train_run(extended, prepared, ema_decay=ema_decay, max_steps=5) is None
    assert Run(extended).finished
    assert train_run(extended, prepared, ema_decay=ema_decay) is None
    assert Run(extended).finished
    assert_same_training(extended, straight)
    assert Run(extended).config() == Run(straight).config()
