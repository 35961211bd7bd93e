"""Force-decoding of given translations: token strings, log probabilities and attention."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.inspector import (
    MAX_ATTENTION_TOKENS,
    Inspector,
    shift_right,
    token_log_probs,
)
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

TEXTS = ["the dog runs", "the cat sees a dog", ""]
TRANSLATIONS = ["a dog runs home", "", "the cat"]
TOKENIZER = train_tokenizer([*TEXTS, *TRANSLATIONS], TokenizerConfig(vocab_size=290))
DECODING = DecodingConfig(max_extra_length=8)


@pytest.fixture(scope="module")
def translator() -> Translator:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=2, num_decoder_layers=3, d_model=16, num_heads=4, d_ff=16
    )
    transformer = Transformer(config, Tokenizer(TOKENIZER).vocab_size)
    return Translator(transformer, TOKENIZER, DECODING)


@pytest.fixture(scope="module")
def inspector(translator: Translator) -> Inspector:
    return Inspector(translator.transformer, translator.codec, translator.decoding)


# --- Text -----------------------------------------------------------------------------------------


def test_align_returns_token_strings_with_eos_and_empty_padding(inspector: Inspector) -> None:
    found = inspector.align(tf.constant(TEXTS), tf.constant(TRANSLATIONS))
    sources, lengths = found["source_tokens"].numpy(), found["source_length"].numpy()
    for row, length, text in zip(sources, lengths, TEXTS, strict=True):
        assert row[length - 1] == b"</s>"
        assert (row[length:] == b"").all()
        assert b"".join(row[: length - 1]).decode().replace("\u2581", " ").strip() == text
    assert found["target_length"].numpy()[1] == 1
    assert found["target_tokens"].numpy()[1].tolist()[:2] == [b"</s>", b""]


def test_align_returns_attention_that_sums_to_one_over_the_source(inspector: Inspector) -> None:
    found = inspector.align(tf.constant(TEXTS), tf.constant(TRANSLATIONS))
    attention = found["attention"].numpy()  # [B, T, S]
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    for row, length in enumerate(found["source_length"].numpy()):
        assert (attention[row, :, length:] == 0).all()


def test_align_returns_the_log_probs_of_the_tokens(
    translator: Translator, inspector: Inspector
) -> None:
    found = inspector.align(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    source, target = (
        translator.codec.encode(tf.constant(texts[:1])).tokens for texts in (TEXTS, TRANSLATIONS)
    )
    expected = token_log_probs(translator.transformer, source, target)
    np.testing.assert_allclose(found["token_log_probs"], expected, atol=1e-6)


def test_align_tokens_gives_the_outputs_of_align_for_the_same_ids(
    translator: Translator, inspector: Inspector
) -> None:
    ids = (translator.codec.encode(tf.constant(texts)).tokens for texts in (TEXTS, TRANSLATIONS))
    found = inspector.align_tokens(*ids)
    expected = inspector.align(tf.constant(TEXTS), tf.constant(TRANSLATIONS))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_align_tokens_refuses_different_numbers_of_rows(inspector: Inspector) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        inspector.align_tokens(tf.constant([[5, 2], [5, 2]]), tf.constant([[5, 2]]))


def test_attention_has_all_layers_and_heads(inspector: Inspector) -> None:
    found = inspector.attention(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    source, target = int(found["source_length"][0]), int(found["target_length"][0])
    assert found["encoder"].shape == (1, 2, 4, source, source)
    assert found["decoder"].shape == (1, 3, 4, target, target)
    assert found["cross"].shape == (1, 3, 4, target, source)
    aligned = inspector.align(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    mean = tf.reduce_mean(found["cross"][:, -1], axis=1)
    np.testing.assert_allclose(mean, aligned["attention"], atol=1e-6)


def test_attention_truncates_long_texts(inspector: Inspector) -> None:
    long = tf.constant(["the dog " * 100])
    found = inspector.attention(long, long)
    assert found["cross"].shape == (1, 3, 4, MAX_ATTENTION_TOKENS, MAX_ATTENTION_TOKENS)
    assert found["source_tokens"][0, -1] == b"</s>"


def test_attention_and_align_truncate_translations_to_the_same_length(
    translator: Translator,
) -> None:
    decoding = DecodingConfig(max_source_length=8, max_extra_length=4)
    inspector = Inspector(translator.transformer, translator.codec, decoding)
    long = tf.constant(["the dog " * 10])
    lengths = {
        name: graph(long, long)["target_length"].numpy().tolist()
        for name, graph in (("attention", inspector.attention), ("align", inspector.align))
    }
    assert lengths == {"attention": [12], "align": [12]}


def test_attention_maps_are_those_of_a_batch_of_one(inspector: Inspector) -> None:
    maps = inspector.attention_maps(TEXTS[0], TRANSLATIONS[0])
    found = inspector.attention([TEXTS[0]], [TRANSLATIONS[0]])
    assert "".join(maps.source) == "\u2581the\u2581dog\u2581runs</s>"
    assert "".join(maps.target) == "\u2581a\u2581dog\u2581runs\u2581home</s>"
    np.testing.assert_array_equal(maps.encoder, found["encoder"][0])
    np.testing.assert_array_equal(maps.decoder, found["decoder"][0])
    np.testing.assert_array_equal(maps.cross, found["cross"][0])
    assert maps.cross.shape == (3, 4, len(maps.target), len(maps.source))


@pytest.mark.parametrize("function", ["align", "attention"])
def test_empty_batch_gives_no_rows(inspector: Inspector, function: str) -> None:
    empty = tf.constant([], tf.string)
    for value in getattr(inspector, function)(empty, empty).values():
        assert value.shape[0] == 0


def test_different_numbers_of_texts_and_translations_are_refused(inspector: Inspector) -> None:
    for graph in (inspector.align, inspector.attention):
        with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
            graph(tf.constant(TEXTS[:2]), tf.constant(TRANSLATIONS[:1]))


# --- Ids ------------------------------------------------------------------------------------------

V = 40
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]], "int32")
TARGET = np.array([[11, 12, 13, 2], [14, 2, 0, 0]], "int32")


def test_shift_right_puts_bos_first_and_drops_the_last_token() -> None:
    assert shift_right(TARGET).numpy().tolist() == [[1, 11, 12, 13], [1, 14, 2, 0]]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_token_log_probs_sum_to_the_score_of_the_search(
    translator: Translator, beam_size: int
) -> None:
    source = translator.codec.encode(tf.constant(TEXTS[:2])).tokens
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_length=3)
    tokens, scores, _ = Searcher(translator.transformer, decoding).beam(source)
    log_probs = token_log_probs(translator.transformer, source, tokens[:, 0])
    np.testing.assert_allclose(tf.reduce_sum(log_probs, axis=1), scores[:, 0], atol=1e-4)


def test_token_log_probs_are_those_of_the_decoder_without_pad_and_bos(
    small_config: ModelConfig,
) -> None:
    model = Transformer(small_config, V)
    found = token_log_probs(model, SOURCE, TARGET).numpy()
    logits = np.array(model(SOURCE, shift_right(TARGET)))
    logits[:, :, :2] = -np.inf
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, column in ((0, 0), (0, 3), (1, 1)):
        expected = log_probs[row, column, TARGET[row, column]]
        np.testing.assert_allclose(found[row, column], expected, atol=1e-5)
    assert found[1].tolist()[2:] == [0, 0]
    assert (found[TARGET != 0] < 0).all()


def test_padding_changes_neither_log_probs_nor_attention(
    small_config: ModelConfig, translator: Translator
) -> None:
    model = Transformer(small_config, V)
    alone = token_log_probs(model, SOURCE[1:, :3], TARGET[1:, :2])
    together = token_log_probs(model, SOURCE, TARGET)
    np.testing.assert_allclose(together[1, :2], alone[0], atol=1e-5)
    inspector = Inspector(model, translator.codec, DECODING)
    one = inspector.force_decode(SOURCE[1:, :3], TARGET[1:, :2])
    np.testing.assert_allclose(one["token_log_probs"], alone, atol=1e-6)
    two = inspector.force_decode(SOURCE, TARGET)
    np.testing.assert_allclose(two["cross"][1, :, :, :2, :3], one["cross"][0], atol=1e-5)
    np.testing.assert_allclose(two["cross"][1, :, :, :2, 3:], 0, atol=1e-7)
    assert tf.reduce_sum(two["decoder"][0, 0, 0, 0, 1:]) == 0  # no attention to later positions
