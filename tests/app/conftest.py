"""A server of a fake engine for other people's clients."""

import sys
from collections.abc import Iterator

import pytest

from tests.system.conftest import App, running_app


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A server of a fake engine that requires the key `one-key`."""
    folder = tmp_path_factory.mktemp("server")
    keys = folder / "keys"
    keys.write_text("one-key")
    command = (sys.executable, "-m", "tests.app.fake_server", "--port=0", f"--api_keys={keys}")
    with running_app(folder, *command) as app:
        app.wait(200)
        yield app
