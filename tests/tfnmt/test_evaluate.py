import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tfnmt import evaluate
from tfnmt.data import toy
from tfnmt.errors import UsageError, UserError
from tfnmt.run import Run

Call = Callable[..., None]


@pytest.fixture
def files(tmp_path: Path) -> str:
    pairs = list(islice(toy.pairs("test"), 30))
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"t.{language}").write_text(text, encoding="utf-8")
    return f"{tmp_path / 't.en'},{tmp_path / 't.de'}"


def test_an_evaluation_is_printed_written_and_kept(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(Run(tiny_run).evaluations())
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--beam_size=2",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    assert Run(tiny_run).evaluations()[before:] == [evaluation]
    assert list(evaluation) == [
        "bleu", "chrf", "ter", "model", "source", "target", "split", "sentences", "beam_size",
        "length_penalty", "step", "date",
    ]  # fmt: skip
    assert evaluation["sentences"] == 30
    assert evaluation["beam_size"] == 2
    assert evaluation["step"] == 12
    assert "tok:13a" in evaluation["bleu"]["signature"]
    assert evaluation["chrf"]["low"] <= evaluation["chrf"]["score"] <= evaluation["chrf"]["high"]
    printed = capsys.readouterr().out
    for label in ("BLEU", "chrF", "TER"):
        assert label in printed


def test_run_and_export_score_the_same(
    call: Call, tiny_run: Path, tiny_export: Path, files: str, tmp_path: Path
) -> None:
    results = []
    for model in (tiny_run, tiny_export):
        call(evaluate, f"--model={model}", f"--test={files}", f"--json={tmp_path / 'e.json'}")
        results.append(json.loads((tmp_path / "e.json").read_text()))
    for name in ("bleu", "chrf", "ter", "step", "beam_size", "split"):
        assert results[0][name] == results[1][name]


def test_files_in_the_other_order_are_put_in_the_models_direction(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    results = []
    for order in (files, ",".join(reversed(files.split(",")))):
        call(evaluate, f"--model={tiny_run}", f"--test={order}", f"--json={tmp_path / 'e.json'}")
        results.append(json.loads((tmp_path / "e.json").read_text())["chrf"])
    assert results[0] == results[1]


def test_a_split_that_is_not_there_names_those_that_are(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UsageError, match="it has train, val, test"):
        call(evaluate, f"--model={tiny_run}", "--split=dev")


def test_files_of_different_length_are_refused(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    (tmp_path / "t.de").write_text("eins\n")
    with pytest.raises(UserError, match=r"30 lines, but .* has 1;"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}")


@pytest.mark.parametrize("flags", [[], ["--split=val"], ["--model=x", "--split=val", "--test=a,b"]])
def test_a_wrong_call_is_told(call: Call, flags: list[str]) -> None:
    with pytest.raises(UsageError, match="--model, and --split or --test"):
        call(evaluate, *flags)
