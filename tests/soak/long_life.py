"""Train or translate for a long time with kills, and look for leaks, leftovers and differences.

    python -m tests.soak.long_life train [--dataset=multi30k] [--data_dir=D] [--set=KEY=VALUE ...]
        [--minutes=60] [--kill_seconds=120] [--nocompare] [--seed=1] [--work_dir=D]
    python -m tests.soak.long_life translate --model=RUN [--input=F.en] [--lines=30000]
        [--minutes=60] [--kill_seconds=120] [--beam_size=1] [--seed=1] [--work_dir=D]

train: starts the train command again and again. Each process is killed after about --kill_seconds,
mostly with SIGKILL, sometimes with SIGTERM. After --minutes, the last process saves its step and
stops. An uninterrupted run of as many steps follows, which takes about as long. Weights, optimizer
state and validations of both runs must be equal, bit by bit.

translate: an uninterrupted process translates a file. For --minutes, the same translation is then
repeated with kills and --resume. Each repetition must give the same file.

Prints one JSON line per process: its peak memory, the slope of its memory in MB per hour (without
the first third of its life, and only if it lived for minutes), the maximum number of open
descriptors, and the maximum disk space of the run or of the output. The last line has the results,
and the temporary files that were left. The exit status is 1 if anything differs or remains.
"""

import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from benchmarks.measurement import read_sentences
from tests.soak.kill_training import DURATIONS, temporary_files, validations
from tests.soak.kill_translation import variants
from tests.soak.processes import Kill, Process
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run

SETTINGS = {
    "training.checkpoint_steps": 20,
    "training.validation_steps": 200,
    "decoding.beam_size": 1,
}
"""Changes to the preset. Checkpoints and validations must finish between two kills."""

ENDLESS = 2**30
"""More steps than a run makes."""

SIGTERM_EVERY = 4
"""One in this many processes ends with SIGTERM, the others with SIGKILL."""

FLAGS = flags.FlagValues()
flags.DEFINE_string("dataset", "multi30k", "train: the preset", flag_values=FLAGS)
flags.DEFINE_string("data_dir", None, "train: folder of the corpora", flag_values=FLAGS)
flags.DEFINE_multi_string("set", [], "train: a configuration key", flag_values=FLAGS)
flags.DEFINE_bool("compare", True, "train: compare with an uninterrupted run", flag_values=FLAGS)
flags.DEFINE_string("model", None, "translate: a run or an export", flag_values=FLAGS)
flags.DEFINE_string(
    "input", None, "translate: sentences, one per line (default: toy corpus)", flag_values=FLAGS
)
flags.DEFINE_integer("lines", 30_000, "translate: lines of the file", 1, flag_values=FLAGS)
flags.DEFINE_integer("beam_size", 1, "translate: beam width", 1, flag_values=FLAGS)
flags.DEFINE_float("minutes", 60.0, "time with kills", 0.0, flag_values=FLAGS)
flags.DEFINE_float("kill_seconds", 120.0, "mean time until a kill", 1.0, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "random seed of the times of the kills", flag_values=FLAGS)
flags.DEFINE_string("work_dir", None, "folder that keeps all files and logs", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Run one of the two tests."""
    if positional not in (["train"], ["translate"]):
        raise UsageError("give train or translate, and no other arguments; see --help")
    if positional == ["translate"] and not values.model:
        raise UsageError("--model: missing; give a run or an export")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"--work_dir={folder}: not empty; choose another folder")
        test = _train if positional == ["train"] else _translate
        if not test(values, folder):
            sys.exit(1)


# --- Training -------------------------------------------------------------------------------------


def _train(values: Any, folder: Path) -> bool:
    """Train with kills, then uninterrupted; return whether the runs are equal."""
    killed, uninterrupted = Run(folder / "killed"), Run(folder / "uninterrupted")
    end = time.monotonic() + 60 * values.minutes
    for number, kill in enumerate(_kills(values, end), start=1):
        lived = Process(_train_command(values, killed, ENDLESS), killed.path, f"killed-{number:03}")
        if not lived.end_by(kill):
            break  # the run has reached its end
        _print("train", kill=kill.number.name, step=_step(killed), **lived.summary())
    steps = _step(killed)
    left = _left(folder, killed)
    if not values.compare:
        _print("train.result", steps=steps, left=left)
        return not left
    command = _train_command(values, uninterrupted, steps)
    lived = Process(command, uninterrupted.path, "uninterrupted")
    lived.end_by(None)
    _print("train", kill=None, step=_step(uninterrupted), **lived.summary())
    same = _compare_runs(killed, uninterrupted)
    _print("train.result", steps=steps, same=same, left=left)
    return all(same.values()) and not left


def _train_command(values: Any, run: Run, steps: int) -> list[str]:
    changes = SETTINGS | {"training.max_steps": steps}
    return [
        *(sys.executable, "-m", "tfnmt.train", f"--dataset={values.dataset}"),
        *([f"--data_dir={values.data_dir}"] if values.data_dir else []),
        *(f"--run_dir={run.path}", f"--cache_dir={run.path.parent / 'cache'}"),
        *(f"--set={key}={value}" for key, value in changes.items()),
        *(f"--set={change}" for change in values.set),
    ]


def _step(run: Run) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    newest = run.checkpoints().newest()
    return int(newest.name) if newest else 0


def _left(folder: Path, run: Run) -> list[str]:
    """Return the temporary files that remain after the last process."""
    others = [*(folder / "tmp").glob("*"), *(folder / "cache").glob("**/.*.tmp")]
    return [*temporary_files(run), *sorted(str(path.relative_to(folder)) for path in others)]


def _compare_runs(one: Run, other: Run) -> dict[str, bool]:
    """Return which parts of the newest checkpoints and which records are equal."""
    ours, theirs = one.checkpoints().newest(), other.checkpoints().newest()
    if ours is None or theirs is None:
        raise UserError(f"{one.path}: no checkpoint; raise --minutes or --kill_seconds")
    return {
        "step": ours.name == theirs.name,
        "weights": (ours / WEIGHTS).read_bytes() == (theirs / WEIGHTS).read_bytes(),
        "optimizer": _arrays_equal(ours / "optimizer.npz", theirs / "optimizer.npz"),
        "state": _state(ours) == _state(theirs),
        # A step that was repeated after a kill was also validated twice.
        "validations": list(dict.fromkeys(validations(one))) == validations(other),
    }


def _arrays_equal(one: Path, other: Path) -> bool:
    with np.load(one) as ours, np.load(other) as theirs:
        return ours.files == theirs.files and all(
            np.array_equal(ours[name], theirs[name]) for name in ours.files
        )


def _state(checkpoint: Path) -> dict[str, Any]:
    """Return the progress of a checkpoint without durations."""
    state = json.loads((checkpoint / "state.json").read_text())
    return {key: value for key, value in state.items() if key not in DURATIONS}


# --- Translation ----------------------------------------------------------------------------------


def _translate(values: Any, folder: Path) -> bool:
    """Translate a file uninterrupted, then repeatedly with kills; return whether all is equal."""
    lines = islice(variants(read_sentences(values.input), random.Random(values.seed)), values.lines)
    (folder / "in").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output = folder / "output"
    command = [
        *(sys.executable, "-m", "tfnmt.translate", f"--model={values.model}"),
        *(f"--beam_size={values.beam_size}", f"--input={folder / 'in'}"),
    ]
    lived = Process([*command, f"--output={output / 'expected'}"], output, "uninterrupted")
    lived.end_by(None)
    _print("translate", kill=None, **lived.summary())
    expected = (output / "expected").read_bytes()
    command += [f"--output={output / 'out'}", "--resume"]
    end = time.monotonic() + 60 * values.minutes
    rounds, same = 0, True
    for number, kill in enumerate(_kills(values, end), start=1):
        lived = Process(command, output, f"killed-{number:03}")
        killed = lived.end_by(kill)
        _print("translate", kill=kill.number.name if killed else None, **lived.summary())
        if not killed:
            rounds += 1
            same &= (output / "out").read_bytes() == expected
            (output / "out").unlink()
    partial = output / ".out.partial"
    unfinished = partial.read_bytes() if partial.exists() else b""
    same &= expected.startswith(unfinished)
    translated = rounds * values.lines + unfinished.count(b"\n")
    kept = {"expected", partial.name, ".out.job"}  # the last process was killed
    paths = [*output.iterdir(), *(folder / "tmp").iterdir()]
    left = sorted({path.name for path in paths} - kept)
    _print("translate.result", rounds=rounds, translated=translated, same=same, left=left)
    return same and not left and translated > 0


# --- Processes ------------------------------------------------------------------------------------


def _kills(values: Any, end: float) -> Iterator[Kill]:
    """Yield the kills until the time is over. The last one is a SIGTERM, which saves the step."""
    generator = random.Random(values.seed)
    for number in count(1):
        seconds = values.kill_seconds * generator.uniform(0.5, 1.5)
        left = end - time.monotonic()
        if left <= seconds:
            yield Kill(max(left, values.kill_seconds), signal.SIGTERM)
            return
        yield Kill(seconds, signal.SIGKILL if number % SIGTERM_EVERY else signal.SIGTERM)


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"long_life.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
