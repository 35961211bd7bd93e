"""Searches compiled with XLA, on random weights: they find what the search without XLA finds."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding import compiled
from tfnmt.decoding.compiled import LENGTH_MULTIPLE, SingleSentenceSearch, compiled_search
from tfnmt.decoding.search import Hypotheses
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.text import TOKENS, TextCodec
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

pytestmark = pytest.mark.slow  # XLA compiles

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
        num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2, d_ff=32
    )
    return Transformer(config, Tokenizer(tokenizer_model).vocab_size)


# --- The search -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "prefix"),
    [
        ({}, []),
        pytest.param({"beam_size": 1}, [], marks=pytest.mark.slow),
        pytest.param({"max_length": 5}, [], marks=pytest.mark.slow),
        pytest.param({"min_length": 6, "no_repeat_ngram": 2}, [7, 9], marks=pytest.mark.slow),
    ],
    ids=["beam", "greedy", "truncated", "constraints"],
)
def test_compiled_search_finds_what_the_search_without_xla_finds(
    transformer: Transformer, tokenizer_model: bytes, changes: dict[str, Any], prefix: list[int]
) -> None:
    decoding = DecodingConfig(max_extra_length=8).model_copy(update=changes)
    searcher = Searcher(transformer, decoding, prefix)
    codec = TextCodec(tokenizer_model, decoding.max_source_length)
    sources = codec.encode(tf.constant([*SENTENCES, ""])).tokens
    expected = searcher.beam(sources)
    found = compiled_search(searcher)(tf.pad(sources, [[0, 0], [0, 3]]))
    longest = expected.tokens.shape[2]
    assert np.array_equal(found.tokens[:, 0, :longest], expected.tokens[:, 0])
    assert not np.any(found.tokens[:, 0, longest:])
    assert np.allclose(found.scores[:, 0], expected.scores[:, 0], atol=1e-5)


# --- Single sentences -----------------------------------------------------------------------------


@pytest.fixture
def single(transformer: Transformer, tokenizer_model: bytes) -> SingleSentenceSearch:
    # Greedy search, because it compiles faster than beam search.
    decoding = DecodingConfig(beam_size=1, max_extra_length=8)
    return SingleSentenceSearch(Translator(transformer, tokenizer_model, decoding))


def found_texts(single: SingleSentenceSearch, *texts: str) -> list[bytes]:
    """Return the translations of texts that are searched together."""
    source = single.translator.tokenize(tf.constant(texts))["tokens"]
    found = single.search(source)["tokens"]
    return single.translator.detokenize(found)["translation"].numpy().tolist()


MakeSearch = Callable[[Searcher], compiled.CompiledSearch]


def observe(monkeypatch: pytest.MonkeyPatch, make_search: MakeSearch) -> list[list[int]]:
    """Return the shapes of the sources that are searched with XLA, in order, as they come."""
    shapes = []

    def observed(searcher: Searcher) -> compiled.CompiledSearch:
        search = make_search(searcher)

        def record(source: tf.Tensor) -> Hypotheses:
            shapes.append(source.shape.as_list())
            return search(source)

        return record

    monkeypatch.setattr(compiled, "compiled_search", observed)
    return shapes


@pytest.fixture
def compiled_shapes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Shapes that would be searched with XLA. They are searched without, because XLA is slow."""
    return observe(monkeypatch, lambda searcher: tf.function(searcher.beam, [TOKENS]))


def test_search_is_compiled_when_searches_have_taken_as_long(
    single: SingleSentenceSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_shapes = observe(monkeypatch, compiled_search)
    source = single.translator.tokenize(tf.constant([SENTENCES[1]]))["tokens"]
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", math.inf)
    expected = single.search(source)
    single.search(source)
    assert compiled_shapes == []
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.0)
    found = single.search(source)
    assert compiled_shapes == [[1, LENGTH_MULTIPLE]]
    longest = expected["tokens"].shape[1]
    assert np.array_equal(found["tokens"][:, :longest], expected["tokens"])
    assert not np.any(found["tokens"][:, longest:])
    assert found["score"].numpy() == pytest.approx(expected["score"].numpy(), abs=1e-5)


def test_each_length_is_compiled_separately_and_logged(
    single: SingleSentenceSearch,
    compiled_shapes: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.0)
    short, long = "dog", " ".join(WORDS * 2)
    for text in (short, short, long, short, long):
        found_texts(single, text)
    lines = capsys.readouterr().err.splitlines()
    lengths = [shape[1] for shape in compiled_shapes]
    assert lengths[0] == LENGTH_MULTIPLE < lengths[1]
    assert len(lines) == len(lengths) == 2
    for length, line in zip(lengths, lines, strict=True):
        assert f"up to {length - 1} tokens" in line


def test_time_to_trace_the_first_search_does_not_count(
    single: SingleSentenceSearch,
    compiled_shapes: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 0.0)
    for _ in range(2):
        found_texts(single, "dog")
    assert compiled_shapes == []
    found_texts(single, "dog")
    assert compiled_shapes == [[1, LENGTH_MULTIPLE]]


def test_batches_are_searched_without_xla(
    single: SingleSentenceSearch,
    compiled_shapes: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", -1.0)
    lines = [*SENTENCES, ""]
    together = found_texts(single, *lines)
    assert compiled_shapes == []
    assert [text for line in lines for text in found_texts(single, line)] == together
    assert len(compiled_shapes) == len(lines)


def test_second_thread_searches_without_waiting_for_the_compiled_search(
    single: SingleSentenceSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)

    def slow(searcher: Searcher) -> compiled.CompiledSearch:
        def search(source: tf.Tensor) -> Hypotheses:
            both.wait()
            return searcher.beam(source)

        return search

    monkeypatch.setattr(compiled, "compiled_search", slow)
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", -1.0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(found_texts, single, SENTENCES[2])
        while not single._lock.locked():
            time.sleep(0.001)
        second = found_texts(single, SENTENCES[2])
        both.wait()
        assert first.result() == second
