"""How the process listens."""

import socket

import pytest

from app.errors import UserError
from app.server.process import listen
from app.settings import Settings

LOCAL = Settings(models=(), backends=(), port=0)


def test_a_connection_sends_its_answer_at_once() -> None:
    with listen(LOCAL) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_told() -> None:
    with listen(LOCAL) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}"):
            listen(Settings(models=(), backends=(), port=port))
