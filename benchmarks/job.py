"""The real job: a file of sentences, text to text, by whole commands in turn.

    python -m benchmarks.job --input=lines.en --system='NAME=COMMAND' ... [--turns=3]

A command reads the file that {input} names and writes a line to stdout for each of its lines, such
as

    'tfnmt=python -m tfnmt.translate --model=RUN --length_penalty=0 --input={input}'
    'CTranslate2 float32=python -m benchmarks.baselines.ct2 EXPORT {input}'
    'OpenNMT-tf=PYTHON benchmarks/rivals/opennmt_tf.py RUN {input}'

It is run on the first sentence alone, which tells how long it takes to start, and on all; the rate
is that of the others. One JSON line a system, medians of the turns: seconds to the first
translation, sentences/s, the most memory, and how many lines are as the first system has them.
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

from tfnmt.cli import run
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import bar

FLAGS = flags.FlagValues()
flags.DEFINE_string("input", None, "sentences, one per line", flag_values=FLAGS)
flags.DEFINE_multi_string("system", [], "NAME=COMMAND, in turn with the others", flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "turns of each system", 1, flag_values=FLAGS)


class Turn(NamedTuple):
    """What one run of a command took and gave."""

    seconds: float
    megabytes: float
    lines: list[str]


def main(values: Any, positional: list[str]) -> None:
    """Takes turns and prints."""
    if positional or not (values.input and values.system):
        raise UsageError("--input and --system: give both; see --help")
    systems = dict(_named(text) for text in values.system)
    lines = _read(Path(values.input))
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        first.write_text(lines[0] + "\n", encoding="utf-8")
        starts: dict[str, list[Turn]] = {name: [] for name in systems}
        wholes: dict[str, list[Turn]] = {name: [] for name in systems}
        for _ in bar(range(values.turns), "the job", "turns", values.turns):
            for name, command in systems.items():
                starts[name].append(_run(command, first, 1))
                wholes[name].append(_run(command, Path(values.input), len(lines)))
    expected = wholes[next(iter(systems))][0].lines
    for name in systems:
        print(json.dumps({"system": name, **_summary(starts[name], wholes[name], expected)}))


def _read(path: Path) -> list[str]:
    lines = list(read_lines(path))
    if len(lines) < 2:
        raise UserError(f"{path}: give two sentences at least, some thousands for a rate to go by")
    return lines


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (equals and "{input}" in command):
        raise UsageError(f"--system={text}: not NAME=COMMAND with {{input}} in it")
    return name, command


def _run(command: str, path: Path, count: int) -> Turn:
    """Runs a command on a file of so many lines, and waits for its end."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        arguments = shlex.split(command.replace("{input}", shlex.quote(str(path))))
        try:
            process = subprocess.Popen(arguments, stdout=output, stderr=errors)
        except OSError as error:
            raise UserError(f"{arguments[0]}: {error.strerror}") from error
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begun
        output.seek(0)
        errors.seek(0)
        lines = output.read().removesuffix("\n").split("\n")
        if process.returncode or len(lines) != count:
            raise UserError(f"{command}: {len(lines)} of {count} lines; {errors.read()[-500:]}")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Turn(seconds, kilobytes / 1024, lines)


def _summary(starts: list[Turn], wholes: list[Turn], expected: list[str]) -> dict[str, Any]:
    """Medians; the rate is that of all sentences but the first."""
    start = statistics.median(turn.seconds for turn in starts)
    whole = statistics.median(turn.seconds for turn in wholes)
    if whole <= start:
        raise UserError("all sentences took no longer than the first one: give far more of them")
    return {
        "task": "job",
        "sentences": len(expected),
        "first_translation_s": round(start, 1),
        "sentences_per_s": round((len(expected) - 1) / (whole - start), 1),
        "peak_mb": round(max(turn.megabytes for turn in wholes)),
        "same_lines": sum(map(str.__eq__, wholes[0].lines, expected)),
        "turns": len(wholes),
    }


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
