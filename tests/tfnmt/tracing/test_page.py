import json
import re
from typing import Any

import numpy as np
import pytest

from tfnmt.config import DecodingConfig
from tfnmt.tracing import tiny
from tfnmt.tracing.page import render
from tfnmt.tracing.subject import tiny_subject
from tfnmt.tracing.trace import Trace, follow
from tfnmt.training.loss import smoothed_cross_entropy

BAD = "</script><b>"


def data(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(found)


@pytest.fixture(scope="module")
def trace() -> Trace:
    subject = tiny_subject(DecodingConfig(beam_size=2, max_extra_length=3))
    ids = tiny.SOURCES, tiny.TARGETS
    return follow("tiny", subject, ids, smoothed_cross_entropy, 0.1)


def test_it_names_no_other_file_nor_address(trace: Trace) -> None:
    page = render(trace).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|src=|@import|url\(|<link", page)
    assert "default-src 'none'" in page


def test_no_piece_ends_its_script(trace: Trace) -> None:
    pieces = [*trace.subject.pieces[:-1], BAD]
    page = render(trace._replace(subject=trace.subject._replace(pieces=pieces)))
    assert BAD not in page
    assert data(page)["batch"][0]["source"] == ["cat", BAD, "</s>"]


def test_it_holds_the_scores_and_masks_that_weights_are_made_of(trace: Trace) -> None:
    told = data(render(trace))["attention"]
    weights = [step for step in trace.forward.steps if step.function == "attention_weights"]
    assert [each["place"].split("/")[0] for each in told] == ["encoder", "decoder", "decoder"]
    for each, step in zip(told, weights, strict=True):
        mask = np.array(each["mask"])[:, None]  # [B, 1, T, S]
        scores = np.exp(each["scores"]) * mask
        expected = scores / scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(step.get("result"), expected, atol=1e-4)


@pytest.mark.parametrize("shown", [1, 7])
def test_a_loss_comes_out_of_the_shown_logits_and_the_rest(
    trace: Trace, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfnmt.tracing.page.SHOWN_LOGITS", shown)
    loss = data(render(trace))["loss"]
    assert len(loss["tokens"]) == 4
    for token in loss["tokens"]:
        logits = np.array(token["logits"])
        highest = logits[0]
        total = np.exp(logits - highest).sum() + token["rest"]["exponentials"]
        normalizer = highest + np.log(total)
        right, mean = logits[token["right"]], (logits.sum() + token["rest"]["sum"]) / loss["size"]
        smoothed = normalizer - 0.9 * right - 0.1 * mean
        assert normalizer - right == pytest.approx(token["cross_entropy"])
        assert smoothed == pytest.approx(token["smoothed"])


def test_every_step_and_every_search_is_there(trace: Trace) -> None:
    told = data(render(trace))
    assert [step["function"] for step in told["steps"]] == [
        step.function for step in trace.forward.steps
    ]
    assert [row["translation"] for row in told["search"]] == [
        row.translation for row in trace.search.rows
    ]
