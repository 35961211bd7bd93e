"""Check that a training run that is killed repeatedly ends exactly like an uninterrupted one.

    python -m tests.soak.kill_training [--kills=20] [--seed=1] [--work_dir=D]

Trains a small model, with dropout and BPE-dropout, twice: once uninterrupted, and once killed with
SIGKILL at random times and restarted with the same command each time. After one of the kills, a bit
of the newest checkpoint is flipped.

Prints one JSON line per kill: the state on disk, and the step from which the next process resumed.
The last line compares both runs bit by bit: the losses of all steps in TensorBoard's files,
including steps that were made twice, the weights and the validations. The exit status is 1 if
anything differs. With 20 kills it takes about six minutes of one CPU core.
"""

import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.checkpoints import WEIGHTS, CheckpointFolder, is_complete
from tfnmt.runs.run import Run
from tfnmt.runtime.files import TEMPORARY
from tfnmt.runtime.startup import import_tensorflow

CHECKPOINT_STEPS = 5
STEPS_PER_KILL = 35
"""More steps than a process makes before it is killed, so that none finishes the training run."""

SETTINGS = {
    "data.max_pairs": 300,
    "data.batch_tokens": 160,
    "data.bpe_dropout": 0.1,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.dropout": 0.3,
    "training.warmup_steps": 50,
    "training.log_steps": 1,
    "training.checkpoint_steps": CHECKPOINT_STEPS,
    "training.validation_steps": 48,
    "training.keep_last": 5,
    "training.average_last": 5,
}

PHASES = ("saving", "stepping", "saving", "starting", "saving", "stepping")
"""The phases in which the processes are killed, repeated. The last process runs to the end."""

NEW_CHECKPOINTS = (2, 5)
"""Range of the number of checkpoints that a process writes before it is killed while stepping or
saving.
"""

START_SECONDS = 10.0
STEP_SECONDS = 0.3
SAVE_SECONDS = 0.06
"""Approximate duration of the start, of some steps and of a checkpoint. The times of the kills are
sampled from these ranges.
"""

TIMEOUT_SECONDS = 300.0
"""A process that has not written its checkpoints by then is killed anyway."""

DURATIONS = ("seconds", "busy")
"""Keys of the summary that differ from run to run."""

Process = subprocess.Popen[bytes]

FLAGS = flags.FlagValues()
flags.DEFINE_integer("kills", 20, "number of kills", lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "random seed of the times of the kills", flag_values=FLAGS)
flags.DEFINE_string(
    "work_dir", None, "folder that keeps both runs and their logs", flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Train twice and compare the runs."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary)
        uninterrupted, killed = Run(folder / "uninterrupted"), Run(folder / "killed")
        if uninterrupted.path.exists() or killed.path.exists():
            raise UsageError(f"--work_dir={folder}: contains runs already; choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        import_tensorflow("tensorboard")  # its event reader uses TensorFlow
        steps = STEPS_PER_KILL * (values.kills + 1)
        _train(uninterrupted, steps, folder / "uninterrupted.log")
        resumed = _train_with_kills(killed, steps, values.kills, random.Random(values.seed))
        if not (_compare(uninterrupted, killed, steps) and resumed):
            sys.exit(1)


def _train_with_kills(run: Run, steps: int, kills: int, generator: random.Random) -> bool:
    """Train to the end through all kills; return whether each process resumed correctly."""
    phases = [*islice(cycle(PHASES), kills), None]
    flipped = False
    state: dict[str, Any] = {}
    passed = []
    for number, phase in enumerate(phases, 1):
        before = _read_state(run)
        wait = (
            partial(_wait_for_phase, run=run, phase=phase, generator=generator) if phase else None
        )
        log = _train(run, steps, run.path.parent / f"killed-{number:02}.log", wait)
        if state:
            passed.append(_report(state, log, may_be_silent=phase == "starting"))
        if phase is None:
            break
        state = {"kill": number, **_describe_kill(before, _read_state(run))}
        if not flipped and number >= kills // 2 and phases[number] != "starting":
            state |= {"flipped": _flip_newest(run), **_checkpoints(run)}
            flipped = True
    return all(passed)


def _train(run: Run, steps: int, log: Path, wait: Callable[[Process], None] | None = None) -> str:
    """Start the train command, kill it when `wait` returns, and return its log.

    Args:
        run: The run.
        steps: Number of steps of the whole training run.
        log: File for stderr.
        wait: Waits for the time of the kill. None lets the command finish.
    """
    command = [
        sys.executable,
        "-m",
        "tfnmt.train",
        "--dataset=copy",
        f"--run_dir={run.path}",
        f"--cache_dir={run.path.parent / 'cache'}",
        f"--set=training.max_steps={steps}",
        *(f"--set={key}={value}" for key, value in SETTINGS.items()),
    ]
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            if wait is None:
                process.wait()
            else:
                wait(process)
        finally:
            process.kill()
    text = log.read_text()
    if process.returncode != (-signal.SIGKILL if wait else 0):
        raise UserError(f"{log.name}: unexpected exit status {process.returncode}; log:\n{text}")
    return text


def _wait_for_phase(process: Process, run: Run, phase: str, generator: random.Random) -> None:
    """Wait for a random time within a phase."""
    before = _newest_step(run)

    def has_written(checkpoints: int) -> bool:
        return _newest_step(run) >= before + checkpoints * CHECKPOINT_STEPS

    if phase == "starting":
        _wait(process, lambda: has_written(1), generator.uniform(0, START_SECONDS))
        return
    checkpoints = generator.randint(*NEW_CHECKPOINTS)
    _wait(process, lambda: has_written(checkpoints))
    if phase == "saving":
        _wait(process, lambda: bool(temporary_files(run)))
    time.sleep(generator.uniform(0, SAVE_SECONDS if phase == "saving" else STEP_SECONDS))


def _wait(
    process: Process, condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS
) -> None:
    """Wait until the condition holds, the time is over or the process has ended."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not condition():
        time.sleep(0.001)


def _newest_step(run: Run) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    newest = run.checkpoints().newest()
    return int(newest.name) if newest else 0


def temporary_files(run: Run) -> list[str]:
    """Return the unfinished files and folders of `atomic_path`."""
    # Not rglob: it fails on folders that the training process removes in the meantime.
    paths = [*run.path.glob(TEMPORARY), *run.path.glob(f"*/{TEMPORARY}")]
    return sorted(str(path.relative_to(run.path)) for path in paths)


def _checkpoints(run: Run) -> dict[str, list[int]]:
    """Return the steps of complete and of damaged checkpoints."""
    steps: dict[str, list[int]] = {"complete": [], "damaged": []}
    for path in run.checkpoints().all():
        steps["complete" if is_complete(path) else "damaged"].append(int(path.name))
    return steps


def _read_state(run: Run) -> dict[str, list[Any]]:
    """Return event files, temporary files and checkpoints of a run."""
    events = sorted(run.logs.glob("*"))
    return {"events": events, "temporary": temporary_files(run), **_checkpoints(run)}


def _describe_kill(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the phase of a process when it was killed, its last logged step and its files."""
    new = {name: [one for one in found if one not in before[name]] for name, found in after.items()}
    step = max((step for path in new.pop("events") for step, _ in _losses(path)), default=None)
    if new["temporary"] or new["damaged"]:  # a checkpoint was being written or removed
        phase = "saving"
    else:
        phase = "starting" if step is None else "stepping"
    files = {name: after[name] for name in ("temporary", "complete", "damaged")}
    return {"phase": phase, "step": step, **files}


def _flip_newest(run: Run) -> int:
    """Flip a bit in the weights of the newest checkpoint; return the checkpoint's step."""
    newest = run.checkpoints().newest()
    assert newest is not None
    weights = newest / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    return int(newest.name)


def _report(state: dict[str, Any], log: str, may_be_silent: bool) -> bool:
    """Print the line of a kill, and return whether the next process resumed correctly.

    Args:
        state: The state on disk after the kill.
        log: The log of the next process.
        may_be_silent: True if the next process was killed while starting. It may not have logged
            anything.
    """
    newest = max(state["complete"])
    expected = newest, [step for step in reversed(state["damaged"]) if step > newest]
    match = re.search(r"resuming after step ([\d,]+)", log)
    resumed = int(match[1].replace(",", "")) if match else None
    reported = [int(step) for step in re.findall(r"/(\d+): damaged, removed;", log)]
    passed = (resumed is None and may_be_silent) or (resumed, reported) == expected
    _print("kill", **state, resumed=resumed, reported_damaged=reported, passed=passed)
    return passed


def _losses(path: Path) -> list[tuple[int, str]]:
    """Return steps and exact losses from a TensorBoard file, which may be truncated."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    return [
        (event.step, float(make_ndarray(value.tensor)).hex())
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
        if value.tag == "train/loss"
    ]


def _compare(uninterrupted: Run, killed: Run, steps: int) -> bool:
    """Print how the runs differ; return whether they are the same."""
    expected, found = (
        [point for path in run.logs.glob("*") for point in _losses(path)]
        for run in (uninterrupted, killed)
    )
    losses = dict(expected)
    different = sorted({step for step, loss in found if losses.get(step) != loss})
    validated, repeated = validations(uninterrupted), validations(killed)
    same = {
        "steps": sorted(losses) == list(range(1, steps + 1)) and not different,
        "averaged": _weights(uninterrupted.averaged) == _weights(killed.averaged),
        "best": _weights(uninterrupted.best) == _weights(killed.best),
        "validations": validated == list(dict.fromkeys(repeated)),
        "summary": _summary(uninterrupted) == _summary(killed),
        "no_temporary_files": not temporary_files(killed),
    }
    _print(
        "compare",
        steps=steps,
        compared=len(found),
        distinct=len(dict(found)),
        different=different,
        validations=len(validated),
        repeated_validations=len(repeated) - len(validated),
        same=same,
    )
    return all(same.values())


def _weights(checkpoints: CheckpointFolder) -> tuple[str, bytes]:
    """Return the step and the weights file of the newest checkpoint."""
    newest = checkpoints.newest()
    assert newest is not None
    return newest.name, (newest / WEIGHTS).read_bytes()


def validations(run: Run) -> list[str]:
    """Return the lines of all validations. A validation that was repeated has two lines."""
    path = run.path / "validations.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def _summary(run: Run) -> dict[str, Any]:
    """Return the run's summary without durations."""
    summary: dict[str, Any] = json.loads(run.summary_path.read_text())
    return {key: value for key, value in summary.items() if key not in DURATIONS}


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"kill_training.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
