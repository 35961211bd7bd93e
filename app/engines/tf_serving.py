"""A model in TensorFlow Serving, over REST."""

import asyncio
import json
import re
from typing import Any

import httpx

from app.engines.engine import Columns, Engine
from app.errors import ApiError, DeadlineError, UnavailableError, UsageError

MODEL_URL = re.compile(r"https?://[^/?#]+/v1/models/([^/:?#]+)(/versions/\d+|/labels/[^/:?#]+)?/?")

LABEL = "/labels/"

PARALLEL_STREAMS = 8
"""Parallel requests: enough for the server to form batches, too few to fill its queue."""

STATUS_SECONDS = 5.0
"""Timeout of status requests. A slower server counts as not ready."""

INVALID = (ValueError, KeyError, TypeError, RecursionError)
"""Errors of reading an answer that is not JSON, is nested too deeply or lacks a field."""


class TFServingEngine(Engine):
    """Sends requests over persistent connections."""

    parallel_streams = PARALLEL_STREAMS

    def __init__(self, url: str, timeout: float) -> None:
        """Create the HTTP client; no request is sent yet.

        Args:
            url: REST address of the model.
            timeout: Seconds to wait for a response.

        Raises:
            UsageError: The address is not that of a model.
        """
        model_name(url)  # checks the address
        self._url = url.rstrip("/")
        # trust_env=False: a proxy from the environment is not meant for an internal server.
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout, connect=STATUS_SECONDS),
            limits=httpx.Limits(max_connections=PARALLEL_STREAMS + 2),
            trust_env=False,
        )

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Run a signature on the server; see `Engine.call`."""
        request = {"signature_name": signature, "inputs": columns}
        response = await self._send("POST", f"{self._url}:predict", json=request)
        try:
            outputs = (await asyncio.to_thread(_parse, response.content))["outputs"]
        except INVALID as error:
            raise _bad_backend() from error
        # The server omits the name of a single output. Only `info` has a single output.
        return outputs if isinstance(outputs, dict) else {"card": outputs}

    async def version(self) -> str:
        """Return the version of the label, or without a label the highest that is loaded."""
        if LABEL in self._url:
            return await self._labeled_version()
        response = await self._send("GET", self._url, timeout=STATUS_SECONDS)
        try:
            states = response.json()["model_version_status"]
            ready = [int(state["version"]) for state in states if state["state"] == "AVAILABLE"]
        except INVALID as error:
            raise _bad_backend() from error
        if not ready:
            raise UnavailableError("the model is loading")
        return str(max(ready))

    async def _labeled_version(self) -> str:
        """Read the version from the metadata; the status of a label lists all versions."""
        response = await self._send("GET", f"{self._url}/metadata", timeout=STATUS_SECONDS)
        try:
            return str(int(response.json()["model_spec"]["version"]))
        except INVALID as error:
            raise _bad_backend() from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _send(self, method: str, url: str, **request: Any) -> httpx.Response:
        try:
            response = await self._client.request(method, url, **request)
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise DeadlineError from error
        except httpx.HTTPError as error:
            raise UnavailableError("the model server does not answer") from error
        if response.status_code == 504:
            raise DeadlineError
        if response.status_code in (404, 429, 503):
            raise UnavailableError("the model server is busy or does not have this model")
        if response.status_code != 200:
            raise _bad_backend()
        return response


def model_name(url: str) -> str:
    """Return the name of the model in a REST address.

    Raises:
        UsageError: The address is not that of a model.
    """
    match = MODEL_URL.fullmatch(url)
    if match is None or not _is_valid(url):
        raise UsageError(
            f"--backend={url}: not the address of a model; use http://host:8501/v1/models/NAME"
        )
    return match[1]


def _is_valid(url: str) -> bool:
    try:
        httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return True


def _parse(content: bytes) -> Any:
    """Parse JSON in a thread that lets other threads run.

    The parser is written in C and would keep the GIL until the end, which takes half a second for
    the attention weights of a long sentence. A call of a Python function can pass the GIL on.
    """
    return json.loads(content, parse_float=lambda number: float(number))


def _bad_backend() -> ApiError:
    return ApiError(502, "bad_backend", "the model server gave an invalid response")
