"""Trains a Transformer on parallel text.

    python -m tfnmt.train --dataset=multi30k [--source=en] [--target=de]
    python -m tfnmt.train --train=my.en,my.de [--val=dev.en,dev.de]

The run folder is runs/<dataset>-<source>-<target>. The same command again goes on where it stopped.
Settings come from the preset of --dataset (or --config), then flags, then --set.
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.config import (
    Config,
    Tree,
    build_config,
    merge,
    parse_overrides,
    preset_path,
    read_tree,
)
from tfnmt.data.corpora import check_files, open_corpus, split_name
from tfnmt.data.plan import make_plan
from tfnmt.data.prepared import prepare
from tfnmt.errors import UsageError, UserError
from tfnmt.flags import define_cache_dir, define_data_dir, run, two_files
from tfnmt.progress import say
from tfnmt.quiet import import_tensorflow
from tfnmt.run import Run, home

if TYPE_CHECKING:
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.callbacks import Evaluate

SAMPLES = 5
"""Validation sentences shown in TensorBoard."""

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "dataset", None, "a preset of configs/, which names its corpus", flag_values=FLAGS
)
flags.DEFINE_string("config", None, "a configuration file instead", flag_values=FLAGS)
flags.DEFINE_string("source", None, "the language to translate from", flag_values=FLAGS)
flags.DEFINE_string("target", None, "the language to translate to", flag_values=FLAGS)
flags.DEFINE_list("train", None, "own text: two files, as in my.en,my.de", flag_values=FLAGS)
flags.DEFINE_list("val", None, "two files to validate on", flag_values=FLAGS)
flags.DEFINE_string("run_dir", None, "where the run is kept", flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "a key of the configuration, as in model.d_model=128", flag_values=FLAGS
)
define_data_dir(FLAGS)
define_cache_dir(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Trains, or goes on, or says that there is nothing left to do."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = resolve(values)
    run_folder = Run(Path(values.run_dir or default_run_dir(values, config)))
    if run_folder.exists():
        run_folder.check_same(config)
    if run_folder.finished:
        say(f"{run_folder.path}: this training is finished; --run_dir begins another")
        return

    data_dir = Path(values.data_dir or home() / "data")
    corpus = open_corpus(config.data, config.training.seed, data_dir)
    val_split = split_name(config.data, corpus, "val")
    check_files(corpus, "train", val_split)
    val = list(corpus.pairs(val_split))
    prepared = prepare(config, corpus, Path(values.cache_dir or home() / ".cache"))
    plan = make_plan(config, prepared)
    if not run_folder.exists():
        run_folder.create(config, prepared.tokenizer.model)
    elif run_folder.tokenizer_path.read_bytes() != prepared.tokenizer.model:
        raise UserError(
            f"{run_folder.path}: the training text has changed since this run began; use --run_dir "
            "for a new run, or the old text to go on"
        )
    say(f"the run is kept in {run_folder.path}")

    import_tensorflow()
    from tfnmt.training.training import Training, train

    def make_evaluate(transformer: "Transformer") -> "Evaluate":
        return _evaluator(transformer, config, prepared.tokenizer.model, val)

    with run_folder.held():
        caught = train(Training(config, prepared, plan, run_folder, make_evaluate))
    if caught is not None:
        say(f"stopped and saved; the same command goes on from there: {_command()}")
        sys.exit(128 + caught)
    say(f'done; try: python -m tfnmt.translate --model={run_folder.path} "..."')


def resolve(values: Any) -> Config:
    """The configuration: preset, then flags, then --set."""
    if values.dataset and values.config:
        raise UsageError("--dataset and --config: give one of them; each is a configuration")
    if not (values.dataset or values.config or values.train):
        raise UsageError("--dataset: missing; give it, or --config, or your own text with --train")
    preset: Tree = {}
    if values.dataset or values.config:
        path = preset_path(values.dataset) if values.dataset else Path(values.config)
        say(f"configuration: {path}")
        preset = read_tree(path)
    return build_config(merge(preset, {"data": flag_tree(values)}, parse_overrides(values.set)))


def flag_tree(values: Any) -> Tree:
    """What the flags say about the data."""
    tree: Tree = {name: values[name].value for name in ("source", "target") if values[name].value}
    if values.train is None:
        return tree | ({"val": _resolved("val", values.val)} if values.val else {})
    train = _resolved("train", values.train)
    suffixes = [Path(file).suffix.removeprefix(".") for file in train]
    source, target = values.source or suffixes[0], values.target or suffixes[1]
    # --train=a.en,a.de --source=de means the other direction.
    backwards = suffixes == [target, source]
    tree |= {"corpus": None, "source": source, "target": target}
    tree["train"] = train[::-1] if backwards else train
    if values.val:
        val = _resolved("val", values.val)
        tree["val"] = val[::-1] if backwards else val
    return tree


def _resolved(flag: str, files: list[str]) -> list[str]:
    """Two files, named so that they are found from any folder."""
    return [str(path.resolve()) for path in two_files(flag, files)]


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
    from tfnmt.decoding.lines import translate_lines
    from tfnmt.decoding.translator import Translator
    from tfnmt.evaluation.scores import bleu
    from tfnmt.training.callbacks import Validation

    translator = Translator(transformer, tokenizer_model, config.decoding)
    sources, references = zip(*val, strict=True)

    def evaluate() -> Validation:
        translations = [t.text for t in translate_lines(translator.translate, sources)]
        samples = list(zip(sources, translations, references, strict=True))[:SAMPLES]
        return Validation(bleu(translations, references), samples)

    return evaluate


def _command() -> str:
    return f"python -m tfnmt.train {shlex.join(sys.argv[1:])}"


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
