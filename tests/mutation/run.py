"""Measure what a well-known bug does to a Transformer, on the toy corpus.

    python -m tests.mutation.run NAME [--work_dir=runs/mutations] [--set=model.norm_first=false]
    python -m tests.mutation.run NAME --tests
    python -m tests.mutation.run pictures --output=docs/images

NAME is `none` for the reference run without a bug, or a mutation from the list below. The command
injects the bug, trains configs/toy.yaml for 500 steps and prints a JSON line:

    loss            mean training loss of the last 50 steps
    bleu            BLEU on 300 validation sentences
    distinct_of_4   mean number of distinct translations in a 4-best list
    translation     one of the translations, with its source

A decoding bug needs no training. It uses the checkpoint of the reference run, which must exist.

--tests runs the unit tests close to the bug, with the bug injected, and prints the failing ones.
The exit status is 1 if none fails. `pictures` draws the losses and the cross-attention of all
measured runs: injected-bugs-loss.png and injected-bugs-attention.png.

The mutations are defined in tests/mutation/mutations.py. Each replaces one function, in this
process only.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from tests.mutation.mutations import MUTATIONS, Mutation, inject
from tfnmt.cli import run_command
from tfnmt.errors import UsageError, did_you_mean
from tfnmt.runs.run import Run, base_folder
from tfnmt.runtime.files import write_atomically
from tfnmt.runtime.startup import import_tensorflow

REFERENCE, PICTURES = "none", "pictures"
"""Values of NAME that are not mutations."""

ATTENTION_FILE = "attention.npz"
"""File in a run folder: cross-attention of the last decoder layer, mean over its heads."""

STEPS = 500
LAST_LOSSES = 50
"""Steps whose losses are averaged, because the loss of one batch depends on its sentences."""

SENTENCES = 300
"""Validation sentences to translate. Few, because a model that never ends a sentence is slow."""

SHOWN = 6
"""Index of the sentence whose translation is printed."""

SETTINGS = {
    "training.max_steps": STEPS,
    "training.checkpoint_steps": STEPS,
    "training.keep_last": 1,
    "training.average_last": 1,
    "training.validation_steps": 10 * STEPS,
    "training.log_steps": 1,
}


def main(values: Any, positional: list[str]) -> None:
    """Inject the bug, then train and measure, or run the tests."""
    if len(positional) != 1:
        raise UsageError("NAME: expected exactly one; see --help")
    (name,) = positional
    known = [REFERENCE, PICTURES, *MUTATIONS]
    if name not in known:
        hint = did_you_mean(name, known)
        raise UsageError(f"{name}: unknown mutation; {hint}choose from {', '.join(known)}")
    mutation = MUTATIONS.get(name)
    if values.tests and mutation is None:
        raise UsageError(f"--tests: not supported for {name}; give the name of a mutation")
    folder = Path(values.work_dir or base_folder() / "runs" / "mutations")
    import_tensorflow()
    if name == PICTURES:
        _draw(folder, Path(values.output or "."))
        return
    if mutation is not None:
        inject(mutation)
    if values.tests and mutation is not None:
        _test(name, mutation)
        return
    needs_training = mutation is None or mutation.needs_training
    run = Run(folder / (name if needs_training else REFERENCE))
    if needs_training:
        _train(run, values.set)
    elif not run.finished:
        raise UsageError(
            f"{name}: needs the reference run; first run `python -m tests.mutation.run {REFERENCE}`"
        )
    _measure(name, run)


def _train(run: Run, changes: list[str]) -> None:
    """Run the train command with SETTINGS. It leaves a finished run unchanged."""
    from tfnmt import train

    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    changed = [f"--set={change}" for change in changes]
    values = train.FLAGS
    values(["train", "--dataset=toy", f"--run_dir={run.path}", *settings, *changed])
    train.main(values, [])


def _measure(name: str, run: Run) -> None:
    """Print loss, BLEU and a translation; save the cross-attention for `pictures`."""
    from tfnmt.data.corpora.toy import grammar
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.decoding.lines import best_translations, read_windows, translate_lines
    from tfnmt.evaluation.metrics import bleu
    from tfnmt.loading.models import find_run
    from tfnmt.plots.curves import read_curves

    translator = find_run(run.path).load_translator()
    sources, references = zip(*islice(grammar.pairs("val"), SENTENCES), strict=True)
    answers = translate_lines(best_translations(translator.translate), read_windows(sources))
    translations = [answer.best.text for answer in answers]
    lists = translator.nbest(list(sources))["translations"].numpy()
    losses = read_curves(run).loss.values[-LAST_LOSSES:]
    result = {
        "task": f"mutation.{name}",
        "steps": STEPS,
        "loss": round(float(np.mean(losses)), 3),
        "bleu": round(bleu(translations, references), 2),
        "distinct_of_4": round(float(np.mean(np.count_nonzero(lists, axis=1))), 2),
        "source": sources[SHOWN],
        "translation": translations[SHOWN],
    }
    print(json.dumps(result, ensure_ascii=False), flush=True)
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    maps = inspector.attention_maps(sources[SHOWN], references[SHOWN])
    weights = maps.cross[-1].mean(axis=0)  # [T, S]
    np.savez(run.path / ATTENTION_FILE, weights=weights, source=maps.source, target=maps.target)


def _draw(folder: Path, output: Path) -> None:
    """Draw losses and cross-attention of all measured runs, the reference run first."""
    from tfnmt.plots.attention import draw_attention
    from tfnmt.plots.curves import draw_comparison, read_curves
    from tfnmt.plots.style import to_png

    names = [name for name in (REFERENCE, *MUTATIONS) if (folder / name / ATTENTION_FILE).is_file()]
    if len(names) < 2:
        raise UsageError(
            f"{folder}: measured {len(names)} of at least 2 runs; "
            "run `python -m tests.mutation.run NAME` for more mutations"
        )
    measured = [np.load(folder / name / ATTENTION_FILE) for name in names]
    weights = np.stack([each["weights"] for each in measured])
    title = "cross-attention of the last layer, mean over heads"
    captions = ["reference run", *names[1:]]
    attention = draw_attention(
        weights, measured[0]["target"], measured[0]["source"], title, captions
    )
    write_atomically(output / "injected-bugs-attention.png", to_png(attention))
    reference, *mutated = (read_curves(Run(folder / name)) for name in names)
    losses = draw_comparison(reference._replace(name=captions[0]), mutated)
    write_atomically(output / "injected-bugs-loss.png", to_png(losses))


class ResultCollector:
    """A pytest plugin that collects the names of the tests run and of those that failed."""

    def __init__(self) -> None:
        self.run: dict[str, None] = {}
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record a test. All parameter sets of a test count as one."""
        name = report.nodeid.partition("[")[0].removeprefix("tests/tfnmt/")
        self.run[name] = None
        if report.failed:
            self.failed[name] = None


def _test(name: str, mutation: Mutation) -> None:
    """Run the tests close to the bug and print the failing ones."""
    import pytest

    results = ResultCollector()
    paths = [str(base_folder() / "tests" / "tfnmt" / path) for path in mutation.tests]
    options = ["-q", "--no-header", "--tb=no", "-m", "not slow", "-p", "no:cacheprovider"]
    pytest.main([*options, *paths], [results])
    result = {"run": len(results.run), "failed": [*results.failed]}
    print(json.dumps({"task": f"mutation.{name}.tests", **result}))
    if not results.failed:
        sys.exit(1)


FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "work_dir", None, "folder of the runs (default: runs/mutations)", flag_values=FLAGS
)
flags.DEFINE_string("output", None, "folder for the pictures (default: .)", flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_bool("tests", False, "run the tests with the bug injected", flag_values=FLAGS)


if __name__ == "__main__":
    names = "\n".join(
        f"  {name:<22} {mutation.description}" for name, mutation in MUTATIONS.items()
    )
    run_command(main, FLAGS, f"{__doc__}\n{names}")
