"""Each quality warning on both sides of its threshold."""

import numpy as np
import pytest

from tfnmt.decoding.warnings import ForcedDecoding, find_warnings

EOS = "</s>"
SOURCE = "▁one ▁two ▁three ▁four ▁five ▁six ▁seven ▁eight ▁nine ▁ten"
TARGET = "▁un ▁deux ▁trois ▁quatre ▁cinq ▁six ▁sept ▁huit ▁neuf ▁dix"


def warnings_of(
    target: str = TARGET, source: str = SOURCE, attention: np.ndarray | None = None
) -> list[str]:
    """Return the warnings for tokens separated by spaces, without EOS.

    Without attention, each target token attends fully to each source token.
    """
    target_tokens, source_tokens = [*target.split(), EOS], [*source.split(), EOS]
    if attention is None:
        attention = np.ones([len(target_tokens), len(source_tokens)])
    decoded = ForcedDecoding(
        tuple(source_tokens), tuple(target_tokens), (-0.1,) * len(target_tokens), attention
    )
    return list(find_warnings(to_text(source_tokens), to_text(target_tokens), decoded))


def to_text(tokens: list[str]) -> str:
    return "".join(tokens[:-1]).replace("▁", " ").strip()


def test_good_translation_gets_no_warning() -> None:
    assert warnings_of() == []


def test_empty_pair_gets_no_warning() -> None:
    assert warnings_of("", "") == []


# --- Repetition -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "▁the ▁the ▁the ▁dog",
        "▁a ▁b ▁c ▁a ▁b ▁c ▁a ▁b ▁c",
        "▁long er er er ▁way",  # inside a word
        "▁apples , ▁apples , ▁apples .",  # across punctuation
        "▁ 我 们 我 们 我 们",  # without spaces
        " ".join([f"▁{letter}" for letter in "abcdefghij"] * 3),  # the longest phrase
        "▁good ▁begin ning ▁end ▁end ▁end",  # the last token
    ],
)
def test_phrase_three_times_in_a_row_is_a_repetition(target: str) -> None:
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
        " ".join([f"▁{letter}" for letter in "abcdefghijk"] * 3),  # longer than the longest phrase
    ],
)
def test_other_phrases_are_no_repetition(target: str) -> None:
    assert "repetition" not in warnings_of(target)


def test_repetition_of_the_source_may_be_translated() -> None:
    assert warnings_of("▁sehr ▁sehr ▁sehr ▁gut", "▁very , ▁very , ▁very ▁good") == []
    assert warnings_of("▁sehr ▁sehr ▁sehr ▁gut", "▁very , ▁very ▁good") == ["repetition"]


# --- Length ---------------------------------------------------------------------------------------


def tokens(count: int, letter: str) -> str:
    return " ".join(f"▁{letter}{n}" for n in range(count))


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, ["short"]), (10, ["short"]), (11, []), (30, []), (64, []), (65, ["long"])],
)
def test_translation_is_too_short_or_too_long_for_its_source(
    length: int, expected: list[str]
) -> None:
    """With EOS, 30 source tokens allow 30 / 2 - 4 to 30 * 2 + 4 target tokens."""
    assert warnings_of(tokens(length - 1, "t"), tokens(29, "s")) == expected


def test_translation_of_a_short_text_is_never_too_short() -> None:
    assert warnings_of("▁Ja", tokens(8, "s")) == []


# --- Copy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "copied"),
    [
        ("▁Where ▁is ▁the ▁big ▁dog ▁now", True),
        ("▁where ▁is ▁the ▁big ▁hund", True),  # 4 of 5
        ("▁where ▁is ▁the ▁große ▁hund", False),  # 3 of 5
        ("▁where ▁is ▁the ▁big", True),
        ("▁is ▁the ▁big", False),  # too few words
        ("▁is ▁the ▁big , ▁2020 !", False),
        ("▁where ▁is ▁the ▁big ▁Anna ▁Berger", True),
        ("▁Is ▁The ▁Big ▁Dog ▁Now", False),  # may be names
        ("▁w here ▁is , ▁the ▁big ! ▁dog ?", True),  # tokens and punctuation are no words
    ],
)
def test_copy_has_most_words_from_the_source(target: str, copied: bool) -> None:
    source = "▁Where ▁is ▁the ▁Big ▁dog ▁now , ▁in ▁2020 ?"
    assert ("copy" in warnings_of(target, source)) is copied


def test_names_and_numbers_may_be_copied() -> None:
    names = "▁Anna ▁Berg er , ▁Jan ▁de ▁V ries , ▁Ali ▁H assan , ▁1 2 ▁3 4 ▁5 6 ▁7 8"
    assert warnings_of(names, names) == []


# --- Undertranslated source -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "highest", "total", "expected"),
    [
        (6, 0.149, 0.499, ["undertranslated"]),
        (5, 0.149, 0.499, []),  # half of the ten source tokens is not enough
        (10, 0.151, 0.499, []),
        (10, 0.149, 0.501, []),
    ],
)
def test_token_is_undertranslated_if_highest_and_total_attention_are_low(
    count: int, highest: float, total: float, expected: list[str]
) -> None:
    attention = np.ones([11, 11])
    attention[0, :count] = highest
    attention[1:, :count] = (total - highest) / 10
    assert warnings_of(attention=attention) == expected


def test_punctuation_numbers_and_eos_need_no_attention() -> None:
    attention = np.ones([11, 8])
    attention[:, 1:] = 0.0
    assert warnings_of(TARGET, "▁one ▁two , . ! ▁1 2", attention) == []
    assert warnings_of(TARGET, "▁one ▁two s , . ▁1 2", attention) == ["undertranslated"]


def test_token_of_a_language_is_not_undertranslated() -> None:
    attention = np.array([[0.0, 0.5, 0.0, 0.5]] * 3)
    assert warnings_of("▁un ▁deux", "<2fr> ▁one ▁two", attention) == []
    assert warnings_of("▁un ▁deux", "▁three ▁one ▁two", attention) == ["undertranslated"]
