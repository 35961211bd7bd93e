"""Translate text.

    python -m tfnmt.translate [--model=RUN_OR_EXPORT] "a sentence" "another one"
    python -m tfnmt.translate < lines.en > lines.de
    python -m tfnmt.translate --input=lines.en --output=lines.de [--resume]
    python -m tfnmt.translate --input=lines.en --output=lines.de --executor=ray [--address=auto]
    python -m tfnmt.translate --target=fr [--source=en] "a sentence"
    python -m tfnmt.translate --input=a.docx --output=a.de.docx [--glossary=terms.tsv]

Each input line gives one output line, in order. Without --model, the newest finished run in ./runs
translates, or else the model that comes with tfnmt. A model with several target languages needs
--target. Put -- before text that begins with a dash. --json and --nbest write one JSON object per
line: the source, translations with their score, token ids and the log probability of each token,
whether the line was truncated, and quality warnings. Only these two flags look for quality
warnings.

The suffix of --input selects a document format: md, html, docx, pptx, odt, odp, epub, srt, vtt, po,
xlf, xliff or tmx. A file with another suffix is translated by line.

--executor=ray translates shards of the input on workers of Ray. If --input is a folder, --output
becomes a folder with a file for each of its files.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import (
    decoding_changes,
    define_decoding,
    define_engine,
    define_executor,
    define_gpus,
    executor_problems,
    non_utf8_problems,
    open_executor,
    run_command,
    uses_shards,
)
from tfnmt.config import SamplingConfig
from tfnmt.data.corpora.text_files import check_readable, decode_lines, open_bytes, read_lines
from tfnmt.documents.formats import suffix_of
from tfnmt.errors import UsageError
from tfnmt.exporting.converted import ConvertedRun, select_engine
from tfnmt.loading.api import TextTranslator
from tfnmt.loading.directions import bound_language, check_source, find_target, only_source
from tfnmt.loading.documents import (
    is_document,
    log_notices,
    read_glossary,
    translate_document,
)
from tfnmt.loading.models import ExportModel, RunModel, find_model
from tfnmt.loading.sharded_files import (
    ShardSettings,
    check_files,
    find_files,
    process_files,
)
from tfnmt.loading.translation_job import TranslationJob, TranslationWork
from tfnmt.progress import log, progress_bar
from tfnmt.runtime.files import check_outputs, is_stream, write_lines
from tfnmt.runtime.resumable_file import ResumableFile
from tfnmt.runtime.shards import SHARD_LINES
from tfnmt.runtime.startup import configure_for_single_sentences, configure_threads
from tfnmt.runtime.streams import stdin, stdin_lines

if TYPE_CHECKING:
    from tfnmt.decoding.lines import Translation

FLAGS = flags.FlagValues()
for _name, _help in (
    ("model", "a run or an export"),
    ("input", "a file of lines, or a document, to translate"),
    ("output", "the file to write the translations to"),
    ("glossary", "for a document: a file of SOURCE TERM TAB TARGET TERM"),
    ("target", "the language to translate to, for a model with several"),
    ("source", "the language of the text"),
    ("prefix", "text that every translation begins with"),
):
    flags.DEFINE_string(_name, None, _help, flag_values=FLAGS)
for _name, _help in (
    ("resume", "resume an --output that was not finished"),
    ("scores", "write SCORE TAB TRANSLATION"),
    ("json", "write a JSON object per line"),
    ("sample", "sample translations instead of searching for the best ones"),
):
    flags.DEFINE_bool(_name, False, _help, flag_values=FLAGS)
flags.DEFINE_bool(
    "split_sentences",
    None,
    "translate each line sentence by sentence (default: the run's)",
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "nbest", None, "write the N best translations of each line, as JSON", 1, flag_values=FLAGS
)
flags.DEFINE_float(
    "temperature",
    None,
    "for --sample: below 1 gives safer translations, above 1 more varied ones",
    1e-6,
    1000.0,
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "top_k", None, "for --sample: only the K most probable tokens", 1, flag_values=FLAGS
)
flags.DEFINE_float(
    "top_p",
    None,
    "for --sample: only the most probable tokens with this total probability",
    1e-6,
    1.0,
    flag_values=FLAGS,
)
flags.DEFINE_integer("seed", 1, "for --sample: random seed", 0, flag_values=FLAGS)
define_decoding(FLAGS)
define_engine(FLAGS)
define_executor(FLAGS)
define_gpus(FLAGS)

SAMPLING = ("temperature", "top_k", "top_p")

LINES_ONLY = ("resume", "scores", "json", "sample", "split_sentences", "nbest", "prefix")
"""Flags that are not for documents."""

STDIN = Path("/dev/stdin")

FORMAT = 2
"""Version of the output. Increase it when --resume must not continue older lines."""


def main(values: Any, positional: list[str]) -> None:
    """Translate the arguments, a file, or stdin."""
    _check(values, positional)
    model = find_model(values.model, decoding_changes(values))
    check_source(model, values.source)
    target = find_target(model, values.source, values.target)
    model = select_engine(model, values.engine, values.quantization)
    _check_model(values, model)
    job = _translation_job(values, model, bound_language(model, target))
    if _in_shards(values):
        _translate_shards(values, job)
        return
    check_outputs({"--output": values.output}, _inputs(values, positional, model))
    if is_document(values.input):
        _translate_document(values, model)
        return
    if _is_finished(values, model):
        return
    if positional or (not values.input and stdin().isatty()):
        configure_for_single_sentences()
    else:
        configure_threads()
    with _output(values, model) as (done, write):
        translate = job.load()

        from tfnmt.decoding.lines import read_windows, stream_windows

        notes = job.notes()
        lines = islice(notes.replaced.check(_lines(positional, values.input)), done, None)
        windows = read_windows(lines) if values.input else stream_windows(lines)
        translations = _with_progress_bar(values, translate(windows, done), done)
        with closing(notes), closing(job.format_all(translations, notes, done)) as output:
            write(output)


def _in_shards(values: Any) -> bool:
    """Return whether a file is translated in shards. The files of a folder always are."""
    return uses_shards(values) or bool(values.input and os.path.isdir(values.input))


def _translate_shards(values: Any, job: TranslationJob) -> None:
    """Translate a file, or the files of a folder, in shards."""
    pairs = find_files(values.input, values.output)
    documents = [source for source, _ in pairs if is_document(str(source))]
    if documents:
        raise UsageError(*(f"{file}: a document; translate it on its own" for file in documents))
    check_files(pairs, job.model.files)
    shard_lines = values.shard_lines or SHARD_LINES
    settings = ShardSettings(shard_lines, values.resume, "translating")
    jobs = [_job(values, job.model, source, shard_lines) for source, _ in pairs]
    process_files(pairs, jobs, TranslationWork(job), open_executor(values), settings)


def _check(values: Any, positional: list[str]) -> None:
    """Check flags that contradict each other, then the files."""
    problems = []
    if positional and values.input:
        problems.append("--input: not together with texts; give either of them")
    if values.resume and not (values.input and values.output):
        problems.append("--resume: needs --input and --output")
    if values.resume and values.input and is_stream(Path(values.input)):
        problems.append(f"--resume: {values.input} is a stream; copy it to a file")
    if not values.sample:
        given = [name for name in (*SAMPLING, "seed") if values[name].present]
        problems += [f"--{name}: needs --sample" for name in given]
    if values.sample and values.beam_size is not None:
        problems.append("--beam_size: not with --sample, which has no beam; omit one of them")
    for name, example in ("temperature", 0.8), ("top_p", 0.9):
        if math.isnan(values[name].value or 0):
            problems.append(f"--{name}={values[name].value}: not a number; try {example}")
    if values.nbest and values.sample:
        problems.append("--nbest: not with --sample; sample again with another --seed")
    if values.nbest and values.nbest > 1 and values.split_sentences:
        problems.append(
            "--nbest: not with --split_sentences; each sentence has its own n-best list"
        )
    if values.prefix and values.split_sentences:
        problems.append("--prefix: not with --split_sentences; it would begin every sentence")
    problems += executor_problems(values)
    if positional and uses_shards(values):
        problems.append("--executor and --shard_lines: not with texts; give --input and --output")
    problems += non_utf8_problems([*positional, values.prefix or ""])
    if values.scores and (values.json or values.nbest):
        problems.append("--scores: not with --json or --nbest, whose output contains the scores")
    problems += _document_problems(values)
    if problems:
        raise UsageError(*problems)
    if values.input and not _in_shards(values):
        check_readable(Path(values.input))


def _document_problems(values: Any) -> list[str]:
    """Return the problems of flags that are only for documents, or only for lines."""
    if not is_document(values.input):
        return ["--glossary: only for documents; omit it"] if values.glossary else []
    suffix = suffix_of(values.input)
    problems = [
        f"--{name}: not for documents; omit it" for name in LINES_ONLY if values[name].value
    ]
    if uses_shards(values):
        problems.append("--executor and --shard_lines: not for documents; omit them")
    if values.output is None:
        problems.append(f"--input={values.input}: a document; set --output")
    elif suffix_of(values.output) != suffix:
        problems.append(f"--output={values.output}: must end with {suffix}, as --input does")
    return problems


def _translate_document(values: Any, model: RunModel | ExportModel) -> None:
    """Translate --input into --output, in the same format."""
    glossary = read_glossary(Path(values.glossary)) if values.glossary else None
    configure_threads()
    notices = translate_document(
        TextTranslator(model, model.load()),
        Path(values.input),
        Path(values.output),
        source=values.source,
        target=values.target,
        glossary=glossary,
    )
    log_notices(notices)


def _inputs(
    values: Any, positional: list[str], model: RunModel | ExportModel
) -> dict[str, list[Path]]:
    """Return the files that are read, by the flag that selects them."""
    inputs = {"--model": model.files}
    if values.input:
        inputs["--input"] = [Path(values.input)]
    elif not positional:
        inputs["stdin"] = [STDIN]
    return inputs


def _check_model(values: Any, model: RunModel | ExportModel) -> None:
    """Check that the model supports the flags, before it is loaded."""
    beam_size = model.config.decoding.beam_size
    if values.nbest and values.nbest > beam_size:
        is_export = isinstance(model, ExportModel)
        other = f"--nbest={beam_size}, or the run" if is_export else f"--beam_size={values.nbest}"
        raise UsageError(f"--nbest={values.nbest}: larger than the beam ({beam_size}); use {other}")
    if values.prefix and isinstance(model, RunModel):
        from tfnmt.data.preparation.tokenizer import Tokenizer

        (prefix,) = Tokenizer(model.tokenizer_model()).encode([values.prefix])
        longest = model.config.decoding.max_translation_length
        if len(prefix) >= longest:
            raise UsageError(
                f"--prefix: {len(prefix)} tokens, and a translation has at most {longest} with "
                "EOS; shorten the prefix, or raise --max_length"
            )
    fix = None
    if isinstance(model, ExportModel):
        fix = "for exports; pass the run"
    elif isinstance(model, ConvertedRun):
        fix = "by --engine=litert; use --engine=tensorflow"
    unsupported = [name for name in ("sample", "prefix") if fix and values[name].value]
    if unsupported:
        raise UsageError(*(f"--{name}: not supported {fix}" for name in unsupported))


def _splits(values: Any, model: RunModel | ExportModel) -> bool:
    """Return whether lines are split into sentences."""
    if values.split_sentences is not None:
        return bool(values.split_sentences)
    whole = values.prefix or (values.nbest or 1) > 1
    return model.config.decoding.split_sentences and not whole


def _is_finished(values: Any, model: RunModel | ExportModel) -> bool:
    """Return whether --resume finds a complete output of the same job, and log it."""
    if not values.resume:
        return False
    output, source = ResumableFile(Path(values.output)), Path(values.input)
    if not output.finished:
        return False
    if output.job_path.exists():
        output.check_job(_job(values, model, source))
    elif source.stat().st_mtime_ns > output.path.stat().st_mtime_ns:  # by an earlier version
        raise UsageError(
            f"--resume: {source} is newer than the finished {output.path}; translate without "
            "--resume, or to another --output"
        )
    log(f"{output.path}: already finished; translate without --resume to overwrite it")
    return True


Write = Callable[[Iterable[str]], None]


@contextmanager
def _output(values: Any, model: RunModel | ExportModel) -> Iterator[tuple[int, Write]]:
    """Open the output. Yields its number of finished lines and a function that writes more."""
    if values.output is None or is_stream(Path(values.output)):
        yield 0, lambda lines: write_lines(lines, values.output)
        return
    file, job = ResumableFile(Path(values.output)), _job(values, model, _path(values.input))
    with file.locked():
        done = file.resume(job) if values.resume else file.start(job)
        if done:
            log(f"{values.output}: resuming after line {done:,}")
        yield done, file.write


def _translation_job(
    values: Any, model: RunModel | ExportModel, target: str | None
) -> TranslationJob:
    """Return the job that the flags select."""
    given = {name: values[name].value for name in SAMPLING}
    sampling = SamplingConfig(**{name: each for name, each in given.items() if each is not None})
    return TranslationJob(
        model,
        target,
        language=values.source or only_source(model),
        splits=_splits(values, model),
        nbest=values.nbest,
        json=values.json,
        scores=values.scores,
        sampling=sampling if values.sample else None,
        seed=values.seed,
        prefix=values.prefix or "",
    )


def _with_progress_bar(
    values: Any, translations: Iterator["Translation"], done: int
) -> Iterator["Translation"]:
    """Show a progress bar if a file is translated into a file."""
    if not (values.input and values.output):
        return translations
    path = Path(values.input)
    total = None if is_stream(path) else _count_lines(path) - done
    return progress_bar(translations, "translating", "lines", total)


def _lines(texts: list[str], path: str | None) -> Iterable[str]:
    """Return the lines to translate: the arguments, a file, or stdin."""
    if texts:
        return texts
    if path is not None:
        return read_lines(Path(path), errors="replace")
    if stdin().isatty():
        log("reading lines from the terminal; end with Ctrl-D")
    return decode_lines(stdin_lines(), "stdin", errors="replace")


def _count_lines(path: Path) -> int:
    with open_bytes(path) as file:
        return sum(1 for _ in file)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _job(
    values: Any, model: RunModel | ExportModel, source: Path | None, shard_lines: int | None = None
) -> dict[str, Any]:
    """Return the settings that determine the output for an input file."""
    keys = ("json", "nbest", "scores", "sample", "prefix", "seed", *SAMPLING)
    job: dict[str, Any] = {f"--{key}": values[key].value for key in keys}
    job["--split_sentences"] = _splits(values, model)
    job |= {"model": model.name, "step": model.step, "weights": model.weights_id}
    job |= {"format": FORMAT, "input": source and str(source)}
    job |= {"--quantization": values.quantization, "--shard_lines": shard_lines}
    if job["--split_sentences"]:
        job |= {"--source": values.source}  # its rules split the lines
    if isinstance(model, ConvertedRun):  # earlier versions recorded no engine
        job |= {"--engine": values.engine}
    if source is not None:
        status = source.stat()
        job |= {"size of the input": status.st_size, "time of the input": status.st_mtime_ns}
    if model.targets:
        job["--target"] = find_target(model, None, values.target)
    return job | {"decoding": model.config.decoding.model_dump()}


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
