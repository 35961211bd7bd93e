"""A Transformer learns: tasks whose answer is known, through the commands, to a threshold."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import evaluate, train

Call = Callable[..., None]


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "bleu"), [("copy", 99), ("reverse", 97)])
def test_it_learns_to_copy_and_to_reverse(
    call: Call, tmp_path: Path, dataset: str, bleu: float
) -> None:
    call(train, f"--dataset={dataset}", f"--run_dir={tmp_path / 'run'}",
         f"--cache_dir={tmp_path / 'cache'}")  # fmt: skip
    call(evaluate, f"--model={tmp_path / 'run'}", "--split=test", f"--json={tmp_path / 'e.json'}")
    assert json.loads((tmp_path / "e.json").read_text())["bleu"]["score"] >= bleu
