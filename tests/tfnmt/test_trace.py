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
    """The shapes of variables, and of parameters."""
    return set(re.findall(r"\((?:\d+, )*\d+,?\)", text))


def loss_rows(text: str) -> list[list[str]]:
    """The loss table's lines of tokens."""
    return [line.split() for line in text.splitlines() if re.match(r"row \d position", line)]


def test_the_tiny_model_goes_from_text_to_loss(tiny_text: str) -> None:
    text = tiny_text
    assert "(2,3,8) -> (2,2,3,4) -> (2,2,3,3) -> " in text
    assert "letters: B sentences, S source positions" in text
    assert max(map(len, text.splitlines())) < 130
    assert " -> (2,2,5)" in text
    assert {"(2, 3, 8)", "(2, 2, 2, 3)", "(2, 2, 5)", "(8, 32)"} <= shapes(text)
    assert "552  encoder/layer_0/feed_forward" in text
    assert "softmax(Q K^T / sqrt(d_k))   [section 3.2.1, equation 1]" in text
    assert not re.search(r"\.\.\.$", text, re.MULTILINE)  # every tensor is whole
    rows = loss_rows(text)
    assert [row[4] for row in rows] == ["cat", "dog", "dog", "</s>"]
    both = [
        line.split()[-2:] for line in text.splitlines() if line.startswith(("sum ", "the sums"))
    ]
    assert both[0] == both[1]  # ours, and training's


def test_mixing_is_told(tiny_text: str) -> None:
    lines = [line.strip() for line in tiny_text.splitlines()]
    told = [line for line in lines if line.startswith(("positions mix", "positions do"))]
    assert told == [
        "positions mix: in sentence 0 what stands at 0, 1, 2 reaches others; "
        "in sentence 1 what stands at 0, 1 reaches others",
        "positions do not mix: each is worked on alone",
        "positions mix: what stands at one reaches itself and those after it",
        "positions mix: in sentence 0 what stands at 0, 1, 2 reaches the target; "
        "in sentence 1 what stands at 0, 1 reaches the target",
        "positions do not mix: each is worked on alone",
    ]


def test_a_nudge_moves_the_loss(call: Call, capsys: Capture) -> None:
    call(trace, "--tiny", "--nudge=0,0,cat,2")
    text = capsys.readouterr().out
    logit = re.search(r"^logit +(\S+) -> +(\S+)$", text, re.MULTILINE)
    assert logit
    assert float(logit[2]) - float(logit[1]) == pytest.approx(2, abs=1e-3)
    moved = re.search(r"^cross entropy +(\S+) -> +(\S+) +(\S+)$", text, re.MULTILINE)
    assert moved
    assert float(moved[3]) < 0
    assert float(moved[2]) - float(moved[1]) == pytest.approx(float(moved[3]), abs=2e-4)


def test_a_text_without_target_goes_to_its_translation(call: Call, capsys: Capture) -> None:
    call(trace, "--tiny", "cat dog", "dog")
    text = capsys.readouterr().out
    assert text.count("=== Search, row") == 2
    assert "What the decoder does in step 0" in text
    assert "(2, 2, 2, 2)    B H K T*K" in text  # the past of a step's hypotheses
    assert " -> (2,2,5)" in text
    assert "(2, 2, 5)       B K V" in text
    for word in ("finished, score", "live when the search stopped", "pruned", "└─"):
        assert word in text
    assert "Loss [" not in text


def test_a_run_is_followed_by_its_own_pieces(
    call: Call, tiny_run: Path, capsys: Capture, tmp_path: Path
) -> None:
    arguments = (f"--model={tiny_run}", "The dog sleeps.", "A cat.", "--target=Der Hund schläft.",
                 "--target=Eine Katze.")  # fmt: skip
    call(trace, *arguments, f"--html={tmp_path / 'page.html'}")
    output, said = capsys.readouterr()
    assert output == ""
    assert f"the page is in {tmp_path / 'page.html'}" in said
    page = (tmp_path / "page.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', page)
    told = json.loads(data)
    assert len(told["batch"]) == len(told["search"]) == 2
    assert told["batch"][0]["target_out"][:-1] == told["batch"][0]["target_in"][1:]
    call(trace, *arguments)
    text = capsys.readouterr().out
    costs = [each["smoothed"] for each in told["loss"]["tokens"]]
    assert [float(row[7]) for row in loss_rows(text)] == pytest.approx(costs, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--model and --tiny: give one of them"),
        (["--tiny", "--model=x"], "--model and --tiny: give one of them"),
        (["--model=x", "--trained", "a"], "--trained: goes with --tiny"),
        (["--model=x"], "--model: give a text too"),
        (["--tiny", "cat", "dog", "--target=cat"], "--target: give one for each of the 2 texts"),
        (["--tiny", "cat", "--nudge=0,0,cat,1"], "--nudge: moves a loss"),
        (["--tiny", *["cat"] * 9], "9 texts: more than 8"),
        (["--tiny", " "], "a text is empty"),
        (["--model=x", "a", "--target="], "a text is empty"),
        (["--model=x", "caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["--tiny", "cat", "--target=caf\udce9"], r"'caf\udce9': not UTF-8"),
        (["--tiny", "cat mouse"], "--tiny: does not know the word 'mouse'"),
        (["--tiny", "cat " * 64], "text: 65 pieces are more than 64"),
        (["--tiny", "cat", "--target=" + "cat " * 64], "--target: 65 pieces are more than 64"),
    ],
)
def test_what_cannot_be_is_said(call: Call, arguments: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        call(trace, *arguments)


@pytest.mark.parametrize("nudge", ["0,0,cat", "0,9,cat,1", "0,0,mouse,1", "-1,0,cat,1"])
def test_a_nudge_of_nothing_is_said(call: Call, nudge: str) -> None:
    with pytest.raises(UsageError, match="there are 2 rows of up to 2 positions"):
        call(trace, "--tiny", f"--nudge={nudge}")


@pytest.mark.slow
def test_trained_it_gives_the_right_token_996(call: Call, capsys: Capture) -> None:
    call(trace, "--tiny", "--trained")
    shares = [float(row[5]) for row in loss_rows(capsys.readouterr().out)]
    assert shares == pytest.approx([0.996] * 4, abs=0.003)


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    call: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="a folder; name a file"):
        call(trace, "--tiny", "--trained", f"--html={tmp_path}")
    assert capsys.readouterr().err == ""
