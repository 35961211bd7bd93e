"""Images that are built once per run of `make test-containers`."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import uuid4

import pytest

from tests.containers.podman import TOOLS, Container, Podman, free_port

StartApp = Callable[..., AbstractContextManager[Container]]


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    if not os.environ.get("TFNMT_CONTAINERS"):
        pytest.skip("only make test-containers runs it: it builds images for minutes")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed; see docs/contributing/development.md")
    if os.getuid():
        pytest.skip("debootstrap needs root")
    return Podman(tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="session")
def app_image(podman: Podman) -> str:
    """The web application without TensorFlow."""
    base = f"--build-arg=BASE={podman.base()}"
    return podman.build("export/Dockerfile", "localhost/tfnmt-test-app", "--target=app", base)


@pytest.fixture(scope="session")
def train_image(podman: Podman) -> str:
    """All commands, with TensorFlow."""
    base = f"--build-arg=BASE={podman.base()}"
    return podman.build("export/Dockerfile", "localhost/tfnmt-test-train", "--target=train", base)


@pytest.fixture(scope="session")
def serving_image(podman: Podman, train_image: str) -> str:
    """The stub server in place of TensorFlow Serving."""
    base = f"--build-arg=BASE={train_image}"
    return podman.build("tests/containers/Dockerfile", "localhost/tfnmt-test-serving", base)


@pytest.fixture(scope="session")
def start_app(podman: Podman, app_image: str) -> StartApp:
    """Start the application as export/Dockerfile says: `with start_app("--memory=1g") as app`."""

    @contextmanager
    def start(*options: str, flags: tuple[str, ...] = ()) -> Iterator[Container]:
        name, port = f"tfnmt-test-{uuid4().hex[:8]}", free_port()
        restricted = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL")
        podman(
            *("run", "--detach", f"--name={name}", f"--publish=127.0.0.1:{port}:8080"),
            *(*restricted, "--security-opt=no-new-privileges", *options, app_image, *flags),
        )
        try:
            yield Container(podman, name, f"http://127.0.0.1:{port}")
        finally:
            podman("rm", "--force", "--time=0", name)

    return start
