import pytest

from tfnmt.training.schedule import NoamSchedule


def test_schedule_is_equation_3_of_the_paper() -> None:
    schedule = NoamSchedule(512, 4000, 1.0)
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-5)


def test_schedule_peaks_at_the_end_of_the_warmup() -> None:
    schedule = NoamSchedule(128, 50, 2.0)
    rates = [float(schedule(steps)) for steps in range(200)]
    assert rates.index(max(rates)) == 49
    assert max(rates) == pytest.approx(2.0 * 128**-0.5 * 50**-0.5)
