from itertools import pairwise

import numpy as np
import pytest

from tests.plans import plan_of_lengths
from tfnmt.data.batching.plan import Plan
from tfnmt.data.preparation.storage import TokenArray
from tfnmt.plots.batches import count_padding, draw_batches

RANDOM = np.random.default_rng(1)
LENGTHS = {"en": RANDOM.integers(4, 50, 500), "de": RANDOM.integers(4, 70, 500)}


@pytest.fixture
def plan() -> Plan:
    """Return a plan that excludes the longest pairs."""
    return plan_of_lengths(*LENGTHS.values(), batch_tokens=400, max_length=60, seed=1)


def test_statistics_count_all_tokens_of_the_epoch_and_the_padding(plan: Plan) -> None:
    statistics = count_padding(plan)
    assert statistics.tokens.sum() == sum(side[plan.rows].sum() for side in LENGTHS.values())
    batches = [plan.batch(step) for step in range(plan.batches_per_epoch)]
    padded_tokens = sum(2 * length * len(pairs.rows) for pairs, length in batches)
    assert statistics.tokens.sum() + statistics.padding.sum() == padded_tokens
    assert statistics.padding_share == pytest.approx(statistics.padding.sum() / padded_tokens)
    assert (statistics.padding >= 0).all()
    assert statistics.lengths.tolist() == sorted({length for _, length in batches})


def test_counting_reads_only_the_lengths_of_each_batch(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = count_padding(plan)
    monkeypatch.delattr(TokenArray, "lengths")  # of the whole corpus
    found = count_padding(plan)
    for values, same in zip(expected, found, strict=True):
        np.testing.assert_array_equal(values, same)


def test_padding_bars_are_stacked_on_token_bars_without_overlap(plan: Plan) -> None:
    _, below = draw_batches(plan, LENGTHS).axes
    tokens, padding = below.containers
    statistics = count_padding(plan)
    assert [bar.get_height() for bar in tokens] == statistics.tokens.tolist()
    assert [bar.get_height() for bar in padding] == statistics.padding.tolist()
    assert [bar.get_y() for bar in padding] == statistics.tokens.tolist()
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in tokens]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert ends[0][0] > 3


def test_histogram_counts_the_sentences_of_both_sides(plan: Plan) -> None:
    above, _ = draw_batches(plan, LENGTHS).axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["en", "de"]
    for outline, side in zip(above.patches, LENGTHS.values(), strict=True):
        counts = outline.get_data().values
        assert counts.tolist() == np.bincount(side[plan.rows], minlength=len(counts)).tolist()
