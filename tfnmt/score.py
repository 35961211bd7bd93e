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

--executor=ray scores shards of the input on workers of Ray. If --input is a folder, --output
becomes a folder with a file for each of its files.
"""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import (
    define_direction,
    define_engine,
    define_executor,
    define_gpus,
    executor_problems,
    open_executor,
    run_command,
    uses_shards,
)
from tfnmt.data.corpora.text_files import check_readable, open_bytes
from tfnmt.errors import UsageError
from tfnmt.exporting.converted import select_engine
from tfnmt.loading.directions import find_direction
from tfnmt.loading.models import find_model
from tfnmt.loading.scoring_job import ScoringJob, ScoringNotes, ScoringWork
from tfnmt.loading.sharded_files import (
    ShardSettings,
    check_files,
    find_files,
    process_files,
)
from tfnmt.progress import progress_bar
from tfnmt.runtime.files import check_outputs, write_lines
from tfnmt.runtime.shards import SHARD_LINES

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or a LiteRT export", flag_values=FLAGS)
flags.DEFINE_string(
    "input",
    None,
    "lines of SOURCE TAB TARGET, or a .jsonl file of translate --json or --nbest",
    flag_values=FLAGS,
)
flags.DEFINE_string("output", None, "the file to write to (default: stdout)", flag_values=FLAGS)
flags.DEFINE_bool(
    "resume", False, "for shards: resume an --output that was not finished", flag_values=FLAGS
)
flags.DEFINE_float(
    "length_penalty", None, "alpha of the length penalty (default: the run's)", 0, flag_values=FLAGS
)
define_direction(FLAGS)
define_engine(FLAGS)
define_executor(FLAGS)
define_gpus(FLAGS)

FORMAT = 1
"""Version of the output. Increase it when --resume must not continue older parts."""


def main(values: Any, positional: list[str]) -> None:
    """Score every translation of the file."""
    _check(values, positional)
    changes = {} if values.length_penalty is None else {"length_penalty": values.length_penalty}
    model = select_engine(find_model(values.model, changes), values.engine, values.quantization)
    _, target = find_direction(model, values.direction)

    from tfnmt.loading.api import check_scoring

    job = ScoringJob(check_scoring(model), target)
    path = Path(values.input)
    if uses_shards(values) or path.is_dir():
        _score_shards(values, job)
        return
    check_readable(path)
    check_outputs({"--output": values.output}, {"--input": [path], "--model": model.files})
    with closing(_score_file(job, path)) as lines:
        write_lines(progress_bar(lines, "scoring", "translations"), values.output)


def _check(values: Any, positional: list[str]) -> None:
    """Check flags that are missing or need others."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: both required, without other arguments; see --help")
    problems = executor_problems(values)
    if values.resume and not (uses_shards(values) or Path(values.input).is_dir()):
        problems.append("--resume: needs shards; add --shard_lines or --executor=ray")
    if problems:
        raise UsageError(*problems)


def _score_file(job: ScoringJob, path: Path) -> Generator[str, None, None]:
    """Yield the output lines of a file."""
    score, notes = job.load(), ScoringNotes()
    with closing(notes), open_bytes(path) as lines:
        yield from score(path, lines, 1, notes)


def _score_shards(values: Any, job: ScoringJob) -> None:
    """Score a file, or the files of a folder, in shards."""
    pairs = find_files(values.input, values.output)
    check_files(pairs, job.model.files)
    shard_lines = values.shard_lines or SHARD_LINES
    settings = ShardSettings(shard_lines, values.resume, "scoring")
    jobs = [_job(values, job, source, shard_lines) for source, _ in pairs]
    process_files(pairs, jobs, ScoringWork(job), open_executor(values), settings)


def _job(values: Any, job: ScoringJob, source: Path, shard_lines: int) -> dict[str, Any]:
    """Return the settings that determine the output for an input file."""
    model, status = job.model, source.stat()
    return {
        "model": model.name,
        "step": model.step,
        "weights": model.weights_id,
        "format": FORMAT,
        "--engine": values.engine,
        "--quantization": values.quantization,
        "--direction": job.target,
        "--shard_lines": shard_lines,
        "input": str(source),
        "size of the input": status.st_size,
        "time of the input": status.st_mtime_ns,
        "decoding": model.config.decoding.model_dump(),
    }


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
