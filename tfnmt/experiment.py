"""What `train` and `prepare` share: the flags that make an experiment, and its data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from absl import flags
from absl.flags import FlagValues

from tfnmt.config import Config, Tree, build_config, merge, parse_overrides, preset_path, read_tree
from tfnmt.data.assembly import Origin
from tfnmt.data.catalog import (
    data_folder,
    download_missing,
    has_test,
    open_corpus,
    split_name,
)
from tfnmt.data.corpora import Corpus, Files, HeldOut
from tfnmt.data.formats import languages_of
from tfnmt.data.prepared import Prepared, prepare
from tfnmt.errors import UsageError
from tfnmt.flags import define_data_dir
from tfnmt.progress import say
from tfnmt.run import Run, home


def define_experiment(values: FlagValues) -> None:
    """The flags that name a configuration, change it, and say where its data is."""
    for name, text in (
        ("dataset", "a preset of configs/, which names its corpus"),
        ("config", "a configuration file instead"),
        ("source", "the language to translate from"),
        ("target", "the language to translate to"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_list(
        "train", None, "own text: my.en,my.de or .tsv, .csv, .jsonl, .tmx files, each also .gz, or "
        "folders", flag_values=values,
    )  # fmt: skip
    flags.DEFINE_list("val", None, "text to validate on", flag_values=values)
    flags.DEFINE_multi_string(
        "set", [], "a key of the configuration, as in model.d_model=128", flag_values=values
    )
    define_data(values)


def define_data(values: FlagValues) -> None:
    """The flags that `read_data` goes by."""
    for name, text in (
        ("cache_dir", "folder for prepared corpora (default: .cache/)"),
        ("mirror", "URL of a folder to download archives from, in place of their own"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool(
        "checksums", True, "refuse archives whose checksum is not the known one",
        flag_values=values,
    )  # fmt: skip
    define_data_dir(values)


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
    overrides = parse_overrides(values.set)
    for section, key in ("training", "init_from"), ("tokenizer", "from_run"):
        name = overrides.get(section, {}).get(key)
        if isinstance(name, str):  # else it is wrong, as is told below
            overrides[section][key] = str(Path(name).resolve())
    return build_config(merge(preset, {"data": flag_tree(values)}, overrides))


def flag_tree(values: Any) -> Tree:
    """What the flags say about the data."""
    tree: Tree = {name: values[name].value for name in ("source", "target") if values[name].value}
    tree |= {name: _resolved(values[name].value) for name in ("train", "val") if values[name].value}
    if values.train is None:
        return tree
    told = languages_of([Path(name) for name in values.train])
    if told is not None:
        tree = {"source": told[0], "target": told[1]} | tree
    elif not (values.dataset or values.config or (values.source and values.target)):
        raise UsageError(
            f"--source and --target: missing; {values.train[0]} does not tell its languages"
        )
    return tree | {"corpus": None}


def read_data(values: Any, config: Config, run: Run | None = None) -> tuple[Corpus, Prepared]:
    """The corpus of an experiment, downloaded and prepared where it is not yet.

    A run that was begun already has settled what is held out, and its tokenizer.
    """
    data_dir = data_folder(values.data_dir)
    corpus = open_corpus(config.data, config.training.seed, data_dir)
    begun = run if run is not None and run.begun() else None
    if begun and isinstance(corpus, Files):
        corpus = replace(corpus, settled=begun.held_out())
    if isinstance(corpus, HeldOut):
        say("no --val: rows of a seeded shuffle are held out of the training text")
    splits = ["train", split_name(config.data, corpus, "val")]
    if not all(path.is_file() for path in corpus.files("train")) and has_test(config.data, corpus):
        # Now, so that cleaning sees what the training text must not repeat.
        splits.append(split_name(config.data, corpus, "test"))
    origin = Origin(values.mirror, values.checksums)
    download_missing(config.data, corpus, splits, data_dir, origin)
    cache_dir = Path(values.cache_dir or home() / ".cache")
    return corpus, prepare(config, corpus, cache_dir, given_tokenizer(config, begun))


def given_tokenizer(config: Config, begun: Run | None = None) -> bytes | None:
    """The tokenizer of another run, where it is to be taken over or the training begins with it.

    One that was `begun` with it has it still, whatever became of the other.
    """
    names = [config.training.init_from, config.tokenizer.from_run]
    if all(names):
        raise UsageError(
            f"tokenizer.from_run: training.init_from brings the tokenizer of {names[0]}; set one "
            "of them"
        )
    if not any(names):
        return None
    run = begun or Run(Path(names[0] or names[1] or ""))
    run.config()  # tells what is no run
    return run.tokenizer_model()


def _resolved(files: list[str]) -> list[str]:
    """Files, named so that they are found from any folder."""
    return [str(Path(file).resolve()) for file in files]
