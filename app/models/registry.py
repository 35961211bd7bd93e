"""All served models, found by name and by languages."""

import asyncio
from collections.abc import Iterator

from app.errors import ApiError, UnavailableError
from app.models.model import Model


class ModelRegistry:
    """The served models in order of preference.

    If several models have the requested languages, the first one answers.
    """

    def __init__(self, models: list[Model]) -> None:
        self._models = {model.name: model for model in models}
        self._watches: list[asyncio.Task[None]] = []

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    @property
    def ready(self) -> bool:
        """Whether all models are ready."""
        return all(model.ready for model in self)

    async def start(self) -> None:
        """Check all models once, then start checking them at regular intervals."""
        await asyncio.gather(*(model.check() for model in self))
        self._watches = [asyncio.create_task(model.watch()) for model in self]

    async def close(self) -> None:
        """Stop the checks and close the engines."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*(model.close() for model in self))

    def find(self, source: str | None, target: str | None, name: str | None = None) -> Model:
        """Return the model for a request.

        Args:
            source: Source language, or None for any.
            target: Target language, or None for any.
            name: Name of the model, or None for any.

        Raises:
            ApiError: No model has this name or was trained on these languages.
            UnavailableError: No model card has been read yet.
        """
        if name is not None and name not in self._models:
            raise ApiError(404, "no_such_model", "model: not found; see /api/v1/models")
        candidates = [self._models[name]] if name is not None else list(self)
        cards = [model.card for model in candidates if model.card is not None]
        if not cards:
            raise UnavailableError("no model is ready")
        for model in candidates:
            if model.direction(source, target):
                return model
        directions = (direction for card in cards for direction in card.directions)
        pairs = ", ".join(sorted({f"{source} to {target}" for source, target, _ in directions}))
        raise ApiError(
            422, "unsupported_languages", f"source, target: not supported; available: {pairs}"
        )
