"""Trains a Transformer on parallel text.

    python -m tfnmt.train --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.train --train=my.en,my.de [--val=dev.en,dev.de]

The run folder is runs/<dataset>-<source>-<target>; with --train the name of the first file stands
for the dataset: runs/my-en-de. The same command again goes on where it stopped.
Settings come from the preset of --dataset (or --config), then flags, then --set.
"""

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import define_experiment, not_utf_8, read_data, resolve, run
from tfnmt.config import ENDS, Config, flatten
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import split_name
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.prepared import Prepared
from tfnmt.errors import UsageError
from tfnmt.progress import say
from tfnmt.runs.run import Run, home
from tfnmt.runtime.cluster import is_chief, is_spread
from tfnmt.runtime.files import check_folder
from tfnmt.runtime.startup import import_tensorflow, share_processors
from tfnmt.training.batch_size import fitting_slots, limit_memory

if TYPE_CHECKING:
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.validation import Evaluate

SAMPLES = 5
"""Validation sentences shown in TensorBoard."""

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
flags.DEFINE_string("run_dir", None, "where the run is kept", flag_values=FLAGS)
flags.DEFINE_bool(
    "profile", False, "profile some updates, for TensorBoard's tensorboard-plugin-profile",
    flag_values=FLAGS,
)  # fmt: skip


def main(values: Any, positional: list[str]) -> None:
    """Trains, or goes on, or says that there is nothing left to do."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = resolve(values)
    run_folder = Run(Path(values.run_dir or default_run_dir(values, config)))
    if problems := not_utf_8([str(run_folder.path)]):  # TensorFlow takes no such names
        raise UsageError(*(f"--run_dir: {problem}" for problem in problems))
    if is_chief():
        check_folder(run_folder.path)
    if run_folder.begun():
        if config.data.batch_tokens == "auto":
            config = _with_budget(config, run_folder.config().data.slots)
        run_folder.check_same(config)
    if run_folder.finished and run_folder.config() == config:
        keys = flatten(config)
        ends = ", ".join(key for key in ENDS if keys[key] is not None)
        say(
            f"{run_folder.path}: this training is finished; with a later end ({ends}) it goes on, "
            "and --run_dir begins another"
        )
        return

    corpus, prepared = read_data(values, config, run_folder)
    val = list(corpus.pairs(split_name(config.data, corpus, "val")))
    _tell_of_empty(val)
    limit_memory()
    if config.data.batch_tokens == "auto":
        config = _with_budget(config, _find_budget(config, prepared.tokenizer.vocab_size))
    plan = make_plan(config, prepared)
    share_processors()
    import_tensorflow()
    from tfnmt.training.loop import Training, train

    def make_evaluate(transformer: "Transformer") -> "Evaluate":
        return _evaluator(transformer, config, prepared.tokenizer.model, val)

    with run_folder.held() if is_chief() else nullcontext():
        _enter(run_folder, config, corpus, prepared)
        training = Training(config, prepared, plan, run_folder, make_evaluate, values.profile)
        caught = train(training)
    if caught is not None:
        say(f"stopped and saved; the same command goes on from there: {_command()}")
        sys.exit(128 + caught)
    say(f'done; try: python -m tfnmt.translate --model={run_folder.path} "..."')


def _enter(run_folder: Run, config: Config, corpus: Corpus, prepared: Prepared) -> None:
    """Begins the run, or makes sure that it is the same: another process may have begun it."""
    name = prepared.folder.name
    if run_folder.begun():
        run_folder.check_same(config)
        run_folder.check_same_text(name)
    elif is_chief():
        run_folder.create(config, prepared.tokenizer.model, name, corpus.held_out)
    if is_chief():
        run_folder.go_on_with(config)
    say(f"the run is kept in {run_folder.path}")


def _tell_of_empty(val: Sequence[Pair]) -> None:
    empty = sum(not all(side.strip() for side in pair) for pair in val)
    if empty:
        say(
            f"{empty:,} of {len(val):,} validation pairs have an empty side, and count in its "
            "BLEU; better leave them out"
        )


def _with_budget(config: Config, slots: int) -> Config:
    data = config.data.model_copy(update={"batch_tokens": slots})
    return config.model_copy(update={"data": data})


def _find_budget(config: Config, vocab_size: int) -> int:
    """The number that stands for data.batch_tokens=auto here."""
    if is_spread():
        raise UsageError("data.batch_tokens: auto is for one host; give several the same number")
    say("measuring what a batch takes of the memory")
    slots = fitting_slots(config, vocab_size)
    say(f"data.batch_tokens={slots}")
    return slots


def default_run_dir(values: Any, config: Config) -> Path:
    """runs/<dataset>-<source>-<target>, the dataset of own text being its file's name."""
    data = config.data
    # One's own text, under whatever preset, is not the preset's corpus.
    name = Path(data.train[0]).stem if data.train else values.dataset or Path(values.config).stem
    return home() / "runs" / f"{name}-{data.source}-{data.target}"


def _evaluator(
    transformer: "Transformer", config: Config, tokenizer_model: bytes, val: list[tuple[str, str]]
) -> "Evaluate":
    """Validation by the very Translator that will be exported."""
    from tfnmt.decoding.inspector import Inspector
    from tfnmt.decoding.lines import best, translate_lines, windows
    from tfnmt.decoding.translator import Translator
    from tfnmt.evaluation.metrics import bleu
    from tfnmt.training.validation import Validation

    translator = Translator(transformer, tokenizer_model, config.decoding)
    inspector = Inspector(transformer, translator.codec, config.decoding)
    sources, references = zip(*val, strict=True)

    def evaluate() -> Validation:
        answers = translate_lines(best(translator.translate), windows(sources))
        translations = [answer.best.text for answer in answers]
        samples = list(zip(sources, translations, references, strict=True))[:SAMPLES]
        picture = _draw_attention(inspector, sources[0], references[0])
        return Validation(bleu(translations, references), samples, picture)

    return evaluate


def _draw_attention(inspector: "Inspector", source: str, target: str) -> bytes:
    """Where the last decoder layer looks in a source while it reads the target, as PNG."""
    from tfnmt.plots.attention import draw_attention
    from tfnmt.plots.style import to_png

    seen = inspector.look(source, target)
    title = "cross-attention of the last layer"
    return to_png(draw_attention(seen.cross[-1], seen.target, seen.source, title))


def _command() -> str:
    return f"python -m tfnmt.train {shlex.join(sys.argv[1:])}"


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
