from decimal import Decimal

import pytest
import sacrebleu

from tfnmt.decoding.lines import Answer, Hypothesis
from tfnmt.evaluation.diagnosis import (
    BOUNDS,
    by_length,
    diagnose,
    find_faults,
    find_numbers,
    findings,
)

REFERENCE = "Der Hund schläft im Garten des Nachbarn."
PAIRS = [
    ("The dog sleeps in the neighbour's garden.", REFERENCE),
    ("The dog sleeps in the garden of 3 men.", "Der Hund schläft im Garten von 3 Männern."),
    ("Yes.", "Ja."),
]


def answers(*translations: str, warnings: tuple[str, ...] = ()) -> list[Answer]:
    return [Answer((Hypothesis(text, -0.1),), warnings=warnings) for text in translations]


def test_each_line_has_its_chrf_and_its_faults() -> None:
    translations = ["Der Hund, Hund, Hund im Garten der Nachbarn", "Der Hund.", "Ja."]
    lines = diagnose(PAIRS, answers(*translations, warnings=("repetition",)))
    assert [line.number for line in lines] == [1, 2, 3]
    assert [(line.source, line.reference) for line in lines] == PAIRS
    assert [line.translation for line in lines] == translations
    assert [line.faults for line in lines] == [
        ("repetition",), ("repetition", "omission", "numbers"), ("repetition",),
    ]  # fmt: skip
    for line in lines:
        own = sacrebleu.sentence_chrf(line.translation, [line.reference]).score
        assert line.chrf == pytest.approx(own)
    assert findings(lines)["faults"] == {"repetition": 3, "omission": 1, "numbers": 1}


def test_a_good_translation_has_no_faults() -> None:
    lines = diagnose(PAIRS, answers(*(reference for _, reference in PAIRS)))
    assert all(line.chrf == pytest.approx(100) and not line.faults for line in lines)
    assert findings(lines)["faults"] == {}


def test_lines_are_grouped_by_the_length_of_their_sources() -> None:
    lengths = [0, 24, 25, 49, 50, 99, 399, 400, 1000]
    pairs = [("x" * length, REFERENCE) for length in lengths]
    groups = by_length(diagnose(pairs, answers(*[REFERENCE] * len(pairs))))
    assert BOUNDS == (25, 50, 100, 200, 400)
    assert [group[:3] for group in groups] == [
        (0, 24, 2), (25, 49, 2), (50, 99, 2), (200, 399, 1), (400, None, 2),
    ]  # fmt: skip
    assert all(group.bleu == pytest.approx(100) for group in groups)


def test_each_group_has_the_corpus_bleu_of_its_lines() -> None:
    short, long = ("x" * 10, REFERENCE), ("x" * 60, REFERENCE)
    bad = REFERENCE.replace("schläft", "bellt")
    groups = by_length(diagnose([short, long, long], answers(REFERENCE, REFERENCE, bad)))
    assert groups[0].bleu == pytest.approx(100)
    own = sacrebleu.corpus_bleu([REFERENCE, bad], [[REFERENCE] * 2]).score
    assert groups[1].bleu == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize(
    ("length", "reference", "omits"),
    [
        (0, 10, True),
        (0, 9, False),  # too little to tell
        (15, 25, False),
        (14, 25, True),
        (59, 100, True),
        (60, 100, False),
        (300, 100, False),
    ],
)
def test_an_omission_is_much_shorter_than_the_reference(
    length: int, reference: int, omits: bool
) -> None:
    found = list(find_faults("a source", "x" * length, "x" * reference))
    assert found == (["omission"] if omits else [])


@pytest.mark.parametrize(
    ("source", "translation", "reference"),
    [
        ("He ran 42 km.", "Er lief 24 km.", "Er lief 42 km."),
        ("He ran 42 km.", "Er lief km.", "Er lief 42 km."),  # lost
        ("He ran far.", "Er lief 42 km.", "Er lief weit."),  # made up
        ("5 and 5", "5 und so", "5 und 5"),  # one of two
        ("5 and so", "5 und 5", "5 und so"),
        ("1,000 men", "1.0 Mann", "1.000 Mann"),
        ("١٢ رجلا", "21 Mann", "12 Mann"),
        ("१२ आदमी", "Mann", "12 Mann"),
        ("12 men", "٢١ رجلا", "١٢ رجلا"),
    ],
)
def test_numbers_that_are_lost_or_made_up_are_a_fault(
    source: str, translation: str, reference: str
) -> None:
    assert list(find_faults(source, translation, reference)) == ["numbers"]


@pytest.mark.parametrize(
    ("source", "translation", "reference"),
    [
        ("1,000.50 euros", "1.000,50 Euro", "1.000,50 Euro"),
        ("١٢ رجلا", "12 Mann", "12 Mann"),
        ("12 men", "१२ आदमी", "१२ आदमी"),
        ("4 men", "Vier Mann", "Vier Mann"),  # the reference spells it out, too
        ("4 men", "4 Mann", "Vier Mann"),
        ("Four men", "4 Mann", "4 Mann"),
        ("2 feet", "60 cm", "60 cm"),
        ("at 10:30", "um 10.30 Uhr", "um 10.30 Uhr"),
        ("5, then 6", "6, davor 5", "Nach 5 kommt 6"),  # in another order
        ("no number", "keine Zahl", "keine Zahl"),
    ],
)
def test_what_the_reference_does_as_well_is_none(
    source: str, translation: str, reference: str
) -> None:
    assert list(find_faults(source, translation, reference)) == []


def values(text: str) -> list[str]:
    return sorted(f"{number.normalize():f}" for number in find_numbers(text).elements())


@pytest.mark.parametrize(
    "text",
    [
        "1000", "1,000", "1.000", "1 000", "1\u00a0000", "1\u202f000", "1'000", "1’000",
        "١٠٠٠", "١٬٠٠٠", "۱۰۰۰", "१,०००", "১০০০", "１０００",  # digits of other scripts
        "01000", "1,000.00", "1.000,0", "$1,000.", "(1.000)", "a1000b",
    ],
)  # fmt: skip
def test_a_number_is_the_same_however_it_is_written(text: str) -> None:
    assert values(text) == ["1000"]


@pytest.mark.parametrize("text", ["1.5", "1,5", "1.50", "01,5", "١٫٥", "१.५"])
def test_so_is_a_decimal(text: str) -> None:
    assert values(text) == ["1.5"]


@pytest.mark.parametrize("text", ["1,000,000.5", "1.000.000,5", "1 000 000,5", "10,00,000.5"])
def test_groups_and_decimals_are_told_apart(text: str) -> None:
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
def test_what_stands_close_together_may_be_several(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize("text", ["", "two", "½ x²", "IV", "...", "一百"])
def test_nothing_else_is_a_number(text: str) -> None:
    assert values(text) == []


def test_different_numbers_differ() -> None:
    different = ["1", "10", "100", "1000", "1.5", "15", "0.15", "-"]
    assert len({tuple(values(text)) for text in different}) == len(different)
    assert find_numbers("3,14159") == {Decimal("3.14159"): 1}
