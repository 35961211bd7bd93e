"""Average the weights of several checkpoints of a run (section 6.1 of the paper).

    python -m tfnmt.average --model=RUN --last=N
    python -m tfnmt.average --model=RUN --best=N

--last averages the last N checkpoints. --best averages the N checkpoints with the best validation
BLEU, out of the checkpoints that still exist and were validated. The result replaces RUN/averaged/.
"""

from pathlib import Path
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log
from tfnmt.runs.checkpoints import check_tokenizer, is_complete, report_missing
from tfnmt.runs.run import Run
from tfnmt.runtime.startup import import_tensorflow

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "the run", flag_values=FLAGS)
flags.DEFINE_integer(
    "last", None, "average the last N checkpoints", lower_bound=1, flag_values=FLAGS
)
flags.DEFINE_integer(
    "best",
    None,
    "average the N checkpoints with the best validation BLEU",
    lower_bound=1,
    flag_values=FLAGS,
)


def main(values: Any, positional: list[str]) -> None:
    """Write the averaged checkpoint."""
    if positional or not values.model or (values.last is None) == (values.best is None):
        raise UsageError(
            "--model, and exactly one of --last or --best: required, without other arguments; see "
            "--help"
        )
    folder = Run(Path(values.model))
    config = folder.config()
    paths = _last(folder, values.last) if values.last else _best(folder, values.best)
    for path in paths:
        check_tokenizer(path)
    import_tensorflow()
    from tfnmt.data.preparation.tokenizer import Tokenizer
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.checkpoints import average_weights, save_weights

    vocab_size = Tokenizer(folder.tokenizer_model()).vocab_size
    transformer = Transformer(config.model, vocab_size)
    with report_missing(paths[0]):
        average_weights(paths, transformer)
    newest = folder.checkpoints().all()[-1]  # names the average: later steps make it outdated
    path = save_weights(folder.averaged, transformer, int(newest.name), paths)
    log(f"{path}: the average of steps {', '.join(str(int(path.name)) for path in paths)}")


def _last(folder: Run, count: int) -> list[Path]:
    complete = [path for path in folder.checkpoints().all() if is_complete(path)]
    _check_count(complete, count, f"{folder.path}: has {len(complete)} complete checkpoints")
    return complete[-count:]


def _best(folder: Run, count: int) -> list[Path]:
    bleu = folder.validations()
    validated = [path for path in folder.checkpoints().all() if int(path.name) in bleu]
    complete = [path for path in validated if is_complete(path)]
    ranked = sorted(complete, key=lambda path: bleu[int(path.name)])
    _check_count(ranked, count, f"{folder.path}: has {len(ranked)} validated checkpoints")
    return sorted(ranked[-count:])


def _check_count(paths: list[Path], count: int, problem: str) -> None:
    if len(paths) < count:
        raise UserError(
            f"{problem}, and {count} are needed; ask for fewer, or raise training.keep_last or "
            "lower training.checkpoint_steps in the next training run"
        )


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
