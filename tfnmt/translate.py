"""Translates text.

    python -m tfnmt.translate [--model=RUN_OR_EXPORT] "a sentence" "another one"
    python -m tfnmt.translate < lines.en > lines.de
    python -m tfnmt.translate --input=lines.en --output=lines.de [--resume]

A line in, a line out, in order. Without --model the newest finished run translates. Text that
begins with a dash comes after --. --json and --nbest write a JSON object a line: translations with
score and the log probability of each piece, whether the line was cut, and what looks wrong.
"""

import json
import math
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from absl import flags

from tfnmt.cli import define_search, not_utf_8, run, search_changes
from tfnmt.config import SamplingConfig
from tfnmt.data.corpora.text_files import (
    check_output,
    check_readable,
    decode_lines,
    open_bytes,
    read_lines,
)
from tfnmt.errors import UsageError
from tfnmt.loading.models import ExportModel, RunModel, find_model
from tfnmt.progress import NotedLines, bar, say
from tfnmt.runtime.files import GrowingFile, is_special, write_lines
from tfnmt.runtime.startup import expect_few_rows, share_processors

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Answer, Answering

FLAGS = flags.FlagValues()
for _name, _text in (
    ("model", "a run or an export"),
    ("input", "a file of lines to translate"),
    ("output", "the file to write them to"),
    ("prefix", "what every translation begins with"),
):
    flags.DEFINE_string(_name, None, _text, flag_values=FLAGS)
for _name, _text in (
    ("resume", "go on with an --output that was not finished"),
    ("scores", "write SCORE TAB TRANSLATION"),
    ("json", "write a JSON object a line"),
    ("split_sentences", "translate a line sentence by sentence"),
    ("sample", "draw translations instead of searching for the best"),
):
    flags.DEFINE_bool(_name, False, _text, flag_values=FLAGS)
flags.DEFINE_integer(
    "nbest", None, "the N best translations of each line, as JSON", 1, flag_values=FLAGS
)
flags.DEFINE_float(
    "temperature", None, "of --sample: below 1 plays safe, above dares", 1e-6, flag_values=FLAGS
)
flags.DEFINE_integer(
    "top_k", None, "of --sample: only the K likeliest pieces", 1, flag_values=FLAGS
)
flags.DEFINE_float(
    "top_p", None, "of --sample: only the likeliest with so much probability together", 1e-6, 1.0,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_integer("seed", 1, "of --sample", 0, flag_values=FLAGS)
define_search(FLAGS)

SAMPLING = ("temperature", "top_k", "top_p")


def main(values: Any, positional: list[str]) -> None:
    """Translates what is given as arguments, in a file, or on stdin."""
    _check(values, positional)
    if values.input:
        check_readable(Path(values.input))
    check_output(values.output, values.input)
    model = find_model(values.model, search_changes(values))
    _check_model(values, model)
    if positional or (not values.input and _stdin().isatty()):
        expect_few_rows()
    else:
        share_processors()
    if values.output is None or is_special(Path(values.output)):
        lines = _lines(positional, values.input)
        write_lines(_translate(values, model, lines, 0), values.output)
    else:
        _write_file(values, model, positional)


def _write_file(values: Any, model: RunModel | ExportModel, texts: list[str]) -> None:
    """Translates to a file, or goes on with it."""
    file, job = GrowingFile(Path(values.output)), _job(values, model)
    if values.resume and file.finished:
        _check_finished(file.path, Path(values.input))
        say(f"{file.path}: this translation is finished; without --resume it is made anew")
        return
    with file.held():
        done = file.resume(job) if values.resume else file.begin(job)
        if done:
            say(f"{done:,} lines are done")
        with closing(_translate(values, model, _lines(texts, values.input), done)) as lines:
            file.write(lines)


def _check_finished(output: Path, source: Path) -> None:
    """Refuses to take for finished what was made of another text; of a model nothing is left."""
    if source.stat().st_mtime_ns > output.stat().st_mtime_ns:
        raise UsageError(
            f"--resume: {source} is newer than {output}, which is finished; translate it anew "
            "without --resume, or to another --output"
        )


def _check(values: Any, positional: list[str]) -> None:
    """What is contradictory is said at once."""
    problems = []
    if positional and values.input:
        problems.append("--input: give a file or texts, not both")
    if values.resume and not (values.input and values.output):
        problems.append("--resume: goes with --input and --output")
    if values.resume and values.input and is_special(Path(values.input)):
        problems.append(f"--resume: {values.input} cannot be read again from the beginning")
    if not values.sample:
        given = [name for name in (*SAMPLING, "seed") if values[name].present]
        problems += [f"--{name}: goes with --sample" for name in given]
    if values.temperature is not None and not math.isfinite(values.temperature):
        problems.append(f"--temperature={values.temperature}: not a number to divide by")
    if values.nbest and values.sample:
        problems.append("--nbest: not with --sample; sample again with another --seed")
    if values.nbest and values.nbest > 1 and values.split_sentences:
        problems.append("--nbest: not with --split_sentences; sentences have their own lists")
    if values.prefix and values.split_sentences:
        problems.append("--prefix: not with --split_sentences; it would begin every sentence")
    problems += not_utf_8([*positional, values.prefix or ""])
    if values.scores and (values.json or values.nbest):
        problems.append("--scores: not with --json or --nbest, which write scores anyway")
    if problems:
        raise UsageError(*problems)


def _check_model(values: Any, model: RunModel | ExportModel) -> None:
    """What the model cannot do is said before it is loaded."""
    beam_size = model.config.decoding.beam_size
    if values.nbest and values.nbest > beam_size:
        raise UsageError(
            f"--nbest={values.nbest}: the beam has {beam_size} hypotheses; widen it by --beam_size"
        )
    if isinstance(model, ExportModel):
        fixed = [f"--{name}: an export does not know it; give the run"
                 for name in ("sample", "prefix") if values[name].value]  # fmt: skip
        if fixed:
            raise UsageError(*fixed)


def _translate(
    values: Any, model: RunModel | ExportModel, lines: Iterable[str], done: int
) -> Generator[str, None, None]:
    """The lines to write for all lines but those that are done."""
    answering = _answering(values, model)

    from tfnmt.decoding.lines import arriving, by_sentences, translate_lines, whole, windows

    split = by_sentences(model.config.data.source) if values.split_sentences else whole
    longest = model.config.decoding.max_source_length
    cut = NotedLines(
        f"longer than {longest} pieces (decoding.max_source_length), cut there",
        "--split_sentences translates sentence by sentence",
    )
    replaced = NotedLines(
        "has U+FFFD, which is read where bytes are not UTF-8",
        "convert such text, with iconv for instance",
    )
    rest = islice(_noting(replaced, lines), done, None)
    text = windows(rest) if values.input else arriving(rest)
    answers = translate_lines(answering, text, split, done)
    if values.input and values.output:
        path = Path(values.input)
        total = None if is_special(path) else _count_lines(path) - done
        answers = bar(answers, "translating", "lines", total)
    with closing(replaced), closing(cut):
        for number, answer in enumerate(answers, start=done + 1):
            if answer.truncated:
                cut.note(number)
            yield _shown(values, answer)


def _noting(replaced: NotedLines, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if "\ufffd" in line:
            replaced.note(number)
        yield line


def _answering(values: Any, model: RunModel | ExportModel) -> "Answering":
    """The way to translate that the flags ask for."""
    if isinstance(model, ExportModel):
        graphs = model.load()
    else:
        graphs = model.load(values.prefix or "", _sampling(values))

    from tfnmt.decoding.lines import again, best, sampled, several

    if values.nbest:
        return several(graphs, values.nbest)
    name = "alone" if "alone" in graphs and not values.input else "serving_default"
    answering = best(graphs[name])
    if values.sample:
        answering = sampled(graphs["sample"], model.config.decoding.longest, values.seed)
    return again(answering, graphs["align"]) if values.json else answering


def _sampling(values: Any) -> SamplingConfig:
    asked = {name: values[name].value for name in SAMPLING}
    return SamplingConfig(**{name: value for name, value in asked.items() if value is not None})


def _shown(values: Any, answer: "Answer") -> str:
    if values.json or values.nbest:
        return json.dumps(
            {
                "translations": [
                    {"text": text, "score": round(score, 4),
                     "token_log_probs": [round(log_prob, 4) for log_prob in log_probs]}
                    for text, score, log_probs in answer.hypotheses
                ],
                "truncated": answer.truncated,
                "warnings": answer.warnings,
            },
            ensure_ascii=False,
        )  # fmt: skip
    return f"{answer.best.score:.4f}\t{answer.best.text}" if values.scores else answer.best.text


def _lines(texts: list[str], path: str | None) -> Iterable[str]:
    """What to translate."""
    if texts:
        return texts
    if path is not None:
        return read_lines(Path(path), errors="replace")
    if _stdin().isatty():
        say("reading lines from the terminal; Ctrl-D ends them")
    # Not sys.stdin.buffer: a thread that waits there would not let Python end.
    stdin = open(_stdin().fileno(), "rb", closefd=False)  # noqa: SIM115
    return decode_lines(stdin, "stdin", errors="replace")


def _stdin() -> TextIO:
    if sys.stdin is None:  # as a daemon may be started
        raise UsageError("stdin: closed; give texts or --input")
    return sys.stdin


def _count_lines(path: Path) -> int:
    with open_bytes(path) as file:
        return sum(1 for _ in file)


def _job(values: Any, model: RunModel | ExportModel) -> dict[str, Any]:
    """What decides the lines of an output."""
    keys = ("json", "nbest", "scores", "split_sentences", "sample", "prefix", "seed", *SAMPLING)
    job: dict[str, Any] = {f"--{key}": values[key].value for key in keys}
    job |= {"model": model.name, "step": model.step, "input": values.input}
    if values.input:
        status = Path(values.input).stat()
        job |= {"size of the input": status.st_size, "time of the input": status.st_mtime_ns}
    return job | {"decoding": model.config.decoding.model_dump()}


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
