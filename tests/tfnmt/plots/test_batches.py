from itertools import pairwise

import numpy as np
import pytest

from tests.plans import plan_of_lengths
from tfnmt.data.batching.plan import Plan
from tfnmt.plots.batches import draw_batches, fill

RANDOM = np.random.default_rng(1)
LENGTHS = {"en": RANDOM.integers(4, 50, 500), "de": RANDOM.integers(4, 70, 500)}


@pytest.fixture
def plan() -> Plan:
    """Without the longest pairs, which no batch has."""
    return plan_of_lengths(*LENGTHS.values(), batch_tokens=400, max_length=60, seed=1)


def test_every_piece_of_the_epoch_has_its_slot_and_the_rest_is_padding(plan: Plan) -> None:
    filling = fill(plan)
    assert filling.pieces.sum() == sum(side[plan.rows].sum() for side in LENGTHS.values())
    batches = [plan.batch(step) for step in range(plan.batches_per_epoch)]
    slots = sum(2 * length * len(pairs.rows) for pairs, length in batches)
    assert filling.pieces.sum() + filling.padding.sum() == slots
    assert filling.padding_share == pytest.approx(filling.padding.sum() / slots)
    assert (filling.padding >= 0).all()
    assert filling.lengths.tolist() == sorted({length for _, length in batches})


def test_bars_lie_side_by_side_and_stand_on_one_another(plan: Plan) -> None:
    _, below = draw_batches(plan, LENGTHS).axes
    pieces, padding = below.containers
    filling = fill(plan)
    assert [bar.get_height() for bar in pieces] == filling.pieces.tolist()
    assert [bar.get_height() for bar in padding] == filling.padding.tolist()
    assert [bar.get_y() for bar in padding] == filling.pieces.tolist()
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in pieces]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert ends[0][0] > 3


def test_sentences_are_counted_on_both_sides(plan: Plan) -> None:
    above, _ = draw_batches(plan, LENGTHS).axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["en", "de"]
    for outline, side in zip(above.patches, LENGTHS.values(), strict=True):
        counts = outline.get_data().values
        assert counts.tolist() == np.bincount(side[plan.rows], minlength=len(counts)).tolist()
