"""The configuration, the run folder and the data of an experiment."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.errors import UsageError, UserError
from tfnmt.experiment import read_data, resolve_config, reused_tokenizer
from tfnmt.prepare import FLAGS
from tfnmt.runs.run import Run


def parsed(*arguments: object) -> Any:
    values = copy.deepcopy(FLAGS)
    values(["prepare", *map(str, arguments)])
    return values


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with 200 pairs in it."""
    for language in ("en", "de"):
        lines = "".join(f"{language} {number}\n" for number in range(200))
        (tmp_path / f"my.{language}").write_text(lines)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_flags_override_the_preset_and_set_overrides_flags() -> None:
    config = resolve_config(
        parsed("--dataset=toy", "--source=de", "--target=en", "--set=data.target=fr")
    )
    assert (config.data.corpus, config.data.source, config.data.target) == ("toy", "de", "fr")


def test_minutes_limit_a_preset_and_set_overrides_them() -> None:
    assert resolve_config(parsed("--dataset=toy", "--minutes=10")).training.max_minutes == 10
    changed = parsed("--dataset=toy", "--minutes=10", "--set=training.max_minutes=5")
    assert resolve_config(changed).training.max_minutes == 5


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_minutes_without_a_meaning_are_refused(minutes: str) -> None:
    with pytest.raises(UsageError, match=rf"^--minutes={minutes}: must be above 0; try "):
        resolve_config(parsed("--dataset=toy", f"--minutes={minutes}"))


def test_custom_data_replaces_the_corpus_of_the_preset(data_folder: Path) -> None:
    config = resolve_config(parsed("--dataset=toy", "--train=my.de,my.en"))
    assert config.data.corpus is None
    assert config.data.train == (str(data_folder / "my.de"), str(data_folder / "my.en"))
    assert (config.data.source, config.data.target) == ("de", "en")


def test_train_accepts_several_files_and_makes_paths_absolute(data_folder: Path) -> None:
    names = ("my.en", "my.de", "more.tmx", "folder")
    (data_folder / "folder").mkdir()
    languages = ("--source=en", "--target=de")
    config = resolve_config(parsed(f"--train={','.join(names)}", "--val=dev.tsv", *languages))
    assert config.data.train == tuple(str(data_folder / name) for name in names)
    assert config.data.val == (str(data_folder / "dev.tsv"),)


def test_symbolic_links_keep_their_names(data_folder: Path) -> None:
    """Data set caches contain links to files whose names are checksums."""
    (data_folder / "links").mkdir()
    for language, blob in (("en", "0a1b"), ("de", "9c8d")):
        (data_folder / f"my.{language}").rename(data_folder / blob)
        (data_folder / "links" / f"my.{language}").symlink_to(data_folder / blob)
    languages = ("--source=en", "--target=de")
    config = resolve_config(parsed("--train=links/my.de,links/my.en", *languages))
    links = data_folder / "links"
    assert config.data.train == (str(links / "my.de"), str(links / "my.en"))
    corpus = open_corpus(config.data, 1, data_folder)
    pairs = {*corpus.pairs("train"), *corpus.pairs("val")}
    assert pairs == {(f"en {number}", f"de {number}") for number in range(200)}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("my.en", "my.en"),
        ("inner/../my.en", "my.en"),
        ("link/my.en", "inner/my.en"),
        ("link", "link"),
        ("link/", "link"),
        ("link/..", "."),
        (".", "."),
        ("link/.", "inner"),
        ("loop/my.en", "loop/my.en"),
    ],
)
def test_paths_to_one_file_are_equal(data_folder: Path, name: str, path: str) -> None:
    (data_folder / "inner").mkdir()
    (data_folder / "link").symlink_to("inner")
    (data_folder / "loop").symlink_to("loop")
    config = resolve_config(parsed("--train=my.en,my.de", f"--val={name}"))
    assert config.data.val == (str(data_folder / path),)


def test_names_with_commas_are_quoted(data_folder: Path) -> None:
    for language in ("en", "de"):
        (data_folder / f"my.{language}").rename(data_folder / f"one, two.{language}")
    config = resolve_config(parsed('--train="one, two.en","one, two.de"'))
    assert (config.data.source, config.data.target) == ("en", "de")
    corpus = open_corpus(config.data, 1, data_folder)
    pairs = {*corpus.pairs("train"), *corpus.pairs("val")}
    assert pairs == {(f"en {number}", f"de {number}") for number in range(200)}


DIRECTIONS = ("de-en", "en-de")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset=toy", "--directions=de-en,en-de"],
        ["--train=my.en,my.de", "--directions=de-en,en-de"],
        ["--config=several.yaml"],
        ["--config=several.yaml", "--train=my.en,my.de"],
    ],
)
def test_directions_come_from_the_flag_or_the_preset(
    data_folder: Path, arguments: list[str]
) -> None:
    (data_folder / "several.yaml").write_text("data: {directions: [de-en, en-de]}")
    data = resolve_config(parsed(*arguments)).data
    assert (data.source, data.target, data.directions) == ("de", "en", DIRECTIONS)


@pytest.mark.parametrize("flag", ["--source=de", "--target=en"])
def test_a_language_replaces_the_directions_of_the_preset(data_folder: Path, flag: str) -> None:
    (data_folder / "several.yaml").write_text("data: {directions: [de-en, en-de]}")
    assert resolve_config(parsed("--config=several.yaml", flag)).data.all_directions == ("de-en",)


def test_override_of_the_directions_replaces_the_languages_of_the_preset() -> None:
    data = resolve_config(parsed("--dataset=toy", "--set=data.directions=[de-en, en-de]")).data
    assert (data.source, data.target, data.directions) == ("de", "en", DIRECTIONS)


def test_directions_with_a_language_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^--directions: not together with --source"):
        resolve_config(parsed("--dataset=toy", "--directions=en-de,de-en", "--source=en"))


@pytest.mark.parametrize("directions", ["en", "", "en-de,en_fr"])
def test_invalid_direction_is_one_problem(directions: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_config(parsed("--dataset=toy", f"--directions={directions}"))
    assert len(caught.value.problems) == 1
    assert "directions" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("arguments", "languages"),
    [
        (["--train=my.en,my.de", "--source=de"], ("de", "en")),
        (["--train=my.en,my.de", "--target=en"], ("de", "en")),
        (["--train=my.de,my.en", "--source=en", "--target=de"], ("en", "de")),
        (["--dataset=toy", "--train=my.tsv", "--source=fr"], ("fr", "de")),
    ],
)
def test_given_languages_are_completed(
    data_folder: Path, arguments: list[str], languages: tuple[str, str]
) -> None:
    data = resolve_config(parsed(*arguments)).data
    assert (data.source, data.target) == languages


@pytest.mark.parametrize("key", ["train", "val"])
def test_files_in_other_languages_are_refused(data_folder: Path, key: str) -> None:
    files = {"train": "my.en,my.de", "val": "my.en,my.de"} | {key: "my.en,my.fr"}
    flags = [f"--{name}={value}" for name, value in files.items()]
    with pytest.raises(UsageError, match=rf"{data_folder}/my\.en, {data_folder}/my\.fr: "):
        read_with(*flags, "--source=en", "--target=de")
    assert not (data_folder / "cache").exists()


def test_source_language_that_no_file_has_is_refused(data_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"my\.en, .*my\.de: .* fr and de"):
        read_with("--source=fr")


@pytest.mark.parametrize("files", ["my.en,,my.de", "my.en,my.de,", ","])
def test_empty_file_name_is_refused(data_folder: Path, files: str) -> None:
    languages = ("--source=en", "--target=de")
    with pytest.raises(UsageError, match="an empty file name"):
        read_with(f"--train={files}", *languages)
    with pytest.raises(UsageError, match="an empty file name"):
        read_with(f"--val={files}", *languages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train=my.en"], "my.en: .*the second aligned file is missing;"),
        (["--train=my.txt,my2.txt"], "--source and --target: missing;.* my.txt,my2.txt "),
        (["--dataset=toy", "--train="], "data.train: "),
        (["--train=/dev/null,my.de"], "/dev/null: "),
        ([], "--dataset: missing;"),
        (["--dataset=toy", "--config=my.yaml"], "--dataset and --config: "),
        (["--train=my.tsv"], "--source and --target: missing;"),
        (["--train=my.tsv", "--source=en"], "--source and --target: missing;"),
        (["--dataset=toy", "--val=a.en,a.de"], "data: val is set without train;"),
    ],
)
def test_missing_or_conflicting_flags_are_reported(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        resolve_config(parsed(*arguments))


def read_with(*arguments: object) -> None:
    values = parsed("--train=my.en,my.de", "--cache_dir=cache", *arguments)
    read_data(values, resolve_config(values))


def test_holding_out_validation_data_is_logged(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_with("--set=tokenizer.vocab_size=280")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "tfnmt: no --val: " in captured.err


def test_val_prevents_holding_out_data(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_folder / "dev.tsv").write_text("a\tb\n")
    read_with("--set=tokenizer.vocab_size=280", "--val=dev.tsv")
    assert "no --val" not in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["my.de", "dev.de"])
def test_missing_files_are_reported_before_preparation(data_folder: Path, missing: str) -> None:
    for language in ("en", "de"):
        (data_folder / f"dev.{language}").write_text("a\n")
    (data_folder / missing).unlink()
    with pytest.raises(UserError, match=rf"{missing}: no such file; "):
        read_with("--val=dev.en,dev.de")
    assert not (data_folder / "cache").exists()


def test_paths_of_other_runs_are_absolute(data_folder: Path) -> None:
    settings = ("--set=training.init_from=runs/one", "--set=tokenizer.from_run=runs/two")
    config = resolve_config(parsed("--dataset=toy", *settings))
    assert config.training.init_from == str(data_folder / "runs" / "one")
    assert config.tokenizer.from_run == str(data_folder / "runs" / "two")
    with pytest.raises(UserError, match=r"training\.init_from"):
        resolve_config(parsed("--dataset=toy", "--set=training.init_from=5"))


def test_paths_of_a_configuration_file_are_absolute(data_folder: Path) -> None:
    """A run is resumed and evaluated from any folder, where `my.en` is another file."""
    (data_folder / "my.yaml").write_text(
        "data: {corpus: null, source: en, target: de, train: [my.en, my.de], val: [dev.tsv]}\n"
        "tokenizer: {from_run: runs/one}\n"
    )
    config = resolve_config(parsed("--config=my.yaml"))
    assert config.data.train == (str(data_folder / "my.en"), str(data_folder / "my.de"))
    assert config.data.val == (str(data_folder / "dev.tsv"),)
    assert config.tokenizer.from_run == str(data_folder / "runs" / "one")


def test_tokenizer_from_run_is_reused(data_folder: Path) -> None:
    config = resolve_config(parsed("--dataset=toy", "--set=tokenizer.from_run=one"))
    with pytest.raises(UserError, match="one: not a run"):
        reused_tokenizer(config)
    Run(data_folder / "one").create(config, b"of one", "prepared")
    assert reused_tokenizer(config) == b"of one"
    assert reused_tokenizer(resolve_config(parsed("--dataset=toy"))) is None


def test_resumed_run_uses_its_own_tokenizer(data_folder: Path) -> None:
    config = resolve_config(parsed("--dataset=toy", "--set=tokenizer.from_run=gone"))
    resumed = Run(data_folder / "resumed")
    resumed.create(config, b"of gone", "prepared")
    assert reused_tokenizer(config, resumed) == b"of gone"


def test_tokenizer_from_two_runs_is_refused(data_folder: Path) -> None:
    settings = ("--set=training.init_from=one", "--set=tokenizer.from_run=two")
    with pytest.raises(
        UsageError, match=r"^tokenizer\.from_run: conflicts with training\.init_from"
    ):
        reused_tokenizer(resolve_config(parsed("--dataset=toy", *settings)))


def test_test_set_downloaded_later_does_not_change_a_resumed_run(data_folder: Path) -> None:
    """For example, `evaluate` downloads another test set before training is resumed."""
    folder = data_folder / "data" / "multi30k"
    folder.mkdir(parents=True)
    for split, first in (("train", 0), ("val", 300)):
        for language in ("en", "de"):
            lines = "".join(f"{language} {n}\n" for n in range(first, first + 100))
            (folder / f"{split}.{language}").write_text(lines)
    values = parsed("--dataset=multi30k", "--data_dir=data", "--set=tokenizer.vocab_size=280")
    config, run = resolve_config(values), Run(data_folder / "run")
    corpus, prepared = read_data(values, config, run)
    assert corpus.held_out == ("val",)
    run.create(config, prepared.tokenizer.model, prepared.folder.name, corpus.held_out)
    run.checkpoints().write(1, lambda _: None)
    for language in ("en", "de"):
        (folder / f"test_2016_flickr.{language}").write_text(f"{language} 7\n")
    _, again = read_data(values, config, run)
    assert again.folder == prepared.folder
    _, new = read_data(values, config)
    assert len(new.source) == len(prepared.source) - 1


def test_resumed_run_keeps_the_held_out_splits_of_each_direction(data_folder: Path) -> None:
    folder = data_folder / "data" / "wmt14"
    for pair in ("de-en", "fr-en"):
        (folder / pair).mkdir(parents=True)
        for split, first in (("train", 0), ("newstest2013", 300)):
            for language in pair.split("-"):
                lines = "".join(f"{language} {n}\n" for n in range(first, first + 100))
                (folder / pair / f"{split}.{language}").write_text(lines)
    values = parsed(
        "--dataset=wmt14",
        "--directions=en-de,de-en,fr-en",
        "--data_dir=data",
        "--set=cleaning.leakage=true",
        "--set=tokenizer.vocab_size=280",
    )
    config, run = resolve_config(values), Run(data_folder / "run")
    corpus, prepared = read_data(values, config, run)
    assert corpus.held_out == ("en-de newstest2013", "de-en newstest2013", "fr-en newstest2013")
    run.create(config, prepared.tokenizer.model, prepared.folder.name, corpus.held_out)
    run.checkpoints().write(1, lambda _: None)
    for language in ("de", "en"):
        (folder / "de-en" / f"newstest2014.{language}").write_text(f"{language} 7\n")
    _, again = read_data(values, config, run)
    assert again.folder == prepared.folder
    _, new = read_data(values, config)
    assert len(new.source) == len(prepared.source) - 2
