"""Plans of batches for tests in which only the sentence lengths matter."""

from pathlib import Path

import numpy as np

from tfnmt.config import TokenizerConfig, build_config
from tfnmt.data.batching.plan import Plan, make_plan
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.data.preparation.storage import TextArray, TokenArray
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer


def plan_of_lengths(
    source: np.ndarray, target: np.ndarray, batch_tokens: int, max_length: int, seed: int
) -> Plan:
    """Return the plan for a corpus with these sentence lengths."""
    data = {"batch_tokens": batch_tokens, "max_length": max_length}
    config = build_config({"data": data, "training": {"seed": seed}})
    return make_plan(config, prepared_of_lengths(source, target))


def prepared_of_lengths(source: np.ndarray, target: np.ndarray) -> Prepared:
    """Return a prepared corpus with these sentence lengths. All token ids are 1."""
    tokenizer = Tokenizer(train_tokenizer(["some words"] * 20, TokenizerConfig(vocab_size=272)))
    text = TextArray(np.zeros(0, np.uint8), np.zeros(len(source) + 1, int))
    sides = (_tokens(source), _tokens(target))
    return Prepared(Path("nowhere"), tokenizer, *sides, text, text)


def _tokens(lengths: np.ndarray) -> TokenArray:
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return TokenArray(np.ones(splits[-1], np.uint16), splits)
