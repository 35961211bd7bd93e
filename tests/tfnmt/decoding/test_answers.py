"""What is answered to rows, by a Transformer of random weights."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, SamplingConfig, TokenizerConfig
from tfnmt.data.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.answers import (
    MISSING,
    Answer,
    Hypothesis,
    Row,
    Signature,
    Signatures,
    again,
    best,
    read_again,
    sampled,
    several,
)
from tfnmt.decoding.signatures import signatures
from tfnmt.decoding.translator import Translator
from tfnmt.model.transformer import Transformer

TEXTS = ["the dog runs", "a", "the cat sees a dog, and the dog sees the cat", "the dog runs home"]
ROWS = [Row((number, 0), text) for number, text in enumerate(TEXTS)]


TOKENIZER = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def translator() -> Translator:
    keras.utils.set_random_seed(1)
    config = ModelConfig(
        num_encoder_layers=1, num_decoder_layers=2, d_model=16, num_heads=4, d_ff=16
    )
    transformer = Transformer(config, Tokenizer(TOKENIZER).vocab_size)
    decoding = DecodingConfig(max_extra_length=6, max_source_length=20)
    return Translator(transformer, TOKENIZER, decoding)


@pytest.fixture(scope="module")
def graphs(translator: Translator) -> Signatures:
    return signatures(translator)


def log_probs_alone(graphs: Signatures, text: str, translation: str) -> list[float]:
    """What `align` says of one pair."""
    found = graphs["align"](text=tf.constant([text]), translation=tf.constant([translation]))
    return list(found["token_log_probs"][0].numpy())


def check_readings(graphs: Signatures, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
    """Each hypothesis has the log probabilities of its own text behind its own source."""
    assert len(answers) == len(rows)
    for row, answer in zip(rows, answers, strict=True):
        for hypothesis in answer.hypotheses:
            expected = log_probs_alone(graphs, row.text, hypothesis.text)
            np.testing.assert_allclose(hypothesis.token_log_probs, expected, atol=1e-4)


def gives(**values: Sequence[Any]) -> Signature:
    """A graph that gives the same whatever it is asked."""
    return lambda **_: {name: tf.constant(value) for name, value in values.items()}


# --- The best -----------------------------------------------------------------------------------


def test_the_best_are_those_that_are_found_alone(graphs: Signatures) -> None:
    answering = best(graphs["serving_default"])
    together = answering([*ROWS, Row((9, 0), "long " * 40)])
    for row, answer in zip(ROWS, together, strict=False):
        (alone,) = answering([row])
        assert alone.best.text == answer.best.text
        assert alone.best.score == pytest.approx(answer.best.score, abs=1e-4)
        assert len(answer.hypotheses) == 1
    assert [answer.truncated for answer in together] == [False] * len(ROWS) + [True]


def test_a_translation_is_a_line() -> None:
    answering = best(gives(translation=[b"a\nb\r\nc"], score=[-1.0], truncated=[False]))
    assert answering(ROWS[:1])[0].best.text == "a b  c"


def test_half_of_a_surrogate_pair_is_no_mistake(graphs: Signatures) -> None:
    odd, plain = best(graphs["serving_default"])([Row((0, 0), "a \ud83d"), Row((1, 0), "a ?")])
    assert odd.best.text == plain.best.text
    assert odd.best.score == pytest.approx(plain.best.score, abs=1e-4)


# --- Several ------------------------------------------------------------------------------------


def test_several_are_the_best_first_each_with_its_own_log_probs(graphs: Signatures) -> None:
    answers = several(graphs, 3)(ROWS)
    assert max(len(answer.hypotheses) for answer in answers) == 3
    for row, answer in zip(ROWS, answers, strict=True):
        assert len({hypothesis.text for hypothesis in answer.hypotheses}) == len(answer.hypotheses)
        scores = [hypothesis.score for hypothesis in answer.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert answer.best.text == best(graphs["serving_default"])([row])[0].best.text
    check_readings(graphs, ROWS, answers)


def test_what_is_missing_is_dropped(graphs: Signatures) -> None:
    nbest = gives(
        translations=[
            ["dog", "the dog", "a dog"],
            ["cat", "", ""],
            ["", "the", ""],  # the first and the last one differ by their scores alone
            ["a cat sees", "home", ""],
        ],
        scores=[
            [-1.0, -2.0, -3.0],
            [-1.5, MISSING, MISSING],
            [-0.5, -1.0, MISSING],
            [-2.5, -3.5, MISSING],
        ],
        truncated=[False, True, False, False],
    )
    answers = several({**graphs, "nbest": nbest}, 3)(ROWS)
    assert [[each.text for each in answer.hypotheses] for answer in answers] == [
        ["dog", "the dog", "a dog"], ["cat"], ["", "the"], ["a cat sees", "home"]
    ]  # fmt: skip
    assert [[each.score for each in answer.hypotheses] for answer in answers] == [
        [-1.0, -2.0, -3.0], [-1.5], [-0.5, -1.0], [-2.5, -3.5]
    ]  # fmt: skip
    assert [answer.truncated for answer in answers] == [False, True, False, False]
    check_readings(graphs, ROWS, answers)

    two = several({**graphs, "nbest": nbest}, 2)(ROWS)
    assert [len(answer.hypotheses) for answer in two] == [2, 1, 2, 2]


def test_of_hypotheses_that_read_the_same_there_is_one(
    translator: Translator, graphs: Signatures
) -> None:
    """Single bytes of longer letters all read as U+FFFD: of a piece each, some rows have fewer."""
    nbest = Translator(translator.transformer, TOKENIZER, DecodingConfig(max_length=1)).nbest
    answers = several({**graphs, "nbest": nbest}, 4)(ROWS)
    found = nbest(text=tf.constant(TEXTS))["scores"].numpy()
    counts = [len(answer.hypotheses) for answer in answers]
    assert counts == (found > MISSING).sum(axis=1).tolist()
    assert len(set(counts)) > 1  # or the test shows nothing
    check_readings(graphs, ROWS, answers)


# --- Read again ---------------------------------------------------------------------------------


def test_rows_of_different_numbers_are_paired_up_with_their_own(graphs: Signatures) -> None:
    lists = [["home"], ["a dog", "the cat", ""], ["", "runs"], ["the dog, and a cat"]]
    answers = [
        Answer(tuple(Hypothesis(text, -float(place)) for place, text in enumerate(texts)), True)
        for texts in lists
    ]
    found = read_again(graphs["align"], ROWS, answers)
    for answer, before in zip(found, answers, strict=True):
        assert answer.truncated
        assert [each[:2] for each in answer.hypotheses] == [each[:2] for each in before.hypotheses]
    check_readings(graphs, ROWS, found)


def test_warnings_are_those_of_the_best_of_each_row(graphs: Signatures) -> None:
    copy = Hypothesis("the cat sees a dog, and the dog", -1.0)
    fine, said_thrice = Hypothesis("home", -2.0), Hypothesis("home home home", -3.0)
    answers = [
        Answer((fine, copy)),
        Answer((said_thrice,)),
        Answer((copy, fine, said_thrice)),
        Answer((fine, said_thrice)),
    ]
    found = read_again(graphs["align"], ROWS, answers)
    visible = [set(answer.warnings) & {"copy", "repetition"} for answer in found]
    assert visible == [set(), {"repetition"}, {"copy"}, set()]


def test_no_rows_are_read_again_as_none(graphs: Signatures) -> None:
    assert read_again(graphs["align"], [], []) == []


def test_again_is_the_answer_with_log_probs(graphs: Signatures) -> None:
    plain = best(graphs["serving_default"])
    answers = again(plain, graphs["align"])(ROWS)
    assert [answer.best[:2] for answer in answers] == [answer.best[:2] for answer in plain(ROWS)]
    check_readings(graphs, ROWS, answers)


# --- Drawn --------------------------------------------------------------------------------------


def test_a_draw_is_decided_by_place_and_seed(translator: Translator) -> None:
    sample = translator.sampler(SamplingConfig())
    longest = translator.decoding.longest

    def drawn(*places: tuple[int, int], seed: int = 1) -> list[str]:
        rows = [Row(place, TEXTS[0]) for place in places]
        return [answer.best.text for answer in sampled(sample, longest, seed)(rows)]

    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    first = drawn(*places)
    assert len(set(first)) == len(places)
    assert drawn(*reversed(places)) == first[::-1]
    assert drawn((0, 1)) == [first[2]]
    assert set(drawn(*places, seed=2)).isdisjoint(first)
