"""What a model makes of given translations, in strings."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import BOS, EOS, Tokenizer, train_tokenizer
from tfnmt.decoding.inspector import SHOWN_PIECES, Inspector, attend, shifted, token_log_probs
from tfnmt.decoding.search import Search, beam_search
from tfnmt.decoding.searcher import output_projection, start
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

TEXTS = ["the dog runs", "the cat sees a dog", ""]
TRANSLATIONS = ["a dog runs home", "", "the cat"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    keras.utils.set_random_seed(1)
    model = train_tokenizer([*TEXTS, *TRANSLATIONS], TokenizerConfig(vocab_size=290))
    config = ModelConfig(
        num_encoder_layers=2, num_decoder_layers=3, d_model=16, num_heads=4, d_ff=16
    )
    transformer = Transformer(config, Tokenizer(model).vocab_size)
    return Translator(transformer, model, DecodingConfig(max_extra_length=8))


@pytest.fixture(scope="module")
def inspector(translator: Translator) -> Inspector:
    return Inspector(translator.transformer, translator.codec, translator.decoding)


def test_align_names_the_pieces_with_eos_and_nothing_at_padding(inspector: Inspector) -> None:
    found = inspector.align(tf.constant(TEXTS), tf.constant(TRANSLATIONS))
    sources, lengths = found["source_pieces"].numpy(), found["source_length"].numpy()
    for row, length, text in zip(sources, lengths, TEXTS, strict=True):
        assert row[length - 1] == b"</s>"
        assert (row[length:] == b"").all()
        assert b"".join(row[: length - 1]).decode().replace("\u2581", " ").strip() == text
    assert found["target_length"].numpy()[1] == 1
    assert found["target_pieces"].numpy()[1].tolist()[:2] == [b"</s>", b""]


def test_a_row_of_alignment_sums_to_one_over_the_real_source(inspector: Inspector) -> None:
    found = inspector.align(tf.constant(TEXTS), tf.constant(TRANSLATIONS))
    attention = found["attention"].numpy()  # [B, T, S]
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    for row, length in enumerate(found["source_length"].numpy()):
        assert (attention[row, :, length:] == 0).all()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_log_probs_sum_to_what_search_found(translator: Translator, beam_size: int) -> None:
    source = translator.codec.encode(tf.constant(TEXTS[:2])).tokens
    search = Search(BOS, EOS, beam_size, length_penalty=0.0)
    limits = tf.constant([9, 4])
    step, cache = start(
        translator.transformer, output_projection(translator.transformer), source, beam_size
    )
    tokens, scores = beam_search(step, cache, limits, search)
    log_probs = token_log_probs(translator.transformer, source, tokens[:, 0])
    np.testing.assert_allclose(tf.reduce_sum(log_probs, axis=1), scores[:, 0], atol=1e-4)


def test_log_probs_are_those_of_the_pieces(translator: Translator, inspector: Inspector) -> None:
    found = inspector.align(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    ids = [
        translator.codec.encode(tf.constant(texts[:1])).tokens for texts in (TEXTS, TRANSLATIONS)
    ]
    expected = token_log_probs(translator.transformer, *ids)
    np.testing.assert_allclose(found["token_log_probs"], expected, atol=1e-6)


def test_attention_is_that_of_every_layer_and_head(inspector: Inspector) -> None:
    found = inspector.attention(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    source, target = int(found["source_length"][0]), int(found["target_length"][0])
    assert found["encoder"].shape == (1, 2, 4, source, source)
    assert found["decoder"].shape == (1, 3, 4, target, target)
    assert found["cross"].shape == (1, 3, 4, target, source)
    aligned = inspector.align(tf.constant(TEXTS[:1]), tf.constant(TRANSLATIONS[:1]))
    mean = tf.reduce_mean(found["cross"][:, -1], axis=1)
    np.testing.assert_allclose(mean, aligned["attention"], atol=1e-6)


def test_attention_of_long_texts_is_cut(inspector: Inspector) -> None:
    long = tf.constant(["the dog " * 100])
    found = inspector.attention(long, long)
    assert found["cross"].shape == (1, 3, 4, SHOWN_PIECES, SHOWN_PIECES)
    assert found["source_pieces"][0, -1] == b"</s>"


@pytest.mark.parametrize("function", ["align", "attention"])
def test_no_texts_give_no_rows(inspector: Inspector, function: str) -> None:
    empty = tf.constant([], tf.string)
    for value in getattr(inspector, function)(empty, empty).values():
        assert value.shape[0] == 0


def test_rows_without_a_translation_are_refused(inspector: Inspector) -> None:
    for graph in (inspector.align, inspector.attention):
        with pytest.raises(tf.errors.InvalidArgumentError, match="as many rows"):
            graph(tf.constant(TEXTS[:2]), tf.constant(TRANSLATIONS[:1]))


def test_a_look_is_what_a_batch_of_one_shows(inspector: Inspector) -> None:
    look = inspector.look(TEXTS[0], TRANSLATIONS[0])
    found = inspector.attention([TEXTS[0]], [TRANSLATIONS[0]])
    assert "".join(look.source) == "\u2581the\u2581dog\u2581runs</s>"
    assert "".join(look.target) == "\u2581a\u2581dog\u2581runs\u2581home</s>"
    np.testing.assert_array_equal(look.encoder, found["encoder"][0])
    np.testing.assert_array_equal(look.decoder, found["decoder"][0])
    np.testing.assert_array_equal(look.cross, found["cross"][0])
    assert look.cross.shape == (3, 4, len(look.target), len(look.source))


V = 40
SOURCE = np.array([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]], "int32")
TARGET = np.array([[11, 12, 13, 2], [14, 2, 0, 0]], "int32")


def test_a_target_is_read_one_piece_late_behind_bos() -> None:
    assert shifted(TARGET).numpy().tolist() == [[1, 11, 12, 13], [1, 14, 2, 0]]


def test_log_probs_are_those_of_the_steps_with_marks_impossible(small_config: ModelConfig) -> None:
    model = Transformer(small_config, V)
    found = token_log_probs(model, SOURCE, TARGET).numpy()
    logits = np.array(model(SOURCE, shifted(TARGET)))
    logits[:, :, :2] = -np.inf
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, column in ((0, 0), (0, 3), (1, 1)):
        expected = log_probs[row, column, TARGET[row, column]]
        np.testing.assert_allclose(found[row, column], expected, atol=1e-5)
    assert found[1].tolist()[2:] == [0, 0]
    assert (found[TARGET != 0] < 0).all()


def test_padding_changes_no_log_prob_and_no_attention(small_config: ModelConfig) -> None:
    model = Transformer(small_config, V)
    alone = token_log_probs(model, SOURCE[1:, :3], TARGET[1:, :2])
    together = token_log_probs(model, SOURCE, TARGET)
    np.testing.assert_allclose(together[1, :2], alone[0], atol=1e-5)
    log_probs, one = attend(model, SOURCE[1:, :3], TARGET[1:, :2])
    np.testing.assert_allclose(log_probs, alone, atol=1e-6)
    _, two = attend(model, SOURCE, TARGET)
    np.testing.assert_allclose(two.cross[1, :, :, :2, :3], one.cross[0], atol=1e-5)
    np.testing.assert_allclose(two.cross[1, :, :, :2, 3:], 0, atol=1e-7)
    assert tf.reduce_sum(two.decoder[0, 0, 0, 0, 1:]) == 0  # nothing later is seen
