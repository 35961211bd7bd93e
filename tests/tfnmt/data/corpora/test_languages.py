import pytest

from tfnmt.data.corpora.languages import contradicts, is_code, is_header, matches


@pytest.mark.parametrize(
    "text", ["en", "EN", "deu", "ger", "pt-BR", "pt_br", "zh_Hans", "es-419", "sr-Cyrl-RS", "iw"]
)
def test_codes_of_languages_with_two_letters_are_codes(text: str) -> None:
    assert is_code(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "txt", "src", "tgt", "tok", "bpe", "ref", "raw", "dev", "val", "out", "part1", "1"),
        *("l1", "xx", "qq", "clean", "en-tok", "en1", "digits", "reversed", "gz", "de-en-fr"),
    ],
)
def test_usual_suffixes_are_no_codes(text: str) -> None:
    assert not is_code(text)


@pytest.mark.parametrize(
    ("language", "wanted", "other"),
    [
        ("en", "en", "de"),
        ("EN", "en", "de"),
        ("en-GB", "en", "de"),
        ("en", "en_US", "de"),
        ("eng", "en", "de"),
        ("ger", "de", "en"),
        ("no", "nb", "en"),
        ("pt-BR", "pt_BR", "pt_PT"),
        ("digits", "digits", "reversed"),
        ("src", "src", "tgt"),
    ],
)
def test_language_matches(language: str, wanted: str, other: str) -> None:
    assert matches(language, wanted, other)
    assert not contradicts(language, wanted, other)


@pytest.mark.parametrize(
    ("language", "wanted", "other"),
    [
        ("fr", "en", "de"),
        ("pt-PT", "pt_BR", "pt_PT"),
        ("pt", "pt_BR", "pt_PT"),
        ("zh-Hant", "zh_Hans", "zh_Hant"),
    ],
)
def test_different_language_contradicts(language: str, wanted: str, other: str) -> None:
    assert not matches(language, wanted, other)
    assert contradicts(language, wanted, other)


@pytest.mark.parametrize(
    ("language", "wanted"), [("txt", "en"), ("src", "de"), ("en", "digits"), ("ceb", "en")]
)
def test_name_that_is_no_code_neither_matches_nor_contradicts(language: str, wanted: str) -> None:
    assert not matches(language, wanted, "fr")
    assert not contradicts(language, wanted, "fr")


@pytest.mark.parametrize(
    "cells",
    [
        ("en", "de"),
        ("de", "en"),
        ("EN-gb", " de_DE "),
        ("en", "fr"),
        ("English", "German"),
        ("ENGLISH (UK)", "German (Austria)"),
        ("Deutsch", "Englisch"),
        ('"English"', '"French"'),
        ("source", "Target"),
        ("id", "score", "English", "German"),
    ],
)
def test_row_that_names_the_languages_is_a_header(cells: tuple[str, ...]) -> None:
    assert is_header(cells, "en", "de")


@pytest.mark.parametrize(
    "cells",
    [
        ("English", "Englisch"),
        ("German", "Deutsch"),
        ("in", "in"),
        ("so", "so"),
        ("fr", "es"),
        ("en", ""),
        ("", ""),
        ("English is a language.", "German"),
        ("source", "Quelle"),
    ],
)
def test_sentence_pair_is_no_header(cells: tuple[str, ...]) -> None:
    assert not is_header(cells, "en", "de")


def test_header_of_languages_without_names_is_recognized_by_roles() -> None:
    assert is_header(("source", "target"), "digits", "reversed")
    assert not is_header(("digits", "English"), "digits", "reversed")


def test_header_may_name_two_regions_of_a_language() -> None:
    assert is_header(("pt-BR", "pt-PT"), "pt_BR", "pt_PT")
