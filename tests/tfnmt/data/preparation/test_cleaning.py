"""Each cleaning rule alone: the pairs that it removes and keeps. Then the order of the rules."""

import inspect
from typing import Any

import pytest

from tfnmt.config import CleaningConfig
from tfnmt.data.corpora.text_files import Pair, decode_lines
from tfnmt.data.preparation import cleaning
from tfnmt.data.preparation.cleaning import Rule, make_rules, violated_rule

NO_RULES: dict[str, Any] = {"empty": False, "leakage": False}

GOOD = ("A dog.", "Ein Hund.")


def rules(
    languages: tuple[str, str] = ("en", "de"), held_out: tuple[Pair, ...] = (), **keys: Any
) -> list[Rule]:
    return make_rules(CleaningConfig(**NO_RULES | keys), languages, held_out)


def removed(pair: Pair, languages: tuple[str, str] = ("en", "de"), **keys: Any) -> bool:
    """Return whether the only enabled rule removes a pair."""
    (rule,) = rules(languages, **keys)
    reason = violated_rule([rule], pair)
    assert reason in (None, rule.name)
    return reason is not None


def removed_in_both_directions(pair: Pair, **keys: Any) -> bool:
    """Return whether the rule removes a pair. These rules treat both directions alike."""
    assert removed(pair, **keys) == removed(pair[::-1], **keys)
    return removed(pair, **keys)


def test_no_rules_keep_every_pair() -> None:
    assert rules() == []
    for pair in (GOOD, ("", ""), ("a\0", "\udcff"), ("x", "x" * 10_000)):
        assert violated_rule([], pair) is None


def test_each_key_enables_the_rule_with_its_name() -> None:
    values: dict[str, Any] = dict.fromkeys(CleaningConfig.model_fields, True)
    values |= {"max_characters": 3, "max_ratio": 2}
    for name, value in values.items():
        assert [rule.name for rule in rules(**{name: value})] == [name]


def test_default_rules_are_empty_and_leakage() -> None:
    names = [rule.name for rule in make_rules(CleaningConfig(), ("en", "de"), [])]
    assert names == ["empty", "leakage"]


@pytest.mark.parametrize("nothing", ["", " ", "\t \r", "\u00a0\u3000\u2028"])
def test_empty_rule_removes_sides_of_white_space(nothing: str) -> None:
    assert removed_in_both_directions((nothing, "text"), empty=True)
    assert removed_in_both_directions((nothing, nothing), empty=True)


@pytest.mark.parametrize("text", [".", "0", " a ", "\u200b", "\u200c"])
def test_empty_rule_keeps_visible_and_zero_width_characters(text: str) -> None:
    assert not removed_in_both_directions((text, "text"), empty=True)


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "\x1b[0m",
        "a\nb",
        "a\rb",
        "\x7f",
        "caf\x85",
        "\x9f",
        "caf\ufffd",
        "a\udcff",
        "\ud83d",
    ],
    ids=ascii,
)
def test_broken_rule_removes_control_and_undecodable_characters(text: str) -> None:
    assert removed_in_both_directions((text, "text"), broken=True)


@pytest.mark.parametrize(
    "text",
    [
        "a\tb",
        " ",
        "~",
        "\u00a0",
        "\u00ad",
        "a\u200bb",
        "\u2028",
        "\ufeffa",
        "\ue000",
        "\U0001f469\u200d\U0001f467",
        "Cafe\u0301",
        "\ufffc",
        "\U0010fffd",
    ],
    ids=ascii,
)
def test_broken_rule_keeps_unusual_valid_characters(text: str) -> None:
    assert not removed_in_both_directions((text, "text"), broken=True)


@pytest.mark.parametrize(
    "line", [b"caf\xe9\n", b"\xff\n", b"half \xf0\x9f\x98\n", b"\xed\xa0\xbd\n"]
)
def test_broken_rule_removes_bytes_that_are_not_utf_8(line: bytes) -> None:
    (text,) = decode_lines([line], "file", errors="surrogateescape")
    assert removed_in_both_directions((text, "text"), broken=True)


def test_broken_rule_keeps_valid_utf_8() -> None:
    line = "Où ça? 你好 \U0001f600"
    (text,) = decode_lines([f"{line}\n".encode()], "file", errors="surrogateescape")
    assert text == line
    assert not removed_in_both_directions((text, "text"), broken=True)


def test_max_characters_rule_counts_characters_of_the_longer_side() -> None:
    assert not removed_in_both_directions(("x" * 5, "y"), max_characters=5)
    assert removed_in_both_directions(("x" * 6, "y"), max_characters=5)
    assert not removed_in_both_directions(("", ""), max_characters=1)
    assert not removed_in_both_directions(
        ("\U0001f600" * 5, "äöüßé"), max_characters=5
    )  # characters, not bytes


def test_max_ratio_rule_compares_the_lengths_of_the_sides() -> None:
    assert not removed_in_both_directions(("x" * 6, "y" * 4), max_ratio=1.5)
    assert removed_in_both_directions(("x" * 7, "y" * 4), max_ratio=1.5)
    assert removed_in_both_directions(("", "y"), max_ratio=100)
    assert not removed_in_both_directions(("", ""), max_ratio=1)
    assert not removed_in_both_directions(("x" * 9, "ü" * 9), max_ratio=1)


def test_identical_rule_ignores_surrounding_white_space_only() -> None:
    assert removed_in_both_directions(("OK", "OK"), identical=True)
    assert removed_in_both_directions((" OK", "OK\t"), identical=True)
    assert not removed_in_both_directions(("OK", "Ok"), identical=True)
    assert not removed_in_both_directions(("OK", "OK."), identical=True)


def test_duplicates_rule_keeps_the_first_pair() -> None:
    (rule,) = rules(duplicates=True)
    pairs_and_results = [
        (GOOD, False),
        (("A dog.", "Ein Köter."), False),
        (("The dog.", "Ein Hund."), False),
        (GOOD, True),
        (GOOD[::-1], False),
        (GOOD, True),
        (("A dog.Ein", " Hund."), False),
        (("A dog. ", "Ein Hund."), False),
    ]
    for pair, result in pairs_and_results:
        assert rule.violates(*pair) is result


def test_duplicates_rule_remembers_nothing_from_earlier_rules() -> None:
    for _ in range(2):
        assert not removed(GOOD, duplicates=True)


def test_leakage_rule_removes_exactly_the_held_out_pairs() -> None:
    (rule,) = rules(held_out=(GOOD, ("a", "b")), leakage=True)
    assert rule.violates(*GOOD)
    assert rule.violates("a", "b")
    for pair in (("a", "Ein Hund."), ("A dog.", "b"), GOOD[::-1], ("A dog. ", "Ein Hund.")):
        assert not rule.violates(*pair)


# --- Scripts --------------------------------------------------------------------------------------

TEXT = {
    "am": "ሰላም ነው።",
    "ar": "مرحبا بالعالم",
    "bg": "Здравей, свят",
    "bn": "ওহে বিশ্ব",
    "de": "Grüße, Öl und Weiß",
    "el": "Γειά σου Κόσμε",
    "fa": "سلام می‌خواهم",
    "gu": "હેલો વર્લ્ડ",
    "he": "שלום עולם",
    "hi": "नमस्ते दुनिया",
    "hy": "Բարեւ աշխարհ",
    "ja": "東京タワーへようこそ",
    "ka": "გამარჯობა",
    "km": "សួស្តី​ពិភពលោក",
    "kn": "ಹಲೋ ವರ್ಲ್ಡ್",
    "ko": "안녕 세상",
    "lo": "ສະບາຍດີ",
    "ml": "ഹലോ വേൾഡ്",
    "my": "မင်္ဂလာပါ",
    "pa": "ਸਤ ਸ੍ਰੀ ਅਕਾਲ",
    "ru": "Привет, ёж",
    "si": "ආයුබෝවන්",
    "ta": "வணக்கம்",
    "te": "హలో",
    "th": "สวัสดีชาวโลก",
    "tr": "Iğdır'da şöyle",
    "ur": "یہ ایک آزمائش ہے",
    "vi": "Tiếng Việt thế nào",
    "zh": "我们今天去公园。",
}


@pytest.mark.parametrize("language", TEXT)
def test_scripts_rule_keeps_the_script_of_the_language_and_removes_others(language: str) -> None:
    other = TEXT["ko"] if language in ("de", "tr", "vi") else "This is English."
    for languages, step in (((language, "en"), 1), (("en", language), -1)):
        right, wrong = (TEXT[language], "English"), (other, "English")
        assert not removed(right[::step], languages, scripts=True)
        assert removed(wrong[::step], languages, scripts=True)


def test_scripts_are_known_to_regex_and_languages_are_listed_once() -> None:
    for names in cleaning.SCRIPTS.values():
        for language in names.split():
            assert not removed((".", "."), (language, "en"), scripts=True)
    named = [language for names in cleaning.SCRIPTS.values() for language in names.split()]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("language", ["sr", "digits", "xx", "tlh"])
@pytest.mark.parametrize("text", [*TEXT.values(), "Zdravo, Здраво"])
def test_scripts_rule_keeps_languages_without_a_known_script(language: str, text: str) -> None:
    assert not removed((text, "English"), (language, "en"), scripts=True)
    assert not removed(("English", text), ("en", language), scripts=True)


@pytest.mark.parametrize("language", ["zh_Hant", "ZH", "zh_TW"])
def test_scripts_rule_ignores_case_and_suffix_of_the_language(language: str) -> None:
    assert not removed(("我們", "we"), (language, "en"), scripts=True)
    assert removed(("we", "we"), (language, "en"), scripts=True)


@pytest.mark.parametrize("language", ["ja", "ja_JP", "JA"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("漢字", True),
        ("ひらがな", True),
        ("カタカナ", True),
        ("ｶﾀｶﾅ", True),
        ("人々", True),
        ("コーヒー", True),
        ("えーー！", True),
        ("第3回 CD", True),
        ("Hello world", False),
        ("안녕하세요", False),
        ("Это не то", False),
    ],
)
def test_scripts_rule_keeps_three_scripts_for_japanese(
    language: str, text: str, kept: bool
) -> None:
    assert removed((text, "English"), (language, "en"), scripts=True) is not kept


def test_scripts_rule_ignores_characters_without_a_script() -> None:
    assert not removed(("مـــحـــمـــد", "Muhammad"), ("ar", "en"), scripts=True)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("мир abc", True),  # half is enough
        ("мир abcd", False),
        ("миру abc", True),
        ("ми… 12345 !!! \U0001f600 a", True),
        ("abcd 12345 мир", False),
        ("2014", True),
        ("3,50 € (!)", True),
        ("", True),
    ],
)
def test_scripts_rule_requires_half_of_the_letters(text: str, kept: bool) -> None:
    assert removed((text, "peace"), ("ru", "en"), scripts=True) is not kept
    assert removed(("peace", text), ("en", "ru"), scripts=True) is not kept


# --- Together -------------------------------------------------------------------------------------


def all_rules() -> list[Rule]:
    return rules(
        held_out=(("held", "out"),),
        empty=True,
        broken=True,
        max_characters=20,
        max_ratio=3,
        identical=True,
        scripts=True,
        duplicates=True,
        leakage=True,
    )


def test_rules_have_the_order_of_the_configuration() -> None:
    assert [rule.name for rule in all_rules()] == list(CleaningConfig.model_fields)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "\0" + "я" * 30), "empty"),
        (("\0" + "я" * 30, "\0"), "broken"),
        (("я" * 30, "да"), "max_characters"),
        (("я" * 20, "да"), "max_ratio"),
        (("да", "да"), "identical"),
        (("нет", "да"), "scripts"),
        (("held", "out"), "leakage"),
        (GOOD, None),
    ],
)
def test_violated_rule_returns_the_first_violated_rule(pair: Pair, reason: str | None) -> None:
    assert violated_rule(all_rules(), pair) == reason


def test_repeated_held_out_pair_is_a_duplicate() -> None:
    enabled = all_rules()
    reasons = [violated_rule(enabled, ("held", "out")) for _ in range(2)]
    assert reasons == ["leakage", "duplicates"]


def test_duplicates_rule_ignores_pairs_that_earlier_rules_removed() -> None:
    enabled = rules(max_characters=3, duplicates=True)
    assert [violated_rule(enabled, ("long", "text")) for _ in range(2)] == ["max_characters"] * 2


def test_rules_cannot_change_text() -> None:
    """A rule returns a boolean, so it cannot change text."""
    for rule in all_rules():
        assert list(inspect.signature(rule.violates).parameters) == ["source", "target"]
        assert rule.violates(" a  b\u00a0", " c\u200c ") in (True, False)
    assert isinstance(violated_rule(all_rules(), ("", "")), str)
