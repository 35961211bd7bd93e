from collections.abc import Callable

import numpy as np
import pytest

from tfnmt.data.plan import Plan, PlannedBatch, padded_lengths
from tfnmt.errors import UserError

Lengths = tuple[np.ndarray, np.ndarray]
MAX_LENGTH = 64


def normal(random: np.random.Generator) -> Lengths:
    """Captions like Multi30k's: 14 pieces or so, the sides alike."""
    source = np.clip(np.round(random.normal(14, 4, 5000)), 2, None).astype(np.int64)
    target = np.clip(source + random.integers(-3, 4, 5000), 2, None)
    return source, target


def uniform(random: np.random.Generator) -> Lengths:
    return random.integers(1, 100, 3000), random.integers(1, 100, 3000)


def skewed(random: np.random.Generator) -> Lengths:
    return random.geometric(0.08, 4000), random.geometric(0.08, 4000)


def alike(random: np.random.Generator) -> Lengths:
    return np.full(1001, 7), np.full(1001, 9)


def one_row(random: np.random.Generator) -> Lengths:
    return np.array([5]), np.array([3])


DISTRIBUTIONS = [normal, uniform, skewed, alike, one_row]
every_distribution = pytest.mark.parametrize("lengths", DISTRIBUTIONS)


def make_plan(
    make: Callable[[np.random.Generator], Lengths], seed: int = 1, batch_tokens: int = 1024
) -> Plan:
    return Plan(*make(np.random.default_rng(0)), batch_tokens, MAX_LENGTH, seed)


def epoch(plan: Plan, number: int) -> list[PlannedBatch]:
    first = number * plan.batches_per_epoch
    return [plan.batch(step) for step in range(first, first + plan.batches_per_epoch)]


def as_lists(batches: list[PlannedBatch]) -> list[tuple[list[int], int]]:
    return [(batch.rows.tolist(), batch.length) for batch in batches]


def rows_of(batches: list[PlannedBatch]) -> list[int]:
    return [row for batch in batches for row in batch.rows.tolist()]


def slots(batch: PlannedBatch) -> int:
    return len(batch.rows) * batch.length


@every_distribution
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_an_epoch_has_each_row_exactly_once(
    lengths: Callable[[np.random.Generator], Lengths], seed: int
) -> None:
    source, target = lengths(np.random.default_rng(0))
    fitting = np.flatnonzero((source <= MAX_LENGTH) & (target <= MAX_LENGTH)).tolist()
    plan = make_plan(lengths, seed)
    assert plan.rows.tolist() == fitting
    for number in (0, 1, 5):
        assert sorted(rows_of(epoch(plan, number))) == fitting


@every_distribution
@pytest.mark.parametrize("batch_tokens", [MAX_LENGTH, 100, 1024, 10**6])
def test_no_batch_has_more_slots_than_the_budget(
    lengths: Callable[[np.random.Generator], Lengths], batch_tokens: int
) -> None:
    for batch in epoch(make_plan(lengths, batch_tokens=batch_tokens), 0):
        assert 0 < slots(batch) <= batch_tokens


@every_distribution
def test_a_batch_is_as_long_as_its_longest_row_needs(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    longer = np.maximum(*lengths(np.random.default_rng(0)))
    for batch in epoch(make_plan(lengths), 0):
        longest = longer[batch.rows].max()
        assert longest <= batch.length <= MAX_LENGTH
        assert batch.length == padded_lengths(np.array([longest]), MAX_LENGTH)[0]


@pytest.mark.parametrize("lengths", [normal, uniform, skewed, alike])
def test_all_batches_but_one_are_more_than_half_full(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    sizes = sorted(slots(batch) for batch in epoch(make_plan(lengths), 0))
    assert len(sizes) > 5
    assert sizes[1] > 1024 / 2


@every_distribution
def test_every_epoch_has_the_same_number_of_batches_of_the_same_shapes(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    plan = make_plan(lengths)
    shapes = [sorted((len(b.rows), b.length) for b in epoch(plan, n)) for n in range(3)]
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == plan.batches_per_epoch
    assert make_plan(lengths, seed=9).batches_per_epoch == plan.batches_per_epoch


def test_the_same_seed_and_step_give_the_same_batch_in_a_fresh_plan() -> None:
    steps = [700, 3, 150, 0, 41, 3]
    expected = as_lists([make_plan(normal).batch(step) for step in steps])
    plan = make_plan(normal)
    assert as_lists([plan.batch(step) for step in steps]) == expected


def test_any_resume_point_goes_on_in_the_uninterrupted_order() -> None:
    plan = make_plan(normal)
    count = plan.batches_per_epoch
    order = as_lists([plan.batch(step) for step in range(2 * count)])
    for first in (1, count - 1, count, count + 7):
        resumed = make_plan(normal)
        assert as_lists([resumed.batch(step) for step in range(first, 2 * count)]) == order[first:]


def test_epochs_and_seeds_differ_in_batches_and_in_their_order() -> None:
    plan = make_plan(normal)
    for other in (epoch(plan, 1), epoch(make_plan(normal, seed=2), 0)):
        assert [batch.length for batch in other] != [batch.length for batch in epoch(plan, 0)]
        members = [{frozenset(b.rows.tolist()) for b in some} for some in (epoch(plan, 0), other)]
        assert len(members[0] & members[1]) < len(other) / 10


def test_an_epoch_is_not_sorted_by_length() -> None:
    lengths = [batch.length for batch in epoch(make_plan(normal), 0)]
    assert lengths != sorted(lengths)
    half = len(lengths) // 2
    assert abs(np.mean(lengths[:half]) - np.mean(lengths[half:])) < 2


def test_rows_with_a_side_that_is_too_long_are_left_out() -> None:
    source, target = np.array([5, 9, 8, 3, 8]), np.array([5, 2, 9, 8, 8])
    plan = Plan(source, target, batch_tokens=100, max_length=8, seed=1)
    assert plan.rows.tolist() == [0, 3, 4]
    assert sorted(rows_of(epoch(plan, 0))) == [0, 3, 4]


def test_a_corpus_of_one_row_is_one_batch_for_ever() -> None:
    plan = Plan(np.array([5]), np.array([3]), batch_tokens=64, max_length=64, seed=1)
    assert plan.batches_per_epoch == 1
    assert as_lists([plan.batch(step) for step in (0, 1, 10**9)]) == [([0], 6)] * 3


def test_a_corpus_of_which_nothing_is_left_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match=r"data\.max_length"):
        Plan(np.array([9, 10]), np.array([3, 3]), batch_tokens=64, max_length=8, seed=1)


def test_captions_are_padded_little() -> None:
    source, target = normal(np.random.default_rng(0))
    batches = epoch(make_plan(normal, batch_tokens=4096), 0)
    longer = int(np.maximum(source, target).sum())
    assert 1 - longer / sum(map(slots, batches)) < 0.15


def test_captions_have_few_shapes() -> None:
    batches = epoch(make_plan(normal, batch_tokens=4096), 0)
    assert len({batch.length for batch in batches}) <= 16


@pytest.mark.parametrize("max_length", [2, 63, 64, 100, 1000])
def test_padded_lengths_lie_between_the_length_and_the_longest(max_length: int) -> None:
    lengths = np.arange(1, max_length + 1)
    padded = padded_lengths(lengths, max_length)
    assert np.all(padded >= lengths)
    assert np.all(padded <= max_length)
    assert np.all(np.diff(padded) >= 0)
    beyond = lengths > 16
    assert np.all(8 * (padded - lengths)[beyond] <= lengths[beyond])
    assert np.all((padded - lengths)[~beyond] <= 1)


def test_padded_lengths_are_multiples_of_2_then_of_4_then_of_8() -> None:
    lengths = np.array([1, 2, 3, 16, 17, 31, 33, 37, 64, 65, 127, 129])
    padded = [2, 2, 4, 16, 18, 32, 36, 40, 64, 72, 128, 144]
    assert padded_lengths(lengths, 1000).tolist() == padded
