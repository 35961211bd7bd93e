"""Detecting the language of a text among those of the served models."""

from collections.abc import Sequence

from app.errors import ApiError
from app.models.model import Model
from app.models.registry import ModelRegistry
from app.models.segments import in_thread
from tfnmt.documents.detection import Detector, Guess

AUTO = "auto"
"""Source language that is detected, or any if language detection is not installed."""


class LanguageDetection:
    """Detects languages with one detector per set of languages."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models
        self._detectors: dict[frozenset[str], Detector] = {}

    async def detect(self, texts: Sequence[str]) -> list[Guess]:
        """Return the possible languages of texts, the most probable first.

        Raises:
            ApiError: Language detection is not installed.
        """
        languages = frozenset(
            language
            for model in self._models
            if model.card is not None
            for direction in model.card.directions
            for language in direction[:2]
        )
        # The languages change only when a model is replaced.
        detector = self._detectors.setdefault(languages, Detector(languages))
        return await in_thread(detector.detect, "\n".join(texts))

    async def find(
        self, texts: Sequence[str], target: str, name: str | None = None
    ) -> tuple[Model, str | None, Guess | None]:
        """Return the model for texts of an unknown language, their language, and the guess.

        Without language detection, or for texts without letters, the first model for the target
        answers. The language is then None.

        Args:
            texts: The texts.
            target: The target language.
            name: Name of the model, or None for any.

        Raises:
            ApiError: No model translates from the language to the target.
        """
        first = self._models.find(None, target, name)
        try:
            guesses = await self.detect(texts)
        except ApiError:  # not installed
            return first, None, None
        if not guesses:
            return first, None, None
        source = guesses[0].language
        if source == target:
            return first, source, guesses[0]
        return self._find_model(source, target, name), source, guesses[0]

    def _find_model(self, source: str, target: str, name: str | None) -> Model:
        try:
            return self._models.find(source, target, name)
        except ApiError as error:
            if error.code != "unsupported_languages":
                raise
            message = (
                f"source: detected {source}, which no model translates to {target}; "
                "name the source language"
            )
            raise ApiError(error.status, error.code, message) from error
