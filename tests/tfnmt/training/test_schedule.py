import pytest

from tfnmt.training.schedule import NoamSchedule


def test_it_is_the_papers_equation_3() -> None:
    schedule = NoamSchedule(512, 4000, 1.0)
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-5)


def test_it_peaks_when_warm() -> None:
    schedule = NoamSchedule(128, 50, 2.0)
    rates = [float(schedule(updates)) for updates in range(200)]
    assert rates.index(max(rates)) == 49
    assert max(rates) == pytest.approx(2.0 * 128**-0.5 * 50**-0.5)
