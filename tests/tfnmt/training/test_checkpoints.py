"""Checkpoints of a trainer, without training."""

import os
from pathlib import Path

import numpy as np
import pytest

from tfnmt.config import Config, ModelConfig, TrainingConfig
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run
from tfnmt.training.checkpoints import (
    OPTIMIZER,
    Progress,
    average_weights,
    restore_checkpoint,
    save_checkpoint,
    save_weights,
)
from tfnmt.training.trainer import Trainer

MODEL = ModelConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8)


def trainer_with(value: float) -> Trainer:
    """Create a trainer whose weights and optimizer variables all have this value."""
    trainer = Trainer(Transformer(MODEL, 12), TrainingConfig())
    for variable in (*trainer.transformer.variables, *trainer.optimizer.variables):
        variable.assign(np.full(variable.shape, value, variable.dtype))
    return trainer


def values(trainer: Trainer) -> set[float]:
    variables = (*trainer.transformer.variables, *trainer.optimizer.variables)
    return {float(value) for variable in variables for value in np.ravel(variable.numpy())}


def test_checkpoint_restores_weights_optimizer_state_and_progress(tmp_path: Path) -> None:
    progress = Progress(step=7, epoch=2, tokens=99, seconds=1.5, best_bleu=3.25, worse=1)
    save_checkpoint(Run(tmp_path).checkpoints(), trainer_with(7), progress)
    trainer = trainer_with(0)
    assert restore_checkpoint(Run(tmp_path), trainer) == progress
    assert values(trainer) == {7}


def test_training_without_a_checkpoint_starts_at_step_0(tmp_path: Path) -> None:
    assert restore_checkpoint(Run(tmp_path), trainer_with(0)) == Progress()


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER])
def test_damaged_checkpoint_is_removed_and_the_previous_one_used(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    for step in (4, 6):
        save_checkpoint(run.checkpoints(keep=2), trainer_with(step), Progress(step=step))
    *_, newest = run.checkpoints().all()
    (newest / name).write_bytes(b"nonsense")
    trainer = trainer_with(0)
    assert restore_checkpoint(run, trainer).step == 4
    assert values(trainer) == {4}
    assert f"{newest}: damaged, removed;" in capsys.readouterr().err
    assert [path.name for path in run.checkpoints().all()] == ["00000004"]


def test_run_without_a_complete_checkpoint_keeps_what_is_left(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.create(Config(), b"a tokenizer", "name checksum")
    for step in (4, 6):
        save_checkpoint(run.checkpoints(keep=2), trainer_with(step), Progress(step=step))
    for path in run.checkpoints().all():
        (path / WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(UserError, match=rf"^{tmp_path}: cannot be resumed"):
        restore_checkpoint(run, trainer_with(0))
    assert len(run.checkpoints().all()) == 2


def test_state_of_another_version_is_a_user_error(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        trainer_with(1).transformer.save_weights(folder / WEIGHTS)
        np.savez(folder / OPTIMIZER)
        (folder / "state.json").write_text('{"future": 1}')

    path = Run(tmp_path).checkpoints().write(1, fill)
    with pytest.raises(UserError, match=rf"^{path}: cannot be resumed by this version"):
        restore_checkpoint(Run(tmp_path), trainer_with(0))


class Code:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.folder),)


def test_code_in_the_optimizer_state_does_not_run(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        trainer_with(1).transformer.save_weights(folder / WEIGHTS)
        np.savez(folder / OPTIMIZER, arr_0=np.array([Code(tmp_path / "made")], object))
        (folder / "state.json").write_text("{}")

    Run(tmp_path).checkpoints().write(1, fill)
    with pytest.raises(UserError, match="allow_pickle=False"):
        restore_checkpoint(Run(tmp_path), trainer_with(0))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_damaged_weights_without_checksums_are_a_user_error(tmp_path: Path, content: bytes) -> None:
    path = save_weights(Run(tmp_path).checkpoints(), trainer_with(1).transformer, 1) / WEIGHTS
    for damaged in (content, path.read_bytes()[:-100]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"^{path}: damaged, or of another model"):
            Transformer(MODEL, 12).load_weights(path)


def test_weights_of_another_shape_are_a_user_error(tmp_path: Path) -> None:
    path = save_weights(Run(tmp_path).checkpoints(), trainer_with(1).transformer, 1) / WEIGHTS
    with pytest.raises(UserError, match=rf"^{path}: damaged, or of another model"):
        Transformer(MODEL, 13).load_weights(path)


def test_average_weights_is_the_mean_of_the_checkpoints(tmp_path: Path) -> None:
    folder = Run(tmp_path).checkpoints(keep=3)
    paths = [save_weights(folder, trainer_with(step).transformer, step) for step in (1, 2, 6)]
    transformer = Transformer(MODEL, 12)
    average_weights(paths, transformer)
    for variable in transformer.variables:
        np.testing.assert_array_equal(variable.numpy(), 3)
