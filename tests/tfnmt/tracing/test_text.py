"""Lines of a search with literal candidates."""

from typing import Any

import pytest

from tfnmt.config import DecodingConfig
from tfnmt.tracing import tiny
from tfnmt.tracing.beam import BeamStep, Candidate, FinishedHypothesis, RowSearch
from tfnmt.tracing.text import row_lines
from tfnmt.tracing.traced_model import TracedModel

EOS, DOG, RUN = 2, 3, 4


@pytest.fixture
def model() -> TracedModel:
    unused: Any = None  # neither the transformer nor the search is called
    decoding = DecodingConfig(length_penalty=0.5)
    return TracedModel(unused, tiny.VOCABULARY, decoding, unused, tiny.decode)


@pytest.fixture
def search() -> RowSearch:
    """A beam of two: both words stay live, then `dog` ends, and nothing else can be better."""
    first = BeamStep(
        position=0,
        candidates=[
            Candidate(0, DOG, 0.6, -0.51, 0, None),
            Candidate(0, RUN, 0.3, -1.2, 1, None),
            Candidate(0, EOS, 0.1, -2.3, None, None),
        ],
        live=[-0.51, -1.2],
        finished=[],
        bound=-0.4,
        worst=-float("inf"),
        continues=True,
    )
    second = BeamStep(
        position=1,
        candidates=[
            Candidate(0, EOS, 0.9, -0.62, None, -0.57),
            Candidate(1, RUN, 0.8, -1.43, 0, None),
        ],
        live=[-1.43],
        finished=[FinishedHypothesis([DOG, EOS], -0.57)],
        bound=-1.2,
        worst=-0.57,
        continues=False,
    )
    return RowSearch([first, second], [DOG, EOS], -0.57, "dog")


def test_tree_shows_the_candidates_of_each_live_hypothesis(
    model: TracedModel, search: RowSearch
) -> None:
    lines = list(row_lines(search, model))
    begin = lines.index("<s>")
    assert lines[begin + 1 : lines.index("", begin)] == [
        "├─ dog 0.6000",
        "│  └─ </s> 0.9000  finished, score -0.5700",
        "├─ run 0.3000",
        "│  └─ run 0.8000",
        "└─ </s> 0.1000  pruned: only the K most probable candidates can end",
    ]


def test_step_shows_the_outcome_of_each_candidate_and_whether_the_search_continues(
    model: TracedModel, search: RowSearch
) -> None:
    lines = [" ".join(line.split()) for line in row_lines(search, model)]
    assert lines[1:6] == [
        "step 0 from token p log p so far",
        "0 dog 0.6000 -0.5100 continues as hypothesis 0",
        "0 run 0.3000 -1.2000 continues as hypothesis 1",
        "0 </s> 0.1000 -2.3000 pruned: only the K most probable candidates can end",
        "continues",
    ]
    assert "finished -0.5700 dog </s>" in lines
    assert "stops: a live hypothesis can reach at most -1.2000 and must exceed -0.5700" in lines


def test_row_ends_with_the_best_hypothesis(model: TracedModel, search: RowSearch) -> None:
    assert list(row_lines(search, model))[-3:] == [
        "tokens     dog </s>",
        "score      -0.5700 = log p / ((5 + 2) / 6)^0.5",
        "text       dog",
    ]
