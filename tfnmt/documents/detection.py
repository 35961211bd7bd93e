"""Language detection among the languages of a model, by lingua (extra `detect`)."""

import importlib.util
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from tfnmt.errors import UserError

MAX_CHARACTERS = 2000
"""The language of a text is detected from this many characters at most."""


def is_installed() -> bool:
    """Return whether the package that detects languages is installed."""
    return importlib.util.find_spec("lingua") is not None


def primary_language(code: str) -> str:
    """Return a language code without its region, such as `pt` for `pt-BR` and for `pt_BR`."""
    return code.replace("_", "-").partition("-")[0].lower()


class Guess(NamedTuple):
    """A language and the confidence in it, from 0 to 1."""

    language: str
    confidence: float


class Detector:
    """Detects the language of texts. The language models are loaded at the first text."""

    def __init__(self, languages: Iterable[str]) -> None:
        """Create a detector.

        Args:
            languages: Codes of the possible languages. Those that lingua does not know are never
                detected.
        """
        self._codes = sorted({primary_language(code): code for code in languages}.items())

    def detect(self, text: str) -> list[Guess]:
        """Return the possible languages, the most probable first.

        The result is empty if the text has no letters.

        Raises:
            UserError: The package is not installed.
        """
        text = text[:MAX_CHARACTERS]
        if not any(map(str.isalpha, text)):
            return []
        if len(self._known) < 2:
            return [Guess(code, 1.0) for code in self._known.values()]
        values = self._lingua.compute_language_confidence_values(unicodedata.normalize("NFC", text))
        return [
            Guess(self._known[value.language.iso_code_639_1.name.lower()], value.value)
            for value in values
        ]

    @cached_property
    def _known(self) -> dict[str, str]:
        """The codes of the languages that lingua knows, by their first part."""
        lingua = _import()
        names = {language.iso_code_639_1.name.lower() for language in lingua.Language.all()}
        return {first: code for first, code in self._codes if first in names}

    @cached_property
    def _lingua(self):  # type: ignore[no-untyped-def]  # the package is optional
        lingua = _import()
        codes = [getattr(lingua.IsoCode639_1, first.upper()) for first in self._known]
        return lingua.LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()


def _import():  # type: ignore[no-untyped-def]
    try:
        import lingua
    except ImportError as error:
        raise UserError(
            "language detection: needs the package lingua-language-detector; "
            "install tfnmt[detect], or name the source language"
        ) from error
    return lingua
