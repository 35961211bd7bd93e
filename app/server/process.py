"""The server process: load the models, serve, and shut down gracefully."""

import asyncio
import gc
import json
import logging
import resource
import signal
import socket
import sys
import time
from functools import partial
from types import FrameType

import uvicorn

from app.engines import saved_model
from app.engines.engine import Engine
from app.engines.in_process import InProcessEngine, find_version
from app.engines.tf_serving import TFServingEngine
from app.errors import UserError
from app.models.model import Model
from app.models.registry import ModelRegistry
from app.server.application import create
from app.server.metrics import Metrics
from app.server.protocol import IDLE_SECONDS, MAX_CONNECTIONS, Protocol, WaitingConnections
from app.server.request_guard import RequestGuard
from app.server.suggestions import open_store
from app.settings import Settings

UNREAD_SECONDS = 60
"""Time after which the system closes a connection whose client does not read."""

LISTEN_BACKLOG = 128
"""Connections that wait to be accepted. When no file descriptor is left, asyncio tries to accept,
and logs an error, this many times."""

LOG_LEVELS = {
    "": logging.WARNING,
    "app": logging.INFO,
    "uvicorn": logging.WARNING,
    "python_multipart": logging.ERROR,  # its warnings are about the content of requests
}
"""Log levels by logger; the first is the root logger."""

GRACE_SECONDS = 1.0
"""Time between a stop signal and the end of accepting connections, so that load balancers see
that /readyz returns 503."""


class JsonFormatter(logging.Formatter):
    """Formats each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        fields = getattr(record, "fields", {})
        event = record.getMessage()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.created))
        return json.dumps({"time": moment, "event": event, **fields}, ensure_ascii=False)


class Server(uvicorn.Server):
    """Shuts down when all accepted requests are answered. A second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, guard: RequestGuard) -> None:
        super().__init__(config)
        self._guard = guard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new requests, then start uvicorn's shutdown after the grace period."""
        if self._guard.closing:
            # For any second signal; uvicorn forces an exit only for SIGINT.
            self.should_exit = self.force_exit = True
            return
        if not self.started:
            super().handle_exit(sig, frame)
            return
        self._guard.closing = True
        self._captured_signals.append(sig)
        # The signal may interrupt the loop while it changes its list of timers.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, GRACE_SECONDS, self._exit)

    def _exit(self) -> None:
        self.should_exit = True


def serve(settings: Settings) -> None:
    """Serve until a signal arrives, then re-raise it after the shutdown.

    Raises:
        UserError: A model cannot be loaded, the port is in use, or a file cannot be used.
    """
    _log_to_stderr()
    # Report a port in use and an unusable file before the models are loaded.
    listen(settings).close()
    open_store(settings)
    metrics = Metrics()
    run(RequestGuard(settings, _load_models(settings, metrics), metrics), metrics)


def run(guard: RequestGuard, metrics: Metrics) -> None:
    """Serve the models of a guard; see `serve`."""
    listener = listen(guard.settings)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"app: http://{shown}:{port}", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()  # a garbage collection then skips all modules and models
    create_server(guard, metrics).run(sockets=[listener])


def create_server(guard: RequestGuard, metrics: Metrics) -> Server:
    """Create the server of an application."""
    settings = guard.settings
    # Half of the file descriptors: models and web page need some as well.
    max_connections = min(MAX_CONNECTIONS, _raise_file_limit() // 2)
    config = uvicorn.Config(
        create(guard, metrics, max_connections),
        http=partial(Protocol, waiting=WaitingConnections(max_connections)),  # type: ignore[arg-type]
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="on",
        backlog=LISTEN_BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(settings.deadline) + 1,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
    )
    return Server(config, guard)


def _raise_file_limit() -> int:
    """Raise the limit of open files to twice the connections, if permitted; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, min(2 * MAX_CONNECTIONS, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def _load_models(settings: Settings, metrics: Metrics) -> ModelRegistry:
    """Create all models; those behind TensorFlow Serving come first."""
    folders = [(name, find_version(folder)) for name, folder in settings.models]
    engines: list[tuple[str, Engine]] = [
        (name, TFServingEngine(url, settings.deadline)) for name, url in settings.backends
    ]
    if any(saved_model.is_export(path) for _, path in folders):
        saved_model.configure_threads()
    engines += [(name, InProcessEngine(path, settings.parallel_streams)) for name, path in folders]
    return ModelRegistry(
        [
            Model(name, engine, settings.max_wait, settings.cache, metrics)
            for name, engine in engines
        ]
    )


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket, whose options accepted connections inherit.

    With TCP_USER_TIMEOUT, the system closes connections whose clients do not read. asyncio sets
    TCP_NODELAY only on sockets with an explicit protocol number, and sockets created
    by Python have none. Without it, a response body waits 40 ms for the acknowledgement of the
    header.

    Raises:
        UserError: The address or the port cannot be used.
    """
    try:
        settings.host.encode("idna")  # a socket would stay open after this error
        listener = socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=LISTEN_BACKLOG,
        )
    except (OSError, UnicodeError) as error:
        place = f"--host={settings.host} --port={settings.port}"
        reason = error.strerror if isinstance(error, OSError) else "invalid name"
        raise UserError(f"{place}: cannot listen: {reason}; try another") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_SECONDS)
    return listener


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in LOG_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
