"""The translate command in this process. tests/system/test_translate.py starts processes."""

import gzip
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tfnmt import translate
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.decoding.lines import Signatures
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import ExportModel, find_run
from tfnmt.runs.run import Run
from tfnmt.runtime.resumable_file import ResumableFile

Call = Callable[..., None]
SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 20)]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Set the content of stdin."""
    with ExitStack() as opened:

        def set_content(content: bytes) -> None:
            (tmp_path / "stdin").write_bytes(content)
            file = opened.enter_context((tmp_path / "stdin").open())
            monkeypatch.setattr(sys, "stdin", file)

        yield set_content


# --- Input and output -----------------------------------------------------------------------------


def test_texts_give_one_line_each_in_order(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", *SENTENCES[:4])
    together = capsys.readouterr().out.splitlines()
    for number in (2, 0):
        call(translate, f"--model={tiny_run}", SENTENCES[number])
        assert capsys.readouterr().out.splitlines() == [together[number]]
    assert len(together) == 4


def test_empty_line_gives_an_empty_line(
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


BAD_INPUT = {
    "a byte order mark": b"\xef\xbb\xbf",
    "bytes that are not UTF-8": b"good \xff\xfe text",
    "a NUL": b"a\x00b",
    "other line separators": "a\u2028b\u0085c\x0bd".encode(),
    "only emoji": "😀🏽‍🚀🎉".encode(),
    "right to left": "שלום עולם، مرحبا".encode(),
    "a very long line": b"long " * 20_000,
    "a very long word": b"x" * 100_000,
    "only spaces": b" \t\xc2\xa0 ",
    "nothing": b"",
}


def test_any_input_gives_as_many_lines(
    call: Call, tiny_run: Path, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"\n".join(BAD_INPUT.values()) + b"\n")
    call(translate, f"--model={tiny_run}")
    output, errors = capsys.readouterr()
    lines = output.split("\n")[:-1]
    assert len(lines) == len(BAD_INPUT)
    for name, line in zip(BAD_INPUT, lines, strict=True):
        empty = name in ("only spaces", "nothing", "a byte order mark")
        assert (line == "") == empty, name
    assert "tfnmt: line 7, 8: longer than 64 tokens" in errors
    assert "tfnmt: line 2: contains U+FFFD" in errors


def file_flags(folder: Path, *flags: str) -> list[str]:
    return [f"--input={folder / 'in'}", f"--output={folder / 'out'}", *flags]


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_empty_lines_stay_empty(
    call: Call, tiny_run: Path, tmp_path: Path, count: int
) -> None:
    (tmp_path / "in").write_bytes(b"\n" * count)
    call(translate, f"--model={tiny_run}", *file_flags(tmp_path))
    assert (tmp_path / "out").read_bytes() == b"\n" * count


def test_file_gives_the_translations_of_its_lines(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    call(translate, f"--model={tiny_run}", *file_flags(tmp_path))
    call(translate, f"--model={tiny_run}", *SENTENCES)
    assert (tmp_path / "out").read_text() == capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.job", "in", "out"]


def test_input_can_be_a_pipe_but_not_with_resume(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    pipe, output = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    text = "".join(f"{line}\n" for line in SENTENCES[:3])
    writer = threading.Thread(target=pipe.write_text, args=[text], daemon=True)
    writer.start()
    call(translate, f"--model={tiny_run}", f"--input={pipe}", f"--output={output}")
    writer.join(10)
    assert len(output.read_text().splitlines()) == 3
    with pytest.raises(UsageError, match=rf"--resume: {pipe} is a stream"):
        call(translate, f"--model={tiny_run}", f"--input={pipe}", f"--output={output}2", "--resume")


@pytest.mark.parametrize("flags", [[], ["--output=out"]])
def test_missing_input_is_reported_and_no_output_created(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="nowhere: No such file or directory"):
        call(translate, f"--model={tiny_run}", "--input=nowhere", *flags)
    assert not list(tmp_path.iterdir())


def test_truncated_input_keeps_the_old_output(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    compressed = gzip.compress(b"good\n" * 3000)
    (tmp_path / "in.gz").write_bytes(compressed[: len(compressed) // 2])
    (tmp_path / "out").write_text("old")
    flags = [f"--input={tmp_path / 'in.gz'}", f"--output={tmp_path / 'out'}"]
    with pytest.raises(UserError, match=r"in\.gz: "):
        call(translate, f"--model={tiny_run}", *flags)
    assert (tmp_path / "out").read_text() == "old"


def test_scores_are_written_before_a_tab(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", SENTENCES[0])
    translation = capsys.readouterr().out
    call(translate, f"--model={tiny_run}", "--scores", SENTENCES[0])
    score, text = capsys.readouterr().out.split("\t")
    assert text == translation
    assert float(score) < 0


# --- Models ---------------------------------------------------------------------------------------


def test_search_flags_apply_to_a_run_and_are_refused_for_an_export(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--beam_size=7", "--nbest=7", SENTENCES[0])
    assert len(json.loads(capsys.readouterr().out)["translations"]) == 7
    with pytest.raises(UsageError, match=r"--nbest=7: .*6.*--beam_size=7"):
        call(translate, f"--model={tiny_run}", "--beam_size=6", "--nbest=7", SENTENCES[0])
    with pytest.raises(UsageError, match=r"^--beam_size: "):
        call(translate, f"--model={tiny_export}", "--beam_size=1", SENTENCES[0])
    with pytest.raises(UsageError) as caught:
        call(translate, f"--model={tiny_export}", "--max_length=source+5", SENTENCES[0])
    assert len(caught.value.problems) == 1
    assert str(caught.value).startswith("--max_length: ")
    with pytest.raises(UsageError, match=r"decoding\.beam_size: 0"):
        call(translate, f"--model={tiny_run}", "--beam_size=0", SENTENCES[0])


def test_export_gives_the_translations_of_its_run(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for model in (tiny_run, tiny_export, tiny_export / "1"):
        call(translate, f"--model={model}", *SENTENCES, "")
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] == outputs[2]


def test_default_model_is_the_newest_finished_run(
    call: Call,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tfnmt.loading.models.base_folder", lambda: tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(tiny_run)
    call(translate, "a")
    assert f"--model={tmp_path / 'runs' / 'mine'}" in capsys.readouterr().err


def test_run_without_a_checkpoint_is_refused(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{tmp_path}: .*config\.yaml"):
        call(translate, f"--model={tmp_path}", "a")
    run = Run(tmp_path / "run")
    run.create(Run(tiny_run).config(), b"", "prepared")
    with pytest.raises(UserError, match=rf"{run.path}: .*no checkpoint"):
        call(translate, f"--model={run.path}", "a")


# --- N-best lists, JSON, sampling, constraints ----------------------------------------------------


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_nbest_lists_are_sorted_without_duplicates_and_start_with_the_translation(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", *SENTENCES[:3], "")
    best = capsys.readouterr().out.splitlines()
    call(translate, f"--model={tiny_run}", "--nbest=4", *SENTENCES[:3], "")
    found = objects(capsys)
    assert [each["translations"][0]["text"] for each in found] == best
    assert found[3] == {
        "source": "",
        "translations": [{"text": "", "score": 0.0, "tokens": [], "token_log_probs": []}],
        "truncated": False,
        "warnings": [],
    }
    call(translate, f"--model={tiny_export}", "--nbest=4", *SENTENCES[:3], "")
    assert objects(capsys) == found

    call(translate, f"--model={tiny_run}", "--nbest=30", "--beam_size=30", SENTENCES[0])
    (each,) = objects(capsys)
    texts = [hypothesis["text"] for hypothesis in each["translations"]]
    scores = [hypothesis["score"] for hypothesis in each["translations"]]
    assert len(set(texts)) == len(texts) > 1
    assert scores == sorted(scores, reverse=True)


def test_json_contains_log_probabilities_and_truncation(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--json", SENTENCES[0], "word " * 300)
    short, long = objects(capsys)
    (hypothesis,) = short["translations"]
    assert all(log_prob < 0 for log_prob in hypothesis["token_log_probs"])
    assert (short["truncated"], long["truncated"]) == (False, True)


def test_json_contains_the_source_and_token_ids(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"  {SENTENCES[0]} {SENTENCES[1]}"
    for search in ([], ["--beam_size=1"], ["--sample"], ["--nbest=3"]):
        call(translate, f"--model={tiny_run}", "--json", *search, line)
        (found,) = objects(capsys)
        assert found["source"] == line
        for hypothesis in found["translations"]:
            tokens, log_probs = hypothesis["tokens"], hypothesis["token_log_probs"]
            assert len(tokens) == len(log_probs) > 0
            assert min(tokens) >= EOS
            penalty = ((5 + len(tokens)) / 6) ** 0.6
            assert sum(log_probs) / penalty == pytest.approx(hypothesis["score"], abs=1e-3)
    call(translate, f"--model={tiny_run}", "--json", "--split_sentences", line)
    (found,) = objects(capsys)
    assert found["source"] == line
    assert found["translations"][0]["tokens"] is None


def test_json_needs_an_export_with_token_ids(
    call: Call,
    tiny_export: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ExportModel.load

    def load_earlier(model: ExportModel) -> Signatures:
        return {name: graph for name, graph in load(model).items() if name != "align_tokens"}

    monkeypatch.setattr(ExportModel, "load", load_earlier)
    for flag in ("--json", "--nbest=2"):
        with pytest.raises(UserError, match=rf"^{tiny_export / '1'}: .*earlier version"):
            call(translate, f"--model={tiny_export}", flag, SENTENCES[0])
    call(translate, f"--model={tiny_export}", "--scores", SENTENCES[0])
    assert "\t" in capsys.readouterr().out


def test_sample_depends_on_line_number_and_seed_only(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sample(*arguments: str) -> list[str]:
        call(translate, f"--model={tiny_run}", "--sample", *arguments)
        return capsys.readouterr().out.splitlines()

    lines = [SENTENCES[0]] * 3
    first = sample(*lines)
    assert len(set(first)) == 3
    assert sample(lines[0], "another line, much longer than the first one is", "x")[:1] == first[:1]
    assert sample("--seed=2", *lines) != first
    assert len(set(sample("--top_k=1", *lines))) == 1


def test_every_translation_begins_with_the_prefix(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--prefix=Der Hund", *SENTENCES[:2])
    for line in capsys.readouterr().out.splitlines():
        assert line.startswith("Der Hund")


def test_split_sentences_translates_sentences_separately_and_keeps_white_space(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = SENTENCES[:2]
    call(translate, f"--model={tiny_run}", one, two)
    first, second = capsys.readouterr().out.splitlines()
    call(translate, f"--model={tiny_run}", "--split_sentences", f"  {one}\t \u3000{two} ", "", one)
    assert capsys.readouterr().out.split("\n") == [
        f"  {first}\t \u3000{second} ",
        "",
        first,
        "",
    ]


def test_run_of_single_sentences_splits_lines_by_default(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(
        config.replace("split_sentences: false", "split_sentences: true")
    )
    line = " ".join(SENTENCES[:2])
    for flags in ["--split_sentences"], [], ["--nosplit_sentences"], ["--nbest=2"]:
        call(translate, f"--model={run}", *flags, line)
    split, default, whole, nbest = capsys.readouterr().out.splitlines()
    assert default == split != whole
    assert json.loads(nbest)["translations"][0]["text"] == whole


# --- Refused arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest=5"], r"--nbest=5: larger than the beam \(4\); use --beam_size=5"),
        (["--top_k=3"], r"--top_k: needs --sample"),
        (["--seed=3"], r"--seed: needs --sample"),
        (["--sample", "--temperature=nan"], r"--temperature=nan: "),
        (["--sample", "--top_p=nan"], r"--top_p=nan: "),
        (["--resume"], r"--resume: needs --input and --output"),
        (["--sample", "--nbest=2"], r"--nbest: not with --sample"),
        (["--length_penalty=-1"], r"decoding\.length_penalty: -1\.0"),
        (["--max_length=source-3"], r"--max_length=source-3: .*source\+N"),
        (["--prefix=Caf\udce9"], r"'Caf\\udce9': not UTF-8"),
        (["caf\udce9"], r"'caf\\udce9': not UTF-8"),
        (["--prefix=Der", "--split_sentences"], r"--prefix: not with --split_sentences"),
        (["--max_length=2", "--min_length=5"], r"max_length 2 .* min_length 5"),
        (["--min_length=100000"], r"decoding: min_length 100000 .* 69"),
        (["--sample", "--beam_size=2"], r"--beam_size: not with --sample"),
        (["--prefix=Der Hund", "--max_length=3"], r"--prefix: \d+ tokens, .* 3 with EOS"),
    ],
)
def test_contradictory_or_invalid_arguments_are_refused(
    call: Call, tiny_run: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        call(translate, f"--model={tiny_run}", *arguments, "a")


def test_output_cannot_be_compressed(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UsageError, match=r"--output=lines\.de\.gz: "):
        call(translate, f"--model={tiny_run}", "--output=lines.de.gz", "a")


def test_output_cannot_be_the_input(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "link"
    text.write_text("A dog runs.\n")
    other.symlink_to(text)
    with pytest.raises(UsageError, match=rf"--output={other}: .*--input"):
        call(translate, f"--model={tiny_run}", f"--input={text}", f"--output={other}")
    assert text.read_text() == "A dog runs.\n"


def test_output_cannot_be_the_file_that_is_stdin(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("A dog runs.\n")
    monkeypatch.setattr(translate, "STDIN", text)
    with pytest.raises(UsageError, match=rf"--output={text}: is read by stdin"):
        call(translate, f"--model={tiny_run}", f"--output={text}")
    assert text.read_text() == "A dog runs.\n"


def test_output_cannot_be_a_file_of_the_model(
    call: Call, tiny_run: Path, tiny_export: Path
) -> None:
    for model, name in ((tiny_run, "config.yaml"), (tiny_export, "1/saved_model.pb")):
        content = (model / name).read_bytes()
        with pytest.raises(UsageError, match=rf"--output={model / name}: .*--model"):
            call(translate, f"--model={model}", f"--output={model / name}", "a")
        assert (model / name).read_bytes() == content


def test_empty_input_flag_is_ignored(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old\n")
    call(translate, f"--model={tiny_run}", "--input=", f"--output={output}", "A dog runs.")
    assert output.read_text() != "old\n"


def test_closed_stdin_is_reported_if_there_is_no_other_input(
    call: Call, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # Python's value for a closed stdin
    with pytest.raises(UsageError, match=r"stdin: closed; .*--input"):
        call(translate, f"--model={tiny_run}")


def test_sampling_from_an_export_is_refused(call: Call, tiny_export: Path) -> None:
    with pytest.raises(UsageError, match="--sample: not supported for exports"):
        call(translate, f"--model={tiny_export}", "--sample", "a")


# --- Resuming -------------------------------------------------------------------------------------


def test_resume_keeps_finished_lines_and_refuses_another_job(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed after two and a half lines: --resume keeps the two, whatever their text."""
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES[:6]))
    arguments = [f"--model={tiny_run}", *file_flags(tmp_path, "--sample")]
    (job,) = recorded_jobs(lambda: call(translate, *arguments))
    uninterrupted = (tmp_path / "out").read_text().splitlines()
    file = ResumableFile(tmp_path / "out")

    file.start(job)
    file.partial.write_text("one\ntwo\nthr")
    call(translate, *arguments, "--resume")
    assert f"tfnmt: {file.path}: resuming after line 2\n" in capsys.readouterr().err
    assert (tmp_path / "out").read_text().splitlines() == ["one", "two", *uninterrupted[2:]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.job", "in", "out"]

    call(translate, *arguments, "--resume")
    assert f"tfnmt: {file.path}: already finished; " in capsys.readouterr().err
    assert (tmp_path / "out").read_text().splitlines() == ["one", "two", *uninterrupted[2:]]

    with pytest.raises(UsageError, match=rf"^--resume: {file.path} was made .* --seed; "):
        call(translate, *arguments, "--resume", "--seed=2")
    run = shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(UsageError, match=rf"^--resume: {file.path} was made .* model; "):
        call(translate, f"--model={run}", *arguments[1:], "--resume")
    file.job_path.unlink()  # earlier versions removed it

    later = file.path.stat().st_mtime_ns + 10**9
    os.utime(tmp_path / "in", ns=(later, later))
    with pytest.raises(UsageError, match=r"--resume: .*in is newer than the finished .*out;"):
        call(translate, *arguments, "--resume")

    time_of_input = {"time of the input": (tmp_path / "in").stat().st_mtime_ns}
    file.start(job | time_of_input | {"--seed": 7, "size of the input": 3})
    file.partial.write_text("one\n")
    with pytest.raises(UsageError, match=r" --seed, size of the input; "):
        call(translate, *arguments, "--resume")


def test_litert_export_translates_stdin_and_resumes(
    call: Call,
    tiny_litert: Path,
    tmp_path: Path,
    stdin: Callable[[bytes], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "".join(f"{line}\n" for line in SENTENCES[:4])
    stdin(text.encode())
    call(translate, f"--model={tiny_litert}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4

    (tmp_path / "in").write_text(text)
    arguments = [f"--model={tiny_litert}", *file_flags(tmp_path)]
    (job,) = recorded_jobs(lambda: call(translate, *arguments))
    assert (tmp_path / "out").read_text().splitlines() == lines
    file = ResumableFile(tmp_path / "out")
    file.start(job)
    file.partial.write_text("one\ntw")
    call(translate, *arguments, "--resume")
    assert (tmp_path / "out").read_text().splitlines() == ["one", *lines[1:]]


def recorded_jobs(work: Callable[[], None]) -> list[dict[str, Any]]:
    """Return the jobs that a translation records."""
    jobs, start = [], ResumableFile.start

    def record(file: ResumableFile, job: dict[str, Any]) -> int:
        jobs.append(job)
        return start(file, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResumableFile, "start", record)
        work()
    return jobs


# --- Several directions ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["de", "en"])
def test_target_selects_the_language(
    call: Call, two_way_run: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    texts = ("the dog sees the cat", "der Hund")
    call(translate, f"--model={two_way_run}", f"--target={target}", "--json", *texts)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    translator = find_run(two_way_run).load_translator()
    expected = translator.nbest(list(texts), [target] * 2)
    for found, score in zip(objects, expected["scores"][:, 0].numpy(), strict=True):
        assert found["translations"][0]["score"] == pytest.approx(float(score), abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--target: missing; .* translates to de, en"),
        (["--target=fr"], "--target=fr: unknown; .* translates to de, en"),
    ],
)
def test_missing_or_unknown_target_lists_the_languages(
    call: Call, two_way_run: Path, arguments: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        call(translate, f"--model={two_way_run}", *arguments, "text")


@pytest.mark.parametrize("source", ["fr", "auto"])
def test_unknown_source_is_refused(call: Call, two_way_run: Path, source: str) -> None:
    with pytest.raises(UsageError, match=rf"^--source={source}: unknown; .* knows de, en "):
        call(translate, f"--model={two_way_run}", "--target=en", f"--source={source}", "text")


def test_target_of_a_single_direction_is_checked(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UsageError, match=r"--target=fr: unknown; .* translates to de "):
        call(translate, f"--model={tiny_run}", "--target=fr", "text")


def test_untrained_direction_warns(
    call: Call, two_way_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"--model={two_way_run}"
    call(translate, model, "--target=en", "--source=en", "the dog")
    assert "not trained on en-en, only on en-de, de-en" in capsys.readouterr().err
    call(translate, model, "--target=en", "--source=de", "der Hund")
    assert "not trained" not in capsys.readouterr().err


def test_resume_with_another_target_is_refused(
    call: Call, two_way_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("the dog\n" * 3)
    flags = (f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out.txt'}", "--resume")
    call(translate, f"--model={two_way_run}", "--target=de", *flags)
    with pytest.raises(UsageError, match="--target"):
        call(translate, f"--model={two_way_run}", "--target=en", *flags)


PAGE = '<p>She knows that the <b>dog</b> sleeps.</p><p translate="no">keep</p>'


def test_document_is_translated_with_its_tags(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, output, terms = tmp_path / "a.html", tmp_path / "b.HTML", tmp_path / "terms.tsv"
    page.write_text(PAGE)
    terms.write_text("sleeps\tschläft")
    files = (f"--input={page}", f"--output={output}", f"--glossary={terms}")
    call(translate, f"--model={tiny_run}", *files)
    text = output.read_text()
    assert text.startswith("<p>")
    assert text.endswith('</p><p translate="no">keep</p>')
    assert text.count("<b>") >= 1
    assert text != PAGE
    assert "schläft" in text or "glossary: sleeps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "problems"),
    [
        (["--input=a.docx"], ["--input=a.docx: a document; set --output"]),
        (
            ["--input=a.docx", "--output=a.odt", "--nbest=2", "--scores"],
            [
                "--scores: not with --json or --nbest, whose output contains the scores",
                "--scores: not for documents; omit it",
                "--nbest: not for documents; omit it",
                "--output=a.odt: must end with .docx, as --input does",
            ],
        ),
        (["--input=a.tsv", "--glossary=b"], ["--glossary: only for documents; omit it"]),
    ],
)
def test_flags_that_do_not_fit_documents_are_reported(
    call: Call, flags: list[str], problems: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        call(translate, *flags)
    assert list(caught.value.problems) == problems


def test_documents_of_a_folder_are_refused(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    for name in ("a.docx", "b.txt", "c.srt"):
        (tmp_path / name).touch()
    files = (f"--input={tmp_path}", f"--output={tmp_path / 'out'}")
    with pytest.raises(UsageError) as caught:
        call(translate, f"--model={tiny_run}", *files)
    assert list(caught.value.problems) == [
        f"{tmp_path / name}: a document; translate it on its own" for name in ("a.docx", "c.srt")
    ]


def test_damaged_document_is_reported_and_nothing_is_written(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.docx").write_bytes(b"no archive")
    files = (f"--input={tmp_path / 'a.docx'}", f"--output={tmp_path / 'b.docx'}")
    with pytest.raises(UserError, match="damaged"):
        call(translate, f"--model={tiny_run}", *files)
    assert not (tmp_path / "b.docx").exists()
