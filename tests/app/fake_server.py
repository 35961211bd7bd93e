"""Serves a fake engine of two directions that returns each text as its translation.

    python -m tests.app.fake_server [FLAG ...]

The flags are those of the application, except --model and --backend.
"""

import sys
from typing import Any

from app.engines.engine import Columns
from app.models.model import Model
from app.models.registry import ModelRegistry
from app.server import process
from app.server.metrics import Metrics
from app.server.request_guard import RequestGuard
from app.settings import Settings, parse
from tests.app.fake_engine import TWO_WAYS, FakeEngine


class EchoEngine(FakeEngine):
    """Returns the text as its translation."""

    async def call(self, signature: str, columns: Columns) -> dict[str, list[Any]]:
        texts = list(columns["text"])
        outputs = await super().call(signature, columns)
        return {**outputs, "translation": texts, "translations": [[text] for text in texts]}


def make_guard(
    settings: Settings, engine: FakeEngine | None = None, **card: Any
) -> tuple[RequestGuard, Metrics]:
    """Return a guard of one fake model with these fields on its card, and its metrics."""
    metrics = Metrics()
    engine = engine or EchoEngine()
    engine.card |= card
    model = Model("fake", engine, settings.max_wait, settings.cache, metrics)
    return RequestGuard(settings, ModelRegistry([model]), metrics), metrics


if __name__ == "__main__":
    process._log_to_stderr()
    settings = parse(["--backend=http://fake/v1/models/fake", *sys.argv[1:]])
    process.run(*make_guard(settings, **TWO_WAYS))
