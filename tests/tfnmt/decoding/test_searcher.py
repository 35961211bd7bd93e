"""The Searcher on random weights: nothing here depends on what was learnt."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.tokenizer import EOS
from tfnmt.decoding.search import beam_search, greedy_search
from tfnmt.decoding.searcher import Find, Searcher, first
from tfnmt.model.transformer import Transformer

RANDOM = np.random.default_rng(0)
SIZES = [1, 0, 7, 24, 3, 0, 12]
SOURCE = np.zeros((len(SIZES), max(SIZES) + 1), np.int32)
for row, size in enumerate(SIZES):
    SOURCE[row, : size + 1] = [*RANDOM.integers(4, 40, size), EOS]
THERE = np.array(SIZES) > 0


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2, d_ff=32
    )
    return Transformer(config, 40)


def lengths(searcher: Searcher) -> np.ndarray:
    """How many pieces, eos counted, each source's translation has."""
    tokens = first(searcher.beam(tf.constant(SOURCE)))["tokens"].numpy()
    return (tokens != 0).sum(axis=1)


def test_no_translation_is_longer_than_its_source_and_the_extra_length(
    transformer: Transformer,
) -> None:
    found = lengths(Searcher(transformer, DecodingConfig(max_extra_length=8)))
    assert (found[THERE] <= np.array(SIZES)[THERE] + 1 + 8).all()
    assert (found[THERE] > 0).all()


def test_a_source_of_no_pieces_has_nothing_which_scores_nothing(transformer: Transformer) -> None:
    found = first(Searcher(transformer, DecodingConfig(min_length=2)).beam(tf.constant(SOURCE)))
    assert (found["tokens"].numpy()[~THERE] == 0).all()
    assert (found["score"].numpy()[~THERE] == 0).all()
    assert (found["score"].numpy()[THERE] < 0).all()


@pytest.mark.parametrize(("find", "beams"), [(greedy_search, 1), (beam_search, 3)])
def test_padding_and_bos_are_never_translations(
    transformer: Transformer, find: Find, beams: int
) -> None:
    searcher = Searcher(transformer, DecodingConfig(max_extra_length=8))
    for row in searcher.find(tf.constant(SOURCE[THERE]), find, beams).tokens[:, 0].numpy():
        length = np.flatnonzero(row)[-1] + 1
        assert (row[:length] > 1).all()


def test_there_is_room_for_the_least_pieces(transformer: Transformer) -> None:
    found = lengths(Searcher(transformer, DecodingConfig(min_length=20, max_extra_length=2)))
    assert (found[THERE] > 20).all()


def test_there_is_room_for_the_prefix_with_which_all_begin(transformer: Transformer) -> None:
    prefix = [5, 9, 6, 5]
    searcher = Searcher(transformer, DecodingConfig(max_length=2), prefix)
    tokens = first(searcher.beam(tf.constant(SOURCE)))["tokens"].numpy()
    assert (tokens[THERE, : len(prefix)] == prefix).all()
