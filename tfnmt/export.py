"""Exports a run as a SavedModel: text to text, for TensorFlow Serving.

    python -m tfnmt.export --model=RUN --output=DIR

writes DIR/<version>/, the next free version, with the signatures serving_default (beam search) and
greedy. It appears only when it is complete.
"""

from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.errors import UsageError
from tfnmt.exporting.models import find_run, make_card
from tfnmt.flags import run
from tfnmt.progress import say

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "the run to export", flag_values=FLAGS)
flags.DEFINE_string("output", None, "the folder of versions", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Writes the next version."""
    if positional or not (values.model and values.output):
        raise UsageError("--model and --output: give both, and nothing else; see --help")
    model = find_run(Path(values.model))
    translator = model.load_translator()
    from tfnmt.exporting.saved_model import export_translator

    path = export_translator(translator, make_card(model), Path(values.output))
    say(f'exported {path}; try: python -m tfnmt.translate --model={values.output} "..."')


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
