import pytest

from app.engines.engine import Alternative, Pair, Translation
from app.text.sentences import join, lines, pairs, sentences

TEXTS = [
    "One. Two!", "  One.\n\n\tTwo? Three \r\n", "", " \n ", "no end", "a\u00a0b.\u2003C d.",
    "1. First\n2. Second", "Ünï. 😀 x. Ÿ", "\u2028a\u2028b", "x" * 3000, "\ufeffA. B.\u200b",
    "\x00 a. \x1c b\x85c", "مرحبا. كيف حالك؟", "今日は。元気です。",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["en", "de", "ja", "ar", "xx", "no-such-language"])
def test_sentences_follow_one_another_and_nothing_but_space_lies_between(
    text: str, language: str
) -> None:
    spans = sentences(text, language)
    rest = text
    for span in reversed(spans):
        assert span.of(text) == span.of(text).strip() != ""
        rest = rest[: span.start] + rest[span.end :]
    assert rest.strip() == ""


def test_a_sentence_ends_where_its_line_ends() -> None:
    text = "One. Two\nthree\n\n  four  "
    assert [span.of(text) for span in sentences(text, "en")] == ["One.", "Two", "three", "four"]
    assert [span.of(text) for span in lines(text)] == ["One. Two", "three", "four"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_whose_sentences_stay_as_they_are_stays_as_it_is(text: str) -> None:
    spans = sentences(text, "en")
    same = [Translation(span.of(text), -1.0, False) for span in spans]
    assert join(text, spans, same).text == text


def test_white_space_between_sentences_is_kept() -> None:
    text = "  It is.   He was.\r\n\tShe.\n"
    done = [Translation(name, -1.0, False) for name in ("x", "y", "z")]
    joined = join(text, sentences(text, "en"), done)
    assert joined == Translation("  x   y\r\n\tz\n", -1.0, False)


def test_a_text_is_truncated_where_one_of_its_sentences_is() -> None:
    spans = sentences("It is. He was.", "en")
    assert join(
        "It is. He was.", spans, [Translation("a", -1, False), Translation("b", -2, True)]
    ) == (Translation("a b", -1.5, True))


def test_alternatives_are_the_next_best_ways_to_choose() -> None:
    one = Translation("a", -1.0, False, (Alternative("A", -4.0), Alternative("?", -9.0)))
    other = Translation("b", -1.0, False, (Alternative("B", -2.0), Alternative("!", -6.0)))
    joined = join("It is. He was.", sentences("It is. He was.", "en"), [one, other])
    assert (joined.text, joined.score) == ("a b", -1.0)
    assert joined.alternatives == (Alternative("a B", -1.5), Alternative("A b", -2.5))


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("Ein Satz. Noch einer.\nEnde.", ["One.|Ein Satz.", "Two.|Noch einer.", "End.|Ende."]),
        ("Ein Satz\nEnde.", ["One. Two.|Ein Satz", "End.|Ende."]),
        ("Ein Satz", ["One. Two.\nEnd.|Ein Satz"]),
        ("", []),
    ],
)
def test_sentences_are_paired_as_finely_as_can_be_told(
    translation: str, expected: list[str]
) -> None:
    text = "One. Two.\nEnd."
    found = pairs(Pair(text, translation), "en", "de")
    assert [f"{a.of(text)}|{b.of(translation)}" for a, b in found] == expected
