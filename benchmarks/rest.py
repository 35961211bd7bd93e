"""Client for a model behind the REST API of TensorFlow Serving."""

from collections.abc import Callable, Iterable
from typing import Any

import requests

from tfnmt.errors import UserError

TIMEOUT_SECONDS = 120.0
"""Timeout of a request, longer than the limit of any server."""

TEXT_INPUTS = ("text", "translation")
"""Inputs that accept any text. Signatures with other inputs, except TARGET, are left out."""

TARGET = "target"
"""The input with the target language, of a model with several."""


class RestClient:
    """A model behind REST, over a persistent connection. Each thread needs its own client."""

    def __init__(self, url: str, target: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.target = target
        self.session = requests.Session()

    def signatures(self) -> dict[str, set[str]]:
        """Return the names of the signatures that take text, with their inputs.

        Raises:
            UserError: The server cannot be reached, does not have the model, or the model needs a
                target language.
        """
        try:
            response = self.session.get(f"{self.url}/metadata", timeout=TIMEOUT_SECONDS)
            response.raise_for_status()
        except requests.RequestException as error:
            raise UserError(f"--url={self.url}: {error}; check the address") from error
        definitions = response.json()["metadata"]["signature_def"]["signature_def"]
        inputs = {name: set(signature["inputs"]) for name, signature in definitions.items()}
        found = {
            name: names
            for name, names in sorted(inputs.items())
            if {"text"} <= names <= {*TEXT_INPUTS, TARGET}
        }
        if self.target is None and any(TARGET in names for names in found.values()):
            raise UserError("--target: missing; give the language to translate to")
        return found

    def row(self, inputs: Iterable[str], text: Callable[[], Any]) -> dict[str, Any]:
        """Return a row of a request: a text for each input, except for the target language."""
        return {name: self.target if name == TARGET else text() for name in sorted(inputs)}

    def post(self, signature: str, body: dict[str, Any]) -> requests.Response:
        """Send a predict request.

        Args:
            signature: Name of the signature.
            body: `{"instances": [...]}` (rows) or `{"inputs": {...}}` (columns).
        """
        request = {"signature_name": signature, **body}
        return self.session.post(f"{self.url}:predict", json=request, timeout=TIMEOUT_SECONDS)

    def predict(self, signature: str, body: dict[str, Any]) -> Any:
        """Send a predict request; return the predictions or outputs of the response.

        Raises:
            requests.RequestException: The request failed or the status is not 2xx.
        """
        response = self.post(signature, body)
        response.raise_for_status()
        (content,) = response.json().values()
        return content
