"""The Translator on random weights: nothing here depends on a trained model."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import Config, DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.lines import best_translations, read_windows, translate_lines
from tfnmt.decoding.signatures import with_target
from tfnmt.decoding.translator import Translator, load_translator, signatures
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


# --- Tokens ---------------------------------------------------------------------------------------


def test_codec_gives_the_ids_of_the_tokenizer(
    translator: Translator, tokenizer_model: bytes
) -> None:
    lines = [*SENTENCES, "", "  two  spaces ", "Ünïcode 😀", "a\u00a0b\u200cc", "سلام"]
    found = translator.codec.encode(tf.constant(lines)).tokens.numpy()
    for row, ids in zip(found, Tokenizer(tokenizer_model).encode(lines), strict=True):
        assert row[row != 0].tolist() == [*ids, 2]


def test_codec_decodes_ids_to_text_without_bos_and_eos(translator: Translator) -> None:
    source = translator.codec.encode(tf.constant(SENTENCES))
    bos = tf.ones([len(SENTENCES), 1], tf.int32)
    decoded = translator.codec.decode(tf.concat([bos, source.tokens], 1)).numpy()
    assert [text.decode() for text in decoded] == SENTENCES


def test_long_source_is_truncated_and_reported(
    transformer: Transformer, tokenizer_model: bytes
) -> None:
    decoding = DecodingConfig(max_source_length=5, max_extra_length=3)
    translator = Translator(transformer, tokenizer_model, decoding)
    source = translator.codec.encode(tf.constant(["the the the the", "the the the the the"]))
    assert source.truncated.numpy().tolist() == [False, True]
    np.testing.assert_array_equal(source.tokens[0], source.tokens[1])
    result = translator.translate(tf.constant([SENTENCES[0], "the " * 100]))
    assert result["truncated"].numpy()[1]


# --- Batches --------------------------------------------------------------------------------------


def test_translation_is_the_same_alone_and_in_a_batch(translator: Translator) -> None:
    together = translator.translate(tf.constant(SENTENCES))
    for number in (0, 7, 13, 29):
        alone = translator.translate(tf.constant([SENTENCES[number]]))
        assert alone["translation"][0] == together["translation"][number]
        score = float(alone["score"][0])
        assert score == pytest.approx(float(together["score"][number]), abs=1e-4)


def test_translations_do_not_depend_on_the_order_of_the_lines(translator: Translator) -> None:
    def translate(lines: list[str]) -> list[str]:
        translations = translate_lines(best_translations(translator.translate), read_windows(lines))
        return [translation.best.text for translation in translations]

    lines = [*SENTENCES, "", "   ", "the old dog"]
    forwards = translate(lines)
    assert translate(lines[::-1])[::-1] == forwards
    assert len(forwards) == len(lines)
    assert forwards[-3:-1] == ["", ""]


def test_searches_split_large_batches(translator: Translator) -> None:
    for search in (translator.beam, translator.greedy_search):
        operations = search.get_concrete_function().graph.get_operations()
        assert "If" in {operation.type.removeprefix("Stateless") for operation in operations}


def test_translate_is_traced_only_once_for_all_shapes(translator: Translator) -> None:
    for size in (1, 3, 17):
        texts(translator, SENTENCES[:size])
    assert translator.translate.experimental_get_tracing_count() == 1


def test_text_without_tokens_gives_an_empty_translation_with_score_0(
    translator: Translator,
) -> None:
    for function in (translator.translate, translator.greedy):
        result = function(tf.constant(["", "a dog", "  "]))
        assert result["translation"].numpy()[[0, 2]].tolist() == [b"", b""]
        assert result["score"].numpy()[[0, 2]].tolist() == [0, 0]
        assert not result["truncated"].numpy().any()


def test_empty_batch_gives_an_empty_batch(translator: Translator) -> None:
    for function in (translator.translate, translator.greedy):
        result = function(tf.constant([], tf.string))
        assert {name: value.shape.as_list() for name, value in result.items()} == {
            "translation": [0],
            "score": [0],
            "truncated": [0],
        }


def test_invalid_utf_8_gives_valid_text(translator: Translator) -> None:
    result = translator.translate(tf.constant([b"\xff\xfe dog", b"\x00", b"ok"]))
    for text in result["translation"].numpy():
        text.decode("utf-8")
    assert np.isfinite(result["score"].numpy()).all()


# --- Search and weights ---------------------------------------------------------------------------


def test_beam_of_one_is_greedy_search(transformer: Transformer, tokenizer_model: bytes) -> None:
    translator = Translator(transformer, tokenizer_model, DecodingConfig(beam_size=1))
    text = tf.constant(SENTENCES[:5])
    beam, greedy = translator.translate(text), translator.greedy(text)
    np.testing.assert_array_equal(beam["translation"], greedy["translation"])


def test_loaded_weights_give_the_translations_of_the_saved_ones(
    transformer: Transformer, translator: Translator, tokenizer_model: bytes, tmp_path: Path
) -> None:
    transformer.save_weights(tmp_path / "a.weights.h5")
    config = Config.model_validate(
        {
            "model": {
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "d_model": 32,
                "num_heads": 2,
                "d_ff": 32,
            },
            "decoding": {"max_extra_length": 8},
        }
    )
    loaded = load_translator(tmp_path / "a.weights.h5", config, tokenizer_model)
    assert texts(loaded, SENTENCES[:5]) == texts(translator, SENTENCES[:5])


# --- Several target languages ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def multilingual() -> Translator:
    model = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=330), ["de", "fr"])
    keras.utils.set_random_seed(1)
    config = ModelConfig(num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=8)
    transformer = Transformer(config, Tokenizer(model).vocab_size)
    for weight in transformer.weights:
        weight.assign_add(0.5 * np.random.default_rng(0).standard_normal(weight.shape))
    decoding = DecodingConfig(beam_size=2, max_source_length=8, max_extra_length=3)
    return Translator(transformer, model, decoding)


def test_sources_begin_with_the_token_of_their_target(multilingual: Translator) -> None:
    found = multilingual.tokenize(tf.constant(["the dog", "<2fr>"]), ["fr", "de"])
    tokens = multilingual.codec.languages
    assert found["tokens"][:, 0].numpy().tolist() == [tokens["fr"], tokens["de"]]
    assert tokens["fr"] not in found["tokens"][1].numpy()


def test_empty_text_has_no_language_token_and_an_empty_translation(
    multilingual: Translator,
) -> None:
    texts, targets = tf.constant(["", "the dog"]), ["de", "de"]
    assert multilingual.tokenize(texts, targets)["tokens"][0].numpy()[:2].tolist() == [2, 0]
    assert multilingual.translate(texts, targets)["translation"][0] == b""


def test_truncation_keeps_the_language_token(multilingual: Translator) -> None:
    exact, longer = "the old dog sees a cat", "the old dog sees a cat and"
    model = multilingual.codec
    lengths = [len(model.sentencepiece.tokenize(text)) for text in (exact, longer)]
    assert lengths == [6, 7]
    found = multilingual.tokenize(tf.constant([exact, longer]), ["de", "de"])
    assert found["truncated"].numpy().tolist() == [False, True]
    for row in found["tokens"].numpy():
        assert (row[0], row[-1], len(row)) == (model.languages["de"], 2, 8)


def test_each_text_has_its_own_target(multilingual: Translator) -> None:
    mixed = multilingual.translate(tf.constant(["the dog"] * 2), ["de", "fr"])
    for row, language in enumerate(("de", "fr")):
        alone = multilingual.translate(tf.constant(["the dog"]), [language])
        assert alone["translation"][0] == mixed["translation"][row]
        np.testing.assert_allclose(alone["score"][0], mixed["score"][row], rtol=1e-5)
    assert mixed["score"][0] != mixed["score"][1]


@pytest.mark.parametrize("target", [["en"], [""], ["de-DE"], ["de", "de"], []])
def test_unknown_or_missing_target_is_an_invalid_argument(
    multilingual: Translator, target: list[str]
) -> None:
    for graph in (multilingual.translate, multilingual.greedy, multilingual.nbest):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            graph(tf.constant(["the dog"]), tf.constant(target, tf.string))
        assert "de, fr" in caught.value.message or "number of rows" in caught.value.message


def test_language_tokens_have_no_text(multilingual: Translator) -> None:
    tokens = multilingual.tokenize(tf.constant(["the dog"]), ["fr"])["tokens"]
    assert multilingual.codec.decode(tokens).numpy().tolist() == [b"the dog"]


def test_with_target_binds_the_target_of_all_texts(multilingual: Translator) -> None:
    graphs = with_target(signatures(multilingual), "fr")
    texts, translations = tf.constant(["the dog", "a cat"]), tf.constant(["x", "y"])
    for name in ("serving_default", "greedy", "nbest", "tokenize"):
        expected = signatures(multilingual)[name](texts, ["fr", "fr"])
        for key, value in graphs[name](text=texts).items():
            np.testing.assert_array_equal(value, expected[key])
    for name in ("align", "attention"):
        outputs = graphs[name](text=texts, translation=translations)
        assert outputs["source_tokens"][:, 0].numpy().tolist() == [b"<2fr>"] * 2
