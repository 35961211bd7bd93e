"""Check that translating a long file gives the same output when it is killed repeatedly.

    python -m tests.soak.kill_translation --model=RUN [--input=F.en] [--lines=100000] [--kills=3]
        [--seed=1] [--beam_size=1] [--work_dir=D]

Makes a long file from the lines of the input: the lines unchanged, then variants of them with words
swapped, lines joined and empty lines. Runs `python -m tfnmt.translate --input --output` on it,
kills it with SIGKILL at random times and restarts it with --resume.

Prints one JSON line per process: the number of lines on disk when it ended, lines per second, and
the peak of its resident memory early (in the first third of the time in which it wrote lines) and
late (in the last third). A leak shows as a difference between the two.

The last line compares the output. Each process must have left its lines unchanged, and the number
of lines must be that of the input. A sample of lines, at random and around the kills, must equal
the output of an uninterrupted process that translates only the sample. The exit status is 1 if
anything differs. 100,000 lines take about fifteen minutes on two CPU cores.
"""

import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from benchmarks.measurement import read_sentences
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.resumable_file import ResumableFile

SAMPLE = 1000
"""Number of random lines to compare."""

AROUND = 100
"""Number of lines before and after each kill to compare as well."""

SWAPS = 2
"""Number of swaps of two words that make a new line from a line."""

MAX_WAIT_SECONDS = 8.0
"""Maximum random wait before a kill once enough lines are written.

Lines are written one window at a time. Without a wait, kills would only hit the end of a window.
"""

SAMPLES_PER_SECOND = 4
SHOWN = 5

Process = subprocess.Popen[bytes]

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "run or export", flag_values=FLAGS)
flags.DEFINE_string(
    "input",
    None,
    "file with sentences, one per line (default: the toy corpus)",
    flag_values=FLAGS,
)
flags.DEFINE_integer("lines", 100_000, "number of lines to translate", 100, flag_values=FLAGS)
flags.DEFINE_integer("kills", 3, "number of kills", 0, flag_values=FLAGS)
flags.DEFINE_integer(
    "seed", 1, "random seed of the lines and of the times of the kills", flag_values=FLAGS
)
flags.DEFINE_integer(
    "beam_size", 1, "beam width; 0 uses the beam width of the model", 0, flag_values=FLAGS
)
flags.DEFINE_string(
    "work_dir", None, "folder that keeps the input, the output and the logs", flag_values=FLAGS
)


class ProcessSample(NamedTuple):
    """The state of a translating process at one time."""

    seconds: float  # since its start
    lines: int  # of the output so far
    mebibytes: float  # resident memory


def main(values: Any, positional: list[str]) -> None:
    """Translate through all kills and compare."""
    if positional or not values.model:
        raise UsageError("--model: give a run or an export and no other arguments; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        generator = random.Random(values.seed)
        lines = list(islice(variants(read_sentences(values.input), generator), values.lines))
        command = [sys.executable, "-m", "tfnmt.translate", f"--model={values.model}"]
        if values.beam_size:
            command.append(f"--beam_size={values.beam_size}")
        _write(folder / "in", lines)
        outputs = _translate_with_kills(command, folder, values.lines, values.kills, generator)
        if not _compare(command, folder, lines, outputs, generator):
            sys.exit(1)


def variants(lines: list[str], generator: random.Random) -> Iterator[str]:
    """Yield the lines unchanged, then endless variants of them."""
    yield from lines
    for line in cycle(lines):
        words = line.split()
        kind = generator.random()
        if kind < 0.01:
            yield ""
        elif kind < 0.1:
            yield f"{line} {generator.choice(lines)}"
        else:
            for _ in range(SWAPS if words else 0):
                one, two = (generator.randrange(len(words)) for _ in range(2))
                words[one], words[two] = words[two], words[one]
            yield " ".join(words)


def _translate_with_kills(
    command: list[str], folder: Path, lines: int, kills: int, generator: random.Random
) -> list[tuple[int, str]]:
    """Translate through all kills.

    Returns:
        For each process, the number of complete lines that it left and their digest.
    """
    # One kill in each part of the file, at the end of a window or within it.
    part = lines / (kills + 1)
    kill_lines = [int(part * (number + generator.uniform(0.3, 1))) for number in range(kills)]
    file = ResumableFile(folder / "out")
    outputs: list[tuple[int, str]] = []
    for number, kill_line in enumerate([*kill_lines, None], start=1):
        first = outputs[-1][0] if outputs else 0
        resume = ["--resume"] if outputs else []
        arguments = [*command, f"--input={folder / 'in'}", f"--output={file.path}", *resume]
        with (folder / f"process-{number}.log").open("wb") as log:
            process = subprocess.Popen(arguments, stderr=log)
        samples = _watch(process, file, kill_line, generator.uniform(0, MAX_WAIT_SECONDS))
        expected = 0 if kill_line is None else -signal.SIGKILL
        if process.returncode != expected:
            text = (folder / f"process-{number}.log").read_text()
            raise UserError(
                f"process {number}: exit status {process.returncode}, expected {expected}; "
                f"log:\n{text}"
            )
        content = (file.path if kill_line is None else file.partial).read_bytes()
        complete, _, partial_line = content.rpartition(b"\n")
        done = content.count(b"\n")
        outputs.append((done, hashlib.sha256(complete).hexdigest()))
        _print(
            "process",
            process=number,
            killed=kill_line is not None,
            first=first,
            done=done,
            partial_line=bool(partial_line),
            **_summary(samples, first),
        )
    return outputs


def _watch(
    process: Process, file: ResumableFile, kill_line: int | None, wait: float
) -> list[ProcessSample]:
    """Sample a process until it ends; kill it `wait` seconds after it has written `kill_line`."""
    samples, start, lines, read = [], time.monotonic(), 0, 0
    try:
        while process.poll() is None:
            time.sleep(1 / SAMPLES_PER_SECOND)
            if file.partial.exists():
                with file.partial.open("rb") as partial:
                    partial.seek(read)
                    new = partial.read()
                lines, read = lines + new.count(b"\n"), read + len(new)
            if (memory := _resident_mebibytes(process)) is not None:
                samples.append(ProcessSample(time.monotonic() - start, lines, memory))
            if kill_line is not None and lines >= kill_line:
                time.sleep(wait)
                break
    finally:
        process.kill()
        process.wait()
    return samples


def _resident_mebibytes(process: Process) -> float | None:
    """Return the resident memory, or None if the process has just ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else None


def _summary(samples: list[ProcessSample], first_line: int) -> dict[str, float]:
    """Summarize the time in which a process wrote lines."""
    busy = [sample for sample in samples if sample.lines > first_line]
    if len(busy) < 3:
        return {"samples": len(samples)}
    first, last = busy[0], busy[-1]
    third = (last.seconds - first.seconds) / 3
    early = [sample.mebibytes for sample in busy if sample.seconds <= first.seconds + third]
    late = [sample.mebibytes for sample in busy if sample.seconds >= last.seconds - third]
    lines_per_s = (last.lines - first.lines) / (last.seconds - first.seconds)
    return {
        "seconds": round(last.seconds, 1),
        "start_seconds": round(first.seconds, 1),
        "lines_per_s": round(lines_per_s, 1),
        "peak_mib": round(max(sample.mebibytes for sample in samples)),
        "early_peak_mib": round(max(early)),
        "late_peak_mib": round(max(late)),
    }


def _compare(
    command: list[str],
    folder: Path,
    lines: list[str],
    outputs: list[tuple[int, str]],
    generator: random.Random,
) -> bool:
    """Print how the output differs from that of an uninterrupted process.

    Returns:
        True if nothing differs and no temporary file is left.
    """
    content = (folder / "out").read_bytes().split(b"\n")[:-1]
    unchanged = [
        hashlib.sha256(b"\n".join(content[:done])).hexdigest() == digest for done, digest in outputs
    ]
    numbers = set(generator.sample(range(len(lines)), min(SAMPLE, len(lines))))
    for done, _ in outputs[:-1]:
        numbers.update(range(max(0, done - AROUND), min(len(lines), done + AROUND)))
    sample = sorted(numbers)
    _write(folder / "sample", [lines[number] for number in sample])
    arguments = [f"--input={folder / 'sample'}", f"--output={folder / 'expected'}"]
    subprocess.run([*command, *arguments], check=True, capture_output=True)
    expected = (folder / "expected").read_bytes().split(b"\n")[:-1]
    different = [
        number
        for number, line in zip(sample, expected, strict=True)
        if number >= len(content) or content[number] != line
    ]
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith(".out."))
    left.remove(".out.job")  # records what the output was made with
    _print(
        "compare",
        lines=len(lines),
        distinct=len(set(lines)),
        written=len(content),
        unchanged=unchanged,
        compared=len(sample),
        different=len(different),
        examples=different[:SHOWN],
        temporary_files=left,
    )
    return len(content) == len(lines) and all(unchanged) and not different and not left


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"kill_translation.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
