"""An experiment: its flags, its configuration, its run folder and its data."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags
from absl.flags import FlagValues

from tfnmt.cli import define_downloads
from tfnmt.config import (
    Config,
    Tree,
    add_languages,
    build_config,
    merge,
    parse_overrides,
    preset_path,
    read_tree,
)
from tfnmt.errors import UsageError
from tfnmt.progress import log
from tfnmt.runs.run import Run, base_folder, cache_folder

if TYPE_CHECKING:
    from tfnmt.data.corpora.corpus import Corpus
    from tfnmt.data.preparation.prepared import Prepared
    from tfnmt.data.preparation.sharded import Shards


def define_experiment(values: FlagValues) -> None:
    """Define the flags that select and change a configuration, and those of `define_data`."""
    for name, text in (
        ("dataset", "a preset in configs/; it selects the corpus"),
        ("config", "a configuration file, instead of a preset"),
        ("source", "the language to translate from"),
        ("target", "the language to translate to"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    directions = "several directions of one model, such as en-de,de-en, instead of two languages"
    flags.DEFINE_list("directions", None, directions, flag_values=values)
    train = (
        "parallel text: my.en,my.de, or a .tsv, .csv, .jsonl or .tmx file (also .gz), or a folder; "
        "quote a name with a comma: '\"a,b.tsv\"'"
    )
    flags.DEFINE_list("train", None, train, flag_values=values)
    flags.DEFINE_list("val", None, "the validation set", flag_values=values)
    minutes = (
        "training time, the same as --set training.max_minutes; without a preset, it also limits "
        "the size of the model"
    )
    flags.DEFINE_float("minutes", None, minutes, flag_values=values)
    flags.DEFINE_multi_string(
        "set", [], "change a configuration key, such as model.d_model=128", flag_values=values
    )
    define_data(values)


def define_data(values: FlagValues) -> None:
    """Define the flags that `read_data` uses."""
    folder = "folder for prepared corpora (default: .cache/)"
    flags.DEFINE_string("cache_dir", None, folder, flag_values=values)
    define_downloads(values)


def resolve_config(values: Any) -> Config:
    """Return the configuration: the preset, overridden by flags, overridden by --set.

    Args:
        values: The flags of `define_experiment`.

    Raises:
        UsageError: Flags conflict or are missing, or the configuration is invalid.
    """
    if values.dataset and values.config:
        raise UsageError("--dataset and --config: both select a configuration; give only one")
    if not (has_preset(values) or values.train):
        raise UsageError(
            "--dataset: missing; give --dataset or --config, or your own data with --train"
        )
    preset: Tree = {}
    if has_preset(values):
        path = preset_path(values.dataset) if values.dataset else Path(values.config)
        log(f"configuration: {path}")
        preset = read_tree(path)
    overrides = parse_overrides(values.set)
    data = _data_tree(values, add_languages(preset.get("data") or {}))
    if "data" in overrides:
        overrides["data"] = add_languages(overrides["data"])
    tree = merge(preset, {"data": data}, _time_tree(values.minutes), overrides)
    return build_config(merge(tree, _absolute_paths(build_config(tree))))


def has_preset(values: Any) -> bool:
    """Return whether --dataset or --config selects the sizes of an experiment."""
    return bool(values.dataset or values.config)


def default_run_dir(values: Any, config: Config) -> Path:
    """Return runs/<dataset>-<source>-<target>. The first file of custom data names the dataset.

    With several directions, it is runs/<dataset>-<languages>, for example runs/tatoeba-en+de+fr.
    """
    from tfnmt.data.corpora.text_files import decompressed_name

    data = config.data
    if data.train:  # not the corpus of the preset, whatever preset is used with it
        name = decompressed_name(Path(data.train[0])).stem
    else:
        name = values.dataset or Path(values.config).stem
    languages = f"{data.source}-{data.target}"
    if len(data.all_directions) > 1:
        languages = "+".join(dict.fromkeys("-".join(data.all_directions).split("-")))
    return base_folder() / "runs" / f"{name}-{languages}"


def _absolute_paths(config: Config) -> Tree:
    """Return the keys that name files or runs, so that the run can be resumed from any folder."""
    files = {"train": config.data.train, "val": config.data.val}
    runs = {
        "training": {"init_from": config.training.init_from},
        "tokenizer": {"from_run": config.tokenizer.from_run},
    }
    data = {key: [_absolute(name) for name in names] for key, names in files.items() if names}
    return {"data": data} | {
        section: {key: os.path.realpath(name) for key, name in keys.items() if name}
        for section, keys in runs.items()
    }


def _time_tree(minutes: float | None) -> Tree:
    """Return the key that --minutes sets."""
    if minutes is None:
        return {}
    if not 0 < minutes < math.inf:
        raise UsageError(f"--minutes={minutes:g}: must be above 0; try --minutes=10")
    return {"training": {"max_minutes": minutes}}


def _data_tree(values: Any, preset: Tree) -> Tree:
    """Return the section `data` of a preset, with the keys that the flags set."""
    from tfnmt.data.corpora.discovery import find_languages

    tree = preset | _language_tree(values)
    for name in ("train", "val"):
        if values[name].value is not None:
            tree[name] = values[name].value
    if values.train is None:
        return tree
    if tree.get("directions"):
        return tree | {"corpus": None}
    languages = find_languages(values.train, values.source, values.target)
    if languages is not None:
        tree |= {"source": languages[0], "target": languages[1]}
    elif not has_preset(values):
        raise UsageError(
            f"--source and --target: missing; give both, because {','.join(values.train)} does not "
            "name two languages"
        )
    return tree | {"corpus": None}


def _language_tree(values: Any) -> Tree:
    """Return the keys of the languages that the flags set: of one direction, or of several."""
    languages = {name: values[name].value for name in ("source", "target") if values[name].value}
    if values.directions is None:
        return languages | {"directions": None} if languages else {}
    if languages:
        raise UsageError(
            "--directions: not together with --source and --target, which name a single direction"
        )
    return add_languages({"directions": values.directions})


def read_data(
    values: Any, config: Config, run: Run | None = None, shards: "Shards | None" = None
) -> tuple["Corpus", "Prepared"]:
    """Return the corpus of an experiment, downloaded and prepared first where necessary.

    Args:
        values: The flags of `define_data`.
        config: The configuration.
        run: The run folder, if any. A run that has a checkpoint keeps its held-out splits and its
            tokenizer.
        shards: How to prepare the corpus in shards, if at all.

    Returns:
        The corpus, and the same corpus prepared: cleaned, tokenized and encoded.

    Raises:
        UserError: A file is missing or invalid, or a download failed.
    """
    from tfnmt.data.corpora.assembly import Origin
    from tfnmt.data.corpora.catalog import (
        data_folder,
        download_missing,
        has_test,
        open_corpus,
        split_name,
    )
    from tfnmt.data.corpora.corpus import HeldOut
    from tfnmt.data.corpora.directions import by_direction, with_held_out
    from tfnmt.data.preparation.prepared import prepare

    data_dir = data_folder(values.data_dir)
    corpus = open_corpus(config.data, config.training.seed, data_dir)
    resumed = run if run is not None and run.has_checkpoint() else None
    if resumed:
        corpus = with_held_out(corpus, resumed.held_out())
    if any(isinstance(part, HeldOut) for part in by_direction(config.data, corpus).values()):
        log("no --val: random pairs of the training data are held out for validation")
    splits = ["train", split_name(config.data, corpus, "val")]
    missing = not all(map(os.path.isfile, corpus.files("train")))
    if missing and has_test(config.data, corpus):
        # Download the test set too, because cleaning removes its pairs from the training data.
        splits.append(split_name(config.data, corpus, "test"))
    origin = Origin(values.mirror, values.checksums)
    download_missing(config.data, corpus, splits, data_dir, origin)
    cache_dir = Path(values.cache_dir or cache_folder())
    return corpus, prepare(config, corpus, cache_dir, reused_tokenizer(config, resumed), shards)


def reused_tokenizer(config: Config, resumed: Run | None = None) -> bytes | None:
    """Return the tokenizer that training takes from another run, or None to train a new one.

    Args:
        config: The configuration; `training.init_from` or `tokenizer.from_run` names the other run.
        resumed: The run that training resumes, if any. It has its own copy of the tokenizer, so the
            other run is no longer needed.

    Raises:
        UsageError: Both keys name a run.
        UserError: The folder is not a run.
    """
    names = [config.training.init_from, config.tokenizer.from_run]
    if all(names):
        raise UsageError(
            "tokenizer.from_run: conflicts with training.init_from, which uses the tokenizer of "
            f"{names[0]}; set only one of them"
        )
    if not any(names):
        return None
    run = resumed or Run(Path(names[0] or names[1] or ""))
    run.config()  # raises if the folder is not a run
    return run.tokenizer_model()


def _absolute(name: str) -> str:
    """Return an absolute path.

    A symbolic link keeps its own name, because suffixes have a meaning. The folder is resolved, so
    that all paths to it are equal.
    """
    if not name:
        return name  # `find_texts` reports it
    folder, base = os.path.split(name.rstrip("/"))
    if base in ("", ".", ".."):
        return os.path.realpath(name)
    return os.path.join(os.path.realpath(folder), base)
