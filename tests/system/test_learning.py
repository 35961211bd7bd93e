"""Training learns tasks with a known answer, and reaches a BLEU threshold."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import evaluate, train

Call = Callable[..., None]


@pytest.mark.parametrize(("dataset", "bleu"), [("copy", 99), ("reverse", 97)])
def test_training_learns_to_copy_and_to_reverse(
    call: Call, tmp_path: Path, dataset: str, bleu: float
) -> None:
    run, scores = tmp_path / "run", tmp_path / "scores.json"
    call(train, f"--dataset={dataset}", f"--run_dir={run}", f"--cache_dir={tmp_path / 'cache'}")
    call(evaluate, f"--model={run}", "--split=test", f"--json={scores}")
    assert json.loads(scores.read_text())["bleu"]["score"] >= bleu
