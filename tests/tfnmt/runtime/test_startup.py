import os
import subprocess
import sys

import pytest

from tfnmt.runtime.startup import SETTINGS, expect_few_rows, set_environment

KERNELS = "TF_ENABLE_ONEDNN_OPTS"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is put back whatever the test does
        monkeypatch.delenv(name)


def test_settings_are_made() -> None:
    set_environment()
    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS


def test_few_rows_are_computed_by_tensorflows_own_kernels() -> None:
    expect_few_rows()
    set_environment()
    assert os.environ[KERNELS] == "0"


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, "1")
    expect_few_rows()
    set_environment()
    assert os.environ[KERNELS] == "1"


def test_what_keras_can_do_without_is_there_for_others() -> None:
    program = (
        "import sys; from tfnmt.runtime.startup import KERAS_CAN_DO_WITHOUT as name\n"
        "from tfnmt.runtime.startup import import_tensorflow\n"
        "import_tensorflow(); assert name not in sys.modules; import matplotlib.pyplot"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
