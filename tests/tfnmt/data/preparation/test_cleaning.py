"""Every rule alone: what it removes and what it must leave; then their order."""

import inspect
from typing import Any

import pytest

from tfnmt.config import CleaningConfig
from tfnmt.data.corpora.text_files import Pair, decode_lines
from tfnmt.data.preparation import cleaning
from tfnmt.data.preparation.cleaning import Rule, broken_rule, make_rules

NO_RULES: dict[str, Any] = {"empty": False, "leakage": False}

GOOD = ("A dog.", "Ein Hund.")


def rules(
    languages: tuple[str, str] = ("en", "de"), held_out: tuple[Pair, ...] = (), **keys: Any
) -> list[Rule]:
    return make_rules(CleaningConfig(**NO_RULES | keys), languages, held_out)


def removed(pair: Pair, languages: tuple[str, str] = ("en", "de"), **keys: Any) -> bool:
    """Whether the one rule that is switched on removes a pair."""
    (rule,) = rules(languages, **keys)
    reason = broken_rule([rule], pair)
    assert reason in (None, rule.name)
    return reason is not None


def both_ways(pair: Pair, **keys: Any) -> bool:
    """The same of a pair and of its reverse: these rules know no direction."""
    assert removed(pair, **keys) == removed(pair[::-1], **keys)
    return removed(pair, **keys)


def test_without_rules_everything_is_kept() -> None:
    assert rules() == []
    for pair in (GOOD, ("", ""), ("a\0", "\udcff"), ("x", "x" * 10_000)):
        assert broken_rule([], pair) is None


def test_each_key_switches_on_the_rule_of_its_name() -> None:
    values: dict[str, Any] = dict.fromkeys(CleaningConfig.model_fields, True)
    values |= {"max_characters": 3, "max_ratio": 2}
    for name, value in values.items():
        assert [rule.name for rule in rules(**{name: value})] == [name]


def test_by_default_only_what_is_no_text_for_training_is_left_out() -> None:
    names = [rule.name for rule in make_rules(CleaningConfig(), ("en", "de"), [])]
    assert names == ["empty", "leakage"]


@pytest.mark.parametrize("nothing", ["", " ", "\t \r", "\u00a0\u3000\u2028"])
def test_empty(nothing: str) -> None:
    assert both_ways((nothing, "text"), empty=True)
    assert both_ways((nothing, nothing), empty=True)


@pytest.mark.parametrize("text", [".", "0", " a ", "\u200b", "\u200c"])
def test_what_is_not_empty(text: str) -> None:
    assert not both_ways((text, "text"), empty=True)


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
def test_broken(text: str) -> None:
    assert both_ways((text, "text"), broken=True)


@pytest.mark.parametrize(
    "text",
    ["a\tb", " ", "~", "\u00a0", "\u00ad", "a\u200bb", "\u2028", "\ufeffa", "\ue000",
     "\U0001f469\u200d\U0001f467", "Cafe\u0301", "\ufffc", "\U0010fffd"],
    ids=ascii,
)  # fmt: skip
def test_what_is_not_broken(text: str) -> None:
    assert not both_ways((text, "text"), broken=True)


@pytest.mark.parametrize(
    "line", [b"caf\xe9\n", b"\xff\n", b"half \xf0\x9f\x98\n", b"\xed\xa0\xbd\n"]
)
def test_bytes_that_are_not_utf_8_are_broken(line: bytes) -> None:
    (text,) = decode_lines([line], "file", errors="surrogateescape")
    assert both_ways((text, "text"), broken=True)


def test_bytes_that_are_utf_8_are_not_broken() -> None:
    line = "Où ça? 你好 \U0001f600"
    (text,) = decode_lines([f"{line}\n".encode()], "file", errors="surrogateescape")
    assert text == line
    assert not both_ways((text, "text"), broken=True)


def test_max_characters() -> None:
    assert not both_ways(("x" * 5, "y"), max_characters=5)
    assert both_ways(("x" * 6, "y"), max_characters=5)
    assert not both_ways(("", ""), max_characters=1)
    assert not both_ways(("\U0001f600" * 5, "äöüßé"), max_characters=5)  # characters, not bytes


def test_max_ratio() -> None:
    assert not both_ways(("x" * 6, "y" * 4), max_ratio=1.5)
    assert both_ways(("x" * 7, "y" * 4), max_ratio=1.5)
    assert both_ways(("", "y"), max_ratio=100)
    assert not both_ways(("", ""), max_ratio=1)
    assert not both_ways(("x" * 9, "ü" * 9), max_ratio=1)


def test_identical() -> None:
    assert both_ways(("OK", "OK"), identical=True)
    assert both_ways((" OK", "OK\t"), identical=True)
    assert not both_ways(("OK", "Ok"), identical=True)
    assert not both_ways(("OK", "OK."), identical=True)


def test_duplicates_leave_the_first() -> None:
    (rule,) = rules(duplicates=True)
    pairs = [GOOD, ("A dog.", "Ein Köter."), ("The dog.", "Ein Hund."), GOOD, GOOD[::-1], GOOD,
             ("A dog.Ein", " Hund."), ("A dog. ", "Ein Hund.")]  # fmt: skip
    assert [rule.breaks(*pair) for pair in pairs] == [False, False, False, True, False, True,
                                                      False, False]  # fmt: skip


def test_each_pass_remembers_for_itself() -> None:
    for _ in range(2):
        assert not removed(GOOD, duplicates=True)


def test_leakage() -> None:
    (rule,) = rules(held_out=(GOOD, ("a", "b")), leakage=True)
    assert rule.breaks(*GOOD)
    assert rule.breaks("a", "b")
    for pair in (("a", "Ein Hund."), ("A dog.", "b"), GOOD[::-1], ("A dog. ", "Ein Hund.")):
        assert not rule.breaks(*pair)


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
def test_the_language_s_own_script_is_kept_and_another_removed(language: str) -> None:
    other = TEXT["ko"] if language in ("de", "tr", "vi") else "This is English."
    for languages, turn in (((language, "en"), 1), (("en", language), -1)):
        own, foreign = (TEXT[language], "English"), (other, "English")
        assert not removed(own[::turn], languages, scripts=True)
        assert removed(foreign[::turn], languages, scripts=True)


def test_every_script_is_one_that_is_known() -> None:
    for names in cleaning.SCRIPTS.values():
        for language in names.split():
            assert not removed((".", "."), (language, "en"), scripts=True)
    named = [language for names in cleaning.SCRIPTS.values() for language in names.split()]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("language", ["sr", "digits", "xx", "tlh"])
@pytest.mark.parametrize("text", [*TEXT.values(), "Zdravo, Здраво"])
def test_a_language_without_a_known_script_passes(language: str, text: str) -> None:
    assert not removed((text, "English"), (language, "en"), scripts=True)
    assert not removed(("English", text), ("en", language), scripts=True)


@pytest.mark.parametrize("language", ["zh_Hant", "ZH", "zh_TW"])
def test_what_follows_the_language_does_not_matter(language: str) -> None:
    assert not removed(("我們", "we"), (language, "en"), scripts=True)
    assert removed(("we", "we"), (language, "en"), scripts=True)


@pytest.mark.parametrize("language", ["ja", "ja_JP", "JA"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("漢字", True), ("ひらがな", True), ("カタカナ", True), ("ｶﾀｶﾅ", True), ("人々", True),
        ("コーヒー", True), ("えーー！", True), ("第3回 CD", True), ("Hello world", False),
        ("안녕하세요", False), ("Это не то", False),
    ],
)  # fmt: skip
def test_japanese_has_three_scripts(language: str, text: str, kept: bool) -> None:
    assert removed((text, "English"), (language, "en"), scripts=True) is not kept


def test_a_sign_of_no_script_is_no_letter_of_another() -> None:
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
def test_mixed_text_goes_by_the_most_of_its_letters(text: str, kept: bool) -> None:
    assert removed((text, "peace"), ("ru", "en"), scripts=True) is not kept
    assert removed(("peace", text), ("en", "ru"), scripts=True) is not kept


# --- Together -------------------------------------------------------------------------------------


def all_rules() -> list[Rule]:
    return rules(
        held_out=(("held", "out"),), empty=True, broken=True, max_characters=20, max_ratio=3,
        identical=True, scripts=True, duplicates=True, leakage=True,
    )  # fmt: skip


def test_the_rules_are_in_the_order_of_the_configuration() -> None:
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
def test_the_first_rule_that_is_broken_is_the_reason(pair: Pair, reason: str | None) -> None:
    assert broken_rule(all_rules(), pair) == reason


def test_a_duplicate_of_what_was_held_out_is_a_duplicate() -> None:
    both = all_rules()
    reasons = [broken_rule(both, ("held", "out")) for _ in range(2)]
    assert reasons == ["leakage", "duplicates"]


def test_only_what_the_rules_before_it_left_is_a_duplicate() -> None:
    both = rules(max_characters=3, duplicates=True)
    assert [broken_rule(both, ("long", "text")) for _ in range(2)] == ["max_characters"] * 2


def test_no_rule_has_text_to_give_back() -> None:
    """A rule answers yes or no, so none can alter text."""
    for rule in all_rules():
        assert list(inspect.signature(rule.breaks).parameters) == ["source", "target"]
        assert rule.breaks(" a  b\u00a0", " c\u200c ") in (True, False)
    assert isinstance(broken_rule(all_rules(), ("", "")), str)
