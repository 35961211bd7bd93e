import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tfnmt import evaluate, train
from tfnmt.config import DecodingConfig, dump_config
from tfnmt.data.corpora.toy import grammar
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import Run

Call = Callable[..., None]


@pytest.fixture
def files(tmp_path: Path) -> str:
    pairs = list(islice(grammar.pairs("test"), 30))
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
        "bleu", "chrf", "ter", "model", "source", "target", "split", "sentences", "truncated",
        *DecodingConfig.model_fields, "step", "date",
    ]  # fmt: skip
    assert evaluation["sentences"] == 30
    assert evaluation["truncated"] == 0
    assert evaluation["beam_size"] == 2
    assert evaluation["step"] == 12
    assert "tok:13a" in evaluation["bleu"]["signature"]
    assert evaluation["chrf"]["low"] <= evaluation["chrf"]["score"] <= evaluation["chrf"]["high"]
    printed = capsys.readouterr().out
    for label in ("BLEU", "chrF", "TER"):
        assert label in printed


def test_lines_that_were_cut_are_told_and_counted(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (tmp_path / "t.en").read_text().splitlines()
    lines[2] = " ".join([lines[2]] * 50)
    (tmp_path / "t.en").write_text("".join(f"{line}\n" for line in lines))
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--max_length=9",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    assert evaluation["truncated"] == 1
    assert evaluation["max_length"] == 9
    assert "tfnmt: line 3: longer than 64 pieces" in capsys.readouterr().err


def test_what_does_not_tell_where_its_text_lay_scores_no_split_of_it(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be another val.en in the folder."""
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run, bundle)
    own = {"corpus": None, "train": ("t.en", "t.de"), "val": ("val.en", "val.de")}
    config = Run(tiny_run).config()
    config = config.model_copy(update={"data": config.data.model_copy(update=own)})
    (bundle / "config.yaml").write_text(dump_config(config))
    (bundle / "model_card.json").write_text("{}")
    for language in ("en", "de"):
        (tmp_path / f"val.{language}").write_text("other\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"--split=val: .* give --test=SOURCE,TARGET"):
        call(evaluate, f"--model={bundle}", "--split=val")


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


@pytest.fixture(scope="module")
def other_run(call: Call, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with another tokenizer, whose pieces have other numbers."""
    folder = tmp_path_factory.mktemp("other")
    call(train, f"--config={tiny_run / 'config.yaml'}", "--set=tokenizer.vocab_size=400",
         f"--run_dir={folder / 'run'}", f"--cache_dir={folder / 'cache'}")  # fmt: skip
    return folder / "run"


def test_either_of_two_models_scores_as_if_it_were_alone(
    call: Call, tiny_run: Path, other_run: Path, files: str, tmp_path: Path
) -> None:
    def evaluated(model: Path, *flags: str) -> dict[str, Any]:
        call(evaluate, f"--model={model}", f"--test={files}", f"--json={tmp_path / 'e.json'}",
             *flags)  # fmt: skip
        result: dict[str, Any] = json.loads((tmp_path / "e.json").read_text())
        return result

    one, other = evaluated(tiny_run), evaluated(other_run)
    both = evaluated(tiny_run, f"--against={other_run}")
    for name in ("bleu", "chrf", "ter"):
        assert both[name] == one[name]
        assert both["against"][name] == other[name]
    assert one["chrf"]["score"] != other["chrf"]["score"]
    assert both["against"]["model"] == str(other_run)


def test_a_model_held_against_itself_differs_by_nothing(
    call: Call, tiny_run: Path, tiny_export: Path, files: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    call(evaluate, f"--model={tiny_run}", f"--test={files}", f"--against={tiny_export}",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    against = evaluation["against"]
    for name in ("bleu", "chrf", "ter", "step", "beam_size", "length_penalty"):
        assert against[name] == evaluation[name]
    assert against["model"] == str(tiny_export / "1")
    equal = {"difference": 0, "low": 0, "high": 0, "p_value": 1}
    assert against["differences"] == {"bleu": equal, "chrf": equal, "ter": equal}
    assert "+0.00 [+0.00, +0.00]  p=1.000" in capsys.readouterr().out
    assert Run(tiny_run).evaluations()[-1] == evaluation


def test_the_other_searches_as_it_is_set_to(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--beam_size=1", "--max_length=3",
         f"--against={tiny_run}", f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    own = Run(tiny_run).config().decoding.beam_size
    assert (evaluation["beam_size"], evaluation["against"]["beam_size"]) == (1, own)
    assert evaluation["against"]["differences"]["chrf"]["difference"] == pytest.approx(
        evaluation["chrf"]["score"] - evaluation["against"]["chrf"]["score"], abs=2e-4
    )
    assert evaluation["chrf"]["score"] != evaluation["against"]["chrf"]["score"]


def test_a_report_says_what_is_wrong_with_one_model(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    call(evaluate, f"--model={tiny_run}", f"--test={files}", f"--report={tmp_path / 'r.md'}",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    page = (tmp_path / "r.md").read_text()
    assert "against" not in evaluation
    assert sum(group["sentences"] for group in evaluation["bleu_by_length"]) == 30
    assert 0 < max(evaluation["faults"].values()) <= 30
    assert "## Worst lines (20 of 30)" in page
    assert "Better than the other" not in page


def test_a_report_of_two_models_shows_what_each_says(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--max_length=3",
         f"--against={tiny_run}", f"--report={tmp_path / 'r.md'}",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    evaluation = json.loads((tmp_path / "e.json").read_text())
    assert evaluation["faults"]["omission"] == 30
    assert set(evaluation["against"]) >= {"faults", "bleu_by_length", "differences"}
    assert "\n- against: " in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize("flag", ["--json", "--report"])
def test_a_file_that_cannot_be_is_told_before_anything_is_translated(
    call: Call, tiny_run: Path, files: str, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    monkeypatch.setattr(evaluate, "_translate", lambda *_: pytest.fail("translated"))
    source, _ = files.split(",")
    with pytest.raises(UserError, match=r"t\.en/below: File exists; name another file"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", f"{flag}={source}/below")


def test_another_direction_is_refused(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run, tmp_path / "back")
    path = tmp_path / "back" / "config.yaml"
    text = path.read_text().replace("source: en", "source: xx")
    path.write_text(text.replace("target: de", "target: en").replace("xx", "de"))
    with pytest.raises(UsageError, match="translates de to en, and --model en to de"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", f"--against={tmp_path / 'back'}")


@pytest.mark.parametrize("flags", [[], ["--split=val"], ["--model=x", "--split=val", "--test=a,b"]])
def test_a_wrong_call_is_told(call: Call, flags: list[str]) -> None:
    with pytest.raises(UsageError, match="give --model, and either --split or --test"):
        call(evaluate, *flags)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_literatures_bleu_reads_official_tokens_beside_the_references(
    reverse: bool, call: Call, tiny_run: Path, files: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "t.lc.norm.tok.de").write_text("ein anderes wort\n" * 30)
    order = ",".join(sorted(files.split(","), reverse=reverse))
    call(evaluate, f"--model={tiny_run}", f"--test={order}", "--metric=multi30k",
         f"--json={tmp_path / 'e.json'}")  # fmt: skip
    assert "30 of 30 references tokenised otherwise than in t.lc.norm.tok.de" in (
        capsys.readouterr().err
    )
    assert json.loads((tmp_path / "e.json").read_text())["bleu_lc_tok"]["score"] < 5


def test_official_tokens_of_another_text_are_told_before_the_work(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.lc.norm.tok.de").write_text("ein anderes wort\n" * 29)
    monkeypatch.setattr(evaluate, "_translate", None)
    with pytest.raises(UserError, match=r"t\.lc\.norm\.tok\.de: 29 lines for 30 references"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", "--metric=multi30k")


def test_without_official_tokens_the_literatures_bleu_says_so_and_makes_its_own(
    call: Call, tiny_run: Path, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--metric=multi30k")
    printed = capsys.readouterr()
    assert "no official tokens in" in printed.err
    assert "the literature's" in printed.out
