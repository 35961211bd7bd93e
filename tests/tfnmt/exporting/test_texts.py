"""The texts that an export is certified on."""

from pathlib import Path

import pytest

from tfnmt.config import build_config, preset_path, read_tree
from tfnmt.data.tokenizer import Tokenizer
from tfnmt.exporting.texts import COUNT, HARD, parity_texts
from tfnmt.run import Run


def tokenizer(run: Path) -> Tokenizer:
    return Tokenizer(Run(run).tokenizer_model())


def test_the_validation_text_comes_first(tiny_run: Path, tmp_path: Path) -> None:
    texts = parity_texts(Run(tiny_run).config(), tokenizer(tiny_run), tmp_path)
    assert len(texts) == COUNT + len(HARD)
    assert texts[-len(HARD) :] == list(HARD)
    assert all(text.endswith((".", "?", "!")) for text in texts[:COUNT])


@pytest.mark.parametrize("preset", ["multi30k", "wmt14"])
def test_where_it_is_not_at_hand_texts_are_drawn_the_same_each_time(
    tiny_run: Path, tmp_path: Path, preset: str
) -> None:
    config, pieces = build_config(read_tree(preset_path(preset))), tokenizer(tiny_run)
    texts = parity_texts(config, pieces, tmp_path)
    assert texts == parity_texts(config, pieces, tmp_path)
    assert len(texts) == COUNT + len(HARD)
    assert len(set(texts)) > COUNT
    assert texts[-len(HARD) :] == list(HARD)
    lengths = list(map(len, pieces.encode(texts[:COUNT])))
    assert min(lengths) < 5
    assert max(lengths) > 40
