"""Measure whether a translated Word document keeps the styles of its runs and the text's order.

    python -m benchmarks.styled_document [--pages=20] [--model=MODEL] [--target=de]

Writes an English document in which every styled run of a paragraph has a color of its own,
translates it and compares the two. Prints one JSON line with

- the number of styled runs, of those whose style is lost, of those whose style is left only on
  punctuation, and of styles that the original does not have
- the number of paragraphs, and of those with the same text as a translation without styles
- the seconds to translate the document, and its text without styles
"""

import json
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import docx
from absl import flags
from docx.shared import RGBColor
from docx.text.paragraph import Paragraph
from docx.text.run import Run

from tfnmt.cli import run_command
from tfnmt.documents.segments import text_segment
from tfnmt.documents.translation import Options, translate_segments
from tfnmt.errors import UsageError
from tfnmt.loading.api import TextTranslator, load
from tfnmt.loading.documents import OneDirection, translate_document
from tfnmt.loading.registry import DEFAULT_MODEL

FLAGS = flags.FlagValues()
flags.DEFINE_integer("pages", 20, "pages of the document", 1, flag_values=FLAGS)
flags.DEFINE_string("model", DEFAULT_MODEL, "model that translates English", flag_values=FLAGS)
flags.DEFINE_string("target", "de", "language to translate to", flag_values=FLAGS)

SUBJECTS = (
    *("My sister", "The teacher", "Our neighbor", "Tom", "Mary", "The old man", "The doctor"),
    *("The young woman", "My best friend", "The waiter"),
)
ACTIONS = (
    *("bought a new red car", "read a long letter", "lost the house keys", "wrote a short story"),
    *("opened all the windows", "found an old photo", "forgot the train tickets", "sold the boat"),
    *("repaired the broken bicycle", "drank a cup of green tea", "made soup with fresh vegetables"),
    *("sent the children to bed", "asked for a room with a view", "closed the heavy door"),
)
ENDINGS = (
    *("yesterday", "last week", "before breakfast", "in the kitchen", "at the station"),
    *("because it was cold", "after the long meeting", "without saying a word", "in the morning"),
)
SENTENCES = [f"{' '.join(words)}." for words in product(SUBJECTS, ACTIONS, ENDINGS)]

PARAGRAPHS = 8  # on a page
SENTENCES_PER_PARAGRAPH = 6
STYLED = 0.25
"""Share of words at which a styled run of one to three words begins."""


class Comparison(NamedTuple):
    """The styles of a paragraph that differ from those of its translation."""

    runs: int
    lost: int
    without_words: int
    added: int


def main(values: Any, positional: list[str]) -> None:
    """Write, translate and compare a document."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    translator = load(values.model)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "source.docx", Path(folder) / "output.docx"
        _write(source, values.pages)
        started = time.monotonic()
        translate_document(translator, source, output, source="en", target=values.target)
        seconds = time.monotonic() - started
        before, after = _paragraphs(source), _paragraphs(output)
    started = time.monotonic()
    plain = _translate_plain([each.text for each in before], translator, values.target)
    plain_seconds = time.monotonic() - started
    pairs = zip(before, after, strict=True)
    totals = [sum(column) for column in zip(*(_compare(*pair) for pair in pairs), strict=True)]
    result = {
        "pages": values.pages,
        **Comparison(*totals)._asdict(),
        "paragraphs": len(before),
        "same_text": sum(each.text == text for each, text in zip(after, plain, strict=True)),
        "seconds": round(seconds, 1),
        "plain_seconds": round(plain_seconds, 1),
    }
    print(json.dumps(result))


def _write(path: Path, pages: int) -> None:
    """Write a document whose pages have about 400 words, with a page break after each."""
    generator = random.Random(1)
    document = docx.Document()
    for _ in range(pages):
        for _ in range(PARAGRAPHS):
            sentences = generator.sample(SENTENCES, SENTENCES_PER_PARAGRAPH)
            _add_runs(document.add_paragraph(), " ".join(sentences).split(), generator)
        document.add_page_break()
    document.save(str(path))


def _add_runs(paragraph: Paragraph, words: Sequence[str], generator: random.Random) -> None:
    """Add words to a paragraph, some of them as styled runs."""
    color = position = 0
    while position < len(words):
        is_styled = generator.random() < STYLED
        length = generator.randint(1, 3) if is_styled else 1
        run = paragraph.add_run(" ".join(words[position : position + length]))
        if is_styled:
            color += 1
            run.font.color.rgb = RGBColor(color, 0, 0)
            run.bold, run.italic = generator.choice([(True, None), (None, True), (None, None)])
        paragraph.add_run(" ")
        position += length


def _paragraphs(path: Path) -> list[Paragraph]:
    """Return the paragraphs with text."""
    return [each for each in docx.Document(str(path)).paragraphs if each.text.strip()]


def _translate_plain(texts: Sequence[str], translator: TextTranslator, target: str) -> list[str]:
    segments = [text_segment(text) for text in texts]
    translate_segments(segments, OneDirection(translator, target), Options("en"))
    return [segment.translated_text for segment in segments]


def _compare(before: Paragraph, after: Paragraph) -> Comparison:
    expected, found = _styles(before.runs), _styles(after.runs)
    with_words = _styles(run for run in after.runs if any(map(str.isalnum, run.text)))
    return Comparison(
        runs=len(expected),
        lost=len(expected - found),
        without_words=len(expected & found - with_words),
        added=len(found - expected),
    )


def _styles(runs: Iterable[Run]) -> set[tuple[Any, ...]]:
    """Return the styles of the styled runs."""
    styles = ((run.font.color.rgb, run.bold, run.italic) for run in runs)
    return {style for style in styles if style[0] is not None}


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
