"""The tree of a search of literal candidates, whose lines can be told beforehand."""

from typing import Any

import pytest

from tfnmt.config import DecodingConfig
from tfnmt.tracing import tiny
from tfnmt.tracing.beam import BeamStep, Candidate, Ended, RowSearch
from tfnmt.tracing.subject import Subject
from tfnmt.tracing.text import row_lines

EOS, CAT, DOG = 2, 3, 4


@pytest.fixture
def subject() -> Subject:
    nothing: Any = None  # neither model nor search is asked
    return Subject(nothing, tiny.PIECES, DecodingConfig(length_penalty=0.5), nothing, tiny.decode)


@pytest.fixture
def search() -> RowSearch:
    """A beam of two: both words live on, then `cat` ends, and nothing else can be better."""
    infinite = float("inf")
    begin = BeamStep(
        0, [Candidate(0, CAT, 0.6, -0.51, 0, None),
            Candidate(0, DOG, 0.3, -1.2, 1, None),
            Candidate(0, EOS, 0.1, -2.3, None, None)],
        [-0.51, -1.2], [], -0.4, -infinite, True,
    )  # fmt: skip
    end = BeamStep(
        1, [Candidate(0, EOS, 0.9, -0.62, None, -0.57),
            Candidate(1, DOG, 0.8, -1.43, 0, None)],
        [-1.43], [Ended([CAT, EOS], -0.57)], -1.2, -0.57, False,
    )  # fmt: skip
    return RowSearch([begin, end], [CAT, EOS], -0.57, "cat")


def test_the_tree_has_what_was_tried_behind_each_hypothesis(
    subject: Subject, search: RowSearch
) -> None:
    lines = list(row_lines(search, subject))
    begin = lines.index("<s>")
    assert lines[begin + 1 : lines.index("", begin)] == [
        "├─ cat 0.6000",
        "│  └─ </s> 0.9000  finished, score -0.5700",
        "├─ dog 0.3000",
        "│  └─ dog 0.8000",
        "└─ </s> 0.1000  pruned: only the K likeliest may end",
    ]


def test_a_step_says_what_became_of_each_candidate_and_whether_it_goes_on(
    subject: Subject, search: RowSearch
) -> None:
    lines = [" ".join(line.split()) for line in row_lines(search, subject)]
    assert lines[1:6] == [
        "step 0 from piece p log p so far",
        "0 cat 0.6000 -0.5100 goes on as hypothesis 0",
        "0 dog 0.3000 -1.2000 goes on as hypothesis 1",
        "0 </s> 0.1000 -2.3000 pruned: only the K likeliest may end",
        "goes on",
    ]
    assert "finished -0.5700 cat </s>" in lines
    assert (
        "stops: a live hypothesis can still come to -1.2000, and -0.5700 is to be beaten" in lines
    )


def test_it_ends_with_what_was_found(subject: Subject, search: RowSearch) -> None:
    assert list(row_lines(search, subject))[-3:] == [
        "found      cat </s>",
        "score      -0.5700 = log p / ((5 + 2) / 6)^0.5",
        "text       cat",
    ]
