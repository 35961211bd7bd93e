"""What the tests share: TensorFlow set up as the commands set it up, and small models."""

import pytest

from tfnmt.config import ModelConfig
from tfnmt.quiet import set_environment

set_environment()


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def small_config(request: pytest.FixtureRequest) -> ModelConfig:
    """A Transformer of a few thousand weights, with both places of the norm."""
    return ModelConfig(
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=16,
        num_heads=4,
        d_ff=32,
        dropout=0.0,
        norm_first=request.param,
    )
