"""What ends a training, and what it does not go on with."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, settings
from tfnmt import train
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import Run

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
    with pytest.raises(
        UserError, match="the training or validation text has changed since this run began"
    ):
        call(train, *arguments, "--set=training.max_steps=2")


def test_a_run_goes_on_with_smaller_parts_of_a_batch(train_toy: Train) -> None:
    """As the line says that tells of the want of memory."""
    train_toy(training__max_steps=1)
    run = train_toy(training__max_steps=2, training__device_tokens=128)
    assert json.loads(run.summary_path.read_text())["step"] == 2
    assert run.config().training.device_tokens == 128


def test_what_ended_before_its_first_checkpoint_is_begun_anew_with_other_keys(
    train_toy: Train,
) -> None:
    run = train_toy(training__max_steps=1)
    for path in (run.path / "checkpoints", run.path / "best", run.path / "averaged"):
        shutil.rmtree(path, ignore_errors=True)
    run.summary_path.unlink()
    assert train_toy(training__max_steps=2, data__batch_tokens=128).config().data.slots == 128


def test_a_run_folder_that_cannot_be_is_told_before_the_text_is_read(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/run: .*/file is no folder; name another"):
        call(train, "--dataset=toy", f"--run_dir={tmp_path / 'file' / 'run'}")
    assert "tokenizer" not in capsys.readouterr().err


def test_a_run_is_kept_in_a_folder_named_in_utf_8(call: Callable[..., None]) -> None:
    with pytest.raises(UsageError, match=r"--run_dir: 'gr\\udcfcn': not UTF-8"):
        call(train, "--dataset=toy", "--run_dir=gr\udcfcn")


def test_validation_pairs_without_a_side_are_told(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"sun {row}\tSonne {row}\n" for row in range(200))
    (tmp_path / "my.tsv").write_text(f"en\tde\n{rows}")
    (tmp_path / "val.tsv").write_text("en\tde\nsun\tSonne\nmoon\t\n")
    call(
        train, "--dataset=toy", f"--train={tmp_path / 'my.tsv'}", f"--val={tmp_path / 'val.tsv'}",
        f"--run_dir={tmp_path / 'run'}", f"--cache_dir={tmp_path / 'cache'}",
        *settings(TINY | {"training.max_steps": 1}),
    )  # fmt: skip
    assert "tfnmt: 1 of 2 validation pairs have an empty side" in capsys.readouterr().err


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
