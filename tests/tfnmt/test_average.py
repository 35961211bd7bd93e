import json
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tfnmt import average
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.checkpoints import averaged_steps
from tfnmt.runs.run import Run

Call = Callable[..., None]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Run:
    """A run with checkpoints of steps 6 and 12."""
    return Run(Path(shutil.copytree(tiny_run, tmp_path / "run")))


def weights(file: Path) -> np.ndarray:
    arrays: list[np.ndarray] = []

    def collect(_: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            arrays.append(np.ravel(item[()]))

    with h5py.File(file) as content:
        content.visititems(collect)
    return np.concatenate(arrays)


def test_average_of_the_last_checkpoints(call: Call, run: Run) -> None:
    paths = run.checkpoints().all()
    assert [path.name for path in paths] == ["00000006", "00000012"]
    shutil.rmtree(run.averaged.folder)
    call(average, f"--model={run.path}", "--last=2")
    expected = np.mean([weights(path / "model.weights.h5") for path in paths], axis=0)
    np.testing.assert_allclose(weights(run.weights()), expected, atol=1e-7)
    assert averaged_steps(run.weights().parent) == [6, 12]


def test_best_checkpoint_has_the_best_bleu(call: Call, run: Run) -> None:
    scores = [{"step": 6, "bleu": 2.0}, {"step": 12, "bleu": 1.0}]
    (run.path / "validations.jsonl").write_text("".join(json.dumps(s) + "\n" for s in scores))
    call(average, f"--model={run.path}", "--best=1")
    expected = weights(run.checkpoints().all()[0] / "model.weights.h5")
    np.testing.assert_allclose(weights(run.weights()), expected, atol=1e-7)
    assert run.weights().parent.name == "00000012"  # outdated only by later steps
    assert averaged_steps(run.weights().parent) == [6]


def test_too_few_checkpoints_are_reported(call: Call, run: Run) -> None:
    with pytest.raises(
        UserError, match=rf"^{run.path}: has 2 .* 3 are needed; .*training\.keep_last"
    ):
        call(average, f"--model={run.path}", "--last=3")
    with pytest.raises(UserError, match=f"^{run.path}: has 0 validated checkpoints, and 1 "):
        call(average, f"--model={run.path}", "--best=1")


@pytest.mark.parametrize("flags", [[], ["--last=1", "--best=1"]])
def test_exactly_one_of_last_and_best_is_required(call: Call, run: Run, flags: list[str]) -> None:
    with pytest.raises(UsageError, match="--last or --best"):
        call(average, f"--model={run.path}", *flags)
