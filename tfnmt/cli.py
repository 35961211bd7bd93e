"""The command line: shared flags, running a command, and the configuration of an experiment.

Each command defines its flags in its own absl `FlagValues`, so that one process can import several
commands. It passes its `main` to `run_command`, the only place where arguments are parsed.

Exit codes: 0 success, 1 failure, 2 wrong usage, 128 + N after signal N.
"""

import errno
import math
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from absl import flags
from absl.flags import FlagValues

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
from tfnmt.errors import UsageError, UserError, did_you_mean
from tfnmt.exporting import ENGINES, QUANTIZATIONS
from tfnmt.progress import log
from tfnmt.runs.run import Run, base_folder, cache_folder
from tfnmt.runtime.packages import report_missing_packages
from tfnmt.runtime.streams import open_standard_streams

if TYPE_CHECKING:
    from tfnmt.data.corpora.corpus import Corpus
    from tfnmt.data.preparation.prepared import Prepared
    from tfnmt.data.preparation.sharded import Shards
    from tfnmt.runtime.executors import Executor

HELP_FLAGS = ("--help", "-h", "--helpshort", "--helpfull", "-help", "-helpshort")

Main = Callable[[Any, list[str]], None]
"""A command: takes its flag values and its positional arguments."""


# --- Flags that several commands share -----------------------------------------------------------


def define_data_dir(values: FlagValues) -> None:
    """Define --data_dir, the folder of the corpora."""
    flags.DEFINE_string(
        "data_dir", None, "folder of the corpora (default: data/)", flag_values=values
    )


def define_data(values: FlagValues) -> None:
    """Define the flags that `read_data` uses."""
    folder = "folder for prepared corpora (default: .cache/)"
    flags.DEFINE_string("cache_dir", None, folder, flag_values=values)
    define_downloads(values)


def define_downloads(values: FlagValues) -> None:
    """Define the flags of commands that download a corpus."""
    mirror = "URL of a folder from which archives are downloaded, instead of their own URLs"
    flags.DEFINE_string("mirror", None, mirror, flag_values=values)
    flags.DEFINE_bool(
        "checksums",
        True,
        "refuse an archive whose checksum is not the known one",
        flag_values=values,
    )
    define_data_dir(values)


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


def define_decoding(values: FlagValues) -> None:
    """Define the flags that replace keys of the run's `decoding` section."""
    for name, text in (
        ("beam_size", "beam size; 1 means greedy search"),
        ("min_length", "minimum tokens of a translation"),
        ("no_repeat_ngram", "no sequence of this many tokens may occur twice"),
    ):
        flags.DEFINE_integer(name, None, f"{text} (default: the run's)", flag_values=values)
    alpha = "alpha of the length penalty (default: the run's)"
    flags.DEFINE_float("length_penalty", None, alpha, flag_values=values)
    limit = "maximum tokens of a translation: a number, or source+N (default: the run's)"
    flags.DEFINE_string("max_length", None, limit, flag_values=values)


def define_direction(values: FlagValues) -> None:
    """Define the flag of `tfnmt.loading.directions.find_direction`."""
    text = "the direction, such as en-fr, of a model with several"
    flags.DEFINE_string("direction", None, text, flag_values=values)


def define_engine(values: FlagValues) -> None:
    """Define the flags of `tfnmt.exporting.converted.select_engine`."""
    for name, choices, text in (
        ("engine", ENGINES, f"the engine of a run (default: {ENGINES[0]})"),
        ("quantization", QUANTIZATIONS, "for --engine=litert (default: float32)"),
    ):
        flags.DEFINE_enum(name, None, list(choices), text, flag_values=values)


def define_executor(values: FlagValues) -> None:
    """Define the flags of `open_executor`, and --shard_lines."""
    for name, text in (
        ("shard_lines", "process the file in shards of this many lines (Ray's default: 65,536)"),
        ("workers", "for --executor=ray: number of workers (default: one per node or GPU share)"),
    ):
        flags.DEFINE_integer(name, None, text, 1, flag_values=values)
    flags.DEFINE_enum(
        "executor",
        "local",
        ["local", "ray"],
        "where shards are processed: in this process, or by workers of Ray",
        flag_values=values,
    )
    flags.DEFINE_string(
        "address",
        None,
        "for --executor=ray: the cluster, such as auto or HOST:6379 (default: start Ray here)",
        flag_values=values,
    )
    flags.DEFINE_float(
        "stall_minutes",
        30.0,
        "for --executor=ray: replace a worker that makes no progress for this long",
        0.01,
        flag_values=values,
    )


def define_gpus(values: FlagValues) -> None:
    """Define --gpus_per_worker, for commands whose workers load a model."""
    flags.DEFINE_float(
        "gpus_per_worker",
        0.0,
        "for --executor=ray: GPUs of each worker; 0 translates on CPUs",
        0.0,
        flag_values=values,
    )


# --- Running a command ---------------------------------------------------------------------------


def run_command(
    main: Main, values: FlagValues, usage: str, arguments: list[str] | None = None
) -> NoReturn:
    """Parse the arguments, call `main(values, positional)` and exit.

    A `UserError` becomes one line per problem on stderr, and so do a failure of the file system and
    a package that is not installed. Any other error keeps its traceback.

    Args:
        main: The command.
        values: The flags of the command.
        usage: The docstring of the command, the first part of its --help.
        arguments: The arguments; those of the process if None.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    open_standard_streams()
    _raise_at_signals()
    try:
        if any(argument in HELP_FLAGS for argument in _before_double_dash(arguments)):
            print(_help(values, usage))
        else:
            with report_missing_packages():
                main(values, _parse(values, arguments))
        sys.stdout.flush()
    except UserError as error:
        _exit(error.exit_code, *error.problems)
    except KeyboardInterrupt as error:
        _exit(128 + (error.args or (signal.SIGINT,))[0], "interrupted")
    except BrokenPipeError:
        _exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        _exit(1, _describe(error))
    sys.exit(0)


def _describe(error: OSError) -> str:
    """Return the line for a failure of the file system that no other code has reported."""
    place = "" if error.filename is None else f"{error.filename}: "
    if error.errno == errno.ENOSPC:
        return f"{place}{error.strerror}; free disk space and run the command again"
    return f"{place}{error.strerror}; check the path and its permissions"


def _raise_at_signals() -> None:
    """Make SIGTERM and SIGHUP raise a KeyboardInterrupt, so that temporary files are removed.

    A signal that is ignored, as SIGHUP by nohup, stays ignored.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise KeyboardInterrupt(number)


def _exit(code: int, *problems: str) -> NoReturn:
    """Write buffered output, if possible, then one line per problem on stderr, and exit."""
    with suppress(UserError, OSError):
        sys.stdout.flush()
    for problem in problems:
        print(f"tfnmt: {problem}", file=sys.stderr)
    sys.exit(code)


def _parse(values: FlagValues, arguments: list[str]) -> list[str]:
    """Return the positional arguments, and raise absl's errors as a UsageError."""
    try:
        positional = list(values(["tfnmt", *arguments])[1:])
    except flags.UnrecognizedFlagError as error:
        flag = f"--{error.flagname}"
        hint = did_you_mean(flag, (f"--{name}" for name in values))
        raise UsageError(
            f"{flag}: unknown flag; {hint}--help lists the flags; text that begins with a dash "
            "comes after --"
        ) from error
    except flags.Error as error:
        raise UsageError(f"{str(error).removeprefix('flag ')}; see --help") from error
    _check_lists(values)
    return positional


def _check_lists(values: FlagValues) -> None:
    """Refuse a list flag that is given twice, because absl would use only the last one."""
    lists = [name for name in values if isinstance(values[name].parser, flags.ListParser)]
    problems = [
        f"--{name}: given twice; give one list, with commas between its items"
        for name in lists
        if values[name].present > 1
    ]
    if problems:
        raise UsageError(*problems)


def _before_double_dash(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _help(values: FlagValues, usage: str) -> str:
    """Return the usage, followed by one entry per flag."""
    rows = []
    for name in sorted(values):
        flag = values[name]
        shown = f"--[no]{name}" if flag.boolean else f"--{name}=..."
        first, indent = f"  {shown:<22} ", " " * 25
        rows.append(textwrap.fill(flag.help, 80, initial_indent=first, subsequent_indent=indent))
    return "\n".join([usage.strip(), "", "Flags:", *rows])


# --- Values of flags -----------------------------------------------------------------------------


def decoding_changes(values: Any) -> dict[str, Any]:
    """Return the keys of `decoding` that the flags of `define_decoding` change."""
    keys = ("beam_size", "length_penalty", "min_length", "no_repeat_ngram")
    changes = {key: values[key].value for key in keys if values[key].value is not None}
    return changes if values.max_length is None else changes | _parse_max_length(values.max_length)


def _parse_max_length(text: str) -> dict[str, Any]:
    """Convert `80`, or `source+20`, to keys of `decoding`."""
    found = re.fullmatch(r"(source\s*\+\s*)?(\d{1,9})", text.strip())
    if found is None:
        raise UsageError(
            f"--max_length={text}: not a number or source+N, below a billion; try source+50"
        )
    if found[1]:
        return {"max_length": None, "max_extra_length": int(found[2])}
    return {"max_length": int(found[2])}


def uses_shards(values: Any) -> bool:
    """Return whether the flags of `define_executor` select shards."""
    return values.executor == "ray" or values.shard_lines is not None


def executor_problems(values: Any) -> list[str]:
    """Return one problem per flag that only --executor=ray uses."""
    names = ("address", "workers", "stall_minutes", "gpus_per_worker")
    if values.executor == "ray":
        return []
    given = [name for name in names if name in values and values[name].present]
    return [f"--{name}: needs --executor=ray; add it, or omit --{name}" for name in given]


@contextmanager
def open_executor(values: Any) -> "Iterator[Executor]":
    """Start the executor that the flags of `define_executor` select."""
    if values.executor == "local":
        from tfnmt.runtime.executors import LocalExecutor

        yield LocalExecutor()
        return
    from tfnmt.runtime.ray_executor import RayExecutor

    gpus = values.gpus_per_worker if "gpus_per_worker" in values else 0.0
    stall_seconds = values.stall_minutes * 60
    with RayExecutor(values.address, values.workers, gpus, stall_seconds) as executor:
        yield executor


def non_utf8_problems(texts: Iterable[str]) -> list[str]:
    """Return one problem per argument with bytes that are not UTF-8.

    Python represents these bytes as surrogate characters.
    """
    return [
        f"{text!a}: not UTF-8; convert it to UTF-8"
        for text in texts
        if any("\ud800" <= character <= "\udfff" for character in text)
    ]


# --- Configuration and data of an experiment -----------------------------------------------------


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
