import json
import os
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tfnmt import score, translate
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


def test_score_lists_truncated_changed_and_invalid_lines(
    call: Call, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [PAIRS[0], ("word " * 400, "a"), ("a", "two  spaces"), ("a", "b " * 400)]
    path = tsv(tmp_path / "in", pairs)
    path.write_bytes(path.read_bytes() + b"caf\xe9\ta\n")
    call(score, f"--model={tiny_run}", f"--input={path}")
    printed = capsys.readouterr()
    assert len(scored(printed.out)) == 5
    assert "tfnmt: line 2, 4: source or target longer than the limit" in printed.err
    assert "tfnmt: line 3: the model reads another target" in printed.err
    assert "tfnmt: line 5: contains U+FFFD" in printed.err


def json_file(call: Call, run: Path, path: Path, *flags: str) -> list[dict[str, Any]]:
    """Write what translate writes for some sentences; return the parsed lines."""
    (path.parent / "sources").write_text("".join(f"{source}\n" for source, _ in PAIRS) + "\n")
    files = f"--input={path.parent / 'sources'}", f"--output={path}"
    call(translate, f"--model={run}", *files, *flags)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("flags", [["--nbest=4"], ["--json", "--sample"]])
def test_score_of_json_is_the_score_of_the_search(
    call: Call,
    tiny_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
) -> None:
    lines = json_file(call, tiny_run, tmp_path / "f.jsonl", *flags)
    call(score, f"--model={tiny_run}", f"--input={tmp_path / 'f.jsonl'}")
    found = scored(capsys.readouterr().out)
    hypotheses = [each for line in lines for each in line["translations"]]
    assert len(found) == len(hypotheses) > len(PAIRS)
    for (_, value, tokens), hypothesis in zip(found, hypotheses, strict=True):
        assert value == pytest.approx(hypothesis["score"], abs=3e-4)
        assert tokens == len(hypothesis["tokens"])
    assert found[-1] == (0, 0, 0)  # the empty line


def test_score_refuses_json_without_usable_ids(call: Call, tiny_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    (first, *_) = json_file(call, tiny_run, path, "--json")
    (hypothesis,) = first["translations"]
    tokens = hypothesis["tokens"]
    valid = json.dumps(first)

    def changed(**fields: Any) -> str:
        return json.dumps({"source": "a", "translations": [{**hypothesis, **fields}]})

    for line, problem in (
        ("{", "line: Invalid JSON"),
        ("[]", "line: "),
        (json.dumps({"translations": []}), "source: Field required"),
        (changed(tokens=["a"]), r"translations\.0\.tokens\.0: "),
        (changed(tokens=None), "no token ids, .* --split_sentences"),
        (changed(tokens=[500]), "not token ids of this run"),
        (changed(tokens=[-1]), "not token ids of this run"),
        (changed(tokens=[*tokens, 2, 7]), "not token ids of this run"),
        (changed(tokens=[7, *tokens]), "the token ids give another text"),
        (changed(text="another"), "the token ids give another text"),
    ):
        path.write_text(f"{valid}\n{line}\n")
        with pytest.raises(UserError, match=rf"^{path}:2: {problem}"):
            call(score, f"--model={tiny_run}", f"--input={path}")


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


def test_score_needs_a_run(call: Call, tiny_export: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^{tiny_export / '1'}: a SavedModel; .*run"):
        call(score, f"--model={tiny_export}", f"--input={tsv(tmp_path / 'in', PAIRS)}")


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


def test_shards_have_the_translations_and_scores_of_a_whole_file(
    call: Call, tiny_run: Path, tmp_path: Path
) -> None:
    model, source = f"--model={tiny_run}", tmp_path / "in"
    source.write_text("".join(f"{text}\n" for text, _ in PAIRS))
    for name, flags in (("whole", []), ("shards", ["--shard_lines=7"])):
        found = tmp_path / f"{name}.jsonl"
        nbest = [f"--input={source}", f"--output={found}", "--beam_size=2", "--nbest=2"]
        call(translate, model, *nbest, *flags)
        call(score, model, f"--input={found}", f"--output={tmp_path / name}", *flags)
    texts = [
        [each["text"] for each in json.loads(line)["translations"]]
        for line in (tmp_path / "whole.jsonl").read_text().splitlines()
    ]
    assert texts == [
        [each["text"] for each in json.loads(line)["translations"]]
        for line in (tmp_path / "shards.jsonl").read_text().splitlines()
    ]
    whole, shards = (scored((tmp_path / name).read_text()) for name in ("whole", "shards"))
    assert len(whole) == sum(map(len, texts))
    for one, other in zip(whole, shards, strict=True):
        assert one == pytest.approx(other, abs=2e-4)
