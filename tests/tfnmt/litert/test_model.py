"""A LiteRT export translates like its run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tfnmt.decoding.signatures import signatures
from tfnmt.errors import UserError
from tfnmt.litert.model import AXES, CARD, GRAPHS, TOKENIZER, LiteRTModel
from tfnmt.loading.models import find_run

TEXTS = [
    "She knows that the dog sleeps.",
    "",
    " ",
    "😀🏽‍🚀 日本語の文です。",
    "two  spaces ",
    "The old king sees a small cat. " * 30,
]


@pytest.fixture(scope="module")
def run_signatures(tiny_run: Path) -> dict:
    return dict(signatures(find_run(tiny_run).load_translator()))


@pytest.fixture(scope="module")
def model(tiny_litert: Path) -> LiteRTModel:
    return LiteRTModel(tiny_litert, interpreters=2)


def encode(texts: list[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)


@pytest.mark.parametrize("name", ["serving_default", "greedy", "nbest"])
def test_translations_are_those_of_the_run(
    model: LiteRTModel, run_signatures: dict, name: str
) -> None:
    expected = run_signatures[name](text=encode(TEXTS))
    found = model.signatures[name](text=encode(TEXTS))
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        if value.dtype == "float32":
            np.testing.assert_allclose(found[key], value, atol=1e-4)
        else:
            np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize("name", ["align", "attention"])
def test_forced_translations_have_the_numbers_of_the_run(
    model: LiteRTModel, run_signatures: dict, name: str
) -> None:
    inputs = {"text": encode(TEXTS), "translation": encode(TEXTS[::-1])}
    expected = {key: value.numpy() for key, value in run_signatures[name](**inputs).items()}
    found = model.signatures[name](**inputs)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert value.shape == found[key].shape
        for row in range(len(TEXTS)):
            real = tuple(
                slice(int(expected[f"{side}_length"][row])) for side in AXES.get(key, ())
            )
            if real:
                ours, theirs = found[key][row][(..., *real)], value[row][(..., *real)]
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
            else:
                np.testing.assert_array_equal(found[key][row], value[row])
