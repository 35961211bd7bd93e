"""The Searcher on random weights: nothing here depends on a trained model."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import (
    SPLIT_ROWS,
    Searcher,
    best_hypothesis,
    output_projection,
    split_batches,
)
from tfnmt.decoding.text import TOKENS
from tfnmt.decoding.translator import COUNT
from tfnmt.model.transformer import Transformer


def random_sources(lengths: list[int]) -> np.ndarray:
    """Return sources with these numbers of tokens, and EOS."""
    generator = np.random.default_rng(0)
    sources = np.zeros((len(lengths), max(lengths) + 1), np.int32)
    for row, length in enumerate(lengths):
        sources[row, : length + 1] = [*generator.integers(4, 40, length), EOS]
    return sources


LENGTHS = np.array([1, 0, 7, 24, 3, 0, 12])
SOURCES = random_sources(LENGTHS.tolist())
NOT_EMPTY = LENGTHS > 0


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2, d_ff=32
    )
    return Transformer(config, 40)


def found_lengths(searcher: Searcher) -> np.ndarray:
    """Return the number of tokens of each translation, EOS included."""
    tokens = best_hypothesis(searcher.beam(tf.constant(SOURCES)))["tokens"].numpy()
    return (tokens != 0).sum(axis=1)


# --- Static shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [({}, []), ({"beam_size": 1}, []), ({"min_length": 6, "no_repeat_ngram": 2}, [7, 9])],
    ids=["beam", "greedy", "constraints"],
)
def test_search_with_static_shapes_and_a_padded_source_finds_the_same(
    transformer: Transformer, changes: dict[str, Any], prefix: list[int]
) -> None:
    searcher = Searcher(
        transformer, DecodingConfig(max_extra_length=8).model_copy(update=changes), prefix
    )
    padded = tf.pad(SOURCES, [[0, 0], [0, 3]])
    output, steps = output_projection(transformer), searcher.max_length(tf.constant(28))
    expected = tf.function(searcher.beam)(tf.constant(SOURCES))
    found = tf.function(searcher.static_beam)(padded, output, steps)
    longest = expected.tokens.shape[2]
    assert np.array_equal(found.tokens[:, 0, :longest], expected.tokens[:, 0])
    assert not np.any(found.tokens[:, 0, longest:])
    assert np.allclose(found.scores[:, 0], expected.scores[:, 0], atol=1e-5)


# --- Limits and constraints -----------------------------------------------------------------------


def test_translation_is_at_most_the_extra_length_longer_than_its_source(
    transformer: Transformer,
) -> None:
    found = found_lengths(Searcher(transformer, DecodingConfig(max_extra_length=8)))
    assert (found[NOT_EMPTY] <= LENGTHS[NOT_EMPTY] + 1 + 8).all()
    assert (found[NOT_EMPTY] > 0).all()


def test_source_without_tokens_gives_an_empty_translation_with_score_0(
    transformer: Transformer,
) -> None:
    searcher = Searcher(transformer, DecodingConfig(min_length=2))
    found = best_hypothesis(searcher.beam(tf.constant(SOURCES)))
    assert (found["tokens"].numpy()[~NOT_EMPTY] == 0).all()
    assert (found["score"].numpy()[~NOT_EMPTY] == 0).all()
    assert (found["score"].numpy()[NOT_EMPTY] < 0).all()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_contain_neither_padding_nor_bos(
    transformer: Transformer, beam_size: int
) -> None:
    searcher = Searcher(transformer, DecodingConfig(max_extra_length=8, beam_size=beam_size))
    found = searcher.beam(tf.constant(SOURCES[NOT_EMPTY]), beam_size)
    for row in found.tokens[:, 0].numpy():
        length = np.flatnonzero(row)[-1] + 1
        assert (row[:length] > 1).all()


def test_minimum_length_exceeds_the_maximum_length_if_necessary(transformer: Transformer) -> None:
    found = found_lengths(Searcher(transformer, DecodingConfig(min_length=20, max_extra_length=2)))
    assert (found[NOT_EMPTY] > 20).all()


def test_prefix_exceeds_the_maximum_length_if_necessary(transformer: Transformer) -> None:
    prefix = [5, 9, 6, 5]
    searcher = Searcher(transformer, DecodingConfig(max_length=2), prefix)
    tokens = best_hypothesis(searcher.beam(tf.constant(SOURCES)))["tokens"].numpy()
    assert (tokens[NOT_EMPTY, : len(prefix)] == prefix).all()


# --- Large batches --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searcher(transformer: Transformer) -> Searcher:
    return Searcher(transformer, DecodingConfig(max_extra_length=8))


@pytest.mark.parametrize(
    "lengths",
    [
        [3 * row % 21 for row in range(SPLIT_ROWS)],
        [2 + 5 * row % 23 for row in range(SPLIT_ROWS + 7)],
        [20] + [0] * (SPLIT_ROWS - 1),
    ],
    ids=["mixed", "an odd number", "one text and empty ones"],
)
def test_split_batch_gives_the_hypotheses_of_the_whole_batch(
    searcher: Searcher, lengths: list[int]
) -> None:
    sources = tf.constant(random_sources(lengths))
    whole, split = searcher.beam(sources), split_batches(searcher.beam, [TOKENS])(sources)
    assert np.array_equal(split.tokens, whole.tokens)
    assert np.allclose(split.scores, whole.scores, atol=1e-5)


def test_large_batch_is_split_by_length_and_a_small_one_is_not() -> None:
    shapes = []

    def search(sources: tf.Tensor) -> Hypotheses:
        tf.py_function(lambda shape: shapes.append(shape.numpy().tolist()), [tf.shape(sources)], [])
        rows = tf.shape(sources)[0]
        return Hypotheses(sources[:, None], tf.zeros([rows, 1]), tf.fill([rows], True))

    sources = tf.constant(random_sources([9, 2] * SPLIT_ROWS))
    found = split_batches(search, [TOKENS])(sources)
    assert np.array_equal(found.tokens[:, 0], sources)
    assert sorted(shapes) == [[SPLIT_ROWS, 3], [SPLIT_ROWS, 10]]
    shapes.clear()
    split_batches(search, [TOKENS])(sources[: SPLIT_ROWS - 1])
    assert shapes == [[SPLIT_ROWS - 1, 10]]


def test_other_arguments_are_passed_to_both_halves() -> None:
    def search(sources: tf.Tensor, count: tf.Tensor) -> Hypotheses:
        rows = tf.shape(sources)[0]
        return Hypotheses(sources[:, None] * count, tf.zeros([rows, 1]), tf.fill([rows], True))

    sources = tf.constant(random_sources([3, 5] * SPLIT_ROWS))
    found = split_batches(search, [TOKENS, COUNT])(sources, 2)
    assert np.array_equal(found.tokens[:, 0], 2 * sources)
