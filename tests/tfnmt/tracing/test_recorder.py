import sys

import numpy as np
import pytest
from keras import ops

import tfnmt.model
from tfnmt.config import ModelConfig
from tfnmt.model import attention
from tfnmt.model.attention import causal_mask, padding_mask
from tfnmt.model.sublayers import FeedForward
from tfnmt.model.transformer import Transformer
from tfnmt.tracing.recorder import recording


def test_a_call_has_arguments_variables_and_result_by_their_names() -> None:
    with recording(attention) as whole:
        given = ops.array([[3, 0]])
        padding_mask(given)
        causal_mask(3)
    first, second = whole.calls
    assert (first.function, second.function) == ("padding_mask", "causal_mask")
    assert first.arguments["tokens"] is given
    assert np.array(first.result).tolist() == [[[[True, False]]]]
    assert np.array(second.names["positions"]).tolist() == [0, 1, 2]


def test_only_functions_of_the_modules_are_seen() -> None:
    with recording(attention) as whole:
        FeedForward(4, 8, 0.0, "relu")
    assert whole.calls == []


def test_calls_lie_within_those_that_made_them() -> None:
    layer = FeedForward(4, 8, 0.0, "relu")
    layer.build()
    with recording(tfnmt.model) as whole:
        result = layer(ops.ones((1, 2, 4)))
    (call,) = whole.calls
    assert call.function == "FeedForward.call"
    assert call.owner is layer
    assert [each.owner.name for each in call.find("Dense.call")] == ["inner", "outer"]
    assert np.array_equal(call.result, result)


def test_being_watched_changes_nothing(small_config: ModelConfig) -> None:
    transformer = Transformer(small_config, 20)
    source, target = ops.array([[5, 6, 2]]), ops.array([[1, 7]])
    before = np.array(transformer(source, target))
    with recording(tfnmt.model):
        during = np.array(transformer(source, target))
    assert np.array_equal(before, during)


def test_what_watched_before_watches_again_also_after_an_error() -> None:
    def profile(*_: object) -> None:
        pass

    def fail() -> None:
        with recording(attention):
            raise KeyError

    sys.setprofile(profile)
    try:
        with pytest.raises(KeyError):
            fail()
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
