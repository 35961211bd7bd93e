"""Training learns tasks with a known answer, and reaches a BLEU threshold."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import evaluate, train

Call = Callable[..., None]


@pytest.mark.parametrize(("dataset", "steps", "bleu"), [("copy", 500, 99), ("reverse", 1000, 97)])
def test_training_learns_to_copy_and_to_reverse(
    call: Call, tmp_path: Path, dataset: str, steps: int, bleu: float
) -> None:
    run, scores = tmp_path / "run", tmp_path / "scores.json"
    flags = (f"--run_dir={run}", f"--cache_dir={tmp_path / 'cache'}")
    call(train, f"--dataset={dataset}", *flags, f"--set=training.max_steps={steps}")
    call(evaluate, f"--model={run}", "--split=test", f"--json={scores}")
    assert json.loads(scores.read_text())["bleu"]["score"] >= bleu
