"""Each fault on both sides of its limit."""

import pytest

from tfnmt.evaluation.faults import find_faults


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
