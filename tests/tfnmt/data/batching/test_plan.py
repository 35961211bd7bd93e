from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.plans import plan_of_lengths, prepared_of_lengths
from tfnmt.config import Config, build_config
from tfnmt.data.batching.plan import Plan, PlannedBatch, make_plan, padded_lengths
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.errors import UserError

Lengths = tuple[np.ndarray, np.ndarray]
MAX_LENGTH = 64


def normal(random: np.random.Generator) -> Lengths:
    """Return lengths like those of Multi30k with 8,000 tokens: about 15, similar on both sides."""
    source = np.clip(np.round(random.lognormal(2.685, 0.295, 5000)), 4, 64).astype(np.int64)
    target = np.clip(source + np.round(random.normal(0.5, 2.7, 5000)).astype(np.int64), 4, 64)
    return source, target


def uniform(random: np.random.Generator) -> Lengths:
    return random.integers(1, 100, 3000), random.integers(1, 100, 3000)


def skewed(random: np.random.Generator) -> Lengths:
    return random.geometric(0.08, 4000), random.geometric(0.08, 4000)


def equal_lengths(random: np.random.Generator) -> Lengths:
    return np.full(1001, 7), np.full(1001, 9)


def one_row(random: np.random.Generator) -> Lengths:
    return np.array([5]), np.array([3])


DISTRIBUTIONS = [normal, uniform, skewed, equal_lengths, one_row]
every_distribution = pytest.mark.parametrize("lengths", DISTRIBUTIONS)


def plan_of(
    make: Callable[[np.random.Generator], Lengths], seed: int = 1, batch_tokens: int = 1024
) -> Plan:
    return plan_of_lengths(*make(np.random.default_rng(0)), batch_tokens, MAX_LENGTH, seed)


def configuration(batch_tokens: int, max_length: int, seed: int) -> Config:
    data = {"batch_tokens": batch_tokens, "max_length": max_length}
    return build_config({"data": data, "training": {"seed": seed}})


@pytest.fixture
def prepared() -> Prepared:
    """Return pairs whose longer sides have 3, 5, 6, 8 and 10 ids."""
    return prepared_of_lengths(np.array([3, 4, 5, 8, 2]), np.array([2, 5, 6, 7, 10]))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return 3,000 pairs of the toy corpus with their text."""
    cache = tmp_path_factory.mktemp("cache")
    config = build_config({"data": {"max_pairs": 3000}, "tokenizer": {"vocab_size": 600}})
    return prepare(config, open_corpus(config.data, 1, cache), cache)


def epoch(plan: Plan, number: int) -> list[PlannedBatch]:
    first = number * plan.batches_per_epoch
    return [plan.batch(step) for step in range(first, first + plan.batches_per_epoch)]


def as_lists(batches: list[PlannedBatch]) -> list[tuple[list[int], int]]:
    return [(batch.pairs.rows.tolist(), batch.length) for batch in batches]


def rows_of(batches: list[PlannedBatch]) -> list[int]:
    return [row for batch in batches for row in batch.pairs.rows.tolist()]


def padded_tokens(batch: PlannedBatch) -> int:
    return len(batch.pairs.rows) * batch.length


@every_distribution
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_epoch_contains_each_row_exactly_once(
    lengths: Callable[[np.random.Generator], Lengths], seed: int
) -> None:
    source, target = lengths(np.random.default_rng(0))
    fitting = np.flatnonzero((source <= MAX_LENGTH) & (target <= MAX_LENGTH)).tolist()
    plan = plan_of(lengths, seed)
    assert plan.rows.tolist() == fitting
    for number in (0, 1, 5):
        assert sorted(rows_of(epoch(plan, number))) == fitting


@every_distribution
@pytest.mark.parametrize("batch_tokens", [MAX_LENGTH, 100, 1024, 10**6])
def test_batches_never_exceed_the_budget_of_padded_tokens(
    lengths: Callable[[np.random.Generator], Lengths], batch_tokens: int
) -> None:
    for batch in epoch(plan_of(lengths, batch_tokens=batch_tokens), 0):
        assert 0 < padded_tokens(batch) <= batch_tokens


@every_distribution
def test_batch_length_is_the_padded_length_of_its_longest_row(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    longer = np.maximum(*lengths(np.random.default_rng(0)))
    for batch in epoch(plan_of(lengths), 0):
        longest = longer[batch.pairs.rows].max()
        assert longest <= batch.length <= MAX_LENGTH
        assert batch.length == min(MAX_LENGTH, padded_lengths(np.array([longest]))[0])


@pytest.mark.parametrize("lengths", [normal, uniform, skewed, equal_lengths])
def test_all_batches_except_one_are_more_than_half_full(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    sizes = sorted(padded_tokens(batch) for batch in epoch(plan_of(lengths), 0))
    assert len(sizes) > 5
    assert sizes[1] > 1024 / 2


@every_distribution
def test_epochs_have_the_same_number_and_shapes_of_batches(
    lengths: Callable[[np.random.Generator], Lengths],
) -> None:
    plan = plan_of(lengths)
    shapes = [sorted((len(b.pairs.rows), b.length) for b in epoch(plan, n)) for n in range(3)]
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == plan.batches_per_epoch
    assert plan_of(lengths, seed=9).batches_per_epoch == plan.batches_per_epoch


def test_new_plan_gives_the_same_batch_for_the_same_seed_and_step() -> None:
    steps = [700, 3, 150, 0, 41, 3]
    expected = as_lists([plan_of(normal).batch(step) for step in steps])
    plan = plan_of(normal)
    assert as_lists([plan.batch(step) for step in steps]) == expected


def test_resumed_plan_has_the_uninterrupted_order() -> None:
    plan = plan_of(normal)
    count = plan.batches_per_epoch
    order = as_lists([plan.batch(step) for step in range(2 * count)])
    for first in (1, count - 1, count, count + 7):
        resumed = plan_of(normal)
        assert as_lists([resumed.batch(step) for step in range(first, 2 * count)]) == order[first:]


def test_epochs_and_seeds_differ_in_batches_and_their_order() -> None:
    plan = plan_of(normal)
    for other in (epoch(plan, 1), epoch(plan_of(normal, seed=2), 0)):
        assert [batch.length for batch in other] != [batch.length for batch in epoch(plan, 0)]
        members = [
            {frozenset(b.pairs.rows.tolist()) for b in some} for some in (epoch(plan, 0), other)
        ]
        assert len(members[0] & members[1]) < len(other) / 10


def test_epoch_is_not_sorted_by_length() -> None:
    lengths = [batch.length for batch in epoch(plan_of(normal), 0)]
    assert lengths != sorted(lengths)
    half = len(lengths) // 2
    assert abs(np.mean(lengths[:half]) - np.mean(lengths[half:])) < 2


def test_plan_leaves_out_pairs_with_a_side_that_is_too_long() -> None:
    source, target = np.array([5, 9, 8, 3, 8]), np.array([5, 2, 9, 8, 8])
    plan = plan_of_lengths(source, target, batch_tokens=100, max_length=8, seed=1)
    assert plan.rows.tolist() == [0, 3, 4]
    assert sorted(rows_of(epoch(plan, 0))) == [0, 3, 4]


def test_corpus_of_one_row_has_one_batch_in_every_epoch() -> None:
    plan = plan_of_lengths(np.array([5]), np.array([3]), batch_tokens=64, max_length=64, seed=1)
    assert plan.batches_per_epoch == 1
    assert as_lists([plan.batch(step) for step in (0, 1, 10**9)]) == [([0], 6)] * 3


def test_make_plan_uses_batch_tokens_max_length_and_seed_of_the_configuration(
    prepared: Prepared,
) -> None:
    plan = make_plan(configuration(batch_tokens=16, max_length=8, seed=3), prepared)
    lengths = (prepared.source.lengths, prepared.target.lengths)
    expected = plan_of_lengths(*lengths, batch_tokens=16, max_length=8, seed=3)
    assert as_lists(epoch(plan, 0)) == as_lists(epoch(expected, 0))
    assert plan.rows.tolist() == [0, 1, 2, 3]


def test_make_plan_raises_a_user_error_if_all_pairs_are_too_long(prepared: Prepared) -> None:
    make_plan(configuration(batch_tokens=16, max_length=3, seed=1), prepared)
    with pytest.raises(UserError, match=r"data\.max_length=2: all 5 pairs"):
        make_plan(configuration(batch_tokens=16, max_length=2, seed=1), prepared)


def test_padding_of_captions_is_small() -> None:
    """Multi30k itself has 9.5% padding, or 3.6% if only the longer side of each pair counts.

    This is for English and German with 8,000 tokens and batches of 4,096 padded tokens.
    """
    source, target = normal(np.random.default_rng(0))
    batches = epoch(plan_of(normal, batch_tokens=4096), 0)
    filled = sum(map(padded_tokens, batches))
    assert 1 - int((source + target).sum()) / (2 * filled) < 0.15
    assert 1 - int(np.maximum(source, target).sum()) / filled < 0.08


def test_captions_have_at_most_16_batch_lengths() -> None:
    batches = epoch(plan_of(normal, batch_tokens=4096), 0)
    assert len({batch.length for batch in batches}) <= 16


def plan_with_dropout(toy: Prepared, batch_tokens: int, dropout: float) -> Plan:
    keys = {"batch_tokens": batch_tokens, "max_length": MAX_LENGTH, "bpe_dropout": dropout}
    return make_plan(build_config({"data": keys}), toy)


def texts(toy: Prepared, batches: list[PlannedBatch]) -> Counter[tuple[str, str]]:
    """Decode the pairs of batches and count them."""
    pairs = [
        [[int(i) for i in side[row][:-1]] for row in batch.pairs.rows]
        for batch in batches
        for side in (batch.pairs.source, batch.pairs.target)
    ]
    decoded = list(map(toy.tokenizer.decode, pairs))
    return Counter(
        pair
        for sources, targets in zip(decoded[::2], decoded[1::2], strict=True)
        for pair in zip(sources, targets, strict=True)
    )


@pytest.mark.parametrize("batch_tokens", [256, 1024, 4096])
def test_batches_with_bpe_dropout_are_full_on_average_with_little_padding(
    toy: Prepared, batch_tokens: int
) -> None:
    """Batches planned from the lengths without dropout would contain a third of padding."""
    plan = plan_with_dropout(toy, batch_tokens, 0.1)
    assert plan.batches_per_epoch > plan_with_dropout(toy, batch_tokens, 0.0).batches_per_epoch
    for number in (0, 2):
        batches = epoch(plan, number)
        full = [padded_tokens(batch) for batch in batches]
        assert 0.75 * batch_tokens < np.mean(full) <= 1.02 * batch_tokens
        assert max(full) <= 1.25 * batch_tokens
        filled = sum(int(batch.pairs.lengths.sum()) for batch in batches)
        assert 1 - filled / sum(full) < 0.12


@pytest.mark.parametrize("batch_tokens", [256, 1024])
def test_epoch_of_several_windows_contains_each_pair_once(toy: Prepared, batch_tokens: int) -> None:
    plan = plan_with_dropout(toy, batch_tokens, 0.1)
    corpus = Counter((toy.source_lines[row], toy.target_lines[row]) for row in plan.rows)
    for number in (0, 1):
        batches = epoch(plan, number)
        assert len({id(batch.pairs.source) for batch in batches}) > 1  # windows
        assert texts(toy, batches) == corpus


def test_steps_with_bpe_dropout_do_not_depend_on_the_order_of_requests(toy: Prepared) -> None:
    plan = plan_with_dropout(toy, 256, 0.1)
    count = plan.batches_per_epoch
    steps = [2 * count + 1, 0, count - 1, count, 40]
    found = [plan.batch(step) for step in steps]
    expected = [plan_with_dropout(toy, 256, 0.1).batch(step) for step in steps]
    for one, other in zip(found, expected, strict=True):
        assert texts(toy, [one]) == texts(toy, [other])
        assert one.length == other.length
        assert one.pairs.lengths.tolist() == other.pairs.lengths.tolist()


def test_rows_of_an_epoch_are_sampled_and_shuffled_once_for_all_windows(
    toy: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_with_dropout(toy, 256, 0.1)
    sampled, requests = plan.sampled.of, []

    def recorded(number: int) -> np.ndarray:
        requests.append(number)
        return sampled(number)

    monkeypatch.setattr(plan.sampled, "of", recorded)
    for number in (3, 4):
        epoch(plan, number)
    assert requests == [3, 4]


@pytest.mark.parametrize("longest", [2, 63, 64, 100, 1000])
def test_padded_lengths_exceed_the_lengths_by_at_most_an_eighth(longest: int) -> None:
    lengths = np.arange(1, longest + 1)
    padded = padded_lengths(lengths)
    assert np.all(padded >= lengths)
    assert np.all(np.diff(padded) >= 0)
    beyond = lengths > 16
    assert np.all(8 * (padded - lengths)[beyond] <= lengths[beyond])
    assert np.all((padded - lengths)[~beyond] <= 1)


def test_padded_lengths_are_multiples_of_2_then_4_then_8() -> None:
    lengths = np.array([1, 2, 3, 16, 17, 31, 33, 37, 64, 65, 127, 129])
    padded = [2, 2, 4, 16, 18, 32, 36, 40, 64, 72, 128, 144]
    assert padded_lengths(lengths).tolist() == padded


# --- Several directions ---------------------------------------------------------------------------

DIRECTIONS = {"en-de": range(2500), "en-fr": range(2500, 2900), "en-ur": range(2900, 3000)}


def several_directions(toy: Prepared, temperature: float, **keys: object) -> Plan:
    data = {"batch_tokens": 512, "direction_temperature": temperature, **keys}
    return make_plan(build_config({"data": data}), replace(toy, directions=DIRECTIONS))


def counts_of(batches: list[PlannedBatch]) -> dict[str, int]:
    rows = rows_of(batches)
    return {name: sum(row in own for row in rows) for name, own in DIRECTIONS.items()}


def test_temperature_1_plans_the_batches_of_a_single_direction(toy: Prepared) -> None:
    single = make_plan(build_config({"data": {"batch_tokens": 512}}), toy)
    several = several_directions(toy, 1)
    assert several.batches_per_epoch == single.batches_per_epoch
    for number in (0, 1):
        assert as_lists(epoch(several, number)) == as_lists(epoch(single, number))


def test_every_epoch_has_the_counts_of_the_temperature(toy: Prepared) -> None:
    plan = several_directions(toy, 5)
    assert sum(plan.sampled.counts.values()) == len(plan.rows) == 3000
    for number in range(3):
        assert counts_of(epoch(plan, number)) == plan.sampled.counts


def test_batches_of_a_temperature_fill_their_budget(toy: Prepared) -> None:
    plan = several_directions(toy, 5)
    sizes = [len(b.pairs.rows) * b.length for number in range(3) for b in epoch(plan, number)]
    assert max(sizes) <= 1.2 * 512
    assert np.mean(sizes) > 0.8 * 512


def test_a_plan_with_a_temperature_can_start_at_any_step(toy: Prepared) -> None:
    batches = as_lists(epoch(several_directions(toy, 5), 2))
    again = several_directions(toy, 5)
    step = 2 * again.batches_per_epoch + 7
    assert as_lists([again.batch(step)]) == batches[7:8]


def test_bpe_dropout_keeps_the_counts_of_the_temperature(toy: Prepared) -> None:
    plan = several_directions(toy, 5, bpe_dropout=0.1)
    sampled = epoch(plan, 0)
    assert sum(len(batch.pairs.rows) for batch in sampled) == 3000


def test_direction_without_short_pairs_is_named() -> None:
    prepared = prepared_of_lengths(np.array([3, 4, 70]), np.array([2, 5, 6]))
    several = replace(prepared, directions={"en-de": range(2), "en-fr": range(2, 3)})
    with pytest.raises(UserError, match=r"^data\.max_length=64: all pairs of en-fr have a longer"):
        make_plan(configuration(1024, MAX_LENGTH, 1), several)
