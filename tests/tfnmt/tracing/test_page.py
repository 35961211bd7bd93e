import json
import re
from typing import Any

import numpy as np
import pytest

from tfnmt.config import DecodingConfig
from tfnmt.tracing import tiny
from tfnmt.tracing.page import render
from tfnmt.tracing.trace import Trace, make_trace
from tfnmt.tracing.traced_model import tiny_model
from tfnmt.training.loss import smoothed_cross_entropy

BAD = "</script><b>"


def data(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(found)


@pytest.fixture(scope="module")
def trace() -> Trace:
    model = tiny_model(DecodingConfig(beam_size=2, max_extra_length=3))
    ids = tiny.SOURCES, tiny.TARGETS
    return make_trace("tiny", model, ids, smoothed_cross_entropy, 0.1)


def test_page_loads_nothing_from_files_or_networks(trace: Trace) -> None:
    page = render(trace).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|src=|@import|url\(|<link", page)
    assert "default-src 'none'" in page


def test_page_escapes_tokens_that_contain_a_script_tag(trace: Trace) -> None:
    vocabulary = [*trace.model.vocabulary[:-1], BAD]
    page = render(trace._replace(model=trace.model._replace(vocabulary=vocabulary)))
    assert BAD not in page
    assert data(page)["batch"][0]["source"] == ["dog", BAD, "</s>"]


def test_page_scores_and_masks_give_the_attention_weights(trace: Trace) -> None:
    attention = data(render(trace))["attention"]
    weights = [step for step in trace.forward.steps if step.function == "attention_weights"]
    assert [each["path"].split("/")[0] for each in attention] == ["encoder", "decoder", "decoder"]
    for each, step in zip(attention, weights, strict=True):
        mask = np.array(each["mask"])[:, None]  # [B, 1, T, S]
        scores = np.exp(each["scores"]) * mask
        expected = scores / scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(step.get("result"), expected, atol=1e-4)


@pytest.mark.parametrize("shown", [1, 7])
def test_page_logits_and_sums_over_others_give_the_losses(
    trace: Trace, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfnmt.tracing.page.SHOWN_LOGITS", shown)
    loss = data(render(trace))["loss"]
    assert len(loss["predictions"]) == 4
    for prediction in loss["predictions"]:
        logits = np.array(prediction["logits"])
        highest = logits[0]
        total = np.exp(logits - highest).sum() + prediction["others"]["exponentials"]
        normalizer = highest + np.log(total)
        correct = logits[prediction["correct"]]
        mean = (logits.sum() + prediction["others"]["sum"]) / loss["size"]
        smoothed = normalizer - 0.9 * correct - 0.1 * mean
        assert normalizer - correct == pytest.approx(prediction["cross_entropy"])
        assert smoothed == pytest.approx(prediction["smoothed"])


def test_page_has_every_step_and_every_search(trace: Trace) -> None:
    content = data(render(trace))
    assert [step["function"] for step in content["steps"]] == [
        step.function for step in trace.forward.steps
    ]
    assert [row["translation"] for row in content["search"]] == [
        row.translation for row in trace.search.rows
    ]
