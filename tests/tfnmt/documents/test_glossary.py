import pytest

from tfnmt.documents.glossary import contains_words, parse_glossary
from tfnmt.errors import UserError


def test_glossary_finds_whole_terms_and_prefers_longer_ones() -> None:
    glossary = parse_glossary(b"# terms\nhouse\tHaus\nhouse boat\tHausboot\nUS\tUSA\n")
    found = [(match.term, match.translation) for match in glossary.find("House boat us US houses")]
    assert found == [("House boat", "Hausboot"), ("US", "USA")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"one\n", "line 1: not two terms"),
        (b"one\ttwo\tthree\n", "line 1: not two terms"),
        (b"one\t\n", "line 1: not two terms"),
        (b"one\ta\none\tb\n", "line 2: one: has the translations a and b"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * 300 + b"\ty", "longer than"),
    ],
)
def test_invalid_glossary_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        parse_glossary(content)


def test_exact_term_is_preferred_to_one_in_lower_case() -> None:
    glossary = parse_glossary(b"polish\tpolieren\nPolish\tpolnisch\n")
    found = [match.translation for match in glossary.find("polish Polish POLISH")]
    assert found == ["polieren", "polnisch", "polieren"]


def test_terms_with_the_same_first_word_are_not_compared_one_by_one() -> None:
    terms = "".join(f"one {number}\tEINS\n" for number in range(10_000))
    glossary = parse_glossary(terms.encode())
    assert len(glossary.find("one two " * 20_000 + "one 9999")) == 1


def test_many_problems_are_not_all_shown() -> None:
    with pytest.raises(UserError) as caught:
        parse_glossary(b"one\n" * 100)
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("text", "found"), [("das IT-Team", True), ("it", True), ("mit", False), ("its", False)]
)
def test_contains_words_compares_whole_words(text: str, found: bool) -> None:
    assert contains_words(text, "IT") == found
