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
    """Parse the output of the command."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [(float(log_prob), float(score), int(tokens)) for log_prob, score, tokens in lines]


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write pairs as a .tsv file; return its path."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


def test_score_writes_log_probability_score_and_tokens_of_each_line(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*PAIRS, ("", ""), ("a", "")]
    call(score, f"--model={tiny_run}", f"--input={tsv(tmp_path / 'in', pairs)}")
    found = scored(capsys.readouterr().out)
    assert len(found) == len(pairs)
    for log_prob, value, tokens in found:
        assert log_prob < 0
        assert value == pytest.approx(log_prob / ((5 + tokens) / 6) ** 0.6, abs=1e-3)
    assert found[-1][2] == 1  # EOS

    output = tmp_path / "out"
    flags = (f"--input={tmp_path / 'in'}", f"--output={output}", "--length_penalty=0")
    call(score, f"--model={tiny_run}", *flags)
    for (log_prob, value, _), before in zip(scored(output.read_text()), found, strict=True):
        assert log_prob == value == before[0]


def test_score_counts_truncated_lines_and_changed_targets(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [PAIRS[0], ("word " * 400, "a"), ("a", "two  spaces")]
    call(score, f"--model={tiny_run}", f"--input={tsv(tmp_path / 'in', pairs)}")
    errors = capsys.readouterr().err
    assert "tfnmt: 1 lines: source or target longer than the limit" in errors
    assert "tfnmt: 1 of 3 targets: the model reads another text" in errors


def test_score_refuses_lines_without_two_columns(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("a\tb\nonly one\n")
    with pytest.raises(UserError, match=r"in:2: no tab;"):
        call(score, f"--model={tiny_run}", f"--input={tmp_path / 'in'}")
    (tmp_path / "in").write_text("a\tb\nthree\tcells\there\n")
    with pytest.raises(UserError, match=r"in:2: more than one tab;"):
        call(score, f"--model={tiny_run}", f"--input={tmp_path / 'in'}")
    with pytest.raises(UsageError, match="--model and --input: both required"):
        call(score, f"--model={tiny_run}")


def test_score_does_not_overwrite_its_input(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_text("a\tb\n")
    with pytest.raises(UsageError, match=rf"--output={path}: "):
        call(score, f"--model={tiny_run}", f"--input={path}", f"--output={path}")
    assert path.read_text() == "a\tb\n"


def test_score_reads_a_pipe(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=tsv, args=[pipe, PAIRS], daemon=True)
    writer.start()
    call(score, f"--model={tiny_run}", f"--input={pipe}")
    writer.join(10)
    assert len(scored(capsys.readouterr().out)) == len(PAIRS)
