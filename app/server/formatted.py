"""Texts of a request with markup, protected parts or a glossary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from fastapi import Request

from app.engines.engine import Direction, Mode, Translation
from app.errors import ApiError
from app.models.model import Model
from app.models.segments import SegmentTranslator, in_thread
from app.server.request_guard import RequestGuard
from tfnmt.documents.glossary import Glossary
from tfnmt.documents.segments import Document, text_segment
from tfnmt.documents.translation import Notices, Options, count_sentences

Format = Literal["text", "html"]


class FormattedTexts:
    """Translates the texts of one request, whose characters have been checked."""

    def __init__(
        self,
        guard: RequestGuard,
        request: Request,
        model: Model,
        direction: Direction,
        key: str | None = None,
    ) -> None:
        """Prepare a translation.

        Args:
            guard: Charges the client, and limits the time.
            request: The request.
            model: The model.
            direction: The languages.
            key: The API key, if it is not in a header.
        """
        self._guard = guard
        self._request = request
        self._model = model
        self._direction = direction
        self._key = key

    async def translate(
        self,
        texts: Sequence[str],
        format: Format,
        glossary: Glossary | None = None,
        mode: Mode = "beam",
    ) -> tuple[list[Translation], list[str]]:
        """Return a translation per text, and the notices about all of them.

        The score of each text is the mean of all sentences of the request.

        Args:
            texts: The texts.
            format: Their format.
            glossary: Required translations of terms.
            mode: The search algorithm.

        Raises:
            ApiError: A limit is exceeded, or the model cannot answer.
        """
        return await self._guard.run(self._request, self._translate(texts, format, glossary, mode))

    async def _translate(
        self, texts: Sequence[str], format: Format, glossary: Glossary | None, mode: Mode
    ) -> tuple[list[Translation], list[str]]:
        options = Options(self._direction.source, glossary)
        # One call per text, so that a canceled request does not read the other ones.
        documents = [await in_thread(READERS[format], text) for text in texts]
        segments = [segment for document in documents for segment in document.segments]
        count = await in_thread(count_sentences, segments, options)
        limit = self._guard.settings.max_sentences
        if count > limit:
            raise ApiError(422, "too_many", f"text: more than {limit} sentences")
        client = self._guard.charge(self._request, count, self._key)
        translator = SegmentTranslator(self._model, client, self._direction, mode)
        notices: Notices = await translator.run(segments, options)
        written = await in_thread(lambda: [document.write().decode() for document in documents])
        score = sum(translator.scores) / max(1, len(translator.scores))
        translations = [Translation(text, score, translator.truncated) for text in written]
        return translations, notices.texts


def _read_html(text: str) -> Document:
    from tfnmt.documents.html import read_html  # its packages are optional

    return read_html(text)


def _read_plain(text: str) -> Document:
    segment = text_segment(text)
    return Document([segment], lambda: segment.translated_text.encode())


READERS: Mapping[Format, Callable[[str], Document]] = {"text": _read_plain, "html": _read_html}
