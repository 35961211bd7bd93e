import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, settings
from tfnmt import evaluate, train
from tfnmt.config import DecodingConfig, dump_config
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import train_tokenizer
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.checkpoints import TOKENIZER_CHECKSUM
from tfnmt.runs.run import Run

Call = Callable[..., None]


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Write a test set of 30 pairs; return the value of --test."""
    pairs = list(islice(grammar.pairs("test"), 30))
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"t.{language}").write_text(text, encoding="utf-8")
    return f"{tmp_path / 't.en'},{tmp_path / 't.de'}"


def evaluated(call: Call, folder: Path, *flags: str) -> dict[str, Any]:
    """Call the command; return what --json writes."""
    call(evaluate, *flags, f"--json={folder / 'e.json'}")
    evaluation: dict[str, Any] = json.loads((folder / "e.json").read_text())
    return evaluation


def test_evaluate_prints_and_stores_the_scores(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(Run(tiny_run).evaluations())
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", f"--test={files}", "--beam_size=2"
    )
    assert Run(tiny_run).evaluations()[before:] == [evaluation]
    assert list(evaluation) == [
        "bleu",
        "chrf",
        "ter",
        "model",
        "source",
        "target",
        "split",
        "sentences",
        "truncated",
        *DecodingConfig.model_fields,
        "step",
        "weights",
        "averaged_steps",
        "date",
    ]
    assert evaluation["weights"] == "averaged/00000012"
    assert evaluation["averaged_steps"] == [6, 12]
    assert evaluation["sentences"] == 30
    assert evaluation["truncated"] == 0
    assert evaluation["beam_size"] == 2
    assert evaluation["step"] == 12
    assert "tok:13a" in evaluation["bleu"]["signature"]
    assert evaluation["chrf"]["low"] <= evaluation["chrf"]["score"] <= evaluation["chrf"]["high"]
    printed = capsys.readouterr().out
    for label in ("BLEU", "chrF", "TER"):
        assert label in printed


def test_evaluate_counts_truncated_lines(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (tmp_path / "t.en").read_text().splitlines()
    lines[2] = " ".join([lines[2]] * 50)
    (tmp_path / "t.en").write_text("".join(f"{line}\n" for line in lines))
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", f"--test={files}", "--max_length=9"
    )
    assert evaluation["truncated"] == 1
    assert evaluation["max_length"] == 9
    assert "tfnmt: line 3: longer than 64 tokens" in capsys.readouterr().err


def test_evaluate_refuses_a_split_of_a_bundle_of_custom_data(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle contains file names without folders. They could be other files."""
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_run, bundle)
    custom = {"corpus": None, "train": ("t.en", "t.de"), "val": ("val.en", "val.de")}
    config = Run(tiny_run).config()
    config = config.model_copy(update={"data": config.data.model_copy(update=custom)})
    (bundle / "config.yaml").write_text(dump_config(config))
    (bundle / "model_card.json").write_text("{}")
    for language in ("en", "de"):
        (tmp_path / f"val.{language}").write_text("other\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"--split=val: .* --test=SOURCE,TARGET"):
        call(evaluate, f"--model={bundle}", "--split=val")


def test_evaluate_gives_equal_scores_for_run_and_export(
    call: Call, tiny_run: Path, tiny_export: Path, files: str, tmp_path: Path
) -> None:
    run, export = (
        evaluated(call, tmp_path, f"--model={model}", f"--test={files}")
        for model in (tiny_run, tiny_export)
    )
    keys = ("bleu", "chrf", "ter", "step", "weights", "averaged_steps", "beam_size", "split")
    for key in keys:
        assert run[key] == export[key]


def test_evaluate_reads_test_files_in_any_order(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    reverse = ",".join(reversed(files.split(",")))
    one, other = (
        evaluated(call, tmp_path, f"--model={tiny_run}", f"--test={order}")
        for order in (files, reverse)
    )
    assert one["chrf"] == other["chrf"]


def test_evaluate_refuses_files_in_other_languages(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    source, target = files.split(",")
    french = Path(target).rename(tmp_path / "t.fr")
    with pytest.raises(UsageError, match=rf"^{source}, {french}: "):
        call(evaluate, f"--model={tiny_run}", f"--test={source},{french}")


def test_evaluate_names_the_splits_if_a_split_does_not_exist(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UsageError, match=r"--split=dev: .*train, val, test"):
        call(evaluate, f"--model={tiny_run}", "--split=dev")


def test_evaluate_refuses_files_of_different_length(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    (tmp_path / "t.de").write_text("eins\n")
    with pytest.raises(UserError, match=r"30 lines, but .* has 1;"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}")


@pytest.fixture(scope="module")
def other_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with other token ids, which change its translations."""
    run = Run(tmp_path_factory.mktemp("other") / "run")
    shutil.copytree(tiny_run, run.path)
    sides = (side for pair in islice(grammar.pairs("train"), 2000) for side in pair)
    tokenizer = train_tokenizer(sides, run.config().tokenizer)
    assert tokenizer != run.tokenizer_model()
    run.tokenizer_path.write_bytes(tokenizer)
    for recorded in run.path.glob(f"*/*/{TOKENIZER_CHECKSUM}"):
        recorded.unlink()
    return run.path


def test_comparison_gives_the_scores_of_each_model_alone(
    call: Call, tiny_run: Path, other_run: Path, files: str, tmp_path: Path
) -> None:
    one, other, both = (
        evaluated(call, tmp_path, f"--test={files}", *flags)
        for flags in (
            [f"--model={tiny_run}"],
            [f"--model={other_run}"],
            [f"--model={tiny_run}", f"--against={other_run}"],
        )
    )
    for key in ("bleu", "chrf", "ter"):
        assert both[key] == one[key]
        assert both["against"][key] == other[key]
    assert one["chrf"]["score"] != other["chrf"]["score"]
    assert both["against"]["model"] == str(other_run)


def test_comparison_of_a_run_with_its_export_has_no_difference(
    call: Call,
    tiny_run: Path,
    tiny_export: Path,
    files: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", f"--test={files}", f"--against={tiny_export}"
    )
    against = evaluation["against"]
    for key in ("bleu", "chrf", "ter", "step", "beam_size", "length_penalty"):
        assert against[key] == evaluation[key]
    assert against["model"] == str(tiny_export / "1")
    equal = {"difference": 0, "low": 0, "high": 0, "p_value": 1}
    assert against["differences"] == {"bleu": equal, "chrf": equal, "ter": equal}
    assert "+0.00 [+0.00, +0.00]  p=1.000" in capsys.readouterr().out
    assert Run(tiny_run).evaluations()[-1] == evaluation


def test_comparison_decodes_the_other_model_with_its_own_settings(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    flags = (f"--model={tiny_run}", f"--against={tiny_run}", f"--test={files}")
    evaluation = evaluated(call, tmp_path, *flags, "--beam_size=1", "--max_length=3")
    against = evaluation["against"]
    configured = Run(tiny_run).config().decoding.beam_size
    assert (evaluation["beam_size"], against["beam_size"]) == (1, configured)
    assert against["differences"]["chrf"]["difference"] == pytest.approx(
        evaluation["chrf"]["score"] - against["chrf"]["score"], abs=2e-4
    )
    assert evaluation["chrf"]["score"] != against["chrf"]["score"]


def test_report_of_one_model_shows_its_likely_errors(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    report = tmp_path / "r.md"
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", f"--test={files}", f"--report={report}"
    )
    page = report.read_text()
    assert "against" not in evaluation
    assert sum(group["sentences"] for group in evaluation["bleu_by_length"]) == 30
    assert 0 < max(evaluation["errors"].values()) <= 30
    assert "## Worst lines (20 of 30)" in page
    assert "Better than the other" not in page


def test_report_of_a_comparison_shows_the_translations_of_both_models(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    report = tmp_path / "r.md"
    flags = (f"--model={tiny_run}", f"--against={tiny_run}", f"--test={files}")
    evaluation = evaluated(call, tmp_path, *flags, "--max_length=3", f"--report={report}")
    assert evaluation["errors"]["omission"] == 30
    assert set(evaluation["against"]) >= {"errors", "bleu_by_length", "differences"}
    assert "\n- against: " in report.read_text()


@pytest.mark.parametrize("flag", ["--json", "--report"])
def test_evaluate_checks_the_output_files_before_it_translates(
    call: Call, tiny_run: Path, files: str, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    monkeypatch.setattr(evaluate, "_translate", lambda *_: pytest.fail("translated"))
    source, _ = files.split(",")
    with pytest.raises(UserError, match=r"t\.en/below: File exists"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", f"{flag}={source}/below")


@pytest.mark.parametrize("flag", ["--json", "--report"])
def test_evaluate_does_not_overwrite_what_it_reads(
    call: Call, tiny_run: Path, tiny_export: Path, files: str, tmp_path: Path, flag: str
) -> None:
    source, target = map(Path, files.split(","))
    tokens = tmp_path / "t.lc.norm.tok.de"
    tokens.write_text("x\n" * 30)
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "hard").hardlink_to(target)
    model = [f"--model={tiny_run}", f"--against={tiny_export}", f"--test={files}"]
    for output, reader in (
        (source, "--test"),
        (target, "--test"),
        (tmp_path / "link", "--test"),
        (tmp_path / "hard", "--test"),
        (tokens, "--metric"),
        (tiny_run / "summary.json", "--model"),
        (Run(tiny_run).weights(), "--model"),
        (tiny_export / "1" / "saved_model.pb", "--against"),
    ):
        content = output.read_bytes()
        with pytest.raises(UsageError, match=rf"^{flag}={output}: is read by {reader};"):
            call(evaluate, *model, f"{flag}={output}")
        assert output.read_bytes() == content


def test_evaluate_refuses_one_file_for_both_outputs(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new")
    outputs = f"--json={tmp_path / 'new'}", f"--report={tmp_path / 'link'}"
    with pytest.raises(UsageError, match=r"^--report=.*link: is the file of --json;"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", *outputs)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("flag", ["--data_dir=x", "--mirror=http://x", "--nochecksums"])
def test_evaluate_refuses_flags_of_downloads_with_files(
    call: Call, tiny_run: Path, files: str, flag: str
) -> None:
    with pytest.raises(UsageError, match="only for --split"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", flag)


@pytest.fixture
def custom_run(call: Call, tmp_path: Path) -> Path:
    """A run on custom data without --val."""
    for side, language in enumerate(("en", "de")):
        pairs = islice(grammar.pairs("train"), 200)
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"my.{language}").write_text(text)
    changes = TINY | {"training.max_steps": 2, "training.checkpoint_steps": 1}
    del changes["data.max_pairs"]
    call(
        train,
        f"--train={tmp_path / 'my.en'},{tmp_path / 'my.de'}",
        f"--run_dir={tmp_path / 'run'}",
        f"--cache_dir={tmp_path / 'cache'}",
        *settings(changes),
    )
    return tmp_path / "run"


def test_evaluate_refuses_held_out_rows_of_changed_training_data(
    call: Call, custom_run: Path, tmp_path: Path
) -> None:
    flags = f"--model={custom_run}", "--split=val"
    evaluation = evaluated(call, tmp_path, *flags, "--beam_size=1")
    assert evaluation["sentences"] == 20
    before = len(Run(custom_run).evaluations())
    for language in ("en", "de"):
        with (tmp_path / f"my.{language}").open("a") as file:
            file.write("more\n" * 100)
    with pytest.raises(UserError, match=rf"^--split=val: {tmp_path / 'my'}.* --test"):
        call(evaluate, *flags)
    assert len(Run(custom_run).evaluations()) == before


def test_evaluate_of_a_split_uses_the_tokenizer_of_another_run(
    call: Call, custom_run: Path, tmp_path: Path
) -> None:
    """The content of that tokenizer is part of the recorded identity of the data."""
    run = tmp_path / "second"
    config = Run(custom_run).config()
    (tmp_path / "config.yaml").write_text(dump_config(config))
    call(
        train,
        f"--config={tmp_path / 'config.yaml'}",
        f"--set=tokenizer.from_run={custom_run}",
        f"--run_dir={run}",
        f"--cache_dir={tmp_path / 'cache'}",
    )
    shutil.rmtree(custom_run)
    evaluation = evaluated(call, tmp_path, f"--model={run}", "--split=val", "--beam_size=1")
    assert evaluation["sentences"] == 20


def test_comparison_refuses_a_model_of_another_direction(
    call: Call, tiny_run: Path, files: str, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run, tmp_path / "back")
    path = tmp_path / "back" / "config.yaml"
    text = path.read_text().replace("source: en", "source: xx")
    path.write_text(text.replace("target: de", "target: en").replace("xx", "de"))
    with pytest.raises(UsageError, match="translates de to en, and --model en to de"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", f"--against={tmp_path / 'back'}")


@pytest.mark.parametrize("flags", [[], ["--split=val"], ["--model=x", "--split=val", "--test=a,b"]])
def test_evaluate_requires_a_model_and_a_test_set(call: Call, flags: list[str]) -> None:
    with pytest.raises(UsageError, match="--model and one of --split and --test"):
        call(evaluate, *flags)


@pytest.mark.parametrize("reverse", [False, True])
def test_metric_multi30k_uses_official_tokens_next_to_the_references(
    reverse: bool,
    call: Call,
    tiny_run: Path,
    files: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "t.lc.norm.tok.de").write_text("ein anderes wort\n" * 30)
    order = ",".join(sorted(files.split(","), reverse=reverse))
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", f"--test={order}", "--metric=multi30k"
    )
    assert "self-test: 30 of 30 references are tokenized differently in t.lc.norm.tok.de" in (
        capsys.readouterr().err
    )
    assert evaluation["bleu_lc_tok"]["score"] < 5


def test_metric_multi30k_checks_official_tokens_before_it_translates(
    call: Call, tiny_run: Path, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.lc.norm.tok.de").write_text("ein anderes wort\n" * 29)
    monkeypatch.setattr(evaluate, "_translate", None)
    with pytest.raises(UserError, match=r"t\.lc\.norm\.tok\.de: 29 lines for 30 references"):
        call(evaluate, f"--model={tiny_run}", f"--test={files}", "--metric=multi30k")


def test_metric_multi30k_tokenizes_the_references_if_there_are_no_official_tokens(
    call: Call, tiny_run: Path, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call(evaluate, f"--model={tiny_run}", f"--test={files}", "--metric=multi30k")
    printed = capsys.readouterr()
    assert "t.lc.norm.tok.de: no official tokens" in printed.err
    assert "BLEU (lowercased, tokenized)" in printed.out


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_only_the_files_of_one_text_have_a_reference_file(count: int) -> None:
    paths = tuple(Path(f"{number}.de") for number in range(count))
    text = evaluate.TestSet("t", [], paths, ("en", "de"))
    assert text.reference_file == (paths[-1] if count in (1, 2) else None)


def test_evaluate_reports_pairs_with_an_empty_side(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.en").write_text("a dog\n\n")
    (tmp_path / "t.de").write_text("ein hund\nein hund\n")
    test = f"--test={tmp_path / 't.en'},{tmp_path / 't.de'}"
    call(evaluate, f"--model={tiny_run}", test)
    assert ": 1 of 2 pairs have an empty side and count in BLEU; " in capsys.readouterr().err


def test_evaluate_of_a_split_of_a_built_in_corpus_needs_no_files(
    call: Call,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(grammar.SIZES, "val", 5)
    evaluation = evaluated(
        call, tmp_path, f"--model={tiny_run}", "--split=val", "--metric=multi30k"
    )
    assert (evaluation["split"], evaluation["sentences"]) == ("val", 5)
    assert "no official tokens" in capsys.readouterr().err
    assert evaluation["bleu_lc_tok"]["score"] >= 0


# --- Several directions ---------------------------------------------------------------------------


def test_evaluate_scores_a_direction_of_several(
    call: Call, two_way_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language, line in (("de", "der Hund"), ("en", "the dog")):
        (tmp_path / f"a.{language}").write_text(f"{line}\n" * 3)
    test = f"--test={tmp_path / 'a.en'},{tmp_path / 'a.de'}"
    scores = tmp_path / "scores.json"
    call(evaluate, f"--model={two_way_run}", test, "--direction=de-en", f"--json={scores}")
    evaluation = json.loads(scores.read_text())
    assert (evaluation["source"], evaluation["target"]) == ("de", "en")
    assert "not trained" not in capsys.readouterr().err


@pytest.mark.slow  # the validation set has 2,000 pairs
def test_evaluate_scores_every_direction_of_a_split_and_prints_the_means(
    call: Call, two_way_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = (f"--json={tmp_path / 'scores.json'}", f"--report={tmp_path / 'report.md'}")
    call(evaluate, f"--model={two_way_run}", "--split=val", "--max_length=2", *outputs)
    evaluations = json.loads((tmp_path / "scores.json").read_text())
    assert [each["target"] for each in evaluations] == ["de", "en"]
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.endswith(":")] == [
        "en-de:",
        "de-en:",
        "mean of 2 directions:",
    ]
    mean = (evaluations[0]["chrf"]["score"] + evaluations[1]["chrf"]["score"]) / 2
    assert f"chrF {mean:.2f}\n" in printed
    report = (tmp_path / "report.md").read_text()
    assert "en to de" in report
    assert "de to en" in report


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--test=a.en,a.de"], "--direction: missing; .* en-de, de-en"),
        (["--split=val", "--direction=en-fr"], "--direction=en-fr: unknown; .* en-de, de-en"),
        (["--split=val", "--direction=de"], "--direction=de: unknown; .* en-de, de-en"),
        (["--split=val", "--direction=fr-en"], "--split=val: .* has no fr-en, only en-de, de-en"),
    ],
)
def test_evaluate_lists_the_directions_of_the_model(
    call: Call, two_way_run: Path, arguments: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        call(evaluate, f"--model={two_way_run}", *arguments)
