"""The models that are served, by name and by languages."""

import asyncio
from collections.abc import Iterator

from app.errors import ApiError, UnavailableError
from app.models.model import Model


class Models:
    """Those behind TensorFlow Serving, then those of this process, each as they were given.

    The first of a pair of languages answers for it.
    """

    def __init__(self, models: list[Model]) -> None:
        self._models = {model.name: model for model in models}
        self._watches: list[asyncio.Task[None]] = []

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    @property
    def ready(self) -> bool:
        """Whether all of them can be asked."""
        return all(model.ready for model in self)

    async def start(self) -> None:
        """Looks at each once, and from then on again and again."""
        await asyncio.gather(*(model.check() for model in self))
        self._watches = [asyncio.create_task(model.watch()) for model in self]

    async def close(self) -> None:
        """Ends the watches and lets go of the engines."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*(model.close() for model in self))

    def find(self, source: str | None, target: str | None, name: str | None = None) -> Model:
        """The model of that name, or the first for these languages; None is any."""
        if name is not None and name not in self._models:
            raise ApiError(404, "no_such_model", "no model has this name; see /api/v1/models")
        named = [self._models[name]] if name is not None else list(self)
        known = [(model, model.card) for model in named if model.card is not None]
        if not known:
            raise UnavailableError("no model is ready")
        for model, card in known:
            if source in (None, card.source) and target in (None, card.target):
                return model
        pairs = ", ".join(sorted({f"{card.source} to {card.target}" for _, card in known}))
        raise ApiError(422, "unsupported_languages", f"source, target: there is {pairs}")
