"""A training that is killed again and again ends as one that is left in peace, to the bit.

    python -m tests.soak.kill_training [--kills=20] [--seed=1] [--work_dir=D]

Trains a small model, with dropout, of merges too: once in peace, and once with SIGKILL at random
moments, each time followed by the same command. After one of the kills the newest checkpoint gets a
flipped bit besides. One JSON line a kill: what was found on disk, and the step that the next start
went on from. The last line compares the losses of all steps that reached TensorBoard's files, those
of steps that were made twice too, the models and the validations. The exit status is 1 if anything
differs. With 20 kills it takes some six minutes of work for a core.
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

from tfnmt.cli import run as run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.checkpoints import WEIGHTS, Snapshots, snapshot_is_whole
from tfnmt.runs.run import Run
from tfnmt.runtime.files import ASIDE
from tfnmt.runtime.startup import import_tensorflow

CHECKPOINT_STEPS = 5
STEPS_A_LIFE = 35
"""More than a life makes before it ends, so that none comes to the end of the training."""

SETTINGS = {
    "data.max_pairs": 300, "data.batch_tokens": 160, "data.bpe_dropout": 0.1,
    "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.d_model": 16,
    "model.d_ff": 32, "model.dropout": 0.3, "training.warmup_steps": 50, "training.log_steps": 1,
    "training.checkpoint_steps": CHECKPOINT_STEPS, "training.validation_steps": 48,
    "training.keep_last": 5, "training.average_last": 5,
}  # fmt: skip

FATES = ("saving", "stepping", "saving", "starting", "saving", "stepping")
"""When lives end, over and over; a life without a fate goes on to the end of the training."""

NEW_CHECKPOINTS = (2, 5)
"""Checkpoints that a life writes, at least and at most, before it ends stepping or saving."""

START_SECONDS = 10.0
STEP_SECONDS = 0.3
SAVE_SECONDS = 0.06
"""About what the start, some steps and a checkpoint take: the moments are drawn from them."""

HANGS_SECONDS = 300.0
"""A life that has not written its checkpoints by then is killed as it is."""

Process = subprocess.Popen[bytes]

FLAGS = flags.FlagValues()
flags.DEFINE_integer("kills", 20, "times to kill", lower_bound=1, flag_values=FLAGS)
flags.DEFINE_integer("seed", 1, "decides the moments", flag_values=FLAGS)
flags.DEFINE_string("work_dir", None, "keeps both runs and what they say there", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Trains twice and compares."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(values.work_dir or temporary)
        peaceful, killed = Run(folder / "peaceful"), Run(folder / "killed")
        if peaceful.path.exists() or killed.path.exists():
            raise UsageError(f"--work_dir={folder}: has runs already; name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        import_tensorflow("tensorboard")  # which reads with it
        steps = STEPS_A_LIFE * (values.kills + 1)
        _live(peaceful, steps, folder / "peaceful.log")
        went_on_well = _kill(killed, steps, values.kills, random.Random(values.seed))
        if not (_compare(peaceful, killed, steps) and went_on_well):
            sys.exit(1)


def _kill(run: Run, steps: int, kills: int, draw: random.Random) -> bool:
    """Trains to the end through all kills; whether every life went on where it should."""
    fates = [*islice(cycle(FATES), kills), None]
    flipped = False
    death: dict[str, Any] = {}
    verdicts = []
    for number, fate in enumerate(fates, 1):
        before = _look(run)
        doom = partial(_wait_for_moment, run=run, fate=fate, draw=draw) if fate else None
        said = _live(run, steps, run.path.parent / f"killed-{number:02}.log", doom)
        if death:
            verdicts.append(_report(death, said, may_be_mute=fate == "starting"))
        if fate is None:
            break
        death = {"kill": number, **_examine(before, _look(run))}
        if not flipped and number >= kills // 2 and fates[number] != "starting":
            death |= {"flipped": _flip_newest(run), **_checkpoints(run)}
            flipped = True
    return all(verdicts)


def _live(run: Run, steps: int, log: Path, doom: Callable[[Process], None] | None = None) -> str:
    """Starts the training, and kills it once `doom` returns; returns what it said."""
    command = [
        sys.executable, "-m", "tfnmt.train", "--dataset=copy", f"--run_dir={run.path}",
        f"--cache_dir={run.path.parent / 'cache'}", f"--set=training.max_steps={steps}",
        *(f"--set={key}={value}" for key, value in SETTINGS.items()),
    ]  # fmt: skip
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            if doom is None:
                process.wait()
            else:
                doom(process)
        finally:
            process.kill()
    said = log.read_text()
    if process.returncode != (-signal.SIGKILL if doom else 0):
        raise UserError(f"{log.name}: the training ended with {process.returncode}:\n{said}")
    return said


def _wait_for_moment(process: Process, run: Run, fate: str, draw: random.Random) -> None:
    """Waits for a random moment of the kind that the fate names."""
    before = _saved(run)

    def has_written(checkpoints: int) -> bool:
        return _saved(run) >= before + checkpoints * CHECKPOINT_STEPS

    if fate == "starting":
        _wait(process, lambda: has_written(1), draw.uniform(0, START_SECONDS))
        return
    checkpoints = draw.randint(*NEW_CHECKPOINTS)
    _wait(process, lambda: has_written(checkpoints))
    if fate == "saving":
        _wait(process, lambda: bool(_half_written(run)))
    time.sleep(draw.uniform(0, SAVE_SECONDS if fate == "saving" else STEP_SECONDS))


def _wait(process: Process, condition: Callable[[], bool], seconds: float = HANGS_SECONDS) -> None:
    """Until the condition holds, the time is up, or the process has ended."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not condition():
        time.sleep(0.001)


def _saved(run: Run) -> int:
    """The step of the newest checkpoint."""
    newest = run.checkpoints().newest()
    return int(newest.name) if newest else 0


def _half_written(run: Run) -> list[str]:
    """What `written_aside` has begun."""
    # Not with rglob: it stumbles over folders that the training removes meanwhile.
    paths = [*run.path.glob(ASIDE), *run.path.glob(f"*/{ASIDE}")]
    return sorted(str(path.relative_to(run.path)) for path in paths)


def _checkpoints(run: Run) -> dict[str, list[int]]:
    """The steps of those that are whole and of those that are not."""
    steps: dict[str, list[int]] = {"whole": [], "damaged": []}
    for path in run.checkpoints().all():
        steps["whole" if snapshot_is_whole(path) else "damaged"].append(int(path.name))
    return steps


def _look(run: Run) -> dict[str, list[Any]]:
    """What lies on the disk."""
    events = sorted(run.logs.glob("*"))
    return {"events": events, "partial": _half_written(run), **_checkpoints(run)}


def _examine(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, Any]:
    """What a life was doing when it was killed, the last step it noted, and what it left."""
    new = {name: [one for one in found if one not in before[name]] for name, found in after.items()}
    step = max((step for path in new.pop("events") for step, _ in _losses(path)), default=None)
    if new["partial"] or new["damaged"]:  # the one being written, or the one being removed
        when = "saving"
    else:
        when = "starting" if step is None else "stepping"
    left = {name: after[name] for name in ("partial", "whole", "damaged")}
    return {"when": when, "step": step, **left}


def _flip_newest(run: Run) -> int:
    """Flips a bit in the weights of the newest checkpoint, and says which that is."""
    newest = run.checkpoints().newest()
    assert newest is not None
    weights = newest / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    return int(newest.name)


def _report(found: dict[str, Any], said: str, may_be_mute: bool) -> bool:
    """Prints a kill's line, with what the life after it said; whether that was right.

    A life that ended while it started may not have come to say anything.
    """
    whole = max(found["whole"])
    expected = whole, [step for step in reversed(found["damaged"]) if step > whole]
    match = re.search(r"going on after step ([\d,]+) ", said)
    resumed = int(match[1].replace(",", "")) if match else None
    told = [int(step) for step in re.findall(r"/(\d+): damaged, removed;", said)]
    right = (resumed is None and may_be_mute) or (resumed, told) == expected
    _print("kill", **found, resumed=resumed, told_damaged=told, right=right)
    return right


def _losses(path: Path) -> list[tuple[int, str]]:
    """Steps and losses, exact, of one of TensorBoard's files, which may end anywhere."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    return [
        (event.step, float(make_ndarray(value.tensor)).hex())
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
        if value.tag == "train/loss"
    ]


def _compare(peaceful: Run, killed: Run, steps: int) -> bool:
    """Prints in what the runs differ; whether they are the same."""
    truth, made = (
        [point for path in run.logs.glob("*") for point in _losses(path)]
        for run in (peaceful, killed)
    )
    losses = dict(truth)
    differing = sorted({step for step, loss in made if losses.get(step) != loss})
    validations, repeated = _validations(peaceful), _validations(killed)
    same = {
        "steps": sorted(losses) == list(range(1, steps + 1)) and not differing,
        "averaged": _weights(peaceful.averaged) == _weights(killed.averaged),
        "best": _weights(peaceful.best) == _weights(killed.best),
        "validations": validations == list(dict.fromkeys(repeated)),
        "summary": _summary(peaceful) == _summary(killed),
        "nothing_partial": not _half_written(killed),
    }
    _print(
        "compare", steps=steps, compared=len(made), distinct=len(dict(made)), differing=differing,
        validations=len(validations), repeated_validations=len(repeated) - len(validations),
        same=same,
    )  # fmt: skip
    return all(same.values())


def _weights(snapshots: Snapshots) -> tuple[str, bytes]:
    """The step and the bytes of the newest snapshot."""
    newest = snapshots.newest()
    assert newest is not None
    return newest.name, (newest / WEIGHTS).read_bytes()


def _validations(run: Run) -> list[str]:
    """The very lines: of a validation that was made twice there are two."""
    return (run.path / "validations.jsonl").read_text().splitlines()


def _summary(run: Run) -> dict[str, Any]:
    """What the training came to, but for the time."""
    summary: dict[str, Any] = json.loads(run.summary_path.read_text())
    del summary["seconds"]
    return summary


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"kills.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
