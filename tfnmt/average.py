"""Averages checkpoints of a run (the paper's section 6.1) into its averaged/.

    python -m tfnmt.average --model=RUN --last=N
    python -m tfnmt.average --model=RUN --best=N

The last N checkpoints, or those N with the best validation BLEU among the ones that are still there
and were validated. What averaged/ held before goes.
"""

from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import say
from tfnmt.runs.checkpoints import snapshot_is_whole, still_there
from tfnmt.runs.run import Run
from tfnmt.runtime.startup import import_tensorflow

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "the run", flag_values=FLAGS)
flags.DEFINE_integer(
    "last", None, "average the last N checkpoints", lower_bound=1, flag_values=FLAGS
)
flags.DEFINE_integer(
    "best", None, "average the N best by validation BLEU", lower_bound=1, flag_values=FLAGS
)


def main(values: Any, positional: list[str]) -> None:
    """Writes averaged/."""
    if positional or not values.model or (values.last is None) == (values.best is None):
        raise UsageError("--model, and --last or --best: needed, and nothing else; see --help")
    folder = Run(Path(values.model))
    config = folder.config()
    paths = _last(folder, values.last) if values.last else _best(folder, values.best)
    import_tensorflow()
    from tfnmt.data.preparation.tokenizer import Tokenizer
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.checkpoints import average_weights, save_weights

    vocab_size = Tokenizer(folder.tokenizer_model()).vocab_size
    transformer = Transformer(config.model, vocab_size)
    with still_there(paths[0]):
        average_weights(paths, transformer)
    path = save_weights(folder.averaged, transformer, step=int(max(paths).name))
    say(f"{path}: the average of {', '.join(str(int(path.name)) for path in paths)}")


def _last(folder: Run, count: int) -> list[Path]:
    return _enough([path for path in folder.checkpoints().all() if snapshot_is_whole(path)], count,
                   f"{folder.path}: ")[-count:]  # fmt: skip


def _best(folder: Run, count: int) -> list[Path]:
    bleu = folder.validations()
    validated = [path for path in folder.checkpoints().all() if int(path.name) in bleu]
    whole = [path for path in validated if snapshot_is_whole(path)]
    ranked = sorted(whole, key=lambda path: bleu[int(path.name)])
    return sorted(_enough(ranked, count, f"{folder.path}: of those validated ")[-count:])


def _enough(paths: list[Path], count: int, where: str) -> list[Path]:
    if len(paths) < count:
        raise UserError(
            f"{where}{len(paths)} checkpoints are there, not {count}; training.keep_last decides "
            "how many are kept, training.checkpoint_steps how soon there are"
        )
    return paths


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
