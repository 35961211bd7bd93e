"""The Searcher on random weights: nothing here depends on what was learnt."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.decoding.search import Hypotheses, beam_search, greedy_search
from tfnmt.decoding.searcher import MANY, Find, Searcher, first, in_halves
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


SOURCES = tf.TensorSpec([None, None], tf.int32)


@pytest.fixture(scope="module")
def searcher() -> Searcher:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2, d_ff=32
    )
    return Searcher(Transformer(config, 40), DecodingConfig(max_extra_length=8))


def rows(sizes: list[int]) -> tf.Tensor:
    """Sources of so many pieces, eos last."""
    random = np.random.default_rng(0)
    sources = np.zeros((len(sizes), max(sizes) + 1), np.int32)
    for row, size in enumerate(sizes):
        sources[row, : size + 1] = [*random.integers(4, 40, size), EOS]
    return tf.constant(sources)


@pytest.mark.parametrize(
    "sizes",
    [
        [3 * row % 21 for row in range(MANY)],
        [2 + 5 * row % 23 for row in range(MANY + 7)],
        [20] + [0] * (MANY - 1),
    ],
    ids=["mixed", "an odd number", "one text among empty ones"],
)
def test_halves_find_what_the_whole_finds(searcher: Searcher, sizes: list[int]) -> None:
    sources = rows(sizes)
    whole, halves = searcher.beam(sources), in_halves(searcher.beam, [SOURCES])(sources)
    assert np.array_equal(halves.tokens, whole.tokens)
    assert np.allclose(halves.scores, whole.scores, atol=1e-5)


def test_many_rows_are_two_parts_the_shorter_one_with_less_padding() -> None:
    seen = []

    def find(sources: tf.Tensor) -> Hypotheses:
        tf.py_function(lambda shape: seen.append(shape.numpy().tolist()), [tf.shape(sources)], [])
        return Hypotheses(sources[:, None], tf.zeros([tf.shape(sources)[0], 1]))

    sources = rows([9, 2] * MANY)
    found = in_halves(find, [SOURCES])(sources)
    assert np.array_equal(found.tokens[:, 0], sources)
    assert sorted(seen) == [[MANY, 3], [MANY, 10]]
    seen.clear()
    in_halves(find, [SOURCES])(sources[: MANY - 1])
    assert seen == [[MANY - 1, 10]]


def test_what_else_there_is_goes_to_both_halves() -> None:
    def find(sources: tf.Tensor, count: tf.Tensor) -> Hypotheses:
        return Hypotheses(sources[:, None] * count, tf.zeros([tf.shape(sources)[0], 1]))

    sources = rows([3, 5] * MANY)
    found = in_halves(find, [SOURCES, tf.TensorSpec([], tf.int32)])(sources, 2)
    assert np.array_equal(found.tokens[:, 0], 2 * sources)
