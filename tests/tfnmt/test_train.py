"""What ends a training, and what it does not go on with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, settings
from tfnmt import train
from tfnmt.errors import UsageError, UserError
from tfnmt.run import Run

Train = Callable[..., Run]


@pytest.fixture
def train_toy(call: Callable[..., None], tmp_path: Path) -> Train:
    """Trains the tiny model on the toy corpus, with some keys changed."""

    def run(**changes: Any) -> Run:
        values = TINY | {key.replace("__", "."): value for key, value in changes.items()}
        call(
            train, "--dataset=toy", f"--run_dir={tmp_path / 'run'}",
            f"--cache_dir={tmp_path / 'cache'}", *settings(values),
        )  # fmt: skip
        return Run(tmp_path / "run")

    return run


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        ({"training__max_minutes": 1e-6}, {1}),
        ({"training__max_tokens": 300}, {2, 3}),  # batches of 256 slots at most
        ({"training__patience": 1, "training__validation_steps": 1}, set(range(2, 12))),
    ],
)
def test_a_training_ends_at_its_first_limit(
    train_toy: Train, limit: dict[str, float], steps: set[int]
) -> None:
    run = train_toy(**limit)
    summary = json.loads(run.summary_path.read_text())
    assert summary["step"] in steps
    assert run.finished
    if "training__patience" in limit:
        lines = (run.path / "validations.jsonl").read_text().splitlines()
        scores = [json.loads(line)["bleu"] for line in lines]
        assert len(scores) == summary["step"]
        assert scores[-1] <= max(scores[:-1])
    if "training__max_tokens" in limit:
        assert 300 <= summary["tokens"] < 300 + 256


def test_text_that_has_changed_since_is_refused(call: Callable[..., None], tmp_path: Path) -> None:
    for name, word in (("en", "sun"), ("de", "Sonne")):
        text = "".join(f"{word} {number}\n" for number in range(200))
        (tmp_path / f"my.{name}").write_text(text)
    files = f"{tmp_path / 'my.en'},{tmp_path / 'my.de'}"
    arguments = [
        "--dataset=toy", f"--train={files}", f"--run_dir={tmp_path / 'run'}",
        f"--cache_dir={tmp_path / 'cache'}", *settings(TINY | {"training.max_steps": 1}),
    ]  # fmt: skip
    call(train, *arguments)
    with (tmp_path / "my.en").open("a") as en, (tmp_path / "my.de").open("a") as de:
        en.write("moon\n")
        de.write("Mond\n")
    with pytest.raises(UserError, match="the training text has changed since this run began"):
        call(train, *arguments, "--set=training.max_steps=2")


@pytest.mark.slow
def test_a_budget_that_was_measured_stays_that_of_the_run(
    train_toy: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train_toy(data__batch_tokens="auto", training__max_steps=1)
    slots = run.config().data.batch_tokens
    assert f"data.batch_tokens={slots}\n" in capsys.readouterr().err
    train_toy(data__batch_tokens="auto", training__max_steps=2)
    assert "measuring" not in capsys.readouterr().err
    assert run.config().data.batch_tokens == slots


def test_a_budget_is_not_measured_for_several_hosts(
    train_toy: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(hosts))
    with pytest.raises(UsageError, match="auto is for one host"):
        train_toy(data__batch_tokens="auto")
