"""Many lines through a translator, of which only what it answers to rows is looked at here."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, count, pairwise
from queue import Queue
from threading import Barrier
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfnmt.config import DecodingConfig, ModelConfig, SamplingConfig, TokenizerConfig
from tfnmt.data.corpora.text_files import decode_lines
from tfnmt.data.preparation.tokenizer import Tokenizer, train_tokenizer
from tfnmt.decoding.lines import (
    MAX_CHARACTERS,
    MAX_ROWS,
    MISSING,
    WINDOW,
    Answer,
    Hypothesis,
    Item,
    Row,
    Signature,
    Signatures,
    _take,
    again,
    arriving,
    batches,
    best,
    by_sentences,
    join,
    read_again,
    sampled,
    several,
    translate_lines,
    whole,
    windows,
)
from tfnmt.decoding.signatures import signatures
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UserError
from tfnmt.model.transformer import Transformer
from tfnmt.runtime.startup import LANES

PATIENCE = 20
"""Seconds after which something that should come is taken not to come."""


class Shouting:
    """Answers in capitals, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        self.batches.append(list(rows))
        return [Answer((Hypothesis(row.text.upper(), -1.0),)) for row in rows]

    @property
    def rows(self) -> list[Row]:
        return list(chain.from_iterable(self.batches))


def random_lines(number: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [f"{row} " + "word " * draw.randrange(30) + "end" for row in range(number)]


# --- Windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 5])
def test_windows_are_as_long_as_there_are_lines(number: int) -> None:
    lines = random_lines(number)
    found = list(windows(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(len(window) == WINDOW for window in found[:-1])
    assert all(found)


def test_windows_wait_for_slow_lines_and_read_none_too_many() -> None:
    read = 0

    def slow() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            if read % 500 == 0:
                time.sleep(0.05)
            yield str(read)

    found = windows(slow())
    assert next(found) == [str(number) for number in range(1, WINDOW + 1)]
    assert read == WINDOW


# --- Streams ------------------------------------------------------------------------------------


class Pipe:
    """A pipe that a test writes to, and the lines that come out of it, taken in a thread."""

    def __init__(self) -> None:
        self.end, writer = os.pipe()
        self.writer = os.fdopen(writer, "wb", buffering=0)
        self.pool = ThreadPoolExecutor(1)
        self.windows = arriving(self._lines())

    def _lines(self) -> Iterator[str]:
        with os.fdopen(self.end, "rb") as reader:
            yield from decode_lines(reader, "pipe")

    def write(self, content: bytes) -> None:
        self.writer.write(content)

    def take(self) -> Future[list[str] | None]:
        return self.pool.submit(next, self.windows, None)

    def close(self) -> None:
        self.writer.close()
        self.pool.shutdown()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_line_comes_although_the_stream_stalls(pipe: Pipe) -> None:
    pipe.write(b"one\n")
    assert pipe.take().result(PATIENCE) == ["one"]

    second = pipe.take()
    time.sleep(0.1)
    pipe.write(b"tw")
    time.sleep(0.1)
    assert not second.done()  # half a line is none
    pipe.write(b"o\n")
    assert second.result(PATIENCE) == ["two"]

    third = pipe.take()
    pipe.write(b"without an end")
    pipe.writer.close()
    assert third.result(PATIENCE) == ["without an end"]
    assert pipe.take().result(PATIENCE) is None


@pytest.mark.parametrize(
    ("waiting", "taken"),
    [
        (["a"], 1),
        (["a", "b", "c"], 3),
        (["a", "b", None], 3),
        (["a", ValueError("b"), "c"], 2),  # nothing comes after an end
        (["a"] * WINDOW, WINDOW),
        (["a"] * (WINDOW + 1), WINDOW),
    ],
)
def test_what_is_there_is_taken_together_up_to_a_window_or_an_end(
    waiting: list[Item], taken: int
) -> None:
    queue: Queue[Item] = Queue()
    for item in waiting:
        queue.put(item)
    assert _take(queue) == waiting[:taken]
    assert queue.qsize() == len(waiting) - taken


def test_streams_keep_their_order_in_windows_and_end() -> None:
    lines = random_lines(5 * WINDOW + 7)
    found = list(arriving(lines))
    assert list(chain.from_iterable(found)) == lines
    assert all(0 < len(window) <= WINDOW for window in found)
    assert list(arriving([])) == []


def test_what_reading_fails_with_comes_after_the_lines_before() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        yield "two"
        raise UserError("the disk is gone")

    taken: list[str] = []
    lines = chain.from_iterable(arriving(broken()))
    with pytest.raises(UserError, match="the disk is gone"):
        taken.extend(lines)
    assert taken == ["one", "two"]


def test_an_endless_stream_is_read_a_window_ahead_at_most() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for read in count(1):
            yield str(read)

    found = arriving(endless())
    taken = len(next(found))
    settled = -1
    while settled != read:
        settled = read
        time.sleep(0.2)
    assert read <= taken + WINDOW + 1


# --- Batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [0, 1, 100, 255, 256, 257, 3000, 20_000])
def test_batches_have_each_row_once_the_longest_first_within_bounds(longest: int) -> None:
    draw = random.Random(longest)
    lengths = [draw.randint(0, longest) for _ in range(700)]
    found = list(batches(lengths))
    in_order = list(chain.from_iterable(found))
    assert sorted(in_order) == list(range(len(lengths)))
    assert [lengths[row] for row in in_order] == sorted(lengths, reverse=True)
    for batch in found:
        assert 1 <= len(batch) <= MAX_ROWS
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= MAX_CHARACTERS


def test_batches_are_as_large_as_they_may_be() -> None:
    assert [len(batch) for batch in batches([3] * (2 * MAX_ROWS + 1))] == [MAX_ROWS, MAX_ROWS, 1]
    half = MAX_CHARACTERS // 2
    assert [len(batch) for batch in batches([half, half, half + 1, half])] == [1, 2, 1]
    assert list(batches([10 * MAX_CHARACTERS, 1])) == [[0], [1]]
    assert list(batches([])) == []


# --- Lines --------------------------------------------------------------------------------------


def texts(answers: Iterable[Answer]) -> list[str]:
    return [answer.best.text for answer in answers]


@pytest.mark.parametrize("split_up", [windows, arriving])
def test_answers_come_in_the_order_of_the_lines(
    split_up: Callable[[Iterable[str]], Iterator[list[str]]],
) -> None:
    lines = random_lines(2 * WINDOW + 300)
    answering = Shouting()
    assert texts(translate_lines(answering, split_up(lines))) == [line.upper() for line in lines]
    assert len(answering.rows) == len(lines)


def test_rows_of_like_length_are_answered_together() -> None:
    answering = Shouting()
    list(translate_lines(answering, windows(random_lines(WINDOW))))
    in_order = sorted(answering.batches, key=lambda batch: -max(len(row.text) for row in batch))
    for batch, after in pairwise(in_order):
        assert min(len(row.text) for row in batch) >= max(len(row.text) for row in after)
    assert len(answering.batches) == WINDOW // MAX_ROWS


def test_few_rows_are_shared_out_among_the_lanes() -> None:
    answering = Shouting()
    list(translate_lines(answering, windows(random_lines(4 * LANES - 1))))
    assert sorted(len(batch) for batch in answering.batches) == [3, *[4] * (LANES - 1)]


@pytest.mark.skipif(LANES == 1, reason="one processor")
def test_batches_are_answered_side_by_side() -> None:
    both = Barrier(2)

    def meeting(rows: Sequence[Row]) -> list[Answer]:
        both.wait(PATIENCE)
        return [Answer() for _ in rows]

    assert len(list(translate_lines(meeting, [["one", "two"]]))) == 2


def test_what_a_batch_fails_with_comes_out() -> None:
    def failing(rows: Sequence[Row]) -> list[Answer]:
        raise UserError("no memory")

    with pytest.raises(UserError, match="no memory"):
        list(translate_lines(failing, windows(random_lines(WINDOW))))


def test_blank_lines_are_answered_by_nothing_and_ask_nothing() -> None:
    answering = Shouting()
    lines = ["", "one", "  ", "\t\xa0\u3000", "two", ""]
    found = list(translate_lines(answering, [lines]))
    assert texts(found) == ["", "ONE", "", "", "TWO", ""]
    assert {row.text for row in answering.rows} == {"one", "two"}
    assert found[0] == found[2] == Answer()

    answering = Shouting()
    assert texts(translate_lines(answering, [["", " "], []])) == ["", ""]
    assert answering.batches == []


def test_a_line_has_its_number_for_a_place_wherever_one_begins() -> None:
    lines = ["a", "", "ccc", "bb"]
    places = []
    for first_line in (0, 7):
        answering = Shouting()
        list(translate_lines(answering, [lines, lines], first_line=first_line))
        places.append({row.place: row.text for row in answering.rows})
    expected = {(0, 0): "a", (2, 0): "ccc", (3, 0): "bb", (4, 0): "a", (6, 0): "ccc", (7, 0): "bb"}
    assert places[0] == expected
    assert places[1] == {(line + 7, place): text for (line, place), text in expected.items()}


def test_the_parts_of_a_line_have_places_of_their_own_and_are_joined() -> None:
    def at_bars(line: str) -> list[str]:
        return line.replace("|", "| |").split("|")

    answering = Shouting()
    lines = ["one|two", "", "three|and a long four|five", "six"]
    found = texts(translate_lines(answering, [lines], at_bars, first_line=3))
    assert found == ["ONE TWO", "", "THREE AND A LONG FOUR FIVE", "SIX"]
    assert len({row.place for row in answering.rows}) == len(answering.rows) == 6
    by_text = {row.text: row.place for row in answering.rows}
    assert by_text["one"][0] == by_text["two"][0] == 3
    assert by_text["three"] < by_text["and a long four"] < by_text["five"] < by_text["six"]


def test_a_window_is_answered_before_the_next_one_is_asked_for() -> None:
    def one_window() -> Iterator[list[str]]:
        yield ["one", "two"]
        raise AssertionError("asked for more")

    answers = translate_lines(Shouting(), one_window())
    assert [next(answers).best.text, next(answers).best.text] == ["ONE", "TWO"]


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


ODD = [
    "",
    " ",
    " \t\xa0\u3000 ",
    "one",
    "  One.\t\u3000Two.  ",
    "Mr. Smith came at 3 p.m. to the U.S. embassy. He left.",
    "He paid $3.50, e.g. for tea... Really?! Yes.",
    "One.\xa0Two.\u202fThree.\u2003Four.",
    "A\u2028b. C\u2029d. E\x0bf.\x0cG\x85h.",
    "Tab.\tTab.\rReturn.",
    "שלום עולם. מה שלומך? טוב!",
    "مرحبا بالعالم. كيف حالك؟ بخير!",
    "これは文です。次の文です！三つ目？",
    "यह वाक्य है। दूसरा।",
    "😀. 👩‍👩‍👧! e\u0301. \u200bZero.\u200d",
    "\ufeffMark. \x00 Nul.",
    "\x1c\x1d. \x1e\x1f.",
    "«Oui.» «Non.» “Yes.” (No.) [Maybe.]",
    "http://a.b/c?d=e. 1. First 2. Second",
    "." * 50,
]

UNITS = [
    *"abAB.!?…。！？\"'()[]«»“”0123456789-ß \t\xa0\u3000\u2028",
    *"\u200b\u200d\u200f\x00\x0b\x0c\r\x85\ufeff",
    "Mr. ", "e.g. ", "etc. ", "שלום", "مرحبا؟ ", "😀", "e\u0301", "।", "...", " . ", "U.S. ",
]  # fmt: skip

LANGUAGES = ["en", "de", "fr", "ar", "ja", "hi", "en-US", "unheard-of", ""]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_of_a_line_are_the_line(language: str) -> None:
    split = by_sentences(language)
    for line in ODD:
        parts = split(line)
        assert "".join(parts) == line
        assert all(parts)
        # Texts do not have the space around them: that would be translated, and lost.
        assert all(part == part.strip() or not part.strip() for part in parts)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_of_a_drawn_line_are_the_line(language: str) -> None:
    split, draw = by_sentences(language), random.Random(1)
    for line in ("Vitamin A\xa0. Yes.", "A\u3000.", "A\x85."):
        assert "".join(split(line)) == line
    for _ in range(1000):
        line = "".join(draw.choices(UNITS, k=draw.randint(1, 40)))
        assert "".join(split(line)) == line


def test_sentences_are_cut_where_they_end_and_not_at_abbreviations() -> None:
    assert by_sentences("en")("Mr. Smith is here. He eats.") == [
        "Mr. Smith is here.", " ", "He eats.",
    ]  # fmt: skip
    assert by_sentences("de")("Das ist z. B. Dr. Braun. Er isst.\tGut!") == [
        "Das ist z. B. Dr. Braun.", " ", "Er isst.", "\t", "Gut!",
    ]  # fmt: skip
    text = "Am 3. Oktober kam er. Gut."
    assert by_sentences("de")(text) == ["Am 3. Oktober kam er.", " ", "Gut."]
    assert by_sentences("en")(text) == ["Am 3.", " ", "Oktober kam er.", " ", "Gut."]
    assert by_sentences("en")("one\ntwo") == ["one\ntwo"]
    assert by_sentences("ja")("猫です。犬です。") == ["猫です。", "犬です。"]
    assert by_sentences("unheard-of")("One. Two.") == ["One.", " ", "Two."]


def test_a_whole_line_is_its_own_part() -> None:
    assert whole(" One. Two. ") == [" One. Two. "]


# --- Together again -----------------------------------------------------------------------------


def answer(text: str, score: float, *log_probs: float, **more: object) -> Answer:
    return Answer((Hypothesis(text, score, log_probs),), **more)


def test_white_space_stays_between_the_answers() -> None:
    answers = iter([answer("EINS.", -1.0), answer("ZWEI.", -3.0), answer("left", 0.0)])
    joined = join(["  ", "One.", "\t\u3000", "Two.", " "], answers)
    assert joined.best.text == "  EINS.\t\u3000ZWEI. "
    assert next(answers).best.text == "left"  # one for each text, no more


def test_a_line_stays_a_line_whatever_white_space_is_in_it() -> None:
    joined = join(["One.", "\r\n", "Two."], iter([answer("EINS.", -1.0), answer("ZWEI.", -3.0)]))
    assert joined.best.text == "EINS.  ZWEI."


def test_the_score_is_the_mean_and_log_probs_follow_one_another() -> None:
    answers = [answer("A", -1.0, -0.1, -0.2), answer("B", -2.0, -0.3), answer("C", -6.0)]
    joined = join(["a", " ", "b", " ", "c"], iter(answers))
    assert joined.best == Hypothesis("A B C", pytest.approx(-3.0), (-0.1, -0.2, -0.3))
    assert joined.truncated is False


def test_warnings_are_those_of_all_sentences_each_once() -> None:
    answers = [
        answer("A", 0.0, warnings=("long", "copy")),
        answer("B", 0.0, truncated=True, warnings=("short", "long")),
    ]
    joined = join(["a", "b"], iter(answers))
    assert joined.warnings == ("long", "copy", "short")
    assert joined.truncated is True


def test_a_line_of_one_text_keeps_all_its_hypotheses() -> None:
    several = Answer((Hypothesis("A", -1.0), Hypothesis("B", -2.0)), True, ("copy",))
    assert join(["a"], iter([several])) is several
    assert join(["a", " "], iter([several])).hypotheses == (Hypothesis("A ", -1.0),)


@pytest.mark.parametrize("parts", [[], [" "], [" ", "\u3000"]])
def test_a_line_of_white_space_is_answered_by_nothing(parts: list[str]) -> None:
    assert join(parts, iter([])) == Answer()
