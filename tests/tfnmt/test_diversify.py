"""Data diversification up to its first stage. tests/system/test_diversify.py runs the stages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tfnmt import diversify
from tfnmt.config import build_config, dump_config
from tfnmt.errors import UsageError, UserError

Call = Callable[..., None]


def test_several_directions_are_refused(call: Call, tmp_path: Path) -> None:
    flags = ("--dataset=toy", "--directions=en-de,de-en", f"--run_dir={tmp_path / 'new'}")
    with pytest.raises(UsageError, match=r"^data\.directions: diversify trains a single direction"):
        call(diversify, *flags)
    assert not (tmp_path / "new").exists()


def test_text_without_languages_is_refused(call: Call, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--source and --target: missing; give both"):
        call(diversify, "--train=a.txt,b.txt", f"--run_dir={tmp_path / 'new'}")


def test_changed_settings_are_refused_by_name(call: Call, tmp_path: Path) -> None:
    started = build_config(
        {
            "data": {"corpus": "toy"},
            "diversification": {"teachers": 2},
            "training": {"max_epochs": 3},
        }
    )
    (tmp_path / "config.yaml").write_text(dump_config(started))
    (tmp_path / "changed.yaml").write_text("training: {max_epochs: 4, log_steps: 7}")
    with pytest.raises(UserError) as caught:
        call(diversify, f"--config={tmp_path / 'changed.yaml'}", f"--run_dir={tmp_path}")
    problems = [problem.partition(" ")[2].partition(";")[0] for problem in caught.value.problems]
    assert problems == [
        "training.max_epochs=4: the run was started with 3",
        "diversification.teachers=1: the run was started with 2",
    ]


def test_copied_text_is_not_read_again(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "config.yaml").write_text(dump_config(build_config({"data": {"corpus": "toy"}})))
    (tmp_path / "toy.yaml").write_text("data: {corpus: toy}")
    monkeypatch.setattr(diversify, "_run_all", lambda *_: None)
    call(diversify, f"--config={tmp_path / 'toy.yaml'}", f"--run_dir={tmp_path}")
    assert f"tfnmt: {tmp_path / 'real'}: exists; later changes of the" in capsys.readouterr().err


def test_folder_of_a_training_run_is_refused(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UserError, match=r"^--run_dir=.*: a training run; choose a new"):
        call(diversify, "--dataset=toy", f"--run_dir={tiny_run}")


def test_folder_with_other_files_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"^--run_dir=.*: contains notes\.txt"):
        call(diversify, "--dataset=toy", f"--run_dir={tmp_path}")
