"""The forecast of data diversification, from the files that runs leave."""

import json
from pathlib import Path

from tfnmt.config import build_config
from tfnmt.diversification.forecast import Speed, Text, add_to_speed, forecast, read_speed
from tfnmt.diversification.plan import make_stages
from tfnmt.diversification.stages import Stage, Training

TEXT = Text(lines=1000, target_tokens=8000)


def stages_in(folder: Path) -> list[Stage]:
    config = {"training": {"max_steps": 100, "max_epochs": None}}
    changes = {"diversification": {"student": ["training.max_steps=300"]}}
    return make_stages(folder, build_config(config | changes))


def write_checkpoint(run: Path, step: int, seconds: float) -> None:
    folder = run / "checkpoints" / f"{step:08d}"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"step": step, "seconds": seconds}))


def test_forecast_needs_a_checkpoint(tmp_path: Path) -> None:
    assert forecast(stages_in(tmp_path), TEXT, Speed()) is None


def test_forecast_is_the_work_that_is_left_at_the_speed_so_far(tmp_path: Path) -> None:
    """100 steps of each teacher and 300 of the student, one second each."""
    stages = stages_in(tmp_path)
    write_checkpoint(tmp_path / "round-1" / "en-de-1", 40, 40.0)
    assert forecast(stages, TEXT, Speed()) == "about 0:07:40 of training left, and 2 translations"
    assert forecast(stages, TEXT, Speed(100, 3.0)) == "about 0:08:40 left"
    (tmp_path / "round-1" / "en-de-1" / "summary.json").touch()
    (tmp_path / "round-1" / "en-de-1.beam.de").touch()
    assert forecast(stages, TEXT, Speed(100, 3.0)) == "about 0:07:10 left"


def test_time_limit_bounds_the_forecast(tmp_path: Path) -> None:
    stages = make_stages(tmp_path, build_config({"training": {"max_minutes": 2}}))
    first = next(stage for stage in stages if isinstance(stage, Training))
    write_checkpoint(first.path, 1, 60.0)
    assert forecast(stages, TEXT, Speed(1, 0.0)) == "about 0:05:00 left"


def test_speed_of_translating_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    assert read_speed(path) == Speed()
    add_to_speed(path, 10, 2.0)
    add_to_speed(path, 30, 4.0)
    assert read_speed(path) == Speed(40, 6.0)
