"""The process: loads the models, serves, and ends in good order."""

import asyncio
import json
import logging
import resource
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn

from app.engines.engine import Engine
from app.engines.saved_model import SavedModelEngine, find_version, share_processors
from app.engines.tf_serving import TFServingEngine
from app.errors import UserError
from app.models.model import Model
from app.models.registry import Models
from app.server.application import create
from app.server.metrics import Metrics
from app.server.request_guard import Desk
from app.settings import Settings

CONNECTIONS = 2000
"""Connections at a time; beyond them uvicorn refuses."""

BACKLOG = 128
"""Connections that wait to be taken; so often asyncio tries, and logs, where no file is left."""

LEVELS = {
    "": logging.WARNING,
    "app": logging.INFO,
    "uvicorn": logging.WARNING,
    "python_multipart": logging.ERROR,  # its warnings are of what clients send
}
"""What is logged of whom; all else is the first's."""

GRACE = 1.0
"""Seconds for whoever sends us requests to see that /readyz says no."""


class Lines(logging.Formatter):
    """A line of JSON an event."""

    def format(self, record: logging.LogRecord) -> str:
        """As JSON."""
        fields = getattr(record, "fields", {})
        event = record.getMessage()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.created))
        return json.dumps({"time": moment, "event": event, **fields}, ensure_ascii=False)


class Server(uvicorn.Server):
    """Ends when what it has taken in is answered; a second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, desk: Desk) -> None:
        super().__init__(config)
        self._desk = desk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes nothing more in; then uvicorn's own way out."""
        if self._desk.closing:
            self.should_exit = self.force_exit = True  # whatever signal: uvicorn's own is SIGINT
            return
        if not self.started:
            super().handle_exit(sig, frame)
            return
        self._desk.closing = True
        self._captured_signals.append(sig)
        asyncio.get_running_loop().call_later(GRACE, self._leave)

    def _leave(self) -> None:
        self.should_exit = True


def serve(settings: Settings) -> None:
    """Serves until a signal ends it; exits as that signal would have it."""
    _log_to_stderr()
    listen(settings).close()  # a port that is taken is told before models are loaded
    metrics = Metrics()
    desk = Desk(settings, _models(settings, metrics), metrics)
    listener = listen(settings)
    config = uvicorn.Config(
        create(desk, metrics),
        access_log=False,
        log_config=None,
        lifespan="on",
        limit_concurrency=min(CONNECTIONS, _open_files() // 2),  # models and page need some too
        backlog=BACKLOG,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(settings.deadline) + 1,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
    )
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"app: http://{shown}:{port}", flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Server(config, desk).run(sockets=[listener])


def _open_files() -> int:
    """Lets this process open twice as many files as connections, if it ever may; says how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, min(2 * CONNECTIONS, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def _models(settings: Settings, metrics: Metrics) -> Models:
    """All models; those of this process are loaded."""
    folders = [(name, find_version(folder)) for name, folder in settings.models]
    engines: list[tuple[str, Engine]] = [
        (name, TFServingEngine(url, settings.deadline)) for name, url in settings.backends
    ]
    if folders:
        share_processors()
    engines += [(name, SavedModelEngine(path, settings.lanes)) for name, path in folders]
    return Models(
        [
            Model(name, engine, settings.patience, settings.cache, metrics)
            for name, engine in engines
        ]
    )


def listen(settings: Settings) -> socket.socket:
    """A socket that listens, and whose connections send at once; UserError where it cannot.

    asyncio has connections send at once only where their socket names its protocol, which those of
    Python do not: an answer's body would wait 40 ms for the client to confirm the head.
    """
    try:
        listener = socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=BACKLOG,
        )
    except OSError as error:
        place = f"--host={settings.host} --port={settings.port}"
        raise UserError(f"{place}: cannot listen there: {error.strerror}; try another") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    return listener


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, level in LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
