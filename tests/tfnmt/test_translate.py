import io
import os
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfnmt import translate
from tfnmt.data import toy
from tfnmt.errors import UsageError, UserError
from tfnmt.run import Run

Call = Callable[..., None]
SENTENCES = [source for source, _ in islice(toy.pairs("test"), 20)]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(content: bytes) -> None:
        monkeypatch.setattr(
            sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
        )

    return give


def test_texts_come_out_in_order_a_line_each(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", *SENTENCES[:4])
    together = capsys.readouterr().out.splitlines()
    for number in (2, 0):
        call(translate, f"--model={tiny_run}", SENTENCES[number])
        assert capsys.readouterr().out.splitlines() == [together[number]]
    assert len(together) == 4


def test_an_empty_line_stays_empty(
    call: Call,
    tiny_run: Path,
    stdin: Callable[[bytes], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stdin("\n".join([SENTENCES[0], "", "   ", SENTENCES[1], ""]).encode())
    call(translate, f"--model={tiny_run}")
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[2] == lines[4] == ""


def test_stdin_that_is_not_utf8_names_the_line(
    call: Call, tiny_run: Path, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"good\n\xff\xfe\n")
    with pytest.raises(UserError, match=r"^stdin:2: not UTF-8"):
        call(translate, f"--model={tiny_run}")


def test_a_file_is_translated_into_a_file_of_as_many_lines(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    call(translate, f"--model={tiny_run}", f"--input={tmp_path / 'in'}",
         f"--output={tmp_path / 'out'}")  # fmt: skip
    call(translate, f"--model={tiny_run}", *SENTENCES)
    assert (tmp_path / "out").read_text() == capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_bad_input_leaves_no_output_and_keeps_the_old_one(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"good\n\xff\n")
    (tmp_path / "out").write_text("old")
    with pytest.raises(UserError, match=r"in:2: not UTF-8"):
        call(translate, f"--model={tiny_run}", f"--input={tmp_path / 'in'}",
             f"--output={tmp_path / 'out'}")  # fmt: skip
    assert (tmp_path / "out").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_scores_come_before_a_tab(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", SENTENCES[0])
    plain = capsys.readouterr().out
    call(translate, f"--model={tiny_run}", "--scores", SENTENCES[0])
    score, text = capsys.readouterr().out.split("\t")
    assert text == plain
    assert float(score) < 0


def test_beam_size_is_taken_for_a_run_and_refused_for_an_export(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--scores", "--beam_size=1", SENTENCES[0])
    greedy = float(capsys.readouterr().out.split("\t")[0])
    call(translate, f"--model={tiny_run}", "--scores", "--length_penalty=5", SENTENCES[0])
    assert float(capsys.readouterr().out.split("\t")[0]) != greedy
    with pytest.raises(UsageError, match=r"^--beam_size: fixed in an export"):
        call(translate, f"--model={tiny_export}", "--beam_size=1", SENTENCES[0])
    with pytest.raises(UsageError, match=r"decoding\.beam_size: 0 is wrong"):
        call(translate, f"--model={tiny_run}", "--beam_size=0", SENTENCES[0])


def test_an_export_translates_as_its_run(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for model in (tiny_run, tiny_export, tiny_export / "1"):
        call(translate, f"--model={model}", *SENTENCES, "")
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]


def test_without_model_the_newest_finished_run_is_named(
    call: Call, tiny_run: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("tfnmt.exporting.models.home", lambda: tmp_path)
    with pytest.raises(UserError, match="`make demo` trains one"):
        call(translate, "a")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(tiny_run)
    call(translate, "a")
    assert f"--model={tmp_path / 'runs' / 'mine'}" in capsys.readouterr().err


def test_a_run_without_a_model_is_refused(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run there \(config.yaml is missing\)"):
        call(translate, f"--model={tmp_path}", "a")
    run = Run(tmp_path / "run")
    run.create(Run(tiny_run).config(), b"", "prepared")
    with pytest.raises(UserError, match="no model in this run yet; train it first"):
        call(translate, f"--model={run.path}", "a")


def test_the_newest_run_is_the_one_that_ended_last(tmp_path: Path) -> None:
    from tfnmt.run import newest_finished_run

    now = time.time()
    for age, name in ((30, "b"), (10, "a"), (20, "c")):
        (tmp_path / name).mkdir()
        summary = tmp_path / name / "summary.json"
        summary.write_text("{}")
        os.utime(summary, (now - age, now - age))
    (tmp_path / "unfinished").mkdir()
    assert newest_finished_run(tmp_path).path.name == "a"
