"""Each warning on both sides of its threshold."""

import numpy as np
import pytest

from tfnmt.decoding.warnings import Reading, find_warnings

EOS = "</s>"
SOURCE = "▁one ▁two ▁three ▁four ▁five ▁six ▁seven ▁eight ▁nine ▁ten"
TARGET = "▁un ▁deux ▁trois ▁quatre ▁cinq ▁six ▁sept ▁huit ▁neuf ▁dix"


def warnings_of(
    target: str = TARGET, source: str = SOURCE, attention: np.ndarray | None = None
) -> list[str]:
    """Of pieces with spaces between, eos left out; without attention given, all is touched."""
    rows = [*target.split(), EOS], [*source.split(), EOS]
    if attention is None:
        attention = np.ones([len(rows[0]), len(rows[1])])
    texts = ["".join(row[:-1]).replace("▁", " ").strip() for row in rows]
    reading = Reading(tuple(rows[1]), tuple(rows[0]), (-0.1,) * len(rows[0]), attention)
    return list(find_warnings(texts[1], texts[0], reading))


def test_a_good_translation_gets_none() -> None:
    assert warnings_of() == []


@pytest.mark.parametrize(
    "target",
    [
        "▁the ▁the ▁the ▁dog",
        "▁a ▁b ▁c ▁a ▁b ▁c ▁a ▁b ▁c",
        "▁long er er er ▁way",  # inside a word
        "▁apples , ▁apples , ▁apples .",  # over marks
        "▁ 我 们 我 们 我 们",  # without spaces
        " ".join([f"▁{letter}" for letter in "abcdefghij"] * 3),  # the longest phrase
        "▁good ▁begin ning ▁end ▁end ▁end",  # the last piece
    ],
)
def test_a_phrase_three_times_in_a_row_is_a_repetition(target: str) -> None:
    assert "repetition" in warnings_of(target)


@pytest.mark.parametrize(
    "target",
    [
        "▁the ▁the ▁dog",
        "▁a ▁b ▁c ▁a ▁b ▁c ▁a ▁b ▁d",
        "▁main ▁dans ▁la ▁main ▁dans ▁la ▁rue",
        "▁the ▁dog ▁the ▁cat ▁the ▁cow ▁the ▁pig ▁the ▁hen ▁the ▁rat",  # often, but not in a row
        "▁wait . . . ▁and ▁see . . .",
        "▁it ▁costs ▁1 0 0 0 0 0 ▁euros",
        " ".join([f"▁{letter}" for letter in "abcdefghijk"] * 3),  # longer than is looked for
    ],
)
def test_nothing_else_is_a_repetition(target: str) -> None:
    assert "repetition" not in warnings_of(target)


def test_a_repetition_of_the_source_may_be_repeated() -> None:
    assert warnings_of("▁sehr ▁sehr ▁sehr ▁gut", "▁very , ▁very , ▁very ▁good") == []
    assert warnings_of("▁sehr ▁sehr ▁sehr ▁gut", "▁very , ▁very ▁good") == ["repetition"]


def pieces(count: int, letter: str) -> str:
    return " ".join(f"▁{letter}{n}" for n in range(count))


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, ["short"]), (10, ["short"]), (11, []), (30, []), (64, []), (65, ["long"])],
)
def test_lengths_are_held_against_one_another(length: int, expected: list[str]) -> None:
    """Eos included: 30 pieces allow 30 / 2 - 4 to 30 * 2 + 4."""
    assert warnings_of(pieces(length - 1, "t"), pieces(29, "s")) == expected


def test_short_texts_are_never_too_short() -> None:
    assert warnings_of("▁Ja", pieces(8, "s")) == []


@pytest.mark.parametrize(
    ("target", "copied"),
    [
        ("▁Where ▁is ▁the ▁big ▁dog ▁now", True),
        ("▁where ▁is ▁the ▁big ▁hund", True),  # 4 of 5
        ("▁where ▁is ▁the ▁große ▁hund", False),  # 3 of 5
        ("▁where ▁is ▁the ▁big", True),
        ("▁is ▁the ▁big", False),  # too few to tell
        ("▁is ▁the ▁big , ▁2020 !", False),
        ("▁where ▁is ▁the ▁big ▁Anna ▁Berger", True),
        ("▁Is ▁The ▁Big ▁Dog ▁Now", False),  # may be names
        ("▁w here ▁is , ▁the ▁big ! ▁dog ?", True),  # pieces and marks are no words
    ],
)
def test_a_copy_has_most_words_from_the_source(target: str, copied: bool) -> None:
    source = "▁Where ▁is ▁the ▁Big ▁dog ▁now , ▁in ▁2020 ?"
    assert ("copy" in warnings_of(target, source)) is copied


def test_names_and_numbers_may_stay_as_they_are() -> None:
    names = "▁Anna ▁Berg er , ▁Jan ▁de ▁V ries , ▁Ali ▁H assan , ▁1 2 ▁3 4 ▁5 6 ▁7 8"
    assert warnings_of(names, names) == []


@pytest.mark.parametrize(
    ("untouched", "one", "all_together", "expected"),
    [
        (6, 0.149, 0.499, ["untouched"]),
        (5, 0.149, 0.499, []),  # half of ten is not much
        (10, 0.151, 0.499, []),
        (10, 0.149, 0.501, []),
    ],
)
def test_a_piece_is_touched_by_one_or_by_all_together(
    untouched: int, one: float, all_together: float, expected: list[str]
) -> None:
    attention = np.ones([11, 11])
    attention[0, :untouched] = one
    attention[1:, :untouched] = (all_together - one) / 10
    assert warnings_of(attention=attention) == expected


def test_marks_numbers_and_the_end_need_no_attention() -> None:
    attention = np.ones([11, 8])
    attention[:, 1:] = 0.0
    assert warnings_of(TARGET, "▁one ▁two , . ! ▁1 2", attention) == []
    assert warnings_of(TARGET, "▁one ▁two s , . ▁1 2", attention) == ["untouched"]


def test_nothing_at_all_gets_none() -> None:
    assert warnings_of("", "") == []
