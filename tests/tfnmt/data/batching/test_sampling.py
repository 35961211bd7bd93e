from collections import Counter

import numpy as np
import pytest

from tfnmt.data.batching.sampling import EpochRows

SIZES = {"en-de": 640, "en-fr": 80, "en-ur": 10}


def epoch_rows(temperature: float, seed: int = 1) -> EpochRows:
    ends = np.cumsum([0, *SIZES.values()])
    rows = {
        name: np.arange(start, end)
        for name, start, end in zip(SIZES, ends[:-1], ends[1:], strict=True)
    }
    return EpochRows(rows, temperature, seed)


def test_temperature_1_takes_every_row_once_per_epoch() -> None:
    rows = epoch_rows(1)
    assert rows.counts == SIZES
    for epoch in (0, 1, 7):
        np.testing.assert_array_equal(rows.of(epoch), np.arange(730))


@pytest.mark.parametrize("temperature", [1.5, 3, 5, 100])
def test_shares_are_proportional_to_a_root_of_the_sizes(temperature: float) -> None:
    rows = epoch_rows(temperature)
    weights = np.array([*SIZES.values()]) ** (1 / temperature)
    expected = 730 * weights / weights.sum()
    np.testing.assert_allclose([*rows.counts.values()], expected, atol=1)
    assert len(rows) == sum(rows.counts.values()) == len(rows.of(3)) == 730


def test_cube_roots_of_8_1_and_an_eighth_give_shares_of_4_2_and_1() -> None:
    assert list(epoch_rows(3).counts.values()) == [417, 209, 104]


def test_rows_belong_to_their_direction() -> None:
    rows = epoch_rows(5)
    for name, own in zip(
        SIZES, np.split(rows.of(2), np.cumsum([*rows.counts.values()])[:-1]), strict=True
    ):
        assert set(own.tolist()) <= set(rows.rows[name].tolist())


def test_no_row_is_taken_again_before_the_others_of_its_direction() -> None:
    rows = epoch_rows(5)
    seen: Counter[int] = Counter()
    for epoch in range(6):
        seen.update(rows.of(epoch).tolist())
        for own in rows.rows.values():
            counts = [seen[row] for row in own.tolist()]
            assert max(counts) - min(counts) <= 1


def test_rows_are_a_function_of_seed_and_epoch() -> None:
    first = [epoch_rows(5).of(epoch).tolist() for epoch in (3, 0, 3)]
    assert first[0] == first[2] != first[1]
    assert epoch_rows(5, seed=2).of(3).tolist() != first[0]


def test_summary_states_the_rows_of_each_direction() -> None:
    assert epoch_rows(3).summary() == "en-de 417 (of 640), en-fr 209 (of 80), en-ur 104 (of 10)"
