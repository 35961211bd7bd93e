"""The commands as a user meets them: processes, exit codes, lines on stderr."""

import subprocess
import sys
from pathlib import Path

import pytest

from tfnmt.runs.run import home

COMMANDS = tuple(
    path.stem
    for path in sorted((home() / "tfnmt").glob("*.py"))
    if "__main__" in path.read_text(encoding="utf-8")
)
NOWHERE = "http://127.0.0.1:9/"
"""A mirror at which nobody listens."""


def run(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tfnmt.{command}", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "--helpshort"])
def test_help_reads_well_and_needs_no_tensorflow(command: str, flag: str) -> None:
    code = (
        f"import sys, runpy; sys.argv = ['x', '{flag}']\n"
        "try:\n"
        f"    runpy.run_module('tfnmt.{command}', run_name='__main__')\n"
        "finally:\n"
        "    assert not {'tensorflow', 'keras', 'sacrebleu'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"python -m tfnmt.{command}" in done.stdout
    assert "--model" in done.stdout or "--dataset" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


BAD_CALLS = [
    (["train"], 2, "--dataset: missing;"),
    (["train", "--dataset=toy", "--config=x.yaml"], 2, "--dataset and --config: give one"),
    (["train", "--dataset=multi3k"], 2, "did you mean multi30k?"),
    (["train", "--datset=toy"], 2, "--datset: unknown flag; did you mean --dataset?"),
    (["train", "--dataset=toy", "more"], 2, "more: not expected"),
    (["train", "--dataset=multi30k", "--target=ur"], 2, "multi30k has no en-ur; it has"),
    (
        ["train", "--train=one", "--source=en", "--target=de"],
        2,
        "one: has no second file beside it",
    ),
    (["train", "--dataset=toy", "--train=one"], 2, "one: has no second file beside it"),
    (["train", "--train=one"], 2, "--source and --target: missing; one does not tell"),
    (
        ["train", "--train=a,b", "--val=c.en", "--source=en", "--target=de"],
        2,
        "c.en: has no second file beside it",
    ),
    (["prepare"], 2, "--dataset: missing;"),
    (["prepare", "--dataset=toy", "more"], 2, "more: not expected"),
    (["prepare", "--dataset=toy", "--target=fr"], 2, "toy has no en-fr; it has de-en, en-de"),
    (["prepare", "--dataset=toy", "--set=cleaning.duplicate=true"], 2, "did you mean duplicates?"),
    (["train", "--train=a.en,b.de"], 1, "a.en: no such file;"),
    (["translate", "--model=nowhere", "x"], 1, "nowhere: no run there"),
    (["translate", "-5"], 2, "comes after --"),
    (["evaluate", "--model=nowhere", "--split=val"], 1, "nowhere: no run there"),
    (["evaluate"], 2, "give --model, and either --split or --test"),
    (["visualize", "curvs"], 2, "did you mean curves?"),
    (["visualize", "batches", "--model=nowhere"], 1, "nowhere: no run there"),
    (["export", "--model=nowhere"], 2, "--model, and --output or --bundle: needed"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "line"), BAD_CALLS, ids=lambda value: str(value)[:40]
)
def test_a_mistake_is_a_line_and_an_exit_code(
    arguments: list[str], code: int, line: str, tmp_path: Path
) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert done.stderr.startswith("tfnmt: ")
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_every_mistyped_key_is_told_at_once() -> None:
    done = run("train", "--dataset=toy", "--set=model.dmodel=3", "--set=trainin.seed=1",
               "--set=training.max_steps=0", "--set=decoding.beam_size=many")  # fmt: skip
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines.pop(0).endswith("configs/toy.yaml")
    assert len(lines) == 4
    for key in ("model.dmodel", "trainin", "training.max_steps", "decoding.beam_size"):
        assert any(line.startswith(f"tfnmt: {key}") for line in lines), done.stderr
    assert "did you mean d_model?" in done.stderr


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_where_wmt14_cannot_be_downloaded_it_is_told_what_was_tried(
    command: str, tmp_path: Path
) -> None:
    data_dir, run_dir = tmp_path / "data", tmp_path / "r"
    flags = [f"--run_dir={run_dir}"] if command == "train" else []
    done = run(command, "--dataset=wmt14", f"--data_dir={data_dir}", f"--mirror={NOWHERE}",
               f"--cache_dir={tmp_path / 'cache'}", *flags)  # fmt: skip
    assert done.returncode == 1
    assert "configs/wmt14.yaml" in done.stderr
    last = done.stderr.splitlines()[-1]
    archive = "training-parallel-europarl-v7.tgz"
    assert last.startswith(f"tfnmt: {NOWHERE}{archive}: 0 of ")
    assert "--mirror=URL" in last
    assert f"put the file there by hand: {data_dir / 'archives' / archive}" in last
    assert "Traceback" not in done.stderr
    assert not run_dir.exists()
    left = [path.name for path in data_dir.rglob("*") if path.is_file()]
    assert set(left) <= {".lock"}


def test_a_vocabulary_too_large_for_the_text_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    for language in ("en", "de"):
        lines = "".join(f"{'a b ' * row}\n" for row in range(1, 21))
        (tmp_path / f"t.{language}").write_text(lines)
    done = run("train", f"--train={tmp_path}/t.en,{tmp_path}/t.de", f"--run_dir={tmp_path / 'r'}",
               f"--cache_dir={tmp_path / 'cache'}")  # fmt: skip
    assert done.returncode == 2
    assert "tokenizer.vocab_size: 8,000 pieces do not fit this text, at most" in done.stderr
    assert not (tmp_path / "r").exists()
    left = (tmp_path / "cache" / "prepared").iterdir()
    assert [path for path in left if path.suffix != ".lock"] == []


def test_a_fault_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    """Here a run whose tokenizer.model was overwritten with something else."""
    from tfnmt.config import Config
    from tfnmt.runs.run import Run

    folder = Run(tmp_path)
    folder.create(Config(), b"not a SentencePiece model", "prepared")
    folder.best.write(1, lambda path: (path / "model.weights.h5").write_bytes(b"") and None)
    done = run("translate", f"--model={tmp_path}", "x")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
