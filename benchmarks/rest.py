"""A model behind the REST API of TensorFlow Serving."""

from typing import Any

import requests

from tfnmt.errors import UserError

PATIENCE = 120.0
"""Seconds for an answer: longer than any server's own limit."""

PAIR = ("text", "translation")
"""Inputs that can be filled with any text; signatures of others are left out."""


class Rest:
    """A model behind REST, over connections that stay open; one a thread."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.session = requests.Session()

    def signatures(self) -> dict[str, set[str]]:
        """The names of those that take texts, with their inputs."""
        try:
            answer = self.session.get(f"{self.url}/metadata", timeout=PATIENCE)
            answer.raise_for_status()
        except requests.RequestException as error:
            raise UserError(f"{self.url}: {error}") from error
        found = answer.json()["metadata"]["signature_def"]["signature_def"]
        inputs = {name: set(signature["inputs"]) for name, signature in found.items()}
        return {
            name: names for name, names in sorted(inputs.items()) if {"text"} <= names <= {*PAIR}
        }

    def post(self, signature: str, form: dict[str, Any]) -> requests.Response:
        """Asks; the form is `instances`, rows, or `inputs`, columns."""
        request = {"signature_name": signature, **form}
        return self.session.post(f"{self.url}:predict", json=request, timeout=PATIENCE)

    def predict(self, signature: str, form: dict[str, Any]) -> Any:
        """What came, without its key."""
        answer = self.post(signature, form)
        answer.raise_for_status()
        (content,) = answer.json().values()
        return content
