"""The commands as processes: exit codes, and lines on stderr."""

import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tfnmt.__main__ import COMMANDS
from tfnmt.runtime.packages import EXTRAS, requirements

EXTRA_PACKAGES = {each.name.lower() for extra in EXTRAS for each in requirements(extra)}
EXTRA_MODULES = sorted(
    module
    for module, packages in packages_distributions().items()
    if EXTRA_PACKAGES.intersection(package.lower() for package in packages)
)

UNREACHABLE = "http://127.0.0.1:9/"
"""A mirror without a server."""


def run(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tfnmt.{command}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def run_without_extras(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as after an installation without extras."""
    code = (
        "import runpy, sys\n"
        f"sys.modules.update(dict.fromkeys({EXTRA_MODULES}))\n"  # their imports fail
        f"runpy.run_module('{module}', run_name='__main__', alter_sys=True)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def test_modules_of_the_extras_are_known() -> None:
    """Without them, the tests below could not fail."""
    known = {"tensorflow", "keras", "sacrebleu", "fastapi", "babel", "ctranslate2", "matplotlib"}
    assert known <= set(EXTRA_MODULES)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "--helpshort"])
def test_help_fits_the_terminal_and_needs_no_extra(command: str, flag: str) -> None:
    done = run_without_extras(f"tfnmt.{command}", flag)
    assert done.returncode == 0, done.stderr
    assert f"python -m tfnmt.{command}" in done.stdout
    assert "Flags:" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_litert_export_translates_and_scores_without_extras(
    tiny_litert: Path, tmp_path: Path
) -> None:
    model = f"--model={tiny_litert}"
    done = run_without_extras("tfnmt", "translate", model, "--json", "The dog sleeps.")
    assert done.returncode == 0, done.stderr
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("The dog sleeps.\tDer Hund schläft.\n", encoding="utf-8")
    done = run_without_extras("tfnmt", "score", model, f"--input={pairs}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split("\t")) == 3


@pytest.mark.parametrize(
    ("arguments", "name", "extra"),
    [
        (["train", "--dataset=toy"], "tfnmt", "train"),
        (["visualize", "positions"], "tfnmt", "train"),
        (["serve", "--backend=http://127.0.0.1:9/v1/models/m"], "app", "app"),
    ],
)
def test_command_names_its_missing_extra_in_one_line(
    arguments: list[str], name: str, extra: str
) -> None:
    done = run_without_extras("tfnmt", *arguments)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{name}: ")
    assert last.endswith(f": not installed; run pip install 'tfnmt[{extra}]'")
    assert "Traceback" not in done.stderr


LANGUAGES = ("--source=en", "--target=de")
INVALID_CALLS = [
    (["train"], 2, "--dataset: missing;"),
    (["train", "--dataset=toy", "--config=x.yaml"], 2, "--dataset and --config: "),
    (["train", "--dataset=multi3k"], 2, "did you mean multi30k?"),
    (["train", "--datset=toy"], 2, "--datset: unknown flag; did you mean --dataset?"),
    (["train", "--dataset=toy", "more"], 2, "more: unexpected argument;"),
    (
        ["train", "--dataset=multi30k", "--target=ur"],
        2,
        "data.corpus=multi30k: no direction en-ur;",
    ),
    (["train", "--train=one", *LANGUAGES], 2, "one: no such file or folder, and the second"),
    (["train", "--dataset=toy", "--train=one"], 2, "one: no such file or folder, and the second"),
    (["train", "--train=a,b"], 2, "--source and --target: missing;"),
    (["train", "--train=a,b", "--val=c.en", *LANGUAGES], 2, "/c.en: no such file or folder, "),
    (
        ["diversify", "--dataset=toy", "--directions=en-de,de-en"],
        2,
        "data.directions: diversify trains a single direction;",
    ),
    (["prepare"], 2, "--dataset: missing;"),
    (["prepare", "--dataset=toy", "more"], 2, "more: unexpected argument;"),
    (
        ["prepare", "--dataset=toy", "--target=fr"],
        2,
        "data.corpus=toy: no direction en-fr; choose one of de-en, en-de",
    ),
    (["prepare", "--dataset=toy", "--set=cleaning.duplicate=true"], 2, "did you mean duplicates?"),
    (["train", "--train=a.en,b.de"], 1, "a.en: no such file;"),
    (["translate", "--model=nowhere", "x"], 1, "nowhere: no such folder or model;"),
    (["translate", "-5"], 2, "comes after --"),
    (
        ["translate", "--input=nowhere.docx", "--output=out.docx"],
        1,
        "nowhere.docx: No such file or directory; give the path of a readable file",
    ),
    (["evaluate", "--model=nowhere", "--split=val"], 1, "nowhere: no such folder or model;"),
    (["evaluate"], 2, "--model and one of --split and --test: required;"),
    (["visualize", "curvs"], 2, "did you mean curves?"),
    (["visualize", "batches", "--model=nowhere"], 1, "nowhere: no such folder or model;"),
    (["export", "--model=nowhere"], 2, "--model, and --output or --bundle: required;"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "line"), INVALID_CALLS, ids=lambda value: str(value)[:40]
)
def test_invalid_call_gives_a_line_and_an_exit_code(
    arguments: list[str], code: int, line: str, tmp_path: Path
) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert done.stderr.startswith("tfnmt: ")
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_all_mistyped_keys_are_reported_together() -> None:
    changes = (
        "model.dmodel=3",
        "trainin.seed=1",
        "training.max_steps=0",
        "decoding.beam_size=many",
    )
    done = run("train", "--dataset=toy", *(f"--set={change}" for change in changes))
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines.pop(0).endswith("configs/toy.yaml")
    assert len(lines) == 4
    for key in ("model.dmodel", "trainin", "training.max_steps", "decoding.beam_size"):
        assert any(line.startswith(f"tfnmt: {key}") for line in lines), done.stderr
    assert "did you mean d_model?" in done.stderr


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_failed_download_of_wmt14_names_the_url_and_the_alternatives(
    command: str, tmp_path: Path
) -> None:
    data_dir, run_dir = tmp_path / "data", tmp_path / "r"
    folders = [f"--data_dir={data_dir}", f"--cache_dir={tmp_path / 'cache'}"]
    if command == "train":
        folders.append(f"--run_dir={run_dir}")
    done = run(command, "--dataset=wmt14", f"--mirror={UNREACHABLE}", *folders)
    assert done.returncode == 1
    assert "configs/wmt14.yaml" in done.stderr
    last = done.stderr.splitlines()[-1]
    archive = "training-parallel-europarl-v7.tgz"
    assert last.startswith(f"tfnmt: {UNREACHABLE}{archive}: ")
    assert " 0 of " in last
    assert "--mirror=URL" in last
    assert last.endswith(f" by hand: {data_dir / 'archives' / archive}")
    assert "Traceback" not in done.stderr
    assert not run_dir.exists()
    left = [path.name for path in data_dir.rglob("*") if path.is_file()]
    assert set(left) <= {".lock"}


def test_vocabulary_too_large_for_the_text_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for language in ("en", "de"):
        lines = "".join(f"{'a b ' * row}\n" for row in range(1, 21))
        (tmp_path / f"t.{language}").write_text(lines)
    folders = (f"--run_dir={tmp_path / 'r'}", f"--cache_dir={tmp_path / 'cache'}")
    size = "--set=tokenizer.vocab_size=8000"
    done = run("train", f"--train={tmp_path}/t.en,{tmp_path}/t.de", size, *folders)
    assert done.returncode == 2
    assert "tokenizer.vocab_size=8000: does not fit this text, which allows at most" in done.stderr
    assert not (tmp_path / "r").exists()
    left = (tmp_path / "cache" / "prepared").iterdir()
    assert [path for path in left if path.suffix != ".lock"] == []


def test_unexpected_error_keeps_its_traceback() -> None:
    script = (
        "from absl import flags; from tfnmt.cli import run_command\n"
        "run_command(lambda values, positional: 1 / 0, flags.FlagValues(), '', [])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr
