"""What the flags of train and prepare come to."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tfnmt.errors import UsageError, UserError
from tfnmt.experiment import given_tokenizer, read_data, resolve
from tfnmt.prepare import FLAGS
from tfnmt.run import Run


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


def test_other_runs_are_found_from_any_folder(own: Path) -> None:
    settings = ("--set=training.init_from=runs/one", "--set=tokenizer.from_run=runs/two")
    config = resolve(parsed("--dataset=toy", *settings))
    assert config.training.init_from == str(own / "runs" / "one")
    assert config.tokenizer.from_run == str(own / "runs" / "two")
    with pytest.raises(UserError, match=r"training\.init_from"):
        resolve(parsed("--dataset=toy", "--set=training.init_from=5"))


def test_a_tokenizer_is_that_of_the_run_that_is_named(own: Path) -> None:
    config = resolve(parsed("--dataset=toy", "--set=tokenizer.from_run=one"))
    with pytest.raises(UserError, match="one: no run there"):
        given_tokenizer(config)
    Run(own / "one").create(config, b"of one", "prepared")
    assert given_tokenizer(config) == b"of one"
    assert given_tokenizer(resolve(parsed("--dataset=toy"))) is None


def test_a_run_that_goes_on_has_its_tokenizer_itself(own: Path) -> None:
    config = resolve(parsed("--dataset=toy", "--set=tokenizer.from_run=gone"))
    begun = Run(own / "begun")
    begun.create(config, b"of gone", "prepared")
    assert given_tokenizer(config, begun) == b"of gone"


def test_a_tokenizer_cannot_come_from_two_runs(own: Path) -> None:
    settings = ("--set=training.init_from=one", "--set=tokenizer.from_run=two")
    with pytest.raises(UsageError, match=r"brings the tokenizer of .*one; set one of them"):
        given_tokenizer(resolve(parsed("--dataset=toy", *settings)))


def test_a_split_that_comes_later_does_not_change_the_text_of_a_run(own: Path) -> None:
    """As when `evaluate` downloads another test set between a training and its going on."""
    folder = own / "data" / "multi30k"
    folder.mkdir(parents=True)
    for split, first in (("train", 0), ("val", 300)):
        for language in ("en", "de"):
            lines = "".join(f"{language} {n}\n" for n in range(first, first + 100))
            (folder / f"{split}.{language}").write_text(lines)
    values = parsed("--dataset=multi30k", "--data_dir=data", "--set=tokenizer.vocab_size=280")
    config, run = resolve(values), Run(own / "run")
    corpus, prepared = read_data(values, config, run)
    assert corpus.held_out == ("val",)
    run.create(config, prepared.tokenizer.model, prepared.folder.name, corpus.held_out)
    run.checkpoints().write(1, lambda _: None)
    for language in ("en", "de"):
        (folder / f"test_2016_flickr.{language}").write_text(f"{language} 7\n")
    _, again = read_data(values, config, run)
    assert again.folder == prepared.folder
    _, anew = read_data(values, config)
    assert len(anew.source) == len(prepared.source) - 1
