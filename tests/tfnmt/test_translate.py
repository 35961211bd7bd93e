import gzip
import json
import os
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
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import Run
from tfnmt.runtime.files import GrowingFile

Call = Callable[..., None]
SENTENCES = [source for source, _ in islice(grammar.pairs("test"), 20)]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    with ExitStack() as opened:

        def give(content: bytes) -> None:
            (tmp_path / "stdin").write_bytes(content)
            file = opened.enter_context((tmp_path / "stdin").open())
            monkeypatch.setattr(sys, "stdin", file)

        yield give


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


BAD_INPUT = {
    "a byte order mark": b"\xef\xbb\xbf",
    "bytes that are no UTF-8": b"good \xff\xfe text",
    "a NUL": b"a\x00b",
    "other line separators": "a\u2028b\u0085c\x0bd".encode(),
    "emoji alone": "😀🏽‍🚀🎉".encode(),
    "right to left": "שלום עולם، مرحبا".encode(),
    "a very long line": b"long " * 20_000,
    "a very long word": b"x" * 100_000,
    "spaces alone": b" \t\xc2\xa0 ",
    "nothing": b"",
}


def test_whatever_comes_in_as_many_lines_come_out(
    call: Call, tiny_run: Path, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"\n".join(BAD_INPUT.values()) + b"\n")
    call(translate, f"--model={tiny_run}")
    output, errors = capsys.readouterr()
    lines = output.split("\n")[:-1]
    assert len(lines) == len(BAD_INPUT)
    for name, line in zip(BAD_INPUT, lines, strict=True):
        empty = name in ("spaces alone", "nothing", "a byte order mark")
        assert (line == "") == empty, name
    assert "tfnmt: line 7, 8: longer than 64 pieces" in errors
    assert "tfnmt: line 2: has U+FFFD, which is read where bytes are not UTF-8; 1 in all" in errors


def test_a_million_empty_lines_stay_empty(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\n" * 1_000_000)
    call(translate, f"--model={tiny_run}", f"--input={tmp_path / 'in'}",
         f"--output={tmp_path / 'out'}")  # fmt: skip
    assert (tmp_path / "out").read_bytes() == b"\n" * 1_000_000


def test_a_file_is_translated_into_a_file_of_as_many_lines(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    call(translate, f"--model={tiny_run}", f"--input={tmp_path / 'in'}",
         f"--output={tmp_path / 'out'}")  # fmt: skip
    call(translate, f"--model={tiny_run}", *SENTENCES)
    assert (tmp_path / "out").read_text() == capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_pipe_can_be_the_input_of_a_file(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    pipe, output = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    text = "".join(f"{line}\n" for line in SENTENCES[:3])
    writer = threading.Thread(target=pipe.write_text, args=[text], daemon=True)
    writer.start()
    call(translate, f"--model={tiny_run}", f"--input={pipe}", f"--output={output}")
    writer.join(10)
    assert len(output.read_text().splitlines()) == 3
    with pytest.raises(UsageError, match="cannot be read again from the beginning"):
        call(translate, f"--model={tiny_run}", f"--input={pipe}", f"--output={output}2", "--resume")


@pytest.mark.parametrize("flags", [[], ["--output=out"]])
def test_an_input_that_is_not_there_is_told(
    call: Call, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="nowhere: No such file or directory"):
        call(translate, f"--model={tiny_run}", "--input=nowhere", *flags)
    assert not list(tmp_path.iterdir())


def test_a_file_that_breaks_off_keeps_the_old_output(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    packed = gzip.compress(b"good\n" * 3000)
    (tmp_path / "in.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "out").write_text("old")
    with pytest.raises(UserError, match=r"in.gz: the gzip data ends early"):
        call(translate, f"--model={tiny_run}", f"--input={tmp_path / 'in.gz'}",
             f"--output={tmp_path / 'out'}")  # fmt: skip
    assert (tmp_path / "out").read_text() == "old"


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
    call(translate, f"--model={tiny_run}", "--beam_size=7", "--nbest=7", SENTENCES[0])
    assert len(json.loads(capsys.readouterr().out)["translations"]) == 7
    with pytest.raises(UsageError, match="the beam has 6 hypotheses"):
        call(translate, f"--model={tiny_run}", "--beam_size=6", "--nbest=7", SENTENCES[0])
    with pytest.raises(UsageError, match=r"^--beam_size: fixed in an export"):
        call(translate, f"--model={tiny_export}", "--beam_size=1", SENTENCES[0])
    with pytest.raises(UsageError) as caught:
        call(translate, f"--model={tiny_export}", "--max_length=source+5", SENTENCES[0])
    assert len(caught.value.problems) == 1
    assert "--max_length: fixed in an export" in str(caught.value)
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
    monkeypatch.setattr("tfnmt.loading.models.home", lambda: tmp_path)
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


# --- Several, drawn, constrained --------------------------------------------------------------


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_nbest_lists_are_sorted_differ_and_begin_with_the_translation(
    call: Call, tiny_run: Path, tiny_export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", *SENTENCES[:3], "")
    plain = capsys.readouterr().out.splitlines()
    call(translate, f"--model={tiny_run}", "--nbest=4", *SENTENCES[:3], "")
    found = objects(capsys)
    assert [each["translations"][0]["text"] for each in found] == plain
    assert found[3] == {"translations": [{"text": "", "score": 0.0, "token_log_probs": []}],
                        "truncated": False, "warnings": []}  # fmt: skip
    call(translate, f"--model={tiny_export}", "--nbest=4", *SENTENCES[:3], "")
    assert objects(capsys) == found

    call(translate, f"--model={tiny_run}", "--nbest=30", "--beam_size=30", SENTENCES[0])
    (each,) = objects(capsys)
    texts = [hypothesis["text"] for hypothesis in each["translations"]]
    scores = [hypothesis["score"] for hypothesis in each["translations"]]
    assert len(set(texts)) == len(texts) > 1
    assert scores == sorted(scores, reverse=True)


def test_json_tells_log_probabilities_cuts_and_warnings(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--json", SENTENCES[0], "word " * 300)
    short, long = objects(capsys)
    (hypothesis,) = short["translations"]
    assert all(log_prob < 0 for log_prob in hypothesis["token_log_probs"])
    assert (short["truncated"], long["truncated"]) == (False, True)


def test_a_draw_depends_on_line_and_seed_alone(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(*arguments: str) -> list[str]:
        call(translate, f"--model={tiny_run}", "--sample", *arguments)
        return capsys.readouterr().out.splitlines()

    lines = [SENTENCES[0]] * 3
    first = drawn(*lines)
    assert len(set(first)) == 3
    assert drawn(lines[0], "another line, much longer than the first one is", "x")[:1] == first[:1]
    assert drawn("--seed=2", *lines) != first
    assert len(set(drawn("--top_k=1", *lines))) == 1


def test_a_prefix_begins_every_translation(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(translate, f"--model={tiny_run}", "--prefix=Der Hund", *SENTENCES[:2])
    for line in capsys.readouterr().out.splitlines():
        assert line.startswith("Der Hund")


def test_sentences_are_translated_one_by_one_with_the_space_between(
    call: Call, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = SENTENCES[:2]
    call(translate, f"--model={tiny_run}", one, two)
    first, second = capsys.readouterr().out.splitlines()
    call(translate, f"--model={tiny_run}", "--split_sentences", f"  {one}\t \u3000{two} ", "", one)
    assert capsys.readouterr().out.split("\n") == [
        f"  {first}\t \u3000{second} ", "", first, ""
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest=5"], r"--nbest=5: the beam has 4 hypotheses; widen it by --beam_size"),
        (["--top_k=3"], r"--top_k: goes with --sample"),
        (["--seed=3"], r"--seed: goes with --sample"),
        (["--sample", "--temperature=nan"], r"--temperature=nan: not a number to divide by"),
        (["--resume"], r"--resume: goes with --input and --output"),
        (["--sample", "--nbest=2"], r"--nbest: not with --sample"),
        (["--length_penalty=-1"], r"decoding\.length_penalty: -1\.0 is wrong"),
        (["--max_length=source-3"], r"--max_length=source-3: neither a number nor source\+N"),
        (["--prefix=Caf\udce9"], r"'Caf\\udce9': not UTF-8"),
        (["caf\udce9"], r"'caf\\udce9': not UTF-8"),
        (["--prefix=Der", "--split_sentences"], r"--prefix: not with --split_sentences"),
        (["--max_length=2", "--min_length=5"], r"max_length 2 leaves no room for min_length 5"),
    ],
)
def test_what_cannot_be_is_refused(
    call: Call, tiny_run: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        call(translate, f"--model={tiny_run}", *arguments, "a")


def test_what_is_written_is_not_packed(call: Call, tiny_run: Path) -> None:
    with pytest.raises(UsageError, match=r"--output=lines\.de\.gz: what is written is not packed"):
        call(translate, f"--model={tiny_run}", "--output=lines.de.gz", "a")


def test_what_is_read_is_not_written_over(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "link"
    text.write_text("A dog runs.\n")
    other.symlink_to(text)
    with pytest.raises(UsageError, match=rf"--output={other}: the --input, which would be lost"):
        call(translate, f"--model={tiny_run}", f"--input={text}", f"--output={other}")
    assert text.read_text() == "A dog runs.\n"


def test_an_input_of_no_name_is_none(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old\n")
    call(translate, f"--model={tiny_run}", "--input=", f"--output={output}", "A dog runs.")
    assert output.read_text() != "old\n"


def test_without_stdin_texts_or_a_file_are_asked_for(
    call: Call, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it where it is closed
    with pytest.raises(UsageError, match="stdin: closed; give texts or --input"):
        call(translate, f"--model={tiny_run}")


def test_what_an_export_cannot_do_is_refused(call: Call, tiny_export: Path) -> None:
    with pytest.raises(UsageError, match="--sample: an export does not know it; give the run"):
        call(translate, f"--model={tiny_export}", "--sample", "a")


# --- A long file --------------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed after two and a half lines: --resume keeps the two, whatever they say."""
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES[:6]))
    arguments = (f"--model={tiny_run}", f"--input={tmp_path / 'in'}",
                 f"--output={tmp_path / 'out'}", "--sample")  # fmt: skip
    call(translate, *arguments)
    whole = (tmp_path / "out").read_text().splitlines()
    file = GrowingFile(tmp_path / "out")
    (job,) = seen_jobs(file, lambda: call(translate, *arguments))

    file.begin(job)
    file.partial.write_text("one\ntwo\nthr")
    call(translate, *arguments, "--resume")
    assert "tfnmt: 2 lines are done\n" in capsys.readouterr().err
    assert (tmp_path / "out").read_text().splitlines() == ["one", "two", *whole[2:]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]

    call(translate, *arguments, "--resume")
    assert f"tfnmt: {file.path}: this translation is finished; " in capsys.readouterr().err
    assert (tmp_path / "out").read_text().splitlines() == ["one", "two", *whole[2:]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]

    later = file.path.stat().st_mtime_ns + 10**9
    os.utime(tmp_path / "in", ns=(later, later))
    with pytest.raises(UsageError, match=r"--resume: .*in is newer than .*out, which is finished"):
        call(translate, *arguments, "--resume")
    (job,) = seen_jobs(file, lambda: call(translate, *arguments))

    file.begin(job | {"--seed": 7, "size of the input": 3})
    file.partial.write_text("one\n")
    with pytest.raises(UsageError, match=r"begun with another --seed, size of the input; go on"):
        call(translate, *arguments, "--resume")


def seen_jobs(file: GrowingFile, work: Callable[[], None]) -> list[dict[str, Any]]:
    """The jobs that are noted while something works."""
    seen, begin = [], GrowingFile.begin

    def noted(file: GrowingFile, job: dict[str, Any]) -> int:
        seen.append(job)
        return begin(file, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrowingFile, "begin", noted)
        work()
    return seen
