from collections.abc import Iterable

import pytest
import sacrebleu

from tfnmt.evaluation.comparison import compare
from tfnmt.evaluation.metrics import METRICS, scores

ANIMALS = ("dog", "cat", "old bear", "horse", "grey mouse", "cow", "hen", "tired fox")
REFERENCES = [f"The {animal} of the {owner} sleeps in the {place}." for animal in ANIMALS
              for owner in ("king", "farmer", "young girl", "neighbour", "two boys")
              for place in ("house", "garden", "forest")]  # fmt: skip


def spoilt(numbers: Iterable[int]) -> list[str]:
    """The references, those of the numbers made worse."""
    return [
        line.replace("sleeps", "had slept and slept") if number in numbers else line
        for number, line in enumerate(REFERENCES)
    ]


GOOD = spoilt(range(0, 120, 2))
BAD = spoilt({*range(0, 120, 2), *range(1, 120, 10)})  # worse in twelve lines, nowhere better


def test_differences_are_those_of_the_scores() -> None:
    found = compare(BAD, GOOD, REFERENCES)
    ours, theirs = scores(BAD, REFERENCES), scores(GOOD, REFERENCES)
    for name in METRICS:
        difference = ours[name]["score"] - theirs[name]["score"]
        assert found[name]["difference"] == pytest.approx(difference, abs=2e-4)
    assert found["bleu"]["difference"] < 0 < found["ter"]["difference"]


def test_the_other_way_round_differences_change_their_sign_and_nothing_else() -> None:
    there, back = compare(BAD, GOOD, REFERENCES), compare(GOOD, BAD, REFERENCES)
    for name in METRICS:
        assert there[name]["difference"] == -back[name]["difference"]
        assert there[name]["low"] == pytest.approx(-back[name]["high"], abs=2e-4)
        assert there[name]["p_value"] == back[name]["p_value"]


def test_sentences_are_drawn_for_both_together() -> None:
    """Their own intervals overlap, and yet one is better wherever they differ."""
    good, bad = scores(GOOD, REFERENCES)["chrf"], scores(BAD, REFERENCES)["chrf"]
    assert bad["high"] > good["low"]
    found = compare(GOOD, BAD, REFERENCES)["chrf"]
    assert 0 < found["low"] < found["difference"] < found["high"]
    assert found["high"] - found["low"] < good["high"] - good["low"] + bad["high"] - bad["low"]
    assert found["p_value"] < 0.01


def test_what_is_better_in_some_lines_and_worse_in_others_may_be_chance() -> None:
    found = compare(spoilt(range(60)), spoilt(range(60, 120)), REFERENCES)
    for name in METRICS:
        assert found[name]["low"] < 0 < found[name]["high"]
        assert found[name]["p_value"] > 0.05


def test_equal_translations_differ_by_nothing_surely() -> None:
    for found in compare(BAD, BAD, REFERENCES).values():
        assert found == {"difference": 0, "low": 0, "high": 0, "p_value": 1}


def test_samples_are_those_of_sacrebleus_own_interval() -> None:
    """Against a system that is never right, the difference is the score and so is its interval."""
    nothing = ["-"] * len(REFERENCES)
    found = compare(BAD, nothing, REFERENCES)["chrf"]
    own = scores(BAD, REFERENCES)["chrf"]
    assert sacrebleu.corpus_chrf(nothing, [REFERENCES]).score == 0
    assert found["low"] == pytest.approx(own["low"], abs=1e-3)
    assert found["high"] == pytest.approx(own["high"], abs=1e-3)
