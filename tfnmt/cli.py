"""The command line: flags that several commands share, and running a command.

Each command defines its flags in its own absl `FlagValues`, so that one process can import several
commands. It passes its `main` to `run_command`, the only place where arguments are parsed.

Exit codes: 0 success, 1 failure, 2 wrong usage, 128 + N after signal N.
"""

import errno
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from absl import flags
from absl.flags import FlagValues

from tfnmt.errors import UsageError, UserError, did_you_mean
from tfnmt.exporting import ENGINES, QUANTIZATIONS
from tfnmt.runtime.packages import report_missing_packages
from tfnmt.runtime.streams import open_standard_streams

if TYPE_CHECKING:
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


def _in_words(problem: str) -> str:
    """Return the problem of a flag without the words of Python."""
    problem = re.sub(r"invalid literal for int\(\).*", "not an integer", problem)
    problem = re.sub(r"could not convert string to float.*", "not a number", problem)
    return problem.removeprefix("flag ")


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
        raise UsageError(f"{_in_words(str(error))}; see --help") from error
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
