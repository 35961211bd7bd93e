import math

import numpy as np
import pytest
from keras import ops

from tfnmt.model.embedding import Embedding, sinusoids


@pytest.fixture
def embedding() -> Embedding:
    layer = Embedding(2000, 64)
    layer.build()
    return layer


def test_embedding_scales_table_rows_by_sqrt_d_model(embedding: Embedding) -> None:
    table = ops.convert_to_numpy(embedding.table)
    embedded = ops.convert_to_numpy(embedding(np.array([[3, 1999]])))
    np.testing.assert_allclose(embedded[0], table[[3, 1999]] * 8, rtol=1e-6)


def test_embeddings_and_logits_have_unit_variance_at_the_start(embedding: Embedding) -> None:
    embedded = ops.convert_to_numpy(embedding(np.arange(2000)))
    hidden = np.random.default_rng(0).standard_normal((50, 64)).astype("float32")
    assert embedded.std() == pytest.approx(1, abs=0.05)
    assert ops.convert_to_numpy(embedding.logits(hidden)).std() == pytest.approx(1, abs=0.05)


def test_logits_are_dot_products_with_table_rows(embedding: Embedding) -> None:
    hidden = np.random.default_rng(0).standard_normal((2, 3, 64)).astype("float32")
    expected = hidden @ ops.convert_to_numpy(embedding.table).T
    np.testing.assert_allclose(embedding.logits(hidden), expected, atol=1e-5)


def test_sinusoids_match_the_formula_of_the_paper() -> None:
    d_model = 8
    encoding = ops.convert_to_numpy(sinusoids(np.arange(50), d_model))
    for position in (0, 1, 7, 49):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            assert encoding[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoids_of_a_single_position_match_those_of_a_sequence() -> None:
    sequence = ops.convert_to_numpy(sinusoids(np.arange(300), 16))
    single = ops.convert_to_numpy(sinusoids(np.array([257]), 16))
    np.testing.assert_array_equal(single[0], sequence[257])
