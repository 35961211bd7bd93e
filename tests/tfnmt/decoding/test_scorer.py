"""Given translations get the scores that the search gives to its own translations."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, SamplingConfig, TokenizerConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer, train_tokenizer
from tfnmt.decoding.inspector import scoring_graph, token_log_probs
from tfnmt.decoding.lines import MAX_ROWS, WINDOW, Segment, Signatures, nbest_translations
from tfnmt.decoding.scorer import Scored, Scorer
from tfnmt.decoding.search import Hypotheses, length_penalty
from tfnmt.decoding.searcher import Searcher
from tfnmt.decoding.translator import Translator, signatures
from tfnmt.model.layers import Tensor
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
def translator(transformer: Transformer) -> Translator:
    return Translator(transformer, TOKENIZER, DecodingConfig(max_extra_length=12))


@pytest.fixture(scope="module")
def graphs(translator: Translator) -> Signatures:
    return signatures(translator)


@pytest.fixture(scope="module", params=["scoring graph", "align_tokens"])
def scorer(request: pytest.FixtureRequest, translator: Translator, graphs: Signatures) -> Scorer:
    scoring = {"token_log_probs": scoring_graph(translator.transformer)}
    found = graphs | scoring if request.param == "scoring graph" else graphs
    return Scorer(found, TOKENIZER, translator.decoding)


# --- Ids ------------------------------------------------------------------------------------------

Search = Callable[[Searcher, Tensor], Hypotheses]


def greedy(searcher: Searcher, source: Tensor) -> Hypotheses:
    return searcher.greedy(source)


def beam(searcher: Searcher, source: Tensor) -> Hypotheses:
    return searcher.beam(source, searcher.decoding.beam_size)


def sampled(searcher: Searcher, source: Tensor) -> Hypotheses:
    random_numbers = tf.constant(np.random.default_rng(1).random((len(TEXTS), 100), "f4"))
    return searcher.sample(source, SamplingConfig(temperature=0.7, top_k=50), random_numbers)


FREE = {"max_extra_length": 3}
CONSTRAINED = {**FREE, "min_length": 4, "no_repeat_ngram": 2}
SEARCHES = {
    "greedy": (greedy, FREE, ""),
    "beam": (beam, FREE, ""),
    "sampled": (sampled, FREE, ""),
    "no penalty": (beam, {**FREE, "length_penalty": 0.0}, ""),
    "greedy, constrained": (greedy, CONSTRAINED, "the dog"),
    "beam, constrained": (beam, CONSTRAINED, "the dog"),
    "sampled, constrained": (sampled, CONSTRAINED, "the dog"),
    "truncated": (beam, {"max_length": 3}, ""),
}


@pytest.mark.parametrize(("search", "settings", "prefix"), SEARCHES.values(), ids=SEARCHES)
def test_log_probs_of_ids_give_the_score_of_the_search(
    transformer: Transformer, search: Search, settings: dict[str, Any], prefix: str
) -> None:
    decoding = DecodingConfig(**settings)
    translator = Translator(transformer, TOKENIZER, decoding, prefix)
    source = translator.codec.encode(tf.constant(TEXTS)).tokens
    graph = tf.function(lambda source: search(translator.searcher, source), autograph=False)
    found = graph(source)
    assert found.tokens.shape[1] == (decoding.beam_size if search is beam else 1)
    for rank in range(found.tokens.shape[1]):
        tokens = found.tokens[:, rank]
        log_prob = tf.reduce_sum(token_log_probs(transformer, source, tokens), axis=1)
        length = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        scores = log_prob / length_penalty(length, decoding.length_penalty)
        exists = found.scores[:, rank] > -float("inf")
        assert tf.reduce_all(exists) or rank > 0
        np.testing.assert_allclose(scores[exists], found.scores[:, rank][exists], atol=1e-4)


# --- Text -----------------------------------------------------------------------------------------


def test_score_of_a_text_is_that_of_its_ids(scorer: Scorer, translator: Translator) -> None:
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


def test_score_of_every_hypothesis_of_an_nbest_list_is_that_of_the_search(
    scorer: Scorer, translator: Translator, graphs: Signatures
) -> None:
    """The random model finds texts with tokens that the tokenizer would not choose."""
    segments = [Segment((number, 0), text) for number, text in enumerate(TEXTS)]
    translations = nbest_translations(graphs, translator.decoding.beam_size)(segments)
    found = [
        (segment.text, hypothesis)
        for segment, translation in zip(segments, translations, strict=True)
        for hypothesis in translation.hypotheses
    ]
    assert len(found) > len(TEXTS)
    pairs = [(source, hypothesis.tokens) for source, hypothesis in found]
    scored = list(scorer.score_ids(pairs))
    for each, (_, hypothesis) in zip(scored, found, strict=True):
        assert each.text == hypothesis.text
        assert each.tokens == len(hypothesis.tokens) == len(hypothesis.token_log_probs)
        assert each.score == pytest.approx(hypothesis.score, abs=1e-4)
        assert each.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-3)
    texts = list(scorer.score((source, hypothesis.text) for source, hypothesis in found))
    assert any(
        abs(text.score - ids.score) > 0.1 for text, ids in zip(texts, scored, strict=True)
    )  # otherwise this test checks nothing


def test_ids_are_not_truncated_and_may_be_empty(scorer: Scorer, translator: Translator) -> None:
    longest = translator.decoding.max_translation_length
    long, empty = scorer.score_ids([("a", [7] * (longest + 5)), ("a", [])])
    assert (long.tokens, long.truncated) == (longest + 5, False)
    assert empty == Scored(0.0, 0.0, 0, "", False)


def random_pairs(count: int) -> list[tuple[str, str]]:
    words = ["the", "a", "dog", "cat", "runs", "sees", "home,", "and"]
    generator = random.Random(1)

    def text() -> str:
        return " ".join(generator.choices(words, k=generator.randrange(12)))

    return [(text(), text()) for _ in range(count)]


def assert_close(found: list[Scored], expected: list[Scored]) -> None:
    numbers = [np.array([each[:3] for each in scored]) for scored in (found, expected)]
    np.testing.assert_allclose(*numbers, atol=1e-4)
    assert [each[3:] for each in found] == [each[3:] for each in expected]


def test_scores_do_not_depend_on_order_or_batch(scorer: Scorer) -> None:
    pairs = random_pairs(3 * MAX_ROWS + 5)
    together = list(scorer.score(pairs))
    assert len({round(each.log_prob, 3) for each in together}) > len(pairs) // 2
    order = random.Random(2).sample(range(len(pairs)), len(pairs))
    shuffled = list(scorer.score([pairs[number] for number in order]))
    assert_close(shuffled, [together[number] for number in order])
    for number in range(0, len(pairs), 19):
        assert_close(list(scorer.score([pairs[number]])), [together[number]])


def test_pairs_are_read_one_window_at_a_time(scorer: Scorer) -> None:
    def pairs() -> Iterator[tuple[str, str]]:
        yield from [("a", "b")] * WINDOW
        raise AssertionError("read too far")

    scored = scorer.score(pairs())
    assert all(next(scored).tokens > 1 for _ in range(WINDOW))


def test_scorer_returns_the_text_that_it_reads_and_whether_it_was_truncated(
    transformer: Transformer,
) -> None:
    decoding = DecodingConfig(max_source_length=8, max_extra_length=2)
    translator = Translator(transformer, TOKENIZER, decoding)
    scorer = Scorer(signatures(translator), TOKENIZER, decoding)
    long = "the dog " * 9
    pairs = [("a", "a dog"), (long, "a"), ("a", long), ("a", "the  dog"), (long, "the  dog")]
    found = list(scorer.score(pairs))
    assert found[2].tokens == decoding.max_translation_length
    assert [each.truncated for each in found] == [False, True, True, False, True]
    assert [each.text for each in found[:2]] == ["a dog", "a"]
    assert found[3].text == "the dog"


def test_no_pairs_have_no_scores(scorer: Scorer) -> None:
    assert list(scorer.score([])) == []
