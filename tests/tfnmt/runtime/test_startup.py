import os
import subprocess
import sys

import pytest

from tfnmt.runtime.startup import ENVIRONMENT, configure_for_single_sentences, set_environment

KERNELS = "TF_ENABLE_ONEDNN_OPTS"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it after the test
        monkeypatch.delenv(name)


def test_set_environment_sets_all_variables() -> None:
    set_environment()
    assert {name: os.environ[name] for name in ENVIRONMENT} == ENVIRONMENT


def test_single_sentences_use_tensorflow_kernels() -> None:
    configure_for_single_sentences()
    set_environment()
    assert os.environ[KERNELS] == "0"


def test_user_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, "1")
    configure_for_single_sentences()
    set_environment()
    assert os.environ[KERNELS] == "1"


def test_module_hidden_from_keras_can_be_imported_later() -> None:
    program = (
        "import sys; from tfnmt.runtime.startup import UNUSED_BY_KERAS as name\n"
        "from tfnmt.runtime.startup import import_tensorflow\n"
        "import_tensorflow(); assert name not in sys.modules; import matplotlib.pyplot"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
