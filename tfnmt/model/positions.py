"""Sinusoidal positional encoding (section 3.5)."""

from typing import Any

import numpy as np
from keras import ops

Tensor = Any


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same).

    Positions are [T] whole numbers from 0; returns [T, d_model].
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)  # [D/2]
    angles = ops.cast(positions, "float32")[:, None] * ops.convert_to_tensor(rates, "float32")
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D/2, 2]
    return ops.reshape(pairs, (-1, d_model))
