import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tfnmt import trace
from tfnmt.errors import UsageError, UserError

Call = Callable[..., None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def tiny_text(call: Call) -> str:
    with redirect_stdout(io.StringIO()) as output:
        call(trace, "--tiny")
    return output.getvalue()


def shapes(text: str) -> set[str]:
    """Return the shapes of variables and parameters."""
    return set(re.findall(r"\((?:\d+, )*\d+,?\)", text))


def loss_rows(text: str) -> list[list[str]]:
    """Return the rows of the loss table."""
    return [line.split() for line in text.splitlines() if re.match(r"row \d position", line)]


def test_tiny_model_is_traced_from_text_to_loss(tiny_text: str) -> None:
    text = tiny_text
    assert "(2,3,8) -> (2,2,3,4) -> (2,2,3,3) -> " in text
    assert "axes: B sentences, S source positions" in text
    assert max(map(len, text.splitlines())) < 130
    assert " -> (2,2,5)" in text
    assert {"(2, 3, 8)", "(2, 2, 2, 3)", "(2, 2, 5)", "(8, 32)"} <= shapes(text)
    assert "552  encoder/layer_0/feed_forward" in text
    assert "softmax(Q K^T / sqrt(d_k))   [section 3.2.1, equation 1]" in text
    assert not re.search(r"\.\.\.$", text, re.MULTILINE)  # every tensor is whole
    rows = loss_rows(text)
    assert [row[4] for row in rows] == ["dog", "run", "run", "</s>"]
    traced, trained = (line.split()[-2:] for line in text.splitlines() if line.startswith("sum "))
    assert traced == trained  # the trace's and training's


def test_trace_describes_which_positions_mix(tiny_text: str) -> None:
    lines = [line.strip() for line in tiny_text.splitlines()]
    descriptions = [line for line in lines if line.startswith(("positions mix", "positions do"))]
    assert descriptions == [
        "positions mix: in sentence 0, positions 0, 1, 2 affect others; "
        "in sentence 1, positions 0, 1 affect others",
        "positions do not mix: each is processed separately",
        "positions mix: each affects itself and all later ones",
        "positions mix: in sentence 0, positions 0, 1, 2 affect the target; "
        "in sentence 1, positions 0, 1 affect the target",
        "positions do not mix: each is processed separately",
    ]


def test_nudge_changes_the_loss(call: Call, capsys: Capture) -> None:
    call(trace, "--tiny", "--nudge=0,0,dog,2")
    text = capsys.readouterr().out
    logit = re.search(r"^logit +(\S+) -> +(\S+)$", text, re.MULTILINE)
    assert logit
    assert float(logit[2]) - float(logit[1]) == pytest.approx(2, abs=1e-3)
    change = re.search(r"^cross entropy +(\S+) -> +(\S+) +(\S+)$", text, re.MULTILINE)
    assert change
    assert float(change[3]) < 0
    assert float(change[2]) - float(change[1]) == pytest.approx(float(change[3]), abs=2e-4)


def test_text_without_target_is_traced_to_its_translation(call: Call, capsys: Capture) -> None:
    call(trace, "--tiny", "dog run", "run")
    text = capsys.readouterr().out
    assert text.count("=== Search, row") == 2
    assert "Decoder in step 0" in text
    assert "(2, 2, 2, 2)    B H K T*K" in text  # the cached tokens of all hypotheses
    assert " -> (2,2,5)" in text
    assert "(2, 2, 5)       B K V" in text
    for word in ("finished, score", "live when the search stopped", "pruned", "└─"):
        assert word in text
    assert "Loss [" not in text


def test_run_is_traced_with_its_own_tokenizer(
    call: Call, tiny_run: Path, capsys: Capture, tmp_path: Path
) -> None:
    arguments = (
        f"--model={tiny_run}",
        "The dog sleeps.",
        "A cat.",
        "--target=Der Hund schläft.",
        "--target=Eine Katze.",
    )
    call(trace, *arguments, f"--html={tmp_path / 'page.html'}")
    output, errors = capsys.readouterr()
    assert output == ""
    assert f"page written to {tmp_path / 'page.html'}" in errors
    page = (tmp_path / "page.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', page)
    content = json.loads(data)
    assert len(content["batch"]) == len(content["search"]) == 2
    assert content["batch"][0]["target_out"][:-1] == content["batch"][0]["target_in"][1:]
    call(trace, *arguments)
    text = capsys.readouterr().out
    costs = [each["smoothed"] for each in content["loss"]["predictions"]]
    assert [float(row[7]) for row in loss_rows(text)] == pytest.approx(costs, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--model, --tiny:"),
        (["--tiny", "--model=x"], "--model, --tiny:"),
        (["--model=x", "--trained", "a"], "--trained: only for --tiny"),
        (["--model=x"], "--model: no text"),
        (["--tiny", "dog", "run", "--target=dog"], "--target: 1 given for 2 texts"),
        (["--tiny", "dog", "--nudge=0,0,dog,1"], "--nudge: needs a loss; give --target"),
        (["--tiny", *["dog"] * 9], "9 texts: the limit is 8"),
        (["--tiny", " "], "text or --target: empty"),
        (["--model=x", "a", "--target="], "text or --target: empty"),
        (["--model=x", "caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["--tiny", "dog", "--target=caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["--tiny", "dog", "--target=dog", "--beam_size=3"], "--beam_size: the loss needs no"),
        (["--tiny", "dog mouse"], "--tiny: unknown word 'mouse'"),
        (["--tiny", "dog " * 64], "text: 65 tokens, and the limit is 64"),
        (["--tiny", "dog", "--target=" + "dog " * 64], "--target: 65 tokens, and the limit is 64"),
    ],
)
def test_wrong_arguments_are_rejected(call: Call, arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        call(trace, *arguments)


@pytest.mark.parametrize(
    "nudge", ["0,0,dog", "0,9,dog,1", "0,0,mouse,1", "-1,0,dog,1", "0,0,dog,nan", "0,0,dog,inf"]
)
def test_nudge_of_a_missing_logit_is_rejected(call: Call, nudge: str) -> None:
    limits = "a row below 2, a position below 2, and a token or an id below 5"
    with pytest.raises(UsageError, match=f"--nudge={nudge}: .*{limits}"):
        call(trace, "--tiny", f"--nudge={nudge}")


@pytest.mark.slow
def test_trained_tiny_model_predicts_the_correct_token_with_p_996(
    call: Call, capsys: Capture
) -> None:
    call(trace, "--tiny", "--trained")
    probabilities = [float(row[5]) for row in loss_rows(capsys.readouterr().out)]
    assert probabilities == pytest.approx([0.996] * 4, abs=0.003)


def test_page_does_not_replace_a_file_of_the_run(call: Call, tiny_run: Path) -> None:
    output = tiny_run / "tokenizer.model"
    content = output.read_bytes()
    with pytest.raises(UsageError, match=rf"--html={output}: is read by --model"):
        call(trace, f"--model={tiny_run}", "A cat.", f"--html={output}")
    assert output.read_bytes() == content


def test_unwritable_page_is_rejected_before_the_work(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="a folder; choose a file name"):
        call(trace, "--tiny", "--trained", f"--html={tmp_path}")
    assert capsys.readouterr().err == ""
