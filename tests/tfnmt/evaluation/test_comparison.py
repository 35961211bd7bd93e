from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any

import pytest
import sacrebleu

from tfnmt.evaluation.comparison import compare
from tfnmt.evaluation.metrics import STANDARD_METRICS, scores

ANIMALS = ("dog", "cat", "old bear", "horse", "grey mouse", "cow", "hen", "tired fox")
OWNERS = ("king", "farmer", "young girl", "neighbour", "two boys")
PLACES = ("house", "garden", "forest")
REFERENCES = [
    f"The {animal} of the {owner} sleeps in the {place}."
    for animal, owner, place in product(ANIMALS, OWNERS, PLACES)
]


def with_errors(numbers: Iterable[int]) -> list[str]:
    """Return the references, with errors in the lines of these numbers."""
    return [
        line.replace("sleeps", "had slept and slept") if number in numbers else line
        for number, line in enumerate(REFERENCES)
    ]


GOOD = with_errors(range(0, 120, 2))
BAD = with_errors({*range(0, 120, 2), *range(1, 120, 10)})  # worse in twelve lines, never better


@cache
def bad_against_good() -> dict[str, dict[str, Any]]:
    return compare(BAD, GOOD, REFERENCES)


@cache
def good_against_bad() -> dict[str, dict[str, Any]]:
    return compare(GOOD, BAD, REFERENCES)


def test_comparison_differences_equal_the_differences_of_the_scores() -> None:
    found = bad_against_good()
    ours, theirs = scores(BAD, REFERENCES), scores(GOOD, REFERENCES)
    for key in STANDARD_METRICS:
        difference = ours[key]["score"] - theirs[key]["score"]
        assert found[key]["difference"] == pytest.approx(difference, abs=2e-4)
    assert found["bleu"]["difference"] < 0 < found["ter"]["difference"]


def test_comparison_is_antisymmetric() -> None:
    forward, backward = bad_against_good(), good_against_bad()
    for key in STANDARD_METRICS:
        assert forward[key]["difference"] == -backward[key]["difference"]
        assert forward[key]["low"] == pytest.approx(-backward[key]["high"], abs=2e-4)
        assert forward[key]["p_value"] == backward[key]["p_value"]


def test_comparison_resamples_the_sentences_of_both_systems_together() -> None:
    """The intervals of the systems overlap, although one is better wherever they differ."""
    good, bad = scores(GOOD, REFERENCES)["chrf"], scores(BAD, REFERENCES)["chrf"]
    assert bad["high"] > good["low"]
    found = good_against_bad()["chrf"]
    assert 0 < found["low"] < found["difference"] < found["high"]
    assert found["high"] - found["low"] < good["high"] - good["low"] + bad["high"] - bad["low"]
    assert found["p_value"] < 0.01


def test_comparison_is_not_significant_if_each_system_is_better_in_some_lines() -> None:
    found = compare(with_errors(range(60)), with_errors(range(60, 120)), REFERENCES)
    for key in STANDARD_METRICS:
        assert found[key]["low"] < 0 < found[key]["high"]
        assert found[key]["p_value"] > 0.05


def test_comparison_of_equal_translations_has_no_difference() -> None:
    for found in compare(BAD, BAD, REFERENCES).values():
        assert found == {"difference": 0, "low": 0, "high": 0, "p_value": 1}


def test_comparison_uses_the_bootstrap_samples_of_sacrebleu() -> None:
    """Against a system with score 0, the difference and its interval equal those of the score."""
    wrong = ["-"] * len(REFERENCES)
    found = compare(BAD, wrong, REFERENCES)["chrf"]
    expected = scores(BAD, REFERENCES)["chrf"]
    assert sacrebleu.corpus_chrf(wrong, [REFERENCES]).score == 0
    assert found["low"] == pytest.approx(expected["low"], abs=1e-3)
    assert found["high"] == pytest.approx(expected["high"], abs=1e-3)
