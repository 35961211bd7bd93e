"""export/compose.yaml with the stub server in place of TensorFlow Serving."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.containers.podman import ROOT, Container, Podman, free_port, wait_until

KIT = ROOT / "export"
PROJECT = "tfnmt-test"


class Services(NamedTuple):
    """The running services, and the folder with the versions of the model."""

    serving: Container
    app: Container
    versions: Path

    def version(self) -> str:
        (model,) = self.app.get("/api/v1/models").json()["models"]
        return model["version"]


@pytest.fixture(scope="module")
def services(
    podman: Podman,
    app_image: str,
    serving_image: str,
    tiny_export: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("compose")
    versions = folder / "models" / "demo"
    shutil.copytree(tiny_export / "1", versions / "1")
    compose = yaml.safe_load((KIT / "compose.yaml").read_text())
    serving, app = compose["services"]["serving"], compose["services"]["app"]
    # The changes: both images, folders, and ports that other programs do not use.
    serving["image"], app["image"] = serving_image, app_image
    del app["build"]
    for volume in serving["volumes"]:
        source = (folder if volume["source"] == "./models" else KIT) / volume["source"]
        volume["source"] = str(source.resolve())
    ports = {service: free_port() for service in ("serving", "app")}
    serving["ports"] = [f"127.0.0.1:{ports['serving']}:8501"]
    app["ports"] = [f"127.0.0.1:{ports['app']}:8080"]
    file = folder / "compose.yaml"
    file.write_text(yaml.safe_dump(compose))
    command = ("podman-compose", f"--project-name={PROJECT}", f"--file={file}")
    podman.run(*command, "down")
    try:
        podman.run(*command, "up", "--detach", "--no-build")
        running = Services(
            *(
                Container(podman, f"{PROJECT}_{name}_1", f"http://127.0.0.1:{ports[name]}")
                for name in ("serving", "app")
            ),
            versions,
        )
        wait_until(running.app.ready)
        yield running
    finally:
        podman.run(*command, "down")


def test_services_serve_page_and_api(services: Services) -> None:
    assert "<title>" in services.app.get("/").text
    response = services.app.translate(["a word", "two words"])
    assert response.status_code == 200, response.text
    assert len(response.json()["translations"]) == 2
    assert services.serving.get("/v1/models/demo").status_code == 200


def test_services_are_healthy(services: Services) -> None:
    assert services.serving.healthy()
    assert services.app.healthy()


@pytest.mark.parametrize("name", ["serving", "app"])
def test_services_cannot_gain_privileges_or_write(services: Services, name: str) -> None:
    container = getattr(services, name)
    status = container.execute("cat", "/proc/1/status").stdout
    assert re.search(r"^Uid:\s+65534\s+65534", status, re.M)
    assert re.search(r"^CapBnd:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert "Read-only" in container.execute("touch", "/srv/file").stderr
    host = services.serving.podman.inspect(container.name)["HostConfig"]
    assert host["Memory"] > 0
    assert 0 < host["PidsLimit"] <= 512


def test_server_cannot_change_the_models(services: Services) -> None:
    done = services.serving.execute("touch", "/models/demo/file")
    assert "Read-only" in done.stderr


def test_app_follows_a_new_version_without_a_failed_request(services: Services) -> None:
    before = services.version()
    after = str(int(before) + 1)
    statuses = []

    def translated_by_the_new_version() -> bool:
        response = services.app.translate(["a word"])
        statuses.append(response.status_code)
        return response.json()["model"]["version"] == after

    # Complete before it appears, as export publishes it.
    new = services.versions.parent / "new"
    shutil.copytree(services.versions / before, new)
    new.rename(services.versions / after)
    wait_until(translated_by_the_new_version)
    assert set(statuses) == {200}


def test_app_is_ready_again_after_the_server_is_killed(services: Services) -> None:
    restarts = services.serving.restarts()
    services.serving.kill()
    wait_until(lambda: services.app.get("/readyz").status_code == 503)
    assert services.app.get("/livez").status_code == 200
    wait_until(services.app.ready)
    assert services.serving.restarts() == restarts + 1
    assert services.app.translate(["a word"]).status_code == 200


def test_app_restarts_after_a_kill(services: Services) -> None:
    restarts = services.app.restarts()
    services.app.kill()
    wait_until(lambda: services.app.restarts() == restarts + 1)
    wait_until(services.app.ready)


def test_server_restarts_after_its_memory_is_full(services: Services) -> None:
    restarts = services.serving.restarts()
    program = "import os\nfile = open('/tmp/fill', 'wb')\nwhile True: file.write(bytes(10**6))"
    services.serving.execute("python", "-c", program)
    wait_until(lambda: services.serving.restarts() == restarts + 1)
    wait_until(services.app.ready)


def test_services_stop_in_time(services: Services) -> None:
    for container in (services.app, services.serving):
        container.podman("stop", "--time=30", container.name)
        assert container.state()["ExitCode"] == 143
        container.podman("start", container.name)
    wait_until(services.app.ready)
