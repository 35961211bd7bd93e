"""Lines taken apart into sentences, and put together again."""

import random

import pytest

from tfnmt.decoding.answers import Answer, Hypothesis
from tfnmt.decoding.sentences import by_sentences, join, whole

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
