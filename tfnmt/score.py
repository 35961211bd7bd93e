"""Scores translations that are given: what a model thinks of them.

    python -m tfnmt.score --model=RUN --input=F.tsv [--output=SCORES]

Reads SOURCE TAB TARGET a line and writes LOG_PROB TAB SCORE TAB TOKENS a line: the natural
logarithm of the target's probability, the same over the length penalty, and the target's number of
pieces, eos counted. For sorting out bad pairs, and for putting several translations in order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run
from tfnmt.data.corpora.text_files import Pair, check_output, check_readable, read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import find_folder, find_run
from tfnmt.progress import bar, say
from tfnmt.runtime.files import write_lines

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_string("input", None, "a file of SOURCE TAB TARGET a line", flag_values=FLAGS)
flags.DEFINE_string("output", None, "the file to write to (default: stdout)", flag_values=FLAGS)
flags.DEFINE_float(
    "length_penalty", None, "alpha of the length penalty (default: the run's)", 0, flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Scores every line of the file."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: give both, and nothing else; see --help")
    changes = {} if values.length_penalty is None else {"length_penalty": values.length_penalty}
    model = find_run(find_folder(values.model), changes)
    check_readable(Path(values.input))
    check_output(values.output, values.input)
    translator = model.load_translator()

    from tfnmt.decoding.scorer import Scorer

    scorer = Scorer(translator)
    scored = bar(scorer.score(_pairs(Path(values.input))), "scoring", "lines")
    lines = (f"{log_prob:.4f}\t{score:.4f}\t{tokens}" for log_prob, score, tokens in scored)
    write_lines(lines, values.output)
    if scorer.cut:
        say(
            f"{scorer.cut:,} lines have a side longer than is read (decoding.max_source_length and "
            "max_length), and were scored as far as that"
        )
    if scorer.changed:
        say(
            f"{scorer.changed:,} of {scorer.count:,} targets are read otherwise than they are "
            "written (runs of spaces, for instance)"
        )


def _pairs(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path, errors="replace"), start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise UserError(f"{path}:{number}: no tab; SOURCE TAB TARGET is expected")
        if "\t" in target:
            raise UserError(f"{path}:{number}: more than one tab; SOURCE TAB TARGET is expected")
        yield source, target


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
