import time
from collections.abc import Sequence

import pytest

from tests.tfnmt.documents.translators import Forgetful, Reversed, UpperCase
from tfnmt.documents.glossary import Glossary
from tfnmt.documents.segments import Piece, Segment, Translator, text_segment
from tfnmt.documents.translation import (
    MAX_SENTENCE,
    Notices,
    Options,
    count_sentences,
    translate_segments,
)

BOLD, LINK = ("b",), ("a",)


def translate(
    pieces: Sequence[Piece], translator: Translator, glossary: Glossary | None = None
) -> tuple[Sequence[Piece], Notices]:
    segment = Segment(pieces)
    notices = translate_segments([segment], translator, Options("en", glossary))
    return segment.translation, notices


def test_marks_follow_their_words() -> None:
    pieces = [Piece("one "), Piece("two", BOLD), Piece(" three "), Piece("four five", LINK)]
    translation, _ = translate(pieces, Reversed())
    assert translation == [
        Piece("FIVE FOUR", LINK),
        Piece(" THREE "),
        Piece("TWO", BOLD),
        Piece(" ONE"),
    ]


def test_mark_whose_words_are_apart_is_used_twice() -> None:
    class Apart(Reversed):
        def translate_one(self, sentence: str) -> str:
            return "FOUR THREE TWO ONE"

        def source_of(self, row: int, length: int) -> int:
            return [1, 2, 0, 3, 4][row]

    translation, _ = translate([Piece("one ", BOLD), Piece("two three four")], Apart())
    assert [piece.marks for piece in translation] == [(), BOLD, ()]


def test_nested_marks_are_kept() -> None:
    pieces = [Piece("one", LINK), Piece(" two", (*LINK, *BOLD)), Piece(" three")]
    translation, _ = translate(pieces, UpperCase())
    assert translation == [
        Piece("ONE ", LINK),
        Piece("TWO", (*LINK, *BOLD)),
        Piece(" THREE"),
    ]


def test_mark_without_a_word_in_the_translation_is_not_lost() -> None:
    class Short(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return "ONE"

    translation, _ = translate([Piece("one "), Piece("two", BOLD), Piece(" three", LINK)], Short())
    assert {BOLD, LINK} <= {piece.marks for piece in translation}
    assert "".join(piece.text for piece in translation) == "ONE"


def test_mark_of_a_word_is_not_left_on_punctuation() -> None:
    class Short(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return "ONE TWO."

    translation, _ = translate([Piece("one two "), Piece("three.", BOLD)], Short())
    bold = [piece.text.strip() for piece in translation if piece.marks == BOLD]
    assert bold in (["ONE", "."], ["TWO."])
    translation, _ = translate([Piece("one two"), Piece(".", BOLD)], UpperCase())
    assert translation == [Piece("ONE TWO"), Piece(".", BOLD)]


def test_empty_translation_keeps_marks_and_objects() -> None:
    class Empty(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return ""

    assert translate([Piece("one", BOLD)], Empty())[0] == [Piece("", BOLD)]
    translation, _ = translate([Piece("one", BOLD), Piece("", (), "image")], Empty())
    assert translation == [Piece("", BOLD), Piece("", (), "image")]


def test_objects_stay_next_to_their_words_and_in_order() -> None:
    pieces = [
        Piece("", (), "start"),
        Piece("one "),
        Piece("", (), "image"),
        Piece(" two"),
        Piece("", (), "note"),
        Piece(" three."),
        Piece("", (), "end"),
    ]
    translation, _ = translate(pieces, UpperCase())
    shown = "".join(piece.text or f"[{piece.atom}]" for piece in translation)
    assert shown == "[start]ONE [image] TWO[note] THREE.[end]"


def test_line_break_divides_sentences_and_is_kept() -> None:
    pieces = [Piece("one two"), Piece("\n", BOLD, "br"), Piece("three four")]
    translation, _ = translate(pieces, Reversed())
    assert translation == [Piece("TWO ONE"), Piece("\n", BOLD, "br"), Piece("FOUR THREE")]


def test_white_space_and_texts_without_letters_are_unchanged() -> None:
    translator = UpperCase()
    for text in ["", "  ", " \n 12.5 \t", "-- 3 --", "\u00a0"]:
        segment = text_segment(text)
        translate_segments([segment], translator, Options())
        assert segment.translated_text == text
    assert not translator.texts


@pytest.mark.parametrize(
    "part",
    [
        "https://example.org/a?b=c.d",
        "www.example.org",
        "anna.meier@example.com",
        "{name}",
        "{{ user }}",
        "${HOME}",
        "%s",
        "%(count)d",
        "%1$s",
        '<x id="1"/>',
        "`print(x)`",
        "run_all()",
        "max_length",
        "/usr/local/bin",
        "12.5 km",
        "3,000 kg",
        "50%",
        "$5.20",
        "20 °C",
    ],
)
def test_protected_text_comes_back_unchanged(part: str) -> None:
    text = f"see {part} now. And {part}, too."
    for translator in (UpperCase(), Reversed()):
        translation, notices = translate([Piece(text)], translator)
        result = "".join(piece.text for piece in translation)
        assert result.count(part) == 2
        assert not notices.count
        assert not any(part in sentence for sentence in translator.texts)


@pytest.mark.parametrize("text", ["Of 100% wool", "a 5 % discount", "50 percent", "A/B and c.d"])
def test_ordinary_text_is_not_taken_for_a_placeholder(text: str) -> None:
    translation, _ = translate([Piece(text)], UpperCase())
    assert text.split()[-1].upper() in "".join(piece.text for piece in translation)


def test_lost_protected_text_is_translated_around_with_a_notice() -> None:
    pieces = [Piece("see "), Piece("{one}", BOLD), Piece(" and {two} now")]
    translation, notices = translate(pieces, Forgetful())
    assert "".join(piece.text for piece in translation) == "SEE {one} AND {two} NOW"
    assert Piece("{one}", BOLD) in translation
    assert notices.count == 2
    assert "{one}" in notices.texts[0]


def test_object_with_text_is_a_word_of_the_sentence() -> None:
    pieces = [Piece("see "), Piece("the code", (), "CODE"), Piece(" now")]
    translation, _ = translate(pieces, Reversed())
    assert translation == [Piece("NOW "), Piece("the code", (), "CODE"), Piece(" SEE")]


def test_glossary_replaces_the_aligned_words() -> None:
    glossary = Glossary({"red house": "Rotes Haus", "dog": "DOG"})
    translation, notices = translate([Piece("a red house, a dog")], UpperCase(), glossary)
    assert translation == [Piece("A Rotes Haus, A DOG")]
    assert not notices.count


def test_glossary_term_without_neighboring_words_is_reported() -> None:
    class Apart(UpperCase):
        def source_of(self, row: int, length: int) -> int:
            return [0, 1, 0][row] if row < 3 else row

    translation, notices = translate(
        [Piece("one two three")], Apart(), Glossary({"one": "EINS", "Two": "ZWEI"})
    )
    assert translation == [Piece("ONE TWO THREE")]
    assert notices.texts == ["glossary: one: not translated as EINS in: one two three"]


def test_stand_in_is_no_term_of_the_glossary() -> None:
    pieces = [Piece("see {name} and the house")]
    translation, notices = translate(pieces, UpperCase(), Glossary({"house": "123"}))
    assert translation == [Piece("SEE {name} AND THE 123")]
    assert not notices.count
    translation, notices = translate(pieces, UpperCase(), Glossary({"123 and": "x"}))
    assert translation == [Piece("SEE {name} AND THE HOUSE")]
    assert not notices.count


def test_long_sentence_is_divided_at_spaces() -> None:
    translator = UpperCase()
    text = "word " * 500
    translation, _ = translate([Piece(text)], translator)
    assert "".join(piece.text for piece in translation) == text.upper()
    assert max(map(len, translator.texts)) <= MAX_SENTENCE


def test_translation_cannot_add_lines_or_control_characters() -> None:
    class Noisy(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return "A\nB\x00C\u2028D"

    translation, _ = translate([Piece("one")], Noisy())
    assert translation == [Piece("A B C D")]


def test_progress_counts_sentences_and_may_cancel() -> None:
    segments = [text_segment(f"sentence {number}") for number in range(100)]
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        translate_segments(segments, UpperCase(), Options(), progress)
    assert calls == [(0, 100), (64, 100)]


def test_time_to_split_grows_linearly_with_marks_and_protected_text() -> None:
    sentences = [(Piece("Now see "), Piece("{a}", BOLD), Piece(" there. ")) for _ in range(4000)]
    pieces = [piece for sentence in sentences for piece in sentence]
    started = time.process_time()
    assert count_sentences([Segment(pieces)], Options()) == 4000
    assert time.process_time() - started < 5
