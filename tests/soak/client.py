"""An HTTP client that costs little processor time, so that the server gets the rest."""

import http.client
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_SECONDS = 120.0
"""Timeout of a request, longer than the application's own deadline."""


@dataclass(frozen=True)
class Message:
    """A request."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]  # lowercase names
    body: bytes


class Client:
    """A persistent connection to a server on this machine."""

    def __init__(self) -> None:
        self._connection: http.client.HTTPConnection | None = None

    def send(self, port: int, message: Message) -> Answer:
        """Send a request. A connection that the server has closed is opened again.

        Raises:
            OSError: The connection failed.
            http.client.HTTPException: The response is invalid.
        """
        if self._connection is not None and self._connection.port == port:
            try:
                return self._exchange(message)
            except (ConnectionError, http.client.RemoteDisconnected):
                pass
        self.close()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, TIMEOUT_SECONDS)
        return self._exchange(message)

    def _exchange(self, message: Message) -> Answer:
        connection = self._connection
        assert connection is not None
        try:
            connection.request(message.method, message.path, message.body or None, message.headers)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())
        except BaseException:
            self.close()  # it would refuse the next request
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def json_message(path: str, content: Any) -> Message:
    """Return a request with a JSON body."""
    body = json.dumps(content).encode()
    return Message("POST", path, body, {"Content-Type": "application/json"})


def form_message(path: str, fields: dict[str, str], name: str, content: bytes) -> Message:
    """Return a request with a form of fields and a file."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    quoted = name.replace('"', "%22").replace("\r", "").replace("\n", "")
    disposition = f'form-data; name="file"; filename="{quoted}"'
    parts.append(f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode())
    body = b"".join([*parts, content, f"\r\n--{boundary}--\r\n".encode()])
    headers: dict[str, str | bytes] = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return Message("POST", path, body, headers)
