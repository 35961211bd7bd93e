import copy
import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from absl import flags

import tfnmt
from tfnmt.cli import Main, define_data_dir, define_search, given_tokenizer, read_data, resolve, run
from tfnmt.errors import UsageError, UserError
from tfnmt.prepare import FLAGS
from tfnmt.runs.run import Run

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
USAGE = "Echoes its arguments.\n\n    python -m tfnmt.echo TEXT\n"

SCRIPT = """
import sys
from absl import flags
from tfnmt.cli import run

VALUES = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=VALUES)

def main(values, positional):
    for number in range(100_000):
        print("line", number)

run(main, VALUES, "Prints many lines.")
"""


def make_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("model", None, "the run to take", flag_values=values)
    flags.DEFINE_boolean("quick", False, "hurry", flag_values=values)
    flags.DEFINE_list("files", None, "some files", flag_values=values)
    define_data_dir(values)
    define_search(values)
    return values


def echo(values: Any, positional: list[str]) -> None:
    print(values.model, values.beam_size, values.quick, positional)


def exit_code(main: Main, *arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        run(main, make_flags(), USAGE, list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_flags_and_positional_arguments_reach_main(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "one", "--model=runs/a", "two", "--beam_size", "3", "--quick") == 0
    assert capsys.readouterr().out == "runs/a 3 True ['one', 'two']\n"


def test_flags_left_out_have_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo) == 0
    assert capsys.readouterr().out == "None None False []\n"


@pytest.mark.parametrize("argument", ["--help", "-h", "--helpshort", "--helpfull"])
def test_help_is_the_usage_and_every_flag(
    capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    assert exit_code(echo, "text", argument) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(USAGE)
    listed = captured.out.partition("Flags:\n")[2]
    shown = re.findall(r"^  (--\S+)", listed, re.MULTILINE)  # further lines are set in
    assert shown == [
        "--beam_size=...",
        "--data_dir=...",
        "--files=...",
        "--length_penalty=...",
        "--max_length=...",
        "--min_length=...",
        "--model=...",
        "--no_repeat_ngram=...",
        "--[no]quick",
    ]


def test_an_unknown_flag_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--modle=x") == 2
    assert complaint(capsys).startswith("tfnmt: --modle: unknown flag; did you mean --model? ")


@pytest.mark.parametrize("argument", ["--beam_size=four", "--length_penalty=x", "--quick=perhaps"])
def test_a_bad_value_is_a_wrong_call(capsys: pytest.CaptureFixture[str], argument: str) -> None:
    assert exit_code(echo, argument) == 2
    line = complaint(capsys)
    assert line.startswith(f"tfnmt: {argument}")
    assert line.count("\n") == 1
    assert line.endswith("; see --help\n")


def test_a_flag_without_its_value_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--model") == 2
    assert "--model" in complaint(capsys)


def test_a_usage_error_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise UsageError("--model: missing; name a run", "--split: missing; name a split")

    assert exit_code(main) == 2
    assert complaint(capsys) == (
        "tfnmt: --model: missing; name a run\ntfnmt: --split: missing; name a split\n"
    )


def test_a_users_error_is_a_line_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise UserError("a.en: no such file; get it", "a.de: no such file; get it")

    assert exit_code(main) == 1
    assert complaint(capsys) == (
        "tfnmt: a.en: no such file; get it\ntfnmt: a.de: no such file; get it\n"
    )


def test_any_other_error_keeps_its_traceback() -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(main, make_flags(), USAGE, [])


def test_mains_own_exit_code_stands() -> None:
    def main(values: Any, positional: list[str]) -> None:
        sys.exit(143)

    assert exit_code(main) == 143


def test_an_interrupt_ends_with_the_signals_code(capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: Any, positional: list[str]) -> None:
        raise KeyboardInterrupt

    assert exit_code(main) == 130
    assert complaint(capsys) == "tfnmt: interrupted\n"


@pytest.mark.parametrize("text", ["-5", "--model=x", "--help", "--helpshort", "- no", "--"])
def test_text_after_two_dashes_may_begin_with_a_dash(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert exit_code(echo, "--beam_size=2", "--", text, "-h") == 0
    assert capsys.readouterr().out == f"None 2 False {[text, '-h']}\n"


def test_a_negative_number_is_told_about_the_two_dashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(echo, "-5") == 2
    line = complaint(capsys)
    assert "5: unknown flag" in line
    assert "text that begins with a dash comes after --" in line


def test_a_reader_that_goes_away_ends_the_output_quietly(tmp_path: Path) -> None:
    script = tmp_path / "lines.py"
    script.write_text(SCRIPT)
    pipe = f'"{sys.executable}" "{script}" | head -1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", pipe],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "line 0\n", "")


def run_script(
    folder: Path, *arguments: str | bytes, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    script = folder / "lines.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, script, *arguments],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_reader_that_never_came_is_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_script(tmp_path, *arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_full_disk_is_told(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_script(tmp_path, *arguments, stdout=full.fileno())
    told = "tfnmt: No space left on device; make room, and run again\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_what_was_printed_before_a_disk_was_full_is_not_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fill(values: Any, positional: list[str]) -> None:
        print("a result")
        raise OSError(errno.ENOSPC, "No space left on device")

    assert exit_code(fill) == 1
    captured = capsys.readouterr()
    assert captured.out == "a result\n"
    assert captured.err == "tfnmt: No space left on device; make room, and run again\n"


def test_what_is_not_utf_8_is_told_as_it_can_be(tmp_path: Path) -> None:
    done = run_script(tmp_path, b"--caf\xe9")
    assert done.returncode == 2
    assert done.stderr.startswith(r"tfnmt: --caf\udce9: unknown flag; ")


def test_a_list_that_stands_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(echo, "--files=a,b", "--files=c,d") == 2
    assert (
        complaint(capsys) == "tfnmt: --files: given twice; name all in one, with commas between\n"
    )


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
