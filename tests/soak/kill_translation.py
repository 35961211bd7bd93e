"""A long file, whose translation is killed again and again, is translated as if it never was.

    python -m tests.soak.kill_translation --model=RUN --input=F.en [--lines=100000] [--kills=3]
        [--seed=1] [--beam_size=1] [--work_dir=D]

Makes a file of so many lines from those of the input (as they are; then with words swapped, lines
joined, lines left empty), and starts `python -m tfnmt.translate --input --output` on it, which is
killed with SIGKILL at random moments and started again with --resume. A JSON line a life: what lay
there when it ended, lines a second, and the peak of its resident memory early (in the first third
of the time in which lines came) and late (in the last third). Last, the output is compared: every
life's lines are there as it left them, there are as many as in the input, and a sample, drawn and
from around the kills, reads as a process translates it that is given nothing else and not killed.
The exit status is 1 if anything differs. 100,000 lines take some fifteen minutes of two cores.
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

from tfnmt.cli import run
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.errors import UsageError, UserError
from tfnmt.runtime.files import GrowingFile

SAMPLE = 1000
AROUND = 100
"""Lines drawn for the comparison, and lines before and after each kill that are compared too."""

SWAPS = 2
"""Swaps of two words that make a new line of a line."""

WAIT_SECONDS = 8.0
"""Lines come a window at a time: what is waited for at most, when enough of them are there, so that
kills come between windows as well.
"""

LOOKS_A_SECOND = 4
SHOWN = 5

Process = subprocess.Popen[bytes]

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run or an export", flag_values=FLAGS)
flags.DEFINE_string("input", None, "lines that the file is made of", flag_values=FLAGS)
flags.DEFINE_integer("lines", 100_000, "lines of the file", 100, flag_values=FLAGS)
flags.DEFINE_integer("kills", 3, "times to kill", 0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "decides lines and moments", flag_values=FLAGS)
flags.DEFINE_integer("beam_size", 1, "beam width; 0 takes the model's", 0, flag_values=FLAGS)
flags.DEFINE_string("work_dir", None, "keeps the files there", flag_values=FLAGS)


class Look(NamedTuple):
    """What a look at a life found."""

    seconds: float  # since it was started
    lines: int  # of the output that are done
    mebibytes: float  # resident


def main(values: Any, positional: list[str]) -> None:
    """Translates through all kills and compares."""
    if positional or not (values.model and values.input):
        raise UsageError("--model and --input: give both, and nothing else; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        draw = random.Random(values.seed)
        lines = list(islice(_varied(list(read_lines(Path(values.input))), draw), values.lines))
        command = [sys.executable, "-m", "tfnmt.translate", f"--model={values.model}"]
        if values.beam_size:
            command.append(f"--beam_size={values.beam_size}")
        _write(folder / "in", lines)
        deaths = _lives(command, folder, values.lines, values.kills, draw)
        if not _compare(command, folder, lines, deaths, draw):
            sys.exit(1)


def _varied(lines: list[str], draw: random.Random) -> Iterator[str]:
    """The lines over and over: as they are, and from then on each a little different."""
    yield from lines
    for line in cycle(lines):
        words = line.split()
        kind = draw.random()
        if kind < 0.01:
            yield ""
        elif kind < 0.1:
            yield f"{line} {draw.choice(lines)}"
        else:
            for _ in range(SWAPS if words else 0):
                one, two = (draw.randrange(len(words)) for _ in range(2))
                words[one], words[two] = words[two], words[one]
            yield " ".join(words)


def _lives(
    command: list[str], folder: Path, lines: int, kills: int, draw: random.Random
) -> list[tuple[int, str]]:
    """Translates through all kills; whole lines that each left, and their digest."""
    # One moment in each share of the file: in the middle of windows as well as at their ends.
    share = lines / (kills + 1)
    moments = [int(share * (number + draw.uniform(0.3, 1))) for number in range(kills)]
    file = GrowingFile(folder / "out")
    deaths: list[tuple[int, str]] = []
    for number, moment in enumerate([*moments, None], start=1):
        begun = deaths[-1][0] if deaths else 0
        resume = ["--resume"] if deaths else []
        arguments = [*command, f"--input={folder / 'in'}", f"--output={file.path}", *resume]
        with (folder / f"life-{number}.log").open("wb") as log:
            process = subprocess.Popen(arguments, stderr=log)
        looks = _watch(process, file, moment, draw.uniform(0, WAIT_SECONDS))
        end = 0 if moment is None else -signal.SIGKILL
        if process.returncode != end:
            said = (folder / f"life-{number}.log").read_text()
            raise UserError(f"life {number}: ended with {process.returncode}, not {end}:\n{said}")
        content = (file.path if moment is None else file.partial).read_bytes()
        whole, _, half = content.rpartition(b"\n")
        done = content.count(b"\n")
        deaths.append((done, hashlib.sha256(whole).hexdigest()))
        report = {"life": number, "killed": moment is not None, "from": begun, "done": done}
        _print("life", **report, half_a_line=bool(half), **_summary(looks, begun))
    return deaths


def _watch(process: Process, file: GrowingFile, moment: int | None, wait: float) -> list[Look]:
    """Looks at a process until it ends; kills it so many seconds after the line of that number."""
    looks, begun, lines, read = [], time.monotonic(), 0, 0
    try:
        while process.poll() is None:
            time.sleep(1 / LOOKS_A_SECOND)
            if file.partial.exists():
                with file.partial.open("rb") as partial:
                    partial.seek(read)
                    new = partial.read()
                lines, read = lines + new.count(b"\n"), read + len(new)
            if (memory := _resident(process)) is not None:
                looks.append(Look(time.monotonic() - begun, lines, memory))
            if moment is not None and lines >= moment:
                time.sleep(wait)
                break
    finally:
        process.kill()
        process.wait()
    return looks


def _resident(process: Process) -> float | None:
    """Mebibytes; None where it has just ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(found[0]) / 1024 if found else None


def _summary(looks: list[Look], begun: int) -> dict[str, float]:
    """Of the time in which lines came."""
    busy = [look for look in looks if look.lines > begun]
    if len(busy) < 3:
        return {"looks": len(looks)}
    first, last = busy[0], busy[-1]
    third = (last.seconds - first.seconds) / 3
    early = [look.mebibytes for look in busy if look.seconds <= first.seconds + third]
    late = [look.mebibytes for look in busy if look.seconds >= last.seconds - third]
    return {
        "seconds": round(last.seconds, 1),
        "start_seconds": round(first.seconds, 1),
        "lines_a_second": round((last.lines - first.lines) / (last.seconds - first.seconds), 1),
        "peak_mib": round(max(look.mebibytes for look in looks)),
        "early_peak_mib": round(max(early)),
        "late_peak_mib": round(max(late)),
    }


def _compare(
    command: list[str],
    folder: Path,
    lines: list[str],
    deaths: list[tuple[int, str]],
    draw: random.Random,
) -> bool:
    """Prints in what the output is not that of a process that is left in peace; whether it is."""
    content = (folder / "out").read_bytes().split(b"\n")[:-1]
    kept = [
        hashlib.sha256(b"\n".join(content[:done])).hexdigest() == digest for done, digest in deaths
    ]
    numbers = set(draw.sample(range(len(lines)), min(SAMPLE, len(lines))))
    for done, _ in deaths[:-1]:
        numbers.update(range(max(0, done - AROUND), min(len(lines), done + AROUND)))
    sample = sorted(numbers)
    _write(folder / "sample", [lines[number] for number in sample])
    arguments = [f"--input={folder / 'sample'}", f"--output={folder / 'expected'}"]
    subprocess.run([*command, *arguments], check=True, capture_output=True)
    expected = (folder / "expected").read_bytes().split(b"\n")[:-1]
    differing = [
        number for number, line in zip(sample, expected, strict=True)
        if number >= len(content) or content[number] != line
    ]  # fmt: skip
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith(".out"))
    _print(
        "compare", lines=len(lines), distinct=len(set(lines)), written=len(content),
        kept=kept, compared=len(sample), differing=differing[:SHOWN],
        differ=len(differing), left_behind=left,
    )  # fmt: skip
    return len(content) == len(lines) and all(kept) and not differing and not left


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"killed_translate.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
