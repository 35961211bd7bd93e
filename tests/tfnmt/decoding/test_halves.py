"""A search in halves on random weights: what it finds is what the search finds by itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig
from tfnmt.data.tokenizer import EOS
from tfnmt.decoding.halves import MANY, in_halves
from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher
from tfnmt.model.transformer import Transformer

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
