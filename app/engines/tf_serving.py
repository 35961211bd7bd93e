"""A model behind TensorFlow Serving, over REST."""

import re
from typing import Any

import httpx

from app.engines.engine import Columns, Engine
from app.errors import ApiError, DeadlineError, UnavailableError, UsageError

URL = re.compile(r"https?://[^/?#]+/v1/models/([^/:?#]+)(/versions/\d+|/labels/[^/:?#]+)?/?")

LABEL = "/labels/"

LANES = 8
"""Requests at a time: enough for the server to make batches of, too few to fill its queue."""

STATUS_SECONDS = 5.0
"""A server that takes longer to say how it is, is not ready."""


class TFServingEngine(Engine):
    """Asks over connections that stay open."""

    lanes = LANES

    def __init__(self, url: str, seconds: float) -> None:
        """`seconds` is the longest that an answer may take."""
        model_name(url)  # which refuses what is no model's address
        self._url = url.rstrip("/")
        limits = httpx.Limits(max_connections=LANES + 2)
        timeout = httpx.Timeout(seconds, connect=STATUS_SECONDS)
        # Not through a proxy that the environment names: the server is next door.
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        """Asks a signature."""
        request = {"signature_name": signature, "inputs": columns}
        answer = await self._send("POST", f"{self._url}:predict", json=request)
        try:
            outputs = answer.json()["outputs"]
        except (ValueError, KeyError, TypeError) as error:
            raise _bad_backend() from error
        # A signature with one output gives it without its name; `info` is the only one.
        return outputs if isinstance(outputs, dict) else {"card": outputs}

    async def version(self) -> str:
        """The one that is asked: that of the label, or the highest that the server has loaded."""
        if LABEL in self._url:
            return await self._labelled_version()
        answer = await self._send("GET", self._url, timeout=STATUS_SECONDS)
        try:
            states = answer.json()["model_version_status"]
            ready = [int(one["version"]) for one in states if one["state"] == "AVAILABLE"]
        except (ValueError, KeyError, TypeError) as error:
            raise _bad_backend() from error
        if not ready:
            raise UnavailableError("the model is being loaded")
        return str(max(ready))

    async def _labelled_version(self) -> str:
        """By the metadata: the status of a label is that of all versions."""
        answer = await self._send("GET", f"{self._url}/metadata", timeout=STATUS_SECONDS)
        try:
            return str(int(answer.json()["model_spec"]["version"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _bad_backend() from error

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._client.aclose()

    async def _send(self, method: str, url: str, **request: Any) -> httpx.Response:
        try:
            answer = await self._client.request(method, url, **request)
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            raise DeadlineError from error
        except httpx.HTTPError as error:
            raise UnavailableError("the model's server does not answer") from error
        if answer.status_code == 504:
            raise DeadlineError
        if answer.status_code in (404, 429, 503):
            raise UnavailableError("the model's server is busy or has no such model")
        if answer.status_code != 200:
            raise _bad_backend()
        return answer


def model_name(url: str) -> str:
    """The name of the model in its address, which must be one."""
    found = URL.fullmatch(url)
    if found is None:
        raise UsageError(
            f"--backend={url}: no model's address; give one as http://host:8501/v1/models/NAME"
        )
    return found[1]


def _bad_backend() -> ApiError:
    return ApiError(502, "bad_backend", "the model's server gave no answer that can be used")
