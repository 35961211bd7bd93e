"""A run made by an earlier version of tfnmt still loads, translates and resumes.

tests/data/run-before-renaming was made before modules, classes and functions were renamed: 400
steps of a small model on the copy corpus. expected.json has its translations, and the losses of
the next 20 steps, as that version computed them.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfnmt import translate

TESTS = Path(__file__).parents[1]
RUN = TESTS / "data" / "run-before-renaming"


@pytest.fixture
def expected() -> dict[str, Any]:
    return json.loads((RUN / "expected.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the run, because a command may write to it."""
    return shutil.copytree(RUN, tmp_path / "run")


def test_earlier_run_gives_the_same_translations_and_scores(
    call: Callable[..., None],
    run: Path,
    expected: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    earlier = expected["translations"]
    assert len(earlier) == 12
    (tmp_path / "in").write_text("".join(f"{each['source']}\n" for each in earlier))
    call(translate, f"--model={run}", f"--input={tmp_path / 'in'}", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, each in zip(lines, earlier, strict=True):
        (translation,) = line["translations"]
        assert translation["text"] == each["text"]
        assert translation["score"] == pytest.approx(each["score"], abs=1e-3)
        assert translation["token_log_probs"] == pytest.approx(each["token_log_probs"], abs=1e-3)


@pytest.mark.slow
def test_earlier_run_resumes_with_the_same_losses(
    run: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    """On the machine that made the run, the losses were the same bit by bit."""
    losses_path = tmp_path / "losses"
    command = [
        sys.executable,
        "-P",
        str(TESTS / "run_training.py"),
        str(losses_path),
        "1",  # device
        f"--config={run / 'config.yaml'}",
        f"--run_dir={run}",
        f"--cache_dir={tmp_path / 'cache'}",
        "--set=training.max_steps=420",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{run}: resuming after step 400\n" in done.stderr
    found = dict(line.split() for line in losses_path.read_text().splitlines())
    assert list(found) == list(expected["losses"]) == [str(step) for step in range(401, 421)]
    for step, loss in found.items():
        earlier = float.fromhex(expected["losses"][step])
        assert float.fromhex(loss) == pytest.approx(earlier, rel=1e-4)
