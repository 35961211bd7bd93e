import math

import numpy as np
import pytest
from keras import ops

from tfnmt.model.positions import sinusoids


def test_sinusoids_are_the_papers_formula() -> None:
    d_model = 8
    encoding = ops.convert_to_numpy(sinusoids(np.arange(50), d_model))
    for position in (0, 1, 7, 49):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            assert encoding[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_a_single_position_has_the_encoding_it_has_in_a_row() -> None:
    row = ops.convert_to_numpy(sinusoids(np.arange(300), 16))
    alone = ops.convert_to_numpy(sinusoids(np.array([257]), 16))
    np.testing.assert_array_equal(alone[0], row[257])
