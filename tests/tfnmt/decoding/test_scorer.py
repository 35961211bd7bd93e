"""Given translations are scored as search scores its own."""

import random
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, SamplingConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer, train_tokenizer
from tfnmt.decoding.inspector import token_log_probs
from tfnmt.decoding.lines import MAX_ROWS, WINDOW
from tfnmt.decoding.scorer import Scored, Scorer
from tfnmt.decoding.search import (
    Cache,
    Hypotheses,
    Search,
    Step,
    beam_search,
    greedy_search,
    length_penalty,
    sample,
)
from tfnmt.decoding.searcher import Find
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

TEXTS = ["the dog runs", "a", "the cat sees a dog, and home", "the dog runs home"]
TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=2, d_model=16, num_heads=4, d_ff=16
    )
    return Transformer(config, Tokenizer(TOKENIZER).vocab_size)


@pytest.fixture(scope="module")
def scorer(transformer: Transformer) -> Scorer:
    return Scorer(Translator(transformer, TOKENIZER, DecodingConfig(max_extra_length=12)))


def draw(step: Step, cache: Cache, limits: tf.Tensor, search: Search) -> Hypotheses:
    draws = tf.constant(np.random.default_rng(1).random((len(TEXTS), 100), "f4"))
    return sample(step, cache, limits, search, SamplingConfig(temperature=0.7, top_k=50), draws)


FREE = {"max_extra_length": 3}
CONSTRAINED = {**FREE, "min_length": 4, "no_repeat_ngram": 2}
SEARCHES = {
    "greedy": (greedy_search, {**FREE, "beam_size": 1}, ""),
    "beam": (beam_search, FREE, ""),
    "sampled": (draw, FREE, ""),
    "no penalty": (beam_search, {**FREE, "length_penalty": 0.0}, ""),
    "greedy, constrained": (greedy_search, {**CONSTRAINED, "beam_size": 1}, "the dog"),
    "beam, constrained": (beam_search, CONSTRAINED, "the dog"),
    "sampled, constrained": (draw, CONSTRAINED, "the dog"),
    "cut": (beam_search, {"max_length": 3}, ""),
}


@pytest.mark.parametrize(("find", "keys", "prefix"), SEARCHES.values(), ids=SEARCHES)
def test_ids_have_the_score_that_search_gave_them(
    transformer: Transformer, find: Find, keys: dict[str, float], prefix: str
) -> None:
    decoding = DecodingConfig(**keys)
    translator = Translator(transformer, TOKENIZER, decoding, prefix)
    source = translator.codec.encode(tf.constant(TEXTS)).tokens
    number = 1 if find is not beam_search else decoding.beam_size
    graph = tf.function(
        lambda source: translator.searcher.find(source, find, number, number), autograph=False
    )
    found = graph(source)
    for place in range(number):
        tokens = found.tokens[:, place]
        log_prob = tf.reduce_sum(token_log_probs(transformer, source, tokens), axis=1)
        length = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        scores = log_prob / length_penalty(length, decoding.length_penalty)
        there = found.scores[:, place] > -float("inf")
        assert tf.reduce_all(there[: len(TEXTS)]) or place > 0
        np.testing.assert_allclose(scores[there], found.scores[:, place][there], atol=1e-4)


def test_text_has_the_score_of_its_ids(scorer: Scorer) -> None:
    """Where a translation is cut into the ids that search had put it together from."""
    translator = scorer.translator
    translations = ["a dog", "", "the cat runs home", "the cat, and a dog"]
    ids = [translator.codec.encode(tf.constant(texts)).tokens for texts in (TEXTS, translations)]
    log_probs = tf.reduce_sum(token_log_probs(translator.transformer, *ids), axis=1).numpy()
    found = list(scorer.score(zip(TEXTS, translations, strict=True)))
    tokens = (ids[1].numpy() != 0).sum(axis=1)
    assert [each.tokens for each in found] == tokens.tolist()
    assert tokens[1] == 1
    assert (ids[1].numpy() == EOS).sum() == len(TEXTS)
    np.testing.assert_allclose([each.log_prob for each in found], log_probs, atol=1e-4)
    penalties = ((5 + tokens) / 6) ** translator.decoding.length_penalty
    np.testing.assert_allclose([each.score for each in found], log_probs / penalties, atol=1e-4)


def random_pairs(number: int) -> list[tuple[str, str]]:
    words, draw = ["the", "a", "dog", "cat", "runs", "sees", "home,", "and"], random.Random(1)

    def text() -> str:
        return " ".join(draw.choices(words, k=draw.randrange(12)))

    return [(text(), text()) for _ in range(number)]


def check_same(found: list[Scored], expected: list[Scored]) -> None:
    np.testing.assert_allclose(np.array(found), np.array(expected), atol=1e-4)


def test_scores_depend_on_neither_order_nor_batch(scorer: Scorer) -> None:
    pairs = random_pairs(3 * MAX_ROWS + 5)
    together = list(scorer.score(pairs))
    assert len({round(each.log_prob, 3) for each in together}) > len(pairs) // 2
    order = random.Random(2).sample(range(len(pairs)), len(pairs))
    shuffled = list(scorer.score([pairs[number] for number in order]))
    check_same(shuffled, [together[number] for number in order])
    for number in range(0, len(pairs), 19):
        check_same(list(scorer.score([pairs[number]])), [together[number]])


def test_pairs_are_read_a_window_at_a_time(scorer: Scorer) -> None:
    def pairs() -> Iterator[tuple[str, str]]:
        yield from [("a", "b")] * WINDOW
        raise AssertionError("asked for more")

    before = scorer.count
    assert next(scorer.score(pairs())).tokens > 1
    assert scorer.count == before + WINDOW


def test_what_was_cut_and_what_reads_otherwise_is_counted(transformer: Transformer) -> None:
    decoding = DecodingConfig(max_source_length=8, max_extra_length=2)
    scorer = Scorer(Translator(transformer, TOKENIZER, decoding))
    long = "the dog " * 9
    pairs = [("a", "a dog"), (long, "a"), ("a", long), ("a", "the  dog"), (long, "the  dog")]
    found = list(scorer.score(pairs))
    assert found[2].tokens == decoding.longest
    # A target that was cut is not counted as changed besides; one of a source that was, neither.
    assert (scorer.count, scorer.cut, scorer.changed) == (5, 3, 1)


def test_no_pairs_have_no_scores(scorer: Scorer) -> None:
    assert list(scorer.score([])) == []
