import pytest
import sacrebleu

from tfnmt.decoding.answers import Answer, Hypothesis
from tfnmt.evaluation.diagnosis import BOUNDS, by_length, diagnose, findings

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
