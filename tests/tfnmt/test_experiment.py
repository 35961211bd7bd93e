"""What the flags of train and prepare come to."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.experiment import read_data, resolve
from tfnmt.prepare import FLAGS


def parsed(*arguments: object) -> Any:
    values = copy.deepcopy(FLAGS)
    values(["prepare", *map(str, arguments)])
    return values


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with 200 pairs in it."""
    for language in ("en", "de"):
        lines = "".join(f"{language} {number}\n" for number in range(200))
        (tmp_path / f"my.{language}").write_text(lines)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_preset_then_flags_then_settings() -> None:
    config = resolve(parsed("--dataset=toy", "--source=de", "--target=en", "--set=data.target=fr"))
    assert (config.data.corpus, config.data.source, config.data.target) == ("toy", "de", "fr")


def test_own_text_takes_the_place_of_the_presets_corpus(own: Path) -> None:
    config = resolve(parsed("--dataset=toy", "--train=my.de,my.en"))
    assert config.data.corpus is None
    assert config.data.train == (str(own / "my.de"), str(own / "my.en"))
    assert (config.data.source, config.data.target) == ("de", "en")


def test_files_may_be_any_number_and_are_found_from_any_folder(own: Path) -> None:
    names = ("my.en", "my.de", "more.tmx", "folder")
    languages = ("--source=en", "--target=de")
    config = resolve(parsed(f"--train={','.join(names)}", "--val=dev.tsv", *languages))
    assert config.data.train == tuple(str(own / name) for name in names)
    assert config.data.val == (str(own / "dev.tsv"),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--dataset: missing;"),
        (["--dataset=toy", "--config=my.yaml"], "--dataset and --config: give one of them"),
        (["--train=my.tsv"], "--source and --target: missing; my.tsv does not tell"),
        (["--train=my.tsv", "--source=en"], "--source and --target: missing; my.tsv does not tell"),
        (["--dataset=toy", "--val=a.en,a.de"], "data: val goes with train;"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match="^" + message.replace("(", r"\(")):
        resolve(parsed(*arguments))


def read(*arguments: object) -> None:
    values = parsed("--train=my.en,my.de", "--cache_dir=cache", *arguments)
    read_data(values, resolve(values))


def test_holding_out_is_told(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read("--set=tokenizer.vocab_size=280")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "tfnmt: no --val: rows of a seeded shuffle are held out" in captured.err


def test_with_validation_text_nothing_is_held_out(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "dev.tsv").write_text("a\tb\n")
    read("--set=tokenizer.vocab_size=280", "--val=dev.tsv")
    assert "held out" not in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["my.de", "dev.de"])
def test_missing_files_are_named_before_anything_is_made(own: Path, missing: str) -> None:
    for language in ("en", "de"):
        (own / f"dev.{language}").write_text("a\n")
    (own / missing).unlink()
    with pytest.raises(UserError, match=rf"{missing}: no such file; the "):
        read("--val=dev.en,dev.de")
    assert not (own / "cache").exists()
