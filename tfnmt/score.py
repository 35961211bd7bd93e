"""Score given translations: the probability that a model assigns to them.

    python -m tfnmt.score --model=RUN_OR_LITERT --input=F.tsv [--output=SCORES]
    python -m tfnmt.score --model=RUN_OR_LITERT --input=F.jsonl [--output=SCORES]

Reads lines of SOURCE TAB TARGET, or a .jsonl file that translate wrote with --json or --nbest.
Writes a line of LOG_PROB TAB SCORE TAB TOKENS per translation: the natural logarithm of its
probability, the same divided by the length penalty, and its number of tokens, EOS included. Use it
to filter bad pairs or to rank several translations.

A .jsonl file has the token ids of each hypothesis. Their score is the score that translate gave
them. A text can be written with different tokens. score uses those of the tokenizer, but
translate may have found others.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags
from pydantic import BaseModel, StrictInt, ValidationError

from tfnmt.cli import define_direction, define_engine, run_command
from tfnmt.data.corpora.text_files import check_readable, decompressed_name, read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.exporting.converted import select_engine
from tfnmt.loading.directions import find_direction
from tfnmt.loading.models import find_model
from tfnmt.progress import LineNotes, ReplacementNotes, progress_bar
from tfnmt.runtime.files import check_outputs, write_lines

if TYPE_CHECKING:
    from tfnmt.decoding.scorer import Scored, Scorer

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or a LiteRT export", flag_values=FLAGS)
flags.DEFINE_string(
    "input",
    None,
    "lines of SOURCE TAB TARGET, or a .jsonl file of translate --json or --nbest",
    flag_values=FLAGS,
)
flags.DEFINE_string("output", None, "the file to write to (default: stdout)", flag_values=FLAGS)
flags.DEFINE_float(
    "length_penalty", None, "alpha of the length penalty (default: the run's)", 0, flag_values=FLAGS
)
define_direction(FLAGS)
define_engine(FLAGS)


class Given(NamedTuple):
    """A translation to score, and the line that it is from."""

    line: int
    source: str
    text: str
    tokens: tuple[int, ...] = ()  # of a hypothesis in a .jsonl file


class Hypothesis(BaseModel):
    """A hypothesis in a line of `translate --json`; other fields are ignored."""

    text: str
    tokens: tuple[StrictInt, ...] | None = None


class JsonLine(BaseModel):
    """A line of `translate --json`; other fields are ignored."""

    source: str
    translations: list[Hypothesis]


def main(values: Any, positional: list[str]) -> None:
    """Score every translation of the file."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: both required, without other arguments; see --help")
    changes = {} if values.length_penalty is None else {"length_penalty": values.length_penalty}
    model = select_engine(find_model(values.model, changes), values.engine, values.quantization)
    _, target = find_direction(model, values.direction)
    path = Path(values.input)
    check_readable(path)
    check_outputs({"--output": values.output}, {"--input": [path], "--model": model.files})

    from tfnmt.loading.api import TextTranslator, check_scoring

    check_scoring(model)
    scorer = TextTranslator(model, model.load()).scorer(target)
    if decompressed_name(path).suffix == ".jsonl":
        scored = _score_ids(scorer, _read_json(path, scorer.vocab_size), path)
    else:
        scored = _score_texts(scorer, path)
    write_lines(_format(progress_bar(scored, "scoring", "translations")), values.output)


def _format(scored: Iterable[tuple[int, "Scored"]]) -> Iterator[str]:
    """Yield the output lines, and note the lines that were truncated."""
    notes = LineNotes(
        "source or target longer than the limit (decoding.max_source_length, max_length)",
        "only the part within the limit was scored",
    )
    with closing(notes):
        for line, each in scored:
            if each.truncated:
                notes.add(line)
            yield f"{each.log_prob:.4f}\t{each.score:.4f}\t{each.tokens}"


# --- Texts ----------------------------------------------------------------------------------------


def _score_texts(scorer: "Scorer", path: Path) -> Iterator[tuple[int, "Scored"]]:
    """Yield the line number and the score of each target."""
    from tfnmt.decoding.lines import single_line

    replaced = ReplacementNotes()
    changed = LineNotes(
        "the model reads another target than the file has, for example without repeated spaces",
        "the score is that of the text that it reads",
    )
    given, again = tee(_read_pairs(path, replaced))
    with closing(replaced), closing(changed):
        scored = scorer.score((each.source, each.text) for each in again)
        for each, result in zip(given, scored, strict=True):
            if not result.truncated and result.text != single_line(each.text):
                changed.add(each.line)
            yield each.line, result


def _read_pairs(path: Path, replaced: ReplacementNotes) -> Iterator[Given]:
    for number, line in enumerate(replaced.check(read_lines(path, errors="replace")), start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise UserError(f"{path}:{number}: no tab; write SOURCE TAB TARGET")
        if "\t" in target:
            raise UserError(f"{path}:{number}: more than one tab; write SOURCE TAB TARGET")
        yield Given(number, source, target)


# --- Token ids ------------------------------------------------------------------------------------


def _score_ids(
    scorer: "Scorer", lines: Iterator[Given], path: Path
) -> Iterator[tuple[int, "Scored"]]:
    """Yield the line number and the score of each hypothesis."""
    given, again = tee(lines)
    scored = scorer.score_ids((each.source, each.tokens) for each in again)
    for each, result in zip(given, scored, strict=True):
        if result.text != each.text:
            raise UserError(
                f"{path}:{each.line}: the token ids give another text; score them with the run "
                "that found them"
            )
        yield each.line, result


def _read_json(path: Path, vocab_size: int) -> Iterator[Given]:
    """Yield each hypothesis of each line."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            parsed = JsonLine.model_validate_json(line)
        except ValidationError as error:
            detail = error.errors()[0]
            place = ".".join(map(str, detail["loc"])) or "line"
            raise UserError(
                f"{path}:{number}: {place}: {detail['msg']}; write the file with translate --json"
            ) from error
        for hypothesis in parsed.translations:
            if hypothesis.tokens is None:
                raise UserError(
                    f"{path}:{number}: no token ids, because the sentences of the line were "
                    "translated one by one; translate without --split_sentences"
                )
            if not _are_valid(hypothesis.tokens, vocab_size):
                raise UserError(
                    f"{path}:{number}: not token ids of this run; score them with the run that "
                    "found them"
                )
            yield Given(number, parsed.source, hypothesis.text, hypothesis.tokens)


def _are_valid(ids: tuple[int, ...], vocab_size: int) -> bool:
    """Return whether a search may have found some ids: EOS is the last one, if there is one."""
    from tfnmt.data.preparation.tokenizer import EOS

    return all(EOS < each < vocab_size for each in ids[:-1]) and (
        not ids or EOS <= ids[-1] < vocab_size
    )


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
