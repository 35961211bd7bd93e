import pytest

from app.engines.engine import Alternative, Pair, Translation
from app.text.sentences import join_translations, pair_sentences
from tfnmt.documents import sentences
from tfnmt.documents.sentences import split_lines, split_sentences

TEXTS = [
    "One. Two!",
    "  One.\n\n\tTwo? Three \r\n",
    "",
    " \n ",
    "no end",
    "a\u00a0b.\u2003C d.",
    "1. First\n2. Second",
    "Ünï. 😀 x. Ÿ",
    "\u2028a\u2028b",
    "x" * 3000,
    "\ufeffA. B.\u200b",
    "\x00 a. \x1c b\x85c",
    "مرحبا. كيف حالك؟",
    "今日は。元気です。",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["en", "de", "ja", "ar", "xx", "no-such-language"])
def test_sentences_cover_the_text_except_white_space(text: str, language: str) -> None:
    spans = split_sentences(text, language)
    rest = text
    for span in reversed(spans):
        assert span.of(text) == span.of(text).strip() != ""
        rest = rest[: span.start] + rest[span.end :]
    assert rest.strip() == ""


def test_splitting_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    segmented = []
    segment = sentences.sentencex.segment

    def record(language: str, line: str) -> list[str]:
        segmented.append(line)
        return segment(language, line)

    monkeypatch.setattr(sentences.sentencex, "segment", record)
    text = "It is. He was.\n" * 99
    assert len(split_sentences(text, "en", 5)) == 5
    assert len(pair_sentences(Pair(text, text), "en", "de", 5)) == 2 * 5
    assert len(segmented) == 3 + 2 * 5


def test_line_break_ends_a_sentence() -> None:
    text = "One. Two\nthree\n\n  four  "
    sentences = [span.of(text) for span in split_sentences(text, "en")]
    assert sentences == ["One.", "Two", "three", "four"]
    assert [span.of(text) for span in split_lines(text)] == ["One. Two", "three", "four"]


@pytest.mark.parametrize("text", TEXTS)
def test_joining_unchanged_sentences_restores_the_text(text: str) -> None:
    spans = split_sentences(text, "en")
    unchanged = [Translation(span.of(text), -1.0, False) for span in spans]
    assert join_translations(text, spans, unchanged).text == text


def test_join_keeps_white_space_between_sentences() -> None:
    text = "  It is.   He was.\r\n\tShe.\n"
    translations = [Translation(name, -1.0, False) for name in ("x", "y", "z")]
    joined = join_translations(text, split_sentences(text, "en"), translations)
    assert joined == Translation("  x   y\r\n\tz\n", -1.0, False)


def test_join_reports_truncation_of_any_sentence() -> None:
    text = "It is. He was."
    translations = [Translation("a", -1, False), Translation("b", -2, True)]
    joined = join_translations(text, split_sentences(text, "en"), translations)
    assert joined == Translation("a b", -1.5, True)


def test_join_alternatives_are_the_next_best_combinations() -> None:
    text = "It is. He was."
    first = Translation("a", -1.0, False, (Alternative("A", -4.0), Alternative("?", -9.0)))
    second = Translation("b", -1.0, False, (Alternative("B", -2.0), Alternative("!", -6.0)))
    joined = join_translations(text, split_sentences(text, "en"), [first, second])
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
def test_pairs_are_sentences_else_lines_else_the_text(
    translation: str, expected: list[str]
) -> None:
    text = "One. Two.\nEnd."
    spans = pair_sentences(Pair(text, translation), "en", "de")
    pairs = [f"{source.of(text)}|{target.of(translation)}" for source, target in spans]
    assert pairs == expected
