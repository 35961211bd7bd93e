"""Translates text.

    python -m tfnmt.translate [--model=RUN_OR_EXPORT] "a sentence" "another one"
    python -m tfnmt.translate < lines.en > lines.de
    python -m tfnmt.translate --input=lines.en --output=lines.de

A line in, a line out, in order. Without --model the newest finished run translates. Text that
begins with a dash comes after --.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.data.files import decode_lines, read_lines
from tfnmt.errors import UsageError
from tfnmt.exporting.models import find_model
from tfnmt.flags import define_search, run
from tfnmt.progress import bar, say
from tfnmt.run import written_aside

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_string("input", None, "a file of lines to translate", flag_values=FLAGS)
flags.DEFINE_string("output", None, "the file to write them to", flag_values=FLAGS)
flags.DEFINE_bool("scores", False, "write SCORE TAB TRANSLATION", flag_values=FLAGS)
define_search(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Translates what is given as arguments, in a file, or on stdin."""
    if positional and values.input:
        raise UsageError("--input: give a file or texts, not both")
    model = find_model(values.model, values.beam_size, values.length_penalty)
    lines = _lines(positional, values.input)
    translations = _translate(model.load(), lines, values.scores)
    if values.output is None:
        for line in translations:
            print(line, flush=bool(positional))
        return
    with written_aside(Path(values.output)) as aside, aside.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in bar(translations, "translating", "lines"))


def _lines(texts: list[str], path: str | None) -> Iterable[str]:
    """What to translate; a file is looked at before TensorFlow is imported."""
    if texts:
        return texts
    if path is not None:
        return list(read_lines(Path(path)))
    if sys.stdin.isatty():
        say("reading lines from the terminal; Ctrl-D ends them")
    return decode_lines(sys.stdin.buffer, "stdin")


def _translate(translate: Any, lines: Iterable[str], scores: bool) -> Iterator[str]:
    from tfnmt.decoding.lines import translate_lines

    for translation in translate_lines(translate, lines):
        yield f"{translation.score:.4f}\t{translation.text}" if scores else translation.text


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
