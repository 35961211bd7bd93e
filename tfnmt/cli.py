"""The command line: absl flags, parsed in one place.

A command defines its flags in a `FlagValues` of its own, so that commands can be imported side by
side, and hands its `main` to `run`. Exit codes: 0 done, 1 failed, 2 called wrongly; a signal's code
when a signal ended the work.
"""

import errno
import io
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from absl import flags
from absl.flags import FlagValues

from tfnmt.config import Config, Tree, build_config, merge, parse_overrides, preset_path, read_tree
from tfnmt.data.corpora.formats import languages_of
from tfnmt.errors import UsageError, UserError, nearest
from tfnmt.progress import say
from tfnmt.runs.run import Run, home
from tfnmt.runtime.files import discard_stdout

if TYPE_CHECKING:
    from tfnmt.data.corpora.corpus import Corpus
    from tfnmt.data.preparation.prepared import Prepared

HELP = ("--help", "-h", "--helpshort", "--helpfull", "-help", "-helpshort")

Main = Callable[[Any, list[str]], None]


def define_data_dir(values: FlagValues) -> None:
    """`--data_dir`: where corpora lie."""
    flags.DEFINE_string(
        "data_dir", None, "folder of the corpora (default: data/)", flag_values=values
    )


def define_search(values: FlagValues) -> None:
    """The flags that stand in for the run's own keys of `decoding`."""
    for name, text in (
        ("beam_size", "beam width; 1 is greedy"),
        ("min_length", "least pieces of a translation"),
        ("no_repeat_ngram", "no sequence of N pieces twice in a translation"),
    ):
        flags.DEFINE_integer(name, None, f"{text} (default: the run's)", flag_values=values)
    flags.DEFINE_float(
        "length_penalty", None, "alpha of the length penalty (default: the run's)",
        flag_values=values,
    )  # fmt: skip
    flags.DEFINE_string(
        "max_length", None, "most pieces of a translation: a number, or source+N (default: the "
        "run's)", flag_values=values,
    )  # fmt: skip


def search_changes(values: Any) -> dict[str, Any]:
    """What those flags change in a run's `decoding`."""
    keys = ("beam_size", "length_penalty", "min_length", "no_repeat_ngram")
    changes = {key: values[key].value for key in keys if values[key].value is not None}
    return changes if values.max_length is None else changes | _limit(values.max_length)


def not_utf_8(texts: Iterable[str]) -> list[str]:
    """What to say of arguments with bytes that are not UTF-8, which Python has as surrogates."""
    return [
        f"{text!a}: not UTF-8; give it in UTF-8"
        for text in texts
        if any("\ud800" <= character <= "\udfff" for character in text)
    ]


def _limit(text: str) -> dict[str, Any]:
    """`80`, or `source+20`, as keys of `decoding`."""
    found = re.fullmatch(r"(source\s*\+\s*)?(\d+)", text.strip())
    if found is None:
        raise UsageError(f"--max_length={text}: neither a number nor source+N; try source+50")
    if found[1]:
        return {"max_length": None, "max_extra_length": int(found[2])}
    return {"max_length": int(found[2])}


def run(main: Main, values: FlagValues, usage: str, arguments: list[str] | None = None) -> NoReturn:
    """Parses the arguments, calls `main(values, positional)` and exits.

    A `UserError` becomes one line per problem on stderr, and a full disk one; every other error
    keeps its traceback.
    `usage` is the command's docstring: the first thing that `--help` prints.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever the locale, text is UTF-8 here
            # A name of a file need not be: it is told as it can be.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        if any(argument in HELP for argument in _before_dashes(arguments)):
            print(_help(values, usage))
        else:
            main(values, _parse(values, arguments))
        sys.stdout.flush()
    except UserError as error:
        _let_go_of_stdout()
        for problem in error.problems:
            print(f"tfnmt: {problem}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("tfnmt: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        discard_stdout()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _let_go_of_stdout()
        print(f"tfnmt: {error.strerror}; make room, and run again", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _let_go_of_stdout() -> None:
    """Writes what it still holds; what cannot be written must not be complained of at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_stdout()


def _parse(values: FlagValues, arguments: list[str]) -> list[str]:
    """The positional arguments; absl's complaints as a UsageError."""
    try:
        positional = list(values(["tfnmt", *arguments])[1:])
    except flags.UnrecognizedFlagError as error:
        flag = f"--{error.flagname}"
        hint = nearest(flag, (f"--{name}" for name in values))
        raise UsageError(
            f"{flag}: unknown flag; {hint}--help lists them, and text that begins with a dash "
            "comes after --"
        ) from error
    except flags.Error as error:
        raise UsageError(f"{str(error).removeprefix('flag ')}; see --help") from error
    _check_lists(values)
    return positional


def _check_lists(values: FlagValues) -> None:
    """Refuses two lists for one flag: of any flag that stands twice absl takes the last."""
    lists = [name for name in values if isinstance(values[name].parser, flags.ListParser)]
    problems = [f"--{name}: given twice; name all in one, with commas between"
                for name in lists if values[name].present > 1]  # fmt: skip
    if problems:
        raise UsageError(*problems)


def _before_dashes(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _help(values: FlagValues, usage: str) -> str:
    """The usage, and one line per flag."""
    rows = []
    for name in sorted(values):
        flag = values[name]
        shown = f"--[no]{name}" if flag.boolean else f"--{name}=..."
        rows.append(textwrap.fill(flag.help, 80, initial_indent=f"  {shown:<22} ",
                                  subsequent_indent=" " * 25))  # fmt: skip
    return "\n".join([usage.strip(), "", "Flags:", *rows])


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


def read_data(values: Any, config: Config, run: Run | None = None) -> tuple["Corpus", "Prepared"]:
    """The corpus of an experiment, downloaded and prepared where it is not yet.

    A run that was begun already has settled what is held out, and its tokenizer.
    """
    from tfnmt.data.corpora.assembly import Origin
    from tfnmt.data.corpora.catalog import (
        data_folder,
        download_missing,
        has_test,
        open_corpus,
        split_name,
    )
    from tfnmt.data.corpora.corpus import Files, HeldOut
    from tfnmt.data.preparation.prepared import prepare

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
