"""The Ray executor: tasks are processed by actors on this machine or on a cluster.

Each worker is one actor, which loads the work once. Tasks and results are small, and text travels
through files. A worker that dies or hangs is replaced, and its task is tried again by any worker.
"""

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Self

from tfnmt.errors import UserError
from tfnmt.progress import log
from tfnmt.runtime.executors import (
    AnyTask,
    Event,
    Failed,
    Failures,
    Finished,
    Process,
    Report,
    Work,
    attempt_task,
    describe,
)

EMBEDDED = {
    # Without clusters, which Ray always has on Linux, it binds to 127.0.0.1.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Workers get the priority of this command, as the local executor has it.
    "RAY_worker_niceness": "0",
}
"""The environment in which an embedded Ray is imported and started."""

OBJECT_STORE = 80 * 2**20
"""Shared memory of an embedded Ray in bytes, nearly its minimum: objects are small here."""

FAILED_STARTS = 3
"""Failed starts of a worker in succession after which it is given up."""

START_SECONDS = 1800.0
"""Time in which at least one worker must have started; a cluster may start machines first."""

CONNECT_SECONDS = 10.0
"""Time in which the address of a cluster must answer."""

POLL_SECONDS = 1.0
"""Time between two checks for workers that hang."""


@dataclass(frozen=True)
class Resources:
    """The workers of a cluster."""

    workers: int
    cpus: float  # of each worker; a fraction if there are more workers than CPUs
    gpus: float  # of each worker


class RayExecutor:
    """Processes tasks in actors. Use it as a context manager; it connects to Ray."""

    def __init__(
        self,
        address: str | None,
        workers: int | None,
        gpus_per_worker: float,
        stall_seconds: float,
    ) -> None:
        """Create an executor.

        Args:
            address: The address of a cluster, or None to start an embedded Ray on this machine.
            workers: The number of workers. The default is one per share of `gpus_per_worker`, or
                one per node without GPUs.
            gpus_per_worker: GPUs that each worker uses.
            stall_seconds: Time without progress after which a worker is replaced.
        """
        self._address = address
        self._requested = workers
        self._gpus = gpus_per_worker
        self._stall_seconds = stall_seconds
        self._slots: list[_Slot] = []

    @property
    def workers(self) -> int:
        """The number of workers that were started."""
        return len(self._slots)

    def __enter__(self) -> Self:
        connect(self._address)
        try:
            resources = find_resources(self._requested, self._gpus)
            self._slots = [_Slot(resources) for _ in range(resources.workers)]
        except BaseException:
            self.__exit__()
            raise
        gpus = f", {resources.gpus:g} GPU(s)" if resources.gpus else ""
        log(f"Ray: {resources.workers} worker(s) with {resources.cpus:g} CPU(s){gpus} each")
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        ray.shutdown()  # ends the actors too

    def run(
        self, work: Work, tasks: Iterable[AnyTask], report: Report
    ) -> Iterator[tuple[AnyTask, Any]]:
        """Yield each task with its result, in the order in which they finish."""
        yield from _Run(self._slots, work, tasks, report).results(self._stall_seconds)


# --- Connecting -----------------------------------------------------------------------------------


def connect(address: str | None) -> None:
    """Connect to a cluster, or start an embedded Ray that only this machine can reach.

    Raises:
        UserError: There is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is not None:
        if address != "auto":
            _check_address(address)
        _initialize(address)
        return
    from tfnmt.runtime.startup import CPU_COUNT

    # Other users of this machine can reach the address, but they do not have the token.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with _environment(EMBEDDED):
        _initialize(
            "local",
            num_cpus=CPU_COUNT,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
        )


def _initialize(address: str, **options: Any) -> None:
    import ray

    try:
        with _own_signals():
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"--address={address}: cannot connect to Ray ({reason}); check that `ray status` shows "
            "a cluster, or omit --address"
        ) from error


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables temporarily."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _check_address(address: str) -> None:
    """Raise a UserError if nothing answers at HOST:PORT. Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise UserError(
            f"--address={address}: no Ray answers ({error}); give the HOST:PORT of `ray start "
            "--head`, or auto on a machine of the cluster"
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, handler)


def find_resources(workers: int | None, gpus: float) -> Resources:
    """Return the workers that fit into the cluster.

    Args:
        workers: Their number, if requested.
        gpus: GPUs that each worker uses.

    Raises:
        UserError: The cluster has too few GPUs.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in nodes if node.get("CPU")]
    if gpus:
        fitting = sum(int(node.get("GPU", 0) / gpus) for node in nodes)
        nodes = [node for node in nodes if node.get("GPU", 0) >= gpus]
    else:
        fitting = len(nodes)
    if not nodes or (gpus and (workers or 0) > fitting):
        raise UserError(
            f"--gpus_per_worker={gpus:g}: Ray has GPUs for {fitting} workers; see `ray status`, or "
            "use fewer workers or GPUs"
        )
    count = workers or fitting
    per_node = -(-count // len(nodes))
    cpus = min(node["CPU"] for node in nodes) / per_node
    return Resources(count, int(cpus) if cpus >= 1 else int(100 * cpus) / 100, gpus)


# --- Workers --------------------------------------------------------------------------------------


class Worker:
    """An actor: a process that loads the work once."""

    def __init__(self, folder: Path) -> None:
        """Change to the working folder of the command, in which its relative paths are valid."""
        os.chdir(folder)
        self._process: Process | None = None

    def load(self, work: Work) -> Failed | None:
        """Load the work of the next tasks."""
        try:
            self._process = work.load()
        except UserError as error:
            return Failed(error.problems, final=True)
        except Exception as error:
            return Failed((describe(error),), final=False)
        return None

    def run(self, task: Any, attempt: int) -> Iterator[Event]:
        """Process a task."""
        assert self._process is not None
        yield from attempt_task(self._process, task, attempt)


class _Slot:
    """A worker from the driver's view. A worker that died is replaced by another actor."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.failed_starts = 0
        self.task: Any = None
        self.attempt = 0
        self.units = 0  # progress of the attempt
        self.waits_for: Any = None  # the next event of the actor; None if it is idle
        self.since = time.monotonic()  # of the last event
        self._start()

    def _start(self) -> None:
        import ray

        resources = self._resources
        options = {
            "num_cpus": resources.cpus,
            "num_gpus": resources.gpus,
            "max_restarts": 0,
            "scheduling_strategy": "SPREAD",
            "runtime_env": {"env_vars": _worker_environment(resources)},
        }
        self._actor: Any = ray.remote(Worker).options(**options).remote(Path.cwd())

    @property
    def is_loading(self) -> bool:
        """Whether the actor is starting or loading the work."""
        return self.task is None and self.waits_for is not None

    def load(self, work: Work) -> None:
        """Send the work to the actor."""
        self._wait(self._actor.load.remote(work))

    def assign(self, task: Any, attempt: int) -> None:
        """Send a task to the actor."""
        self.task, self.attempt, self.units = task, attempt, 0
        self._wait(self._actor.run.options(num_returns="streaming").remote(task, attempt))

    def replace(self, work: Work) -> None:
        """Kill the actor, start another one, and load the work."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)
        self.task = None
        self._start()
        self.load(work)

    def take(self) -> tuple[Event | None, bool]:
        """Return the next event, None after a load, and whether the actor is alive."""
        import ray

        self.since = time.monotonic()
        try:
            reference = self.waits_for if self.task is None else next(self.waits_for)
            return ray.get(reference), True
        except (ray.exceptions.RayError, StopIteration) as error:
            return Failed((_reason_of_death(error),), final=False), False

    def become_idle(self) -> None:
        """Forget the task."""
        self.task = self.waits_for = None

    def _wait(self, reference: Any) -> None:
        self.waits_for, self.since = reference, time.monotonic()


def _worker_environment(resources: Resources) -> dict[str, str]:
    """Return the environment variables of a worker."""
    environment = {"TFNMT_CPUS": str(max(1, int(resources.cpus)))}
    if not resources.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    elif resources.gpus % 1:  # TensorFlow would take all memory of the GPU that workers share
        environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return environment


def _reason_of_death(error: Exception) -> str:
    import ray

    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, ray.exceptions.RayTaskError) or "creation task" in lines[0]:
        return lines[-1]  # of the traceback
    if isinstance(error, ray.exceptions.ActorDiedError):
        return "the worker process or its machine died"
    return f"{type(error).__name__}: {lines[0]}"


# --- Running --------------------------------------------------------------------------------------


class _Queue(Generic[AnyTask]):
    """Tasks with the number of their next attempt. It is false if none is left."""

    def __init__(self, tasks: Iterable[AnyTask]) -> None:
        self._tasks = iter(tasks)
        self._next: list[tuple[AnyTask, int]] = []

    def __bool__(self) -> bool:
        if not self._next:
            self._next += [(task, 1) for task in islice(self._tasks, 1)]
        return bool(self._next)

    def pop(self) -> tuple[AnyTask, int]:
        """Return a task that failed before, or else a new one."""
        return self._next.pop()

    def retry(self, task: AnyTask, attempt: int) -> None:
        """Add a task that failed."""
        self._next.append((task, attempt))


class _Run(Generic[AnyTask]):
    """One run of tasks over all workers."""

    def __init__(
        self, slots: list[_Slot], work: Work, tasks: Iterable[AnyTask], report: Report
    ) -> None:
        self._slots = slots
        self._work = work
        self._queue = _Queue(tasks)
        self._report = report
        self._failures = Failures()

    def results(self, stall_seconds: float) -> Iterator[tuple[AnyTask, Any]]:
        """Yield each task with its result, in the order in which they finish."""
        if self._queue:
            for slot in self._slots:
                slot.load(self._work)
        while self._queue or any(slot.task is not None for slot in self._slots):
            for slot in self._slots:
                if slot.waits_for is None and self._queue:
                    slot.assign(*self._queue.pop())
            ready = self._ready()
            # Before their results are yielded: the consumer may block, and events wait meanwhile.
            self._replace_stalled(ready, stall_seconds)
            for slot in ready:
                event, alive = slot.take()
                if isinstance(event, Finished):
                    yield slot.task, event.result
                    slot.become_idle()
                else:
                    self._handle(slot, event, alive)
        self._failures.check()

    def _ready(self) -> list[_Slot]:
        """Wait for events; return the workers that have one."""
        import ray

        waiting = {id(slot.waits_for): slot for slot in self._slots if slot.waits_for is not None}
        references = [slot.waits_for for slot in waiting.values()]
        ray.wait(references, num_returns=1, timeout=POLL_SECONDS)
        ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        return [waiting[id(reference)] for reference in ready]

    def _handle(self, slot: _Slot, event: int | Failed | None, alive: bool) -> None:
        """Handle an event that is no result."""
        if isinstance(event, int):
            slot.units += event
            self._report(event)
        elif slot.task is not None and event is not None:
            self._report(-slot.units)
            if self._failures.handle_failure(slot.task, slot.attempt, event):
                self._queue.retry(slot.task, slot.attempt + 1)
            slot.become_idle()
            if not alive:
                slot.replace(self._work)
        elif event is not None:
            self._restart(slot, event)
        else:
            slot.failed_starts = 0
            slot.become_idle()

    def _restart(self, slot: _Slot, failed: Failed) -> None:
        """Start a worker again that could not load the work, or give it up.

        Raises:
            UserError: No worker is left, or none would be able to load the work.
        """
        slot.failed_starts += 1
        if not failed.final and slot.failed_starts < FAILED_STARTS:
            log(f"worker: not started ({failed.problems[0]}); trying again")
            slot.replace(self._work)
            return
        if failed.final:
            raise UserError(*failed.problems)
        self._slots.remove(slot)
        if not self._slots:
            raise UserError(
                f"worker: cannot be started ({failed.problems[0]}); see its log in the folder of "
                "Ray, usually /tmp/ray/session_latest/logs"
            )

    def _replace_stalled(self, ready: list[_Slot], stall_seconds: float) -> None:
        """Replace workers that make no progress.

        Args:
            ready: The workers that have an event, which are not judged.
            stall_seconds: The time without progress.

        Raises:
            UserError: No worker has started.
        """
        now = time.monotonic()
        late = [slot for slot in self._slots if slot not in ready]
        for slot in late:
            if slot.task is not None and slot.since < now - stall_seconds:
                problem = f"no progress in {stall_seconds / 60:.2g} minutes"
                self._handle(slot, Failed((problem,), final=False), alive=False)
        loading = [slot for slot in late if slot.is_loading and slot.since < now - START_SECONDS]
        if len(loading) == len(self._slots):
            raise UserError(
                f"worker: none started in {START_SECONDS / 60:g} minutes; see `ray status`: a node "
                "needs enough free CPUs and GPUs"
            )
