"""Score given translations: the probability that a model assigns to them.

    python -m tfnmt.score --model=RUN --input=F.tsv [--output=SCORES]

Reads lines of SOURCE TAB TARGET and writes lines of LOG_PROB TAB SCORE TAB TOKENS: the natural
logarithm of the target's probability, the same divided by the length penalty, and the number of
tokens of the target, EOS included. Use it to filter bad pairs or to rank several translations.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.data.corpora.text_files import Pair, check_output, check_readable, read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.models import find_folder, find_run
from tfnmt.progress import log, progress_bar
from tfnmt.runtime.files import write_lines

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_string("input", None, "a file with lines of SOURCE TAB TARGET", flag_values=FLAGS)
flags.DEFINE_string("output", None, "the file to write to (default: stdout)", flag_values=FLAGS)
flags.DEFINE_float(
    "length_penalty", None, "alpha of the length penalty (default: the run's)", 0, flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Score every line of the file."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: both required, without other arguments; see --help")
    changes = {} if values.length_penalty is None else {"length_penalty": values.length_penalty}
    model = find_run(find_folder(values.model), changes)
    check_readable(Path(values.input))
    check_output(values.output, values.input)
    translator = model.load_translator()

    from tfnmt.decoding.scorer import Scorer

    scorer = Scorer(translator)
    scored = progress_bar(scorer.score(_pairs(Path(values.input))), "scoring", "lines")
    lines = (f"{log_prob:.4f}\t{score:.4f}\t{tokens}" for log_prob, score, tokens in scored)
    write_lines(lines, values.output)
    if scorer.truncated:
        log(
            f"{scorer.truncated:,} lines: source or target longer than the limit "
            "(decoding.max_source_length, max_length); only the part within the limit was scored"
        )
    if scorer.changed:
        log(
            f"{scorer.changed:,} of {scorer.count:,} targets: the model reads another text than "
            "the file has, for example where it has several spaces in a row"
        )


def _pairs(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path, errors="replace"), start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise UserError(f"{path}:{number}: no tab; write SOURCE TAB TARGET")
        if "\t" in target:
            raise UserError(f"{path}:{number}: more than one tab; write SOURCE TAB TARGET")
        yield source, target


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
