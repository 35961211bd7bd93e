"""Run the web application for a long time under mixed traffic, and look for leaks and slowdowns.

    python -m tests.soak.app --model=export/litert/en_de --model=export/models/en_de
        [--minutes=60] [--clients=3] [--hostile=10000] [--input=F] [--seed=1] [--work_dir=D]

Each model gets an application, and all applications run at the same time. Clients send texts, HTML,
documents, alignments and page requests all the time. A slow client sends headers and bodies byte by
byte, reads slowly, or sends nothing. In the meantime each application

    - lives for half of the time, then gives way to a new version of the model, as docs/operations
      describes it: no request may fail
    - is killed, and started again
    - is stopped with SIGTERM, and started again
    - gives way to another version
    - receives --hostile hostile requests on every route, then stops

While an application starts again, requests may be lost. All other requests must be answered
correctly. Prints JSON lines:

    app.life     A process: its peak memory, the slope of its memory in MB per hour without the
                 first third of its life (null if it was short), the open descriptors of the first
                 and last third, and the latency of single sentences in these thirds.
    app.hostile  A route: the statuses of the answers, the longest time, and failures.
    app.traffic  All requests of a model by kind: answered, refused (429, 503), lost, failures.

The exit status is 1 if an answer was wrong, or if an application logged an unexpected error.
"""

import json
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from benchmarks.measurement import read_sentences
from tests.soak.app_hostile import attack, find_routes
from tests.soak.app_traffic import Traffic
from tests.soak.client import Client, Message
from tests.soak.kill_translation import variants
from tests.soak.processes import Process
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError

START_SECONDS = 300.0
"""Time in which an application must be ready."""

MOVE_SECONDS = 2.0
"""Time between the first request to a new application and SIGTERM to the old one."""

UNEXPECTED = ('"event": "failed"', '"event": "document failed"', "Traceback")
"""Parts of a log that show an unexpected error."""

ATTACKERS = 2
"""Routes that are attacked at the same time."""

SHOWN = 5

UPDATE = "new version"


class Life(NamedTuple):
    """A process of the application."""

    share: float
    """Share of the time."""
    end: str
    """Name of the signal that ends it, or UPDATE."""


LIVES = (
    Life(0.5, UPDATE),
    Life(0.125, "SIGKILL"),
    Life(0.125, "SIGTERM"),
    Life(0.125, UPDATE),
    Life(0.125, "SIGTERM"),
)

FLAGS = flags.FlagValues()
flags.DEFINE_multi_string("model", [], "folder with the versions of an export", flag_values=FLAGS)
flags.DEFINE_float("minutes", 60.0, "time with mixed traffic", 0.1, flag_values=FLAGS)
flags.DEFINE_integer("clients", 3, "parallel clients per application", 1, flag_values=FLAGS)
flags.DEFINE_integer("hostile", 0, "hostile requests per route", 0, flag_values=FLAGS)
flags.DEFINE_string(
    "input", None, "sentences, one per line (default: toy corpus)", flag_values=FLAGS
)
flags.DEFINE_integer("seed", 1, "random seed of the requests", flag_values=FLAGS)
flags.DEFINE_string("work_dir", None, "folder that keeps models and logs", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Run an application per model."""
    if positional or not values.model:
        raise UsageError("--model: missing; give an export, and no other arguments")
    sentences = read_sentences(values.input)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary).absolute()
        soaks = [
            Soak(Path(model), folder / str(number), sentences, values)
            for number, model in enumerate(values.model, start=1)
        ]
        with ThreadPoolExecutor(len(soaks)) as pool:
            passed = list(pool.map(Soak.run, soaks))
    if not all(passed):
        sys.exit(1)


class Soak:
    """The lives of the application with one model.

    Args:
        model: Folder with the versions of an export.
        folder: Folder for copies of the model, and for logs.
        sentences: Sentences of the traffic.
        values: Values of the flags.
    """

    def __init__(self, model: Path, folder: Path, sentences: list[str], values: Any) -> None:
        versions = [path for path in model.iterdir() if path.name.isdecimal()]
        if not versions:
            raise UserError(f"--model={model}: contains no version; give a folder of versions")
        self._model = model
        self._newest = max(versions, key=lambda path: int(path.name))
        self._version = 1
        self._models = folder / "model"
        self._values = values
        self._processes: list[Process] = []
        self._passed = True
        self._client = Client()
        self._models.mkdir(parents=True)
        self._publish()
        texts = (text for text in variants(sentences, random.Random(values.seed)) if text)
        self._traffic = Traffic(texts, values.seed)

    def run(self) -> bool:
        """Run all lives; return whether every answer was correct."""
        try:
            return self._run()
        finally:
            for process in self._processes:
                process.kill()

    def _run(self) -> bool:
        minute = 60 * self._values.minutes
        process, port = self._start()
        self._traffic.move(port)
        self._traffic.start(self._values.clients, self._languages(port))
        for life in LIVES[:-1]:
            process.watch(minute * life.share)
            change = self._update if life.end == UPDATE else self._restart
            process, port = change(process, life.end)
        process.watch(minute * LIVES[-1].share)
        self._attack(port)
        self._traffic.stop()
        self._end(process, signal.SIGTERM, LIVES[-1].end)
        return self._result()

    def _update(self, old: Process, end: str) -> tuple[Process, int]:
        """Publish a version and start an application with it; then stop the old one."""
        self._version += 1
        self._publish()
        process, port = self._start()
        self._traffic.move(port)
        time.sleep(MOVE_SECONDS)
        self._end(old, signal.SIGTERM, end)
        return process, port

    def _restart(self, old: Process, end: str) -> tuple[Process, int]:
        """End the application with a signal and start another one."""
        self._traffic.go_down()
        self._end(old, signal.Signals[end], end)
        process, port = self._start()
        self._traffic.move(port)
        return process, port

    def _publish(self) -> None:
        """Publish a version of the model: complete, then under its name."""
        partial = self._models / ".new"
        shutil.copytree(self._newest, partial)
        partial.rename(self._models / str(self._version))

    def _start(self) -> tuple[Process, int]:
        """Start an application and wait until it is ready; return it and its port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        command = [sys.executable, "-m", "app", f"--model=soak={self._models}", f"--port={port}"]
        name = f"app-{len(self._processes) + 1}"
        options = ["--cache=1000", f"--suggestions={self._models.parent / 'suggestions.sqlite'}"]
        process = Process([*command, *options], self._models, name)
        self._processes.append(process)
        end = time.monotonic() + START_SECONDS
        while not self._is_ready(port):
            if time.monotonic() > end or not process.watch(0):
                raise UserError(f"{process.log}: not ready; log:\n{process.log.read_text()}")
            time.sleep(0.5)
        return process, port

    def _is_ready(self, port: int) -> bool:
        try:
            return self._client.send(port, Message("GET", "/readyz")).status == 200
        except OSError:
            return False

    def _languages(self, port: int) -> tuple[str, str]:
        """Return the first direction of the model."""
        answer = self._client.send(port, Message("GET", "/api/v1/models"))
        (model,) = json.loads(answer.body)["models"]
        direction = model.get("directions", [model])[0]
        return direction["source"], direction["target"]

    def _attack(self, port: int) -> None:
        """Send hostile requests to every route."""
        if not self._values.hostile:
            return
        routes = find_routes(port)
        with ThreadPoolExecutor(ATTACKERS) as pool:
            reports = pool.map(
                lambda route: attack(port, route, self._values.hostile, self._values.seed), routes
            )
            for route, report in zip(routes, reports, strict=True):
                self._passed &= not report.failures
                self._print(
                    "hostile",
                    route=route.name,
                    answers=dict(sorted(report.statuses.items())),
                    slowest_s=round(report.slowest, 2),
                    failed=len(report.failures),
                    failures=report.failures[:SHOWN],
                )

    def _end(self, process: Process, number: signal.Signals, end: str) -> None:
        """End a process and print its measurements."""
        process.end(number)
        third = len(process.samples) // 3 or 1
        descriptors = [sample.descriptors for sample in process.samples]
        log = process.log.read_text(encoding="utf-8")
        unexpected = [line for line in log.splitlines() if any(map(line.__contains__, UNEXPECTED))]
        self._passed &= not unexpected
        self._print(
            "life",
            end=end,
            **process.summary(),
            max_descriptors_first_third=max(descriptors[:third], default=None),
            max_descriptors_last_third=max(descriptors[-third:], default=None),
            **self._traffic.drift(),
            unexpected=unexpected[:SHOWN],
        )

    def _result(self) -> bool:
        """Print all requests; return whether everything was correct."""
        traffic = self._traffic
        self._passed &= not traffic.failures
        self._print(
            "traffic",
            answered=dict(traffic.answered),
            refused=dict(traffic.refused),
            lost=dict(traffic.lost),
            failed=dict(traffic.failed),
            failures=traffic.failures,
            passed=self._passed,
        )
        return self._passed

    def _print(self, task: str, **fields: Any) -> None:
        result = {"task": f"app.{task}", "model": str(self._model), **fields}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
