"""Data diversification on the toy corpus, with all stages as real processes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, settings
from tests.system.trainings import finish, processes, weights
from tfnmt.runs.run import Run

TIMEOUT = 1200
"""Seconds for five processes with TensorFlow, one after another, on a busy machine."""

SETTINGS = TINY | {
    "data.max_pairs": 300,
    "training.checkpoint_steps": 3,
    "decoding.beam_size": 2,
    "diversification.backward": "[beam, sampling]",
    "diversification.real_copies": 2,
    "diversification.student": "[model.d_ff=48]",
}


def command(folder: Path, cache: Path) -> list[str]:
    flags = ["--dataset=toy", f"--run_dir={folder}", f"--cache_dir={cache}", *settings(SETTINGS)]
    return [sys.executable, "-m", "tfnmt.diversify", *flags]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diversified")
    with processes() as start:
        errors = finish(start(command(folder / "straight", folder / "cache")), timeout=TIMEOUT)
    assert "stage 7 of 7: train straight/student; about " in errors
    return folder / "straight"


def corpus(folder: Path) -> list[bytes]:
    paths = [folder / "round-1" / "corpus-en-de" / f"train.{each}" for each in ("en", "de")]
    return [path.read_bytes() for path in paths]


def lines(text: bytes) -> list[bytes]:
    """Return the lines. Sampled text may contain other line ends of Unicode."""
    return text.split(b"\n")[:-1]


def test_student_learns_from_real_and_synthetic_pairs(uninterrupted: Path) -> None:
    source, target = map(lines, corpus(uninterrupted))
    real = [uninterrupted / "real" / f"train.{language}" for language in ("en", "de")]
    real_source, real_target = (lines(path.read_bytes()) for path in real)
    assert len(source) == len(target) == 5 * len(real_source)
    count = len(real_source)
    assert source[: 3 * count] == 3 * real_source
    assert target[: 2 * count] == 2 * real_target
    assert target[3 * count :] == 2 * real_target
    beam, sampled = source[3 * count : 4 * count], source[4 * count :]
    assert beam != sampled
    student = Run(uninterrupted / "student")
    assert student.finished
    assert student.config().model.d_ff == 48
    assert student.tokenizer_model() == Run(uninterrupted / "round-1/en-de-1").tokenizer_model()


def test_killed_diversification_resumes_exactly(uninterrupted: Path, tmp_path: Path) -> None:
    """It is killed in the first teacher, in a translation, and in the student."""
    folder = tmp_path / "killed"
    moments: list[tuple[Callable[[], bool], int]] = [
        (lambda: any((folder / "round-1/en-de-1/checkpoints").glob("0*")), signal.SIGKILL),
        (lambda: (folder / "round-1/.en-de-1.beam.de.job").exists(), signal.SIGKILL),
        (lambda: any((folder / "student/checkpoints").glob("0*")), signal.SIGTERM),
    ]
    with processes() as start:
        for reached, number in moments:
            process = start(command(folder, uninterrupted.parent / "cache"))
            wait_until(reached, process)
            process.send_signal(number)
            errors = process.communicate(timeout=TIMEOUT)[1]
            assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM)
        assert f"{folder}: stopped; resume with the same command: " in errors
        errors = finish(start(command(folder, uninterrupted.parent / "cache")), timeout=TIMEOUT)
    assert "stage 7 of 7: " in errors
    assert "stage 6 of 7: " not in errors  # a finished stage is not repeated
    assert corpus(folder) == corpus(uninterrupted)
    np.testing.assert_array_equal(
        weights(Run(folder / "student")), weights(Run(uninterrupted / "student"))
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
