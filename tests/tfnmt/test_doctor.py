"""The checks of the installation."""

import copy
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tfnmt import doctor
from tfnmt.doctor import FLAGS, Check


def check_package(line: str) -> Check:
    return doctor._package(Requirement(line))


def run_doctor() -> None:
    values = copy.deepcopy(FLAGS)
    values(["doctor"])
    doctor.main(values, [])


def test_package_in_its_range_passes() -> None:
    assert check_package("numpy>=1").passed


@pytest.mark.parametrize("line", ["numpy<1", "no-such-package>=2"])
def test_package_out_of_its_range_fails_with_the_command_that_installs_it(line: str) -> None:
    check = check_package(line)
    assert not check.passed
    assert f"pip install '{line}'" in check.text


def test_failed_command_is_described_by_its_last_line(tmp_path: Path) -> None:
    check = doctor._try("average", [sys.executable, "-m", "tfnmt.average", "--last=0"], tmp_path)
    assert not check.passed
    assert check.text.startswith("tfnmt.average: --last")


def test_failed_check_gives_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [Check("a", True, "1"), Check("b", False, "broken; fix it"), Check("c", True, "3")]
    monkeypatch.setattr(doctor, "_checks", lambda tiny_run: iter(checks))
    with pytest.raises(SystemExit) as ended:
        run_doctor()
    assert ended.value.code == 1
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "ok",
        "FAIL",
        "ok",
    ]


def test_gpu_that_tensorflow_does_not_find_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._gpus().passed
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    check = doctor._gpus()
    assert not check.passed
    assert "pip install 'tensorflow[and-cuda]'" in check.text


@pytest.mark.slow
def test_this_installation_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    run_doctor()
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert [line.split()[1] for line in lines[-3:]] == ["training:", "export:", "translation:"]
