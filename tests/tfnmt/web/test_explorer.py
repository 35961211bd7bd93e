"""The functions of the explorer that need no page, in Node."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tfnmt.web.conftest import Node
from tfnmt.data.preparation.tokenizer import BOS, EOS
from tfnmt.decoding.constraints import forced_prefix
from tfnmt.decoding.search import EXCLUDED_LOGIT, SearchParameters, beam_search

VOCAB_SIZE = 12
LIMIT = 9

SEARCH = """
import { startSearch, advance, bestOf, tokensOf } from "./explorer/search.js";
result = data.map(({table, settings, prefix}) => {
  const rows = table.map((row) => Float64Array.from(row));
  const given = prefix.map((token, index) => table[prefix[index - 1] ?? 1][token]);
  let search = startSearch(settings, prefix, given);
  while (!search.isDone)
    search = advance(search, search.live.map((id) => rows[search.nodes[id].token ?? 1]));
  const best = search.nodes[bestOf(search)];
  return {tokens: tokensOf(search, best.id), score: best.score, depth: search.depth};
});
"""

PROBABILITIES = """
import { temper, topK, rank, entropy } from "./explorer/probabilities.js";
result = data.map(({logProbs, temperature, k}) => {
  const values = Float64Array.from(logProbs);
  return {
    tempered: Array.from(temper(values, temperature)),
    top: topK(values, k),
    ranks: topK(values, k).map((index) => rank(values, index)),
    entropy: entropy(values),
  };
});
"""


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def make_case(seed: int) -> dict[str, Any]:
    """Make a search in which the next token depends only on the last one."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.5, (VOCAB_SIZE, VOCAB_SIZE)).astype("float32")
    logits[:, EOS] += 0.5
    logits[:, :EOS] = -1e30
    settings = {
        "beamSize": int(random.integers(1, 6)),
        "alpha": float(random.choice([0, 0.6, 1.5])),
        "temperature": 1,
        "limit": LIMIT if seed % 3 else 3,
    }
    prefix = random.integers(EOS + 1, VOCAB_SIZE, seed % 3).tolist()
    return {
        "table": log_softmax(logits.astype(float)).tolist(),
        "settings": settings,
        "prefix": prefix,
    }


def search_in_python(case: dict[str, Any]) -> tuple[list[int], float]:
    table = np.array(case["table"], "float32")
    table[:, :EOS] = EXCLUDED_LOGIT
    settings, prefix = case["settings"], case["prefix"]
    found = beam_search(
        lambda tokens, parents, position, cache: (tf.gather(tf.constant(table), tokens), cache),
        (),
        tf.constant([settings["limit"]]),
        SearchParameters(
            BOS,
            EOS,
            settings["beamSize"],
            settings["alpha"],
            constraints=(forced_prefix(tf.constant([prefix])),) if prefix else (),
        ),
    )
    tokens = found.tokens[0, 0].numpy()
    return tokens[tokens > 0].tolist(), float(found.scores[0, 0])


def test_search_makes_the_decisions_of_beam_search(node: Node) -> None:
    cases = [make_case(seed) for seed in range(24)]
    lengths = set()
    for case, found in zip(cases, node(SEARCH, cases), strict=True):
        tokens, score = search_in_python(case)
        assert found["tokens"] == tokens
        assert found["score"] == pytest.approx(score, abs=1e-5)
        lengths.add(len(tokens))
    assert len(lengths) > 3


def test_probabilities_match_numpy(node: Node) -> None:
    random = np.random.default_rng(1)
    log_probs = log_softmax(random.normal(0, 2, (3, 50)))
    temperatures = (0.3, 1, 2.5)
    cases = [
        {"logProbs": row.tolist(), "temperature": temperature, "k": 7}
        for row, temperature in zip(log_probs, temperatures, strict=True)
    ]
    for row, temperature, found in zip(
        log_probs, temperatures, node(PROBABILITIES, cases), strict=True
    ):
        np.testing.assert_allclose(found["tempered"], log_softmax(row / temperature), atol=1e-12)
        assert found["top"] == np.argsort(-row)[:7].tolist()
        assert found["ranks"] == [1, 2, 3, 4, 5, 6, 7]
        assert found["entropy"] == pytest.approx(-(np.exp(row) * row).sum() / np.log(2))
