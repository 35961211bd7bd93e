from decimal import Decimal

import pytest

from tfnmt.evaluation.numbers import find_numbers


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
