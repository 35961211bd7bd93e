import os
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tfnmt import score
from tfnmt.data.corpora.toy import grammar
from tfnmt.errors import UsageError, UserError

Call = Callable[..., None]
PAIRS = list(islice(grammar.pairs("test"), 20))


def scored(text: str) -> list[tuple[float, float, int]]:
    lines = [line.split("\t") for line in text.splitlines()]
    return [(float(log_prob), float(score), int(tokens)) for log_prob, score, tokens in lines]


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


def test_a_line_has_log_probability_score_and_tokens(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*PAIRS, ("", ""), ("a", "")]
    call(score, f"--model={tiny_run}", f"--input={tsv(tmp_path / 'in', pairs)}")
    found = scored(capsys.readouterr().out)
    assert len(found) == len(pairs)
    for log_prob, value, tokens in found:
        assert log_prob < 0
        assert value == pytest.approx(log_prob / ((5 + tokens) / 6) ** 0.6, abs=1e-3)
    assert found[-1][2] == 1  # eos

    call(score, f"--model={tiny_run}", f"--input={tmp_path / 'in'}", "--length_penalty=0",
         f"--output={tmp_path / 'out'}")  # fmt: skip
    for (log_prob, value, _), before in zip(
        scored((tmp_path / "out").read_text()), found, strict=True
    ):
        assert log_prob == value == before[0]


def test_lines_that_were_cut_or_read_otherwise_are_counted(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [PAIRS[0], ("word " * 400, "a"), ("a", "two  spaces")]
    call(score, f"--model={tiny_run}", f"--input={tsv(tmp_path / 'in', pairs)}")
    errors = capsys.readouterr().err
    assert "tfnmt: 1 lines have a side longer than is read" in errors
    assert "tfnmt: 1 of 3 targets are read otherwise than they are written" in errors


def test_a_line_of_other_than_two_cells_is_named(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("a\tb\nonly one\n")
    with pytest.raises(UserError, match=r"in:2: no tab; SOURCE TAB TARGET is expected"):
        call(score, f"--model={tiny_run}", f"--input={tmp_path / 'in'}")
    (tmp_path / "in").write_text("a\tb\nthree\tcells\there\n")
    with pytest.raises(UserError, match=r"in:2: more than one tab; SOURCE TAB TARGET is expected"):
        call(score, f"--model={tiny_run}", f"--input={tmp_path / 'in'}")
    with pytest.raises(UsageError, match="--model and --input: give both"):
        call(score, f"--model={tiny_run}")


def test_what_is_read_is_not_written_over(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text("a\tb\n")
    with pytest.raises(UsageError, match=rf"--output={path}: the --input, which would be lost"):
        call(score, f"--model={tiny_run}", f"--input={path}", f"--output={path}")
    assert path.read_text() == "a\tb\n"


def test_a_pipe_can_be_scored(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=tsv, args=[pipe, PAIRS], daemon=True)
    writer.start()
    call(score, f"--model={tiny_run}", f"--input={pipe}")
    writer.join(10)
    assert len(scored(capsys.readouterr().out)) == len(PAIRS)
