"""The command line: absl flags, parsed in one place.

A command defines its flags in a `FlagValues` of its own, so that commands can be imported side by
side, and hands its `main` to `run`. Exit codes: 0 done, 1 failed, 2 called wrongly; a signal's code
when a signal ended the work.
"""

import errno
import io
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from absl import flags
from absl.flags import FlagValues

from tfnmt.errors import UsageError, UserError, nearest

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


def discard_stdout() -> None:
    """What stdout still holds goes nowhere: Python's own flush at exit must not complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
