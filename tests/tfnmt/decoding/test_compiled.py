"""Compiled searches on random weights: what they find is what the plain search finds."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding import compiled
from tfnmt.decoding.compiled import AloneTranslator, compiled_search
from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.text import TextCodec
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

WORDS = "the old dog sees a cat and runs home because it rains today in town".split()  # noqa: SIM905
RANDOM = np.random.default_rng(0)
SENTENCES = [" ".join(RANDOM.choice(WORDS, size)) for size in (1, 5, 9, 12, 20, 3)]


@pytest.fixture(scope="module")
def tokenizer_model() -> bytes:
    return train_tokenizer(SENTENCES * 5, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def transformer(tokenizer_model: bytes) -> Transformer:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=2, d_model=32, num_heads=2, d_ff=32
    )
    return Transformer(config, Tokenizer(tokenizer_model).vocab_size)


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [
        ({}, []),
        ({"beam_size": 1}, []),
        ({"max_length": 5}, []),
        ({"min_length": 6, "no_repeat_ngram": 2}, [7, 9]),
    ],
    ids=["beam", "greedy", "cut", "constraints"],
)
def test_what_is_compiled_finds_what_the_plain_search_finds(
    transformer: Transformer, tokenizer_model: bytes, changes: dict[str, Any], prefix: list[int]
) -> None:
    decoding = DecodingConfig(max_extra_length=8).model_copy(update=changes)
    searcher = Searcher(transformer, decoding, prefix)
    codec = TextCodec(tokenizer_model, decoding.max_source_length)
    sources = codec.encode(tf.constant([*SENTENCES, ""])).tokens
    plain = searcher.beam(sources)
    found = compiled_search(searcher)(tf.pad(sources, [[0, 0], [0, 3]]))
    longest = plain.tokens.shape[2]
    assert np.array_equal(found.tokens[:, 0, :longest], plain.tokens[:, 0])
    assert not np.any(found.tokens[:, 0, longest:])
    assert np.allclose(found.scores[:, 0], plain.scores[:, 0], atol=1e-5)


@pytest.fixture
def alone(transformer: Transformer, tokenizer_model: bytes) -> AloneTranslator:
    decoding = DecodingConfig(max_extra_length=8)
    return AloneTranslator(Translator(transformer, tokenizer_model, decoding))


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Those that are searched compiled, as they come."""
    seen = []

    def watched(searcher: Searcher) -> compiled.Compiled:
        search = compiled_search(searcher)

        def note(source: tf.Tensor) -> Hypotheses:
            seen.append(source.shape.as_list())
            return search(source)

        return note

    monkeypatch.setattr(compiled, "compiled_search", watched)
    return seen


def test_texts_that_come_alone_are_compiled_for_when_it_is_worth_it(
    alone: AloneTranslator, shapes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tf.constant([SENTENCES[1]])
    monkeypatch.setattr(compiled, "COMPILING", math.inf)
    plain = alone.translate(text)
    alone.translate(text)
    assert shapes == []
    monkeypatch.setattr(compiled, "COMPILING", 0.0)
    found = alone.translate(text)
    assert shapes == [[1, compiled.PIECES]]
    for name in ("translation", "truncated"):
        assert found[name].numpy() == plain[name].numpy()
    assert found["score"].numpy() == pytest.approx(plain["score"].numpy(), abs=1e-5)


def test_each_length_is_compiled_for_by_itself_and_is_said(
    alone: AloneTranslator,
    shapes: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compiled, "COMPILING", 0.0)
    short, long = tf.constant(["dog"]), tf.constant([" ".join(WORDS * 2)])
    for text in (short, short, long, short, long):
        alone.translate(text)
    said = capsys.readouterr().err.splitlines()
    lengths = [shape[1] for shape in shapes]
    assert lengths[0] == compiled.PIECES < lengths[1]
    assert len(said) == len(lengths) == 2
    assert all(
        f"up to {length - 1} pieces" in line for length, line in zip(lengths, said, strict=True)
    )


def test_what_the_first_search_takes_to_get_ready_does_not_count(
    alone: AloneTranslator, shapes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "COMPILING", 0.0)
    for _ in range(2):
        alone.translate(tf.constant(["dog"]))
    assert shapes == []
    alone.translate(tf.constant(["dog"]))
    assert shapes == [[1, compiled.PIECES]]


def test_texts_that_come_together_go_the_plain_way(
    alone: AloneTranslator, shapes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "COMPILING", -1.0)
    lines = [*SENTENCES, ""]
    together = alone.translate(tf.constant(lines))["translation"].numpy()
    assert shapes == []
    one_by_one = [alone.translate(tf.constant([text]))["translation"] for text in lines]
    assert [text.numpy()[0] for text in one_by_one] == together.tolist()
    assert len(shapes) == len(lines)


def test_of_several_threads_one_is_alone(
    alone: AloneTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one searches compiled, another does not wait for it."""
    both = threading.Barrier(2, timeout=60)

    def slow(searcher: Searcher) -> compiled.Compiled:
        def search(source: tf.Tensor) -> Hypotheses:
            both.wait()
            return searcher.beam(source)

        return search

    monkeypatch.setattr(compiled, "compiled_search", slow)
    monkeypatch.setattr(compiled, "COMPILING", -1.0)
    text = tf.constant([SENTENCES[2]])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(alone.translate, text)
        while not alone._turn.locked():
            time.sleep(0.001)
        second = alone.translate(text)
        both.wait()
        assert first.result()["translation"].numpy() == second["translation"].numpy()
