"""Train on synthetic pairs as well: teachers, their translations, and a student.

    python -m tfnmt.diversify --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.diversify --train=my.en,my.de [--val=dev.en,dev.de] [--minutes=10]

This is data diversification (Nguyen et al., 2020): teachers of both directions translate the
training text, and a student learns from the real and the synthetic pairs. The section
`diversification` of the preset or of --config describes teachers, decodings and student. --minutes
is the training time of each run.

The folder is runs/<dataset>-<source>-<target>-diversified. It keeps a copy of the text, the run of
each teacher, all translations and the student. The same command resumes where it stopped, and
finished stages are not repeated.

Each run and each translation is a process of `tfnmt.train` or `tfnmt.translate`. A process gives
back the memory of TensorFlow when it ends, starts with the same random numbers whatever came
before, and already resumes on its own. It ends together with this command.
"""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import non_utf8_problems, run_command
from tfnmt.config import STEP_KEEPING_KEYS, Config, dump_config
from tfnmt.data.corpora.catalog import data_folder, split_name
from tfnmt.data.preparation.encoding import SIDES, text_path
from tfnmt.diversification import processes
from tfnmt.diversification.forecast import add_to_speed, forecast, measure, read_speed
from tfnmt.diversification.plan import Layout, make_stages
from tfnmt.diversification.stages import Stage, Translation
from tfnmt.errors import UsageError, UserError
from tfnmt.experiment import (
    default_run_dir,
    define_experiment,
    has_preset,
    read_data,
    resolve_config,
)
from tfnmt.progress import log
from tfnmt.runs.run import Run
from tfnmt.runtime.cluster import is_distributed
from tfnmt.runtime.files import atomic_folder, check_folder, write_atomically
from tfnmt.training.sizing import size_run

if TYPE_CHECKING:
    from tfnmt.data.corpora.corpus import Corpus
    from tfnmt.data.preparation.prepared import Prepared

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
flags.DEFINE_string("run_dir", None, "the folder of all runs", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Run all stages that are not finished."""
    if positional:
        raise UsageError(f"{positional[0]}: unexpected argument; see --help")
    if is_distributed():
        raise UsageError(
            "diversify: runs on a single host; unset TF_CONFIG, or run it outside Slurm"
        )
    config = resolve_config(values)
    if len(config.data.all_directions) > 1:
        raise UsageError(
            "data.directions: diversify trains a single direction; give --source and --target"
        )
    run = _open_folder(values, config)
    if not has_preset(values):
        config = size_run(config, data_folder(values.data_dir), run)
    cache = [f"--cache_dir={values.cache_dir}"] if values.cache_dir else []
    stages = make_stages(run.path, config, cache)
    layout = Layout(run.path, (config.data.source, config.data.target))
    _check_config(run, config)
    text = _read_text(values, config, layout)
    with run.locked(), _report_interruption(run):
        _check_config(run, config)  # another process may have created the folder
        write_atomically(run.path / "config.yaml", dump_config(config).encode())
        log(f"folder: {run.path}")
        if text is not None:
            _write_real_text(*text, config, layout)
        _run_all(stages, layout)
    log(f'done; try: python -m tfnmt.translate --model={layout.student} "..."')


def _open_folder(values: Any, config: Config) -> Run:
    """Return the folder, whose config.yaml is like that of a run, after checking it."""
    name = values.run_dir or f"{default_run_dir(values, config)}-diversified"
    if problems := non_utf8_problems([name]):
        raise UsageError(*(f"--run_dir: {problem}" for problem in problems))
    run = Run(Path(os.path.realpath(name)))
    check_folder(run.path)
    if run.tokenizer_path.exists():
        raise UserError(f"--run_dir={run.path}: a training run; choose a new or empty folder")
    if not run.exists():
        run.check_free()
    return run


@contextmanager
def _report_interruption(run: Run) -> Iterator[None]:
    """Log how to resume if a signal stops this command."""
    try:
        yield
    except KeyboardInterrupt:
        command = f"python -m tfnmt.diversify {shlex.join(sys.argv[1:])}"
        log(f"{run.path}: stopped; resume with the same command: {command}")
        raise


def _check_config(run: Run, config: Config) -> None:
    """Compare the configuration with that of an existing folder."""
    if run.exists():
        run.check_config(config, STEP_KEEPING_KEYS)


def _read_text(values: Any, config: Config, layout: Layout) -> "tuple[Corpus, Prepared] | None":
    """Return the corpus, or None if the folder already has its text, which all stages use."""
    if not layout.real_folder.exists():
        return read_data(values, config)
    log(f"{layout.real_folder}: exists; later changes of the training data have no effect")
    return None


def _write_real_text(
    corpus: "Corpus", prepared: "Prepared", config: Config, layout: Layout
) -> None:
    """Write the cleaned training text and the validation set, so that no stage depends on others.

    The folder appears when it is complete.
    """
    val = [*corpus.pairs(split_name(config.data, corpus, "val"))]
    files = {split: layout.real(split) for split in ("train", "val")}
    with atomic_folder(layout.real_folder) as temporary:
        for number, (side, language) in enumerate(zip(SIDES, layout.languages, strict=True)):
            train = temporary / files["train"][language].name
            shutil.copyfile(text_path(prepared.folder, side), train)
            lines = "".join(f"{pair[number]}\n" for pair in val)
            (temporary / files["val"][language].name).write_text(lines, encoding="utf-8")


def _run_all(stages: Sequence[Stage], layout: Layout) -> None:
    """Run the stages that are not finished, one after another."""
    text = measure(layout.real("train")[layout.languages[1]])

    def report(name: str) -> None:
        end = forecast(stages, text, read_speed(layout.speed))
        log(name if end is None else f"{name}; {end}")

    for number, stage in enumerate(stages, start=1):
        if stage.finished:
            continue
        name = f"stage {number} of {len(stages)}: {stage.name}"
        report(name)
        whole = isinstance(stage, Translation) and not stage.started
        started = time.monotonic()
        stage.run(partial(_run_stage, name, partial(report, name)))
        if whole:
            add_to_speed(layout.speed, text.lines, time.monotonic() - started)


def _run_stage(
    name: str, report: Callable[[], None], module: str, arguments: Sequence[str]
) -> None:
    """Run the command of a stage, and report the time that is left now and then."""
    code = processes.run_command(module, arguments, report)
    if code:
        raise UserError(
            f"{name}: {module} ended with exit code {code}; see its messages above, and run the "
            "same command again to resume"
        )


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
