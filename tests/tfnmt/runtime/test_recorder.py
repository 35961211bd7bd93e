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
from tfnmt.runtime.recorder import recording


def test_call_has_arguments_variables_and_result() -> None:
    with recording(attention) as root:
        given = ops.array([[3, 0]])
        padding_mask(given)
        causal_mask(3)
    first, second = root.calls
    assert (first.function, second.function) == ("padding_mask", "causal_mask")
    assert first.arguments["tokens"] is given
    assert np.array(first.result).tolist() == [[[[True, False]]]]
    assert np.array(second.variables["positions"]).tolist() == [0, 1, 2]


def test_recording_has_only_functions_of_the_given_modules() -> None:
    with recording(attention) as root:
        FeedForward(4, 8, 0.0, "relu")
    assert root.calls == []


def test_recorded_calls_are_nested() -> None:
    layer = FeedForward(4, 8, 0.0, "relu")
    layer.build()
    with recording(tfnmt.model) as root:
        result = layer(ops.ones((1, 2, 4)))
    (call,) = root.calls
    assert call.function == "FeedForward.call"
    assert call.owner is layer
    assert [each.owner.name for each in call.find("Dense.call")] == ["inner", "outer"]
    assert np.array_equal(call.result, result)


def test_recording_does_not_change_results(small_config: ModelConfig) -> None:
    transformer = Transformer(small_config, 20)
    source, target = ops.array([[5, 6, 2]]), ops.array([[1, 7]])
    before = np.array(transformer(source, target))
    with recording(tfnmt.model):
        during = np.array(transformer(source, target))
    assert np.array_equal(before, during)


def test_recording_restores_the_previous_profile_function_after_an_error() -> None:
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
