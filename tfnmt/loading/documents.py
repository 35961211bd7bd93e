"""Documents translated by a loaded model."""

from collections.abc import Sequence
from pathlib import Path

from tfnmt.decoding.warnings import ForcedDecoding
from tfnmt.documents.archive import Limits
from tfnmt.documents.detection import Detector
from tfnmt.documents.formats import FORMATS, Languages, read_document, suffix_of
from tfnmt.documents.glossary import Glossary, parse_glossary
from tfnmt.documents.segments import Document
from tfnmt.documents.translation import Notices, Options, translate_segments
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.api import TextTranslator
from tfnmt.loading.directions import find_target, only_source
from tfnmt.progress import ProgressMeter, log
from tfnmt.runtime.files import write_atomically

LIMITS = Limits(bytes=1 << 30, unpacked_bytes=1 << 32, files=100_000, characters=1 << 30)
"""Limits of the files of the person who calls tfnmt: against accidents only."""

SHOWN_NOTICES = 5


def is_document(path: str | None) -> bool:
    """Return whether a file is translated as a document. Plain text is translated by line."""
    return path is not None and suffix_of(path) in FORMATS.keys() - {".txt"}


class OneDirection:
    """A loaded model with a fixed target language."""

    def __init__(self, translator: TextTranslator, target: str | None) -> None:
        """Fix the target language of a model; None for a model that has only one."""
        self._translator = translator
        self._target = target

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return the translation of each sentence."""
        translations = self._translator.translate(
            sentences, target=self._target, split_sentences=False
        )
        return [translation.text for translation in translations]

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[ForcedDecoding]:
        """Return the alignment of each sentence with its translation."""
        return self._translator.align(pairs, target=self._target)


def translate_document(
    translator: TextTranslator,
    path: Path,
    output: Path,
    *,
    source: str | None = None,
    target: str | None = None,
    glossary: Glossary | None = None,
) -> Notices:
    """Translate a file into another file of the same format.

    Args:
        translator: A loaded model.
        path: The document.
        output: The translated document.
        source: The language of the document, which is otherwise detected.
        target: The language to translate to, if the model has several.
        glossary: Required translations of terms.

    Returns:
        Notices about protected text and terms.

    Raises:
        UserError: The document cannot be read.
    """
    model = translator.model
    content = _read(path)
    chosen = find_target(model, source, target)
    source = source or only_source(model)
    document = read_document(content, str(path), LIMITS, Languages(source, chosen))
    if not source:
        source = _detect(translator, document, chosen)
        log(f"{path}: language {source}")
        document = read_document(content, str(path), LIMITS, Languages(source, chosen))
    direction = OneDirection(translator, target)
    with ProgressMeter("translating", "sentences") as meter:
        notices = translate_segments(
            document.segments, direction, Options(source, glossary), meter.show
        )
    write_atomically(output, document.write())
    return notices


def log_notices(notices: Notices) -> None:
    """Log the first notices and the number of all."""
    for text in notices.texts[:SHOWN_NOTICES]:
        log(text)
    if notices.count > SHOWN_NOTICES:
        log(f"{notices.count} notices in total")


def read_glossary(path: Path) -> Glossary:
    """Read a glossary.

    Raises:
        UserError: The file cannot be read, or a line is invalid.
    """
    return parse_glossary(_read(path), str(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path}: {reason}; give the path of a readable file") from error


def _detect(translator: TextTranslator, document: Document, target: str) -> str:
    """Return the most probable language of a document among those with this target."""
    pairs = (direction.split("-") for direction in translator.directions)
    sources = sorted({source for source, each in pairs if each == target})
    text = "\n".join(segment.text for segment in document.segments)
    guesses = Detector(sources).detect(text)
    if not guesses:
        problem = "the language cannot be detected"
        raise UsageError(f"--source: {problem}; set one of {', '.join(sources)}")
    return guesses[0].language
