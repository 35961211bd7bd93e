"""Measure whole commands that translate a file of sentences.

    python -m benchmarks.job --input=lines.en --system='NAME=COMMAND' ... [--turns=3]

A command reads the file {input} and writes one line to stdout for each of its lines. Examples:

    'tfnmt=python -m tfnmt.translate --model=RUN --length_penalty=0 --input={input}'
    'tfnmt LiteRT int8=python -m tfnmt.translate --model=LITERT_EXPORT --input={input}'
    'CTranslate2 int8, batches of 16=python -m benchmarks.baselines.ct2 EXPORT {input} 16'
    'OpenNMT-tf=PYTHON benchmarks/baselines/opennmt_tf.py RUN {input}'

Each command runs on the first sentence only, which measures its start, and on all sentences. The
speed is that of the other sentences. All systems take turns. Prints one JSON line per system, with
medians over the turns: seconds to the first translation, sentences per second, peak memory, and the
number of lines that are equal to those of the first system.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from tfnmt.cli import run_command
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import progress_bar

FLAGS = flags.FlagValues()
flags.DEFINE_string("input", None, "file with sentences, one per line", flag_values=FLAGS)
flags.DEFINE_multi_string("system", [], "NAME=COMMAND of a system; repeatable", flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "measurements per system", 1, flag_values=FLAGS)


class Turn(NamedTuple):
    """Time, peak memory and output of one run of a command."""

    seconds: float
    megabytes: float
    lines: list[str]


def main(values: Any, positional: list[str]) -> None:
    """Run all systems in turn and print the results."""
    if positional or not (values.input and values.system):
        raise UsageError("--input, --system: give both, and no other arguments; see --help")
    systems = dict(_parse_system(text) for text in values.system)
    lines = _read(Path(values.input))
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        first.write_text(lines[0] + "\n", encoding="utf-8")
        first_runs: dict[str, list[Turn]] = {name: [] for name in systems}
        full_runs: dict[str, list[Turn]] = {name: [] for name in systems}
        for _ in progress_bar(range(values.turns), "running the systems", "turns", values.turns):
            for name, command in systems.items():
                first_runs[name].append(_run(command, first, 1))
                full_runs[name].append(_run(command, Path(values.input), len(lines)))
    expected = full_runs[next(iter(systems))][0].lines
    for name in systems:
        print(json.dumps({"system": name, **_summary(first_runs[name], full_runs[name], expected)}))


def _read(path: Path) -> list[str]:
    lines = list(read_lines(path))
    if len(lines) < 2:
        raise UserError(
            f"{path}: fewer than two sentences; give some thousands for a reliable speed"
        )
    return lines


def _parse_system(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (equals and "{input}" in command):
        raise UsageError(f"--system={text}: not NAME=COMMAND with {{input}} in the command")
    return name, command


def _run(command: str, path: Path, count: int) -> Turn:
    """Run a command on a file with `count` lines, to its end."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        arguments = shlex.split(command.replace("{input}", shlex.quote(str(path))))
        try:
            process = subprocess.Popen(arguments, stdout=output, stderr=errors)
        except OSError as error:
            raise UserError(f"{arguments[0]}: {error.strerror}") from error
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        output.seek(0)
        errors.seek(0)
        lines = output.read().removesuffix("\n").split("\n")
        if process.returncode or len(lines) != count:
            raise UserError(
                f"{command}: exit status {process.returncode}, {len(lines)} of {count} lines; "
                f"stderr ends with: {errors.read()[-500:]}"
            )
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Turn(seconds, kilobytes / 1024, lines)


def _summary(first_runs: list[Turn], full_runs: list[Turn], expected: list[str]) -> dict[str, Any]:
    """Return medians over the turns. The speed excludes the first sentence."""
    start = statistics.median(turn.seconds for turn in first_runs)
    whole = statistics.median(turn.seconds for turn in full_runs)
    if whole <= start:
        raise UserError(
            "--input: all sentences took no longer than the first one; give more sentences"
        )
    return {
        "task": "job",
        "sentences": len(expected),
        "first_translation_s": round(start, 1),
        "sentences_per_s": round((len(expected) - 1) / (whole - start), 1),
        "peak_mb": round(max(turn.megabytes for turn in full_runs)),
        "same_lines": sum(map(str.__eq__, full_runs[0].lines, expected)),
        "turns": len(full_runs),
    }


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
