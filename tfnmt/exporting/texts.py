"""Texts to compare a run and its export on."""

import random
from itertools import islice
from pathlib import Path

from tfnmt.config import Config
from tfnmt.data.catalog import open_corpus, split_name
from tfnmt.data.tokenizer import UNK, Tokenizer
from tfnmt.errors import UserError

COUNT = 200
HARD = (
    "", " ", "two  spaces ", "a\u00a0b\u200cc", "line\nbreak\ttab", "\u202eabc", "😀🏽‍🚀",
    "\ufffd", "\x00", "سلام دنیا", "日本語の文です。", "A dog runs. " * 80,
)  # fmt: skip
"""What no corpus has, or seldom."""


def parity_texts(config: Config, tokenizer: Tokenizer, data_dir: Path) -> list[str]:
    """The first validation sentences, where they are at hand, else drawn ones; and hard ones."""
    try:
        corpus = open_corpus(config.data, config.training.seed, data_dir)
        split = split_name(config.data, corpus, "val")
        texts = [source for source, _ in islice(corpus.pairs(split), COUNT)]
    except UserError:
        texts = _drawn(tokenizer)
    return [*texts, *HARD]


def _drawn(tokenizer: Tokenizer) -> list[str]:
    """Pieces in a row, short and long."""
    generator = random.Random(1)
    ids = range(UNK + 1, tokenizer.vocab_size)
    return tokenizer.decode(
        [generator.choices(ids, k=generator.randint(1, 50)) for _ in range(COUNT)]
    )
