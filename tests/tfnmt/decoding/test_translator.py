"""The Translator on random weights: nothing here depends on what was learnt."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import Config, DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.lines import best, translate_lines, windows
from tfnmt.decoding.translator import Translator, load_translator
from tfnmt.model.transformer import Transformer

WORDS = "the old dog sees a cat and runs home because it rains today in town".split()  # noqa: SIM905
RANDOM = np.random.default_rng(0)
SENTENCES = [" ".join(RANDOM.choice(WORDS, size)) for size in RANDOM.integers(1, 25, 30)]


@pytest.fixture(scope="module")
def tokenizer_model() -> bytes:
    return train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=330))


@pytest.fixture(scope="module")
def transformer(tokenizer_model: bytes) -> Transformer:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=1, d_model=32, num_heads=2, d_ff=32
    )
    return Transformer(config, Tokenizer(tokenizer_model).vocab_size)


@pytest.fixture(scope="module")
def translator(transformer: Transformer, tokenizer_model: bytes) -> Translator:
    return Translator(transformer, tokenizer_model, DecodingConfig(max_extra_length=8))


def texts(translator: Translator, sentences: list[str]) -> list[bytes]:
    return list(translator.translate(tf.constant(sentences))["translation"].numpy())


def test_graph_and_python_give_the_same_ids(translator: Translator, tokenizer_model: bytes) -> None:
    lines = [*SENTENCES, "", "  two  spaces ", "Ünïcode 😀", "a\u00a0b\u200cc", "سلام"]
    source = translator.codec.encode(tf.constant(lines))
    for row, ids in zip(
        source.tokens.numpy(), Tokenizer(tokenizer_model).encode(lines), strict=True
    ):
        assert row[row != 0].tolist() == [*ids, 2]


def test_ids_decode_to_their_text_without_marks(translator: Translator) -> None:
    source = translator.codec.encode(tf.constant(SENTENCES))
    bos = tf.ones([len(SENTENCES), 1], tf.int32)
    decoded = translator.codec.decode(tf.concat([bos, source.tokens], 1)).numpy()
    assert [text.decode() for text in decoded] == SENTENCES


def test_a_sentence_translates_the_same_alone_and_in_any_batch(translator: Translator) -> None:
    together = translator.translate(tf.constant(SENTENCES))
    for number in (0, 7, 13, 29):
        alone = translator.translate(tf.constant([SENTENCES[number]]))
        assert alone["translation"][0] == together["translation"][number]
        score = float(alone["score"][0])
        assert score == pytest.approx(float(together["score"][number]), abs=1e-4)


def test_order_and_company_of_lines_change_nothing(translator: Translator) -> None:
    lines = [*SENTENCES, "", "   ", "the old dog"]
    forwards = list(translate_lines(best(translator.translate), windows(lines)))
    backwards = list(translate_lines(best(translator.translate), windows(lines[::-1])))[::-1]
    assert [a.best.text for a in forwards] == [a.best.text for a in backwards]
    assert len(forwards) == len(lines)
    assert [a.best.text for a in forwards[-3:-1]] == ["", ""]


def test_many_rows_are_searched_in_halves(translator: Translator) -> None:
    for search in (translator.beam, translator.likeliest):
        operations = search.get_concrete_function().graph.get_operations()
        assert "If" in {operation.type.removeprefix("Stateless") for operation in operations}


def test_one_trace_serves_all_shapes(translator: Translator) -> None:
    for size in (1, 3, 17):
        texts(translator, SENTENCES[:size])
    assert translator.translate.experimental_get_tracing_count() == 1


def test_texts_of_no_pieces_give_nothing_and_score_nothing(translator: Translator) -> None:
    for function in (translator.translate, translator.greedy):
        result = function(tf.constant(["", "a dog", "  "]))
        assert result["translation"].numpy()[[0, 2]].tolist() == [b"", b""]
        assert result["score"].numpy()[[0, 2]].tolist() == [0, 0]
        assert not result["truncated"].numpy().any()


def test_an_empty_batch_gives_an_empty_batch(translator: Translator) -> None:
    for function in (translator.translate, translator.greedy):
        result = function(tf.constant([], tf.string))
        assert {name: value.shape.as_list() for name, value in result.items()} == {
            "translation": [0], "score": [0], "truncated": [0],
        }  # fmt: skip


def test_bytes_that_are_not_text_give_text(translator: Translator) -> None:
    result = translator.translate(tf.constant([b"\xff\xfe dog", b"\x00", b"ok"]))
    for text in result["translation"].numpy():
        text.decode("utf-8")
    assert np.isfinite(result["score"].numpy()).all()


def test_a_long_source_is_cut_and_says_so(transformer: Transformer, tokenizer_model: bytes) -> None:
    decoding = DecodingConfig(max_source_length=5, max_extra_length=3)
    translator = Translator(transformer, tokenizer_model, decoding)
    source = translator.codec.encode(tf.constant(["the the the the", "the the the the the"]))
    assert source.truncated.numpy().tolist() == [False, True]
    np.testing.assert_array_equal(source.tokens[0], source.tokens[1])
    result = translator.translate(tf.constant([SENTENCES[0], "the " * 100]))
    assert result["truncated"].numpy()[1]


def test_a_beam_of_one_is_greedy(transformer: Transformer, tokenizer_model: bytes) -> None:
    translator = Translator(transformer, tokenizer_model, DecodingConfig(beam_size=1))
    result, greedy = (
        f(tf.constant(SENTENCES[:5])) for f in (translator.translate, translator.greedy)
    )
    np.testing.assert_array_equal(result["translation"], greedy["translation"])


def test_loaded_weights_translate_as_the_saved_ones(
    transformer: Transformer, translator: Translator, tokenizer_model: bytes, tmp_path: Path
) -> None:
    transformer.save_weights(tmp_path / "a.weights.h5")
    config = Config.model_validate(
        {"model": {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 32,
                   "num_heads": 2, "d_ff": 32},
         "decoding": {"max_extra_length": 8}}
    )  # fmt: skip
    loaded = load_translator(tmp_path / "a.weights.h5", config, tokenizer_model)
    assert texts(loaded, SENTENCES[:5]) == texts(translator, SENTENCES[:5])
