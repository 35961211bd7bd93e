"""Plans of batches for sentences of which only the lengths matter."""

from pathlib import Path

import numpy as np

from tfnmt.config import TokenizerConfig, build_config
from tfnmt.data.batching.plan import Plan, make_plan
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.data.preparation.storage import Lines, Sentences
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer


def plan_of_lengths(
    source: np.ndarray, target: np.ndarray, batch_tokens: int, max_length: int, seed: int
) -> Plan:
    """The plan of a corpus of such sentences."""
    data = {"batch_tokens": batch_tokens, "max_length": max_length}
    config = build_config({"data": data, "training": {"seed": seed}})
    return make_plan(config, prepared_of_lengths(source, target))


def prepared_of_lengths(source: np.ndarray, target: np.ndarray) -> Prepared:
    """Such sentences, all of whose ids are 1."""
    tokenizer = Tokenizer(train_tokenizer(["some words"] * 20, TokenizerConfig(vocab_size=272)))
    text = Lines(np.zeros(0, np.uint8), np.zeros(len(source) + 1, int))
    sides = (_sentences(source), _sentences(target))
    return Prepared(Path("nowhere"), tokenizer, *sides, text, text)


def _sentences(lengths: np.ndarray) -> Sentences:
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return Sentences(np.ones(splits[-1], np.uint16), splits)
