"""The image of the web application with a LiteRT model, in a restricted container."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import tfnmt
from tests.containers.conftest import StartApp
from tests.containers.podman import Container, Podman, wait_until
from tfnmt.loading.registry import DEFAULT_MODEL

RESTART = "--restart=on-failure"
SENTENCES = [f"There are {number} old houses in this street." for number in range(60)]

FILL = """
with open("/tmp/fill", "wb") as file:
    while True:
        file.write(bytes(1_000_000))
"""
"""A program that fills /tmp, which is memory of the container."""


@pytest.fixture(scope="module")
def app(start_app: StartApp) -> Container:
    """The application with the model that comes with tfnmt."""
    with start_app("--memory=512m", "--pids-limit=128", flags=("--cache=0",)) as container:
        wait_until(container.ready)
        yield container


def test_app_serves_page_and_api(app: Container) -> None:
    page = app.get("/")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    text = "Where can I buy a ticket?"
    (translation,) = app.translate([text], source="en", target="fr").json()["translations"]
    (expected,) = tfnmt.load(DEFAULT_MODEL).translate([text], target="fr")
    assert translation["text"] == expected.text


def test_app_is_healthy(app: Container) -> None:
    assert app.healthy()
    assert app.get("/livez").status_code == 200


def test_app_cannot_gain_privileges_or_write(app: Container) -> None:
    status = app.execute("cat", "/proc/1/status").stdout
    assert re.search(r"^Uid:\s+65534\s+65534", status, re.M)
    assert re.search(r"^CapBnd:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert "Read-only" in app.execute("touch", "/srv/file").stderr
    assert app.execute("touch", "/tmp/file").returncode == 0


def test_app_stays_within_its_memory(app: Container) -> None:
    """The limit of compose.yaml, and requests with as many characters as they may have."""
    text = " ".join(SENTENCES * 3)[:5000]
    with ThreadPoolExecutor(3) as pool:
        send = partial(app.translate, source="en", target="de")
        responses = list(pool.map(send, [[text], [text[1:]], [text[2:]]]))
    assert {response.status_code for response in responses} <= {200, 503, 504}
    assert app.restarts() == 0
    peak = int(app.execute("cat", "/proc/1/status").stdout.split("VmHWM:")[1].split()[0])
    print(f"peak of the process: {peak / 1000:.0f} MB")


def test_app_serves_a_mounted_export(start_app: StartApp, tiny_litert: Path) -> None:
    volume = f"--volume={tiny_litert.parent}:/model:ro"
    with start_app(volume, flags=("--model=toy=/model",)) as container:
        wait_until(container.ready)
        model = container.translate(["a word"]).json()["model"]
    assert model == {"name": "toy", "version": "1"}


def test_app_reports_a_missing_model_in_one_line(podman: Podman, app_image: str) -> None:
    done = podman.attempt("podman", "run", "--rm", app_image, "--model=/nowhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "/nowhere: " in done.stderr


def test_app_answers_accepted_requests_before_it_stops(start_app: StartApp) -> None:
    patient = ("--deadline=100",)  # a busy machine is not an error of the application
    requests = [[f"{name}: {text}" for text in SENTENCES] for name in "ABCDEF"]
    with start_app(RESTART, flags=patient) as container, ThreadPoolExecutor(6) as pool:
        wait_until(container.ready)
        send = partial(container.translate, source="en", target="de")
        asked = [pool.submit(send, texts) for texts in requests]
        # All of them, and the request for the metrics.
        wait_until(lambda: "requests_in_flight 7.0" in container.get("/metrics").text)
        container.podman("stop", "--time=110", container.name)
        assert [each.result().status_code for each in asked] == [200] * len(requests)
        assert container.state()["Status"] == "exited"
        assert container.state()["ExitCode"] == 143
        time.sleep(2)
        assert container.restarts() == 0


def test_app_stops_while_it_loads(start_app: StartApp) -> None:
    with start_app() as container:
        wait_until(container.catches_sigterm)
        assert not container.ready()
        container.podman("stop", "--time=60", container.name)
        assert container.state()["ExitCode"] == 143  # 137 after --time


def test_app_restarts_after_a_kill(start_app: StartApp) -> None:
    with start_app(RESTART) as container:
        wait_until(container.ready)
        container.kill()
        wait_until(lambda: container.restarts() == 1)
        wait_until(container.ready)
        assert container.translate(["a word"], source="en", target="de").status_code == 200


def test_app_restarts_after_its_memory_is_full(start_app: StartApp) -> None:
    with start_app(RESTART, "--memory=512m") as container:
        wait_until(container.ready)
        container.execute("python", "-c", FILL)
        wait_until(lambda: container.restarts() == 1)
        wait_until(container.ready)
        assert container.translate(["a word"], source="en", target="de").status_code == 200


def test_app_with_too_little_memory_ends_clearly(start_app: StartApp) -> None:
    with start_app("--memory=40m") as container:
        wait_until(lambda: container.state()["Status"] == "exited")
        assert container.state()["ExitCode"] == 137
