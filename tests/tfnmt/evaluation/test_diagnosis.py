from decimal import Decimal

import pytest
import sacrebleu

from tfnmt.decoding.lines import Hypothesis, Translation
from tfnmt.evaluation.diagnosis import (
    BOUNDS,
    diagnose,
    find_errors,
    find_numbers,
    group_by_length,
    summarize,
)

REFERENCE = "Der Hund schläft im Garten des Nachbarn."
PAIRS = [
    ("The dog sleeps in the neighbour's garden.", REFERENCE),
    ("The dog sleeps in the garden of 3 men.", "Der Hund schläft im Garten von 3 Männern."),
    ("Yes.", "Ja."),
]


def translated(*translations: str, warnings: tuple[str, ...] = ()) -> list[Translation]:
    return [Translation((Hypothesis(text, -0.1),), warnings=warnings) for text in translations]


def test_diagnose_gives_chrf_and_errors_of_each_line() -> None:
    translations = ["Der Hund, Hund, Hund im Garten der Nachbarn", "Der Hund.", "Ja."]
    lines = diagnose(PAIRS, translated(*translations, warnings=("repetition",)))
    assert [line.number for line in lines] == [1, 2, 3]
    assert [(line.source, line.reference) for line in lines] == PAIRS
    assert [line.translation for line in lines] == translations
    assert [line.errors for line in lines] == [
        ("repetition",),
        ("repetition", "omission", "numbers"),
        ("repetition",),
    ]
    for line in lines:
        expected = sacrebleu.sentence_chrf(line.translation, [line.reference]).score
        assert line.chrf == pytest.approx(expected)
    assert summarize(lines)["errors"] == {"repetition": 3, "omission": 1, "numbers": 1}


def test_diagnose_finds_no_errors_in_a_good_translation() -> None:
    lines = diagnose(PAIRS, translated(*(reference for _, reference in PAIRS)))
    assert all(line.chrf == pytest.approx(100) and not line.errors for line in lines)
    assert summarize(lines)["errors"] == {}


def test_group_by_length_uses_the_length_of_the_sources() -> None:
    lengths = [0, 24, 25, 49, 50, 99, 399, 400, 1000]
    pairs = [("x" * length, REFERENCE) for length in lengths]
    groups = group_by_length(diagnose(pairs, translated(*[REFERENCE] * len(pairs))))
    assert BOUNDS == (25, 50, 100, 200, 400)
    assert [group[:3] for group in groups] == [
        (0, 24, 2),
        (25, 49, 2),
        (50, 99, 2),
        (200, 399, 1),
        (400, None, 2),
    ]
    assert all(group.bleu == pytest.approx(100) for group in groups)


def test_group_by_length_gives_the_corpus_bleu_of_each_group() -> None:
    short, long = ("x" * 10, REFERENCE), ("x" * 60, REFERENCE)
    bad = REFERENCE.replace("schläft", "bellt")
    groups = group_by_length(diagnose([short, long, long], translated(REFERENCE, REFERENCE, bad)))
    assert groups[0].bleu == pytest.approx(100)
    expected = sacrebleu.corpus_bleu([REFERENCE, bad], [[REFERENCE] * 2]).score
    assert groups[1].bleu == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("length", "reference", "is_omission"),
    [
        (0, 10, True),
        (0, 9, False),  # fewer than 10 characters are missing
        (15, 25, False),
        (14, 25, True),
        (59, 100, True),
        (60, 100, False),
        (300, 100, False),
    ],
)
def test_find_errors_reports_omission_if_much_shorter_than_the_reference(
    length: int, reference: int, is_omission: bool
) -> None:
    found = list(find_errors("a source", "x" * length, "x" * reference))
    assert found == (["omission"] if is_omission else [])


@pytest.mark.parametrize(
    ("source", "translation", "reference"),
    [
        ("He ran 42 km.", "Er lief 24 km.", "Er lief 42 km."),
        ("He ran 42 km.", "Er lief km.", "Er lief 42 km."),  # missing
        ("He ran far.", "Er lief 42 km.", "Er lief weit."),  # added
        ("5 and 5", "5 und so", "5 und 5"),  # one of two is missing
        ("5 and so", "5 und 5", "5 und so"),
        ("1,000 men", "1.0 Mann", "1.000 Mann"),
        ("١٢ رجلا", "21 Mann", "12 Mann"),
        ("१२ आदमी", "Mann", "12 Mann"),
        ("12 men", "٢١ رجلا", "١٢ رجلا"),
    ],
)
def test_find_errors_reports_missing_and_added_numbers(
    source: str, translation: str, reference: str
) -> None:
    assert list(find_errors(source, translation, reference)) == ["numbers"]


@pytest.mark.parametrize(
    ("source", "translation", "reference"),
    [
        ("1,000.50 euros", "1.000,50 Euro", "1.000,50 Euro"),
        ("١٢ رجلا", "12 Mann", "12 Mann"),
        ("12 men", "१२ आदमी", "१२ आदमी"),
        ("4 men", "Vier Mann", "Vier Mann"),  # the reference spells it out as well
        ("4 men", "4 Mann", "Vier Mann"),
        ("Four men", "4 Mann", "4 Mann"),
        ("2 feet", "60 cm", "60 cm"),
        ("at 10:30", "um 10.30 Uhr", "um 10.30 Uhr"),
        ("5, then 6", "6, davor 5", "Nach 5 kommt 6"),  # another order
        ("no number", "keine Zahl", "keine Zahl"),
    ],
)
def test_find_errors_accepts_numbers_as_in_the_reference(
    source: str, translation: str, reference: str
) -> None:
    assert list(find_errors(source, translation, reference)) == []


def values(text: str) -> list[str]:
    return sorted(f"{number.normalize():f}" for number in find_numbers(text).elements())


@pytest.mark.parametrize(
    "text",
    [
        "1000",
        "1,000",
        "1.000",
        "1 000",
        "1\u00a0000",
        "1\u202f000",
        "1'000",
        "1’000",
        # Digits of other scripts.
        "١٠٠٠",
        "١٬٠٠٠",
        "۱۰۰۰",
        "१,०००",
        "১০০০",
        "１０００",
        "01000",
        "1,000.00",
        "1.000,0",
        "$1,000.",
        "(1.000)",
        "a1000b",
    ],
)
def test_find_numbers_gives_the_same_value_for_every_notation(text: str) -> None:
    assert values(text) == ["1000"]


@pytest.mark.parametrize("text", ["1.5", "1,5", "1.50", "01,5", "١٫٥", "१.५"])
def test_find_numbers_gives_the_same_value_for_every_decimal_notation(text: str) -> None:
    assert values(text) == ["1.5"]


@pytest.mark.parametrize("text", ["1,000,000.5", "1.000.000,5", "1 000 000,5", "10,00,000.5"])
def test_find_numbers_distinguishes_thousands_separators_and_decimal_points(text: str) -> None:
    assert values(text) == ["1000000.5"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.03.2024", ["12", "2024", "3"]),
        ("3/12/2024", ["12", "2024", "3"]),
        ("10:30", ["10", "30"]),
        ("1.2.3", ["1", "2", "3"]),
        ("1, 2, 3", ["1", "2", "3"]),
        ("in 2010 300 men", ["2010", "300"]),
        ("7-8", ["7", "8"]),
        ("0.125", ["0.125"]),
        ("5, 5 and 5", ["5", "5", "5"]),
        ("It cost 3.", ["3"]),
    ],
)
def test_find_numbers_separates_adjacent_numbers(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize("text", ["", "two", "½ x²", "IV", "...", "一百"])
def test_find_numbers_ignores_other_text(text: str) -> None:
    assert values(text) == []


def test_find_numbers_gives_different_values_for_different_numbers() -> None:
    different = ["1", "10", "100", "1000", "1.5", "15", "0.15", "-"]
    assert len({tuple(values(text)) for text in different}) == len(different)
    assert find_numbers("3,14159") == {Decimal("3.14159"): 1}
