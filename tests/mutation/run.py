"""What well-known mistakes do to a Transformer: each put in from outside, on the toy corpus.

    python -m tests.mutation.run NAME [--work_dir=runs/faults] [--set=model.norm_first=false]
    python -m tests.mutation.run NAME --tests
    python -m tests.mutation.run pictures --output=docs/images

NAME is `none`, for a sound run, or a fault: `--help` lists them. Trains configs/toy.yaml for 500
updates and prints a JSON line: the mean loss of the last 50, BLEU on 300 validation sentences, how
many texts the four best translations of a sentence are, and a translation. A fault of the search
needs no training: it translates with the sound run, which must be there. --tests runs those of our
tests that are near the fault, with the fault in place, and prints which ones fail. `pictures` draws
the losses and the cross-attention of all that was measured, faults-loss.png and
faults-attention.png.

The faults are in tests/mutation/mutations.py. Each replaces one function in this process only.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from tests.mutation.mutations import FAULTS, Fault, plant
from tfnmt.cli import run as run_command
from tfnmt.errors import UsageError, nearest
from tfnmt.runs.run import Run, home
from tfnmt.runtime.files import write_atomically
from tfnmt.runtime.startup import import_tensorflow

SOUND, PICTURES = "none", "pictures"
"""Names that are not of faults."""

ATTENTION_FILE = "attention.npz"
"""In a run's folder: where the last decoder layer looks, the mean of its heads."""

STEPS = 500
LAST_LOSSES = 50
"""Updates whose losses are averaged: what a batch comes to depends on its sentences."""

SENTENCES = 300
"""Of the validation text, translated: a faulty model that does not end takes its time."""

SHOWN = 6
"""The one of them that is printed."""

SETTINGS = {
    "training.max_steps": STEPS, "training.checkpoint_steps": STEPS, "training.keep_last": 1,
    "training.average_last": 1, "training.validation_steps": 10 * STEPS, "training.log_steps": 1,
}  # fmt: skip


def main(values: Any, positional: list[str]) -> None:
    """Puts the fault in; then trains and measures, or tests."""
    if len(positional) != 1:
        raise UsageError("NAME: give one; see --help")
    (name,) = positional
    known = [SOUND, PICTURES, *FAULTS]
    if name not in known:
        hint = nearest(name, known)
        raise UsageError(f"{name}: no such fault; {hint}there are {', '.join(known)}")
    fault = FAULTS.get(name)
    if values.tests and fault is None:
        raise UsageError(f"--tests: goes with a fault, not with {name}")
    folder = Path(values.work_dir or home() / "runs" / "faults")
    import_tensorflow()
    if name == PICTURES:
        _draw(folder, Path(values.output or "."))
        return
    if fault is not None:
        plant(fault)
    if values.tests and fault is not None:
        _test(name, fault)
        return
    run = Run(folder / (name if fault is None or fault.trains else SOUND))
    if fault is None or fault.trains:
        _train(run, values.set)
    elif not run.finished:
        raise UsageError(f"{name}: is of the search; first run `python -m tests.mutation.run none`")
    _measure(name, run)


def _train(run: Run, changes: list[str]) -> None:
    """The train command, but for what the settings change; a finished run stays as it is."""
    from tfnmt import train

    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    changed = [f"--set={change}" for change in changes]
    values = train.FLAGS
    values(["train", "--dataset=toy", f"--run_dir={run.path}", *settings, *changed])
    train.main(values, [])


def _measure(name: str, run: Run) -> None:
    """Prints what the run came to."""
    from tfnmt.data.corpora.toy import grammar
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.decoding.lines import best, translate_lines, windows
    from tfnmt.evaluation.metrics import bleu
    from tfnmt.loading.models import find_run
    from tfnmt.plots.curves import read_curves

    translator = find_run(run.path).load_translator()
    sources, references = zip(*islice(grammar.pairs("val"), SENTENCES), strict=True)
    answers = translate_lines(best(translator.translate), windows(sources))
    translations = [answer.best.text for answer in answers]
    lists = translator.nbest(list(sources))["translations"].numpy()
    losses = read_curves(run).loss.values[-LAST_LOSSES:]
    result = {
        "task": f"faults.{name}",
        "steps": STEPS,
        "loss": round(float(np.mean(losses)), 3),
        "bleu": round(bleu(translations, references), 2),
        "texts_of_4": round(float(np.mean(np.count_nonzero(lists, axis=1))), 2),
        "source": sources[SHOWN],
        "translation": translations[SHOWN],
    }
    print(json.dumps(result, ensure_ascii=False), flush=True)
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    look = inspector.look(sources[SHOWN], references[SHOWN])
    weights = look.cross[-1].mean(axis=0)  # [T, S]
    np.savez(run.path / ATTENTION_FILE, weights=weights, source=look.source, target=look.target)


def _draw(folder: Path, output: Path) -> None:
    """The pictures of all trainings that were measured, the sound one first."""
    from tfnmt.plots.attention import draw_attention
    from tfnmt.plots.curves import draw_beside, read_curves
    from tfnmt.plots.style import to_png

    names = [name for name in (SOUND, *FAULTS) if (folder / name / ATTENTION_FILE).is_file()]
    if len(names) < 2:
        raise UsageError(f"{folder}: has no faults beside {SOUND}; train them first")
    seen = [np.load(folder / name / ATTENTION_FILE) for name in names]
    weights = np.stack([each["weights"] for each in seen])
    title = "cross-attention of the last layer, mean over heads"
    captions = ["the sound run", *names[1:]]
    attention = draw_attention(weights, seen[0]["target"], seen[0]["source"], title, captions)
    write_atomically(output / "faults-attention.png", to_png(attention))
    sound, *faulty = (read_curves(Run(folder / name)) for name in names)
    losses = draw_beside(sound._replace(name=captions[0]), faulty)
    write_atomically(output / "faults-loss.png", to_png(losses))


class Failures:
    """What pytest reports to: the tests that were run, and those that failed, by name."""

    def __init__(self) -> None:
        self.run: dict[str, None] = {}
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notes a test, whatever its parameters."""
        name = report.nodeid.partition("[")[0].removeprefix("tests/tfnmt/")
        self.run[name] = None
        if report.failed:
            self.failed[name] = None


def _test(name: str, fault: Fault) -> None:
    """Runs the tests near the fault, and prints which ones see it."""
    import pytest

    failures = Failures()
    paths = [str(home() / "tests" / "tfnmt" / path) for path in fault.tests]
    options = ["-q", "--no-header", "--tb=no", "-m", "not slow", "-p", "no:cacheprovider"]
    pytest.main([*options, *paths], [failures])
    result = {"run": len(failures.run), "failed": [*failures.failed]}
    print(json.dumps({"task": f"faults.{name}.tests", **result}))
    if not failures.failed:
        sys.exit(1)


FLAGS = flags.FlagValues()
flags.DEFINE_string("work_dir", None, "keeps the runs (default: runs/faults)", flag_values=FLAGS)
flags.DEFINE_string("output", None, "folder of the pictures (default: .)", flag_values=FLAGS)
flags.DEFINE_multi_string("set", [], "a key of the configuration, as train's", flag_values=FLAGS)
flags.DEFINE_bool("tests", False, "test with the fault in place", flag_values=FLAGS)


if __name__ == "__main__":
    names = "\n".join(f"  {name:<22} {fault.says}" for name, fault in FAULTS.items())
    run_command(main, FLAGS, f"{__doc__}\n{names}")
