"""Commands in processes of their own, which end with this one."""

import os
import runpy
import sys
from collections.abc import Callable, Sequence

from tfnmt.runtime.processes import SPAWN, end_with_parent

POLL_SECONDS = 600.0
"""Seconds between two calls of `meanwhile`."""


def run_command(
    module: str, arguments: Sequence[str], meanwhile: Callable[[], None] = lambda: None
) -> int:
    """Run a command in a new process; a signal to this process stops it cleanly.

    Args:
        module: The module of the command, such as `tfnmt.train`.
        arguments: Its arguments.
        meanwhile: Called every POLL_SECONDS.

    Returns:
        The exit code; the negative number of a signal that killed the process.
    """
    process = SPAWN.Process(target=_run, args=(module, list(arguments)))
    process.start()
    try:
        while True:
            process.join(POLL_SECONDS)
            if process.exitcode is not None:
                return process.exitcode
            meanwhile()
    except KeyboardInterrupt:
        process.terminate()  # a training run saves a checkpoint
        process.join()
        raise


def _run(module: str, arguments: list[str]) -> None:
    """Run a command in this process."""
    os.setpgrp()  # Ctrl-C reaches the parent only, which stops this process
    end_with_parent()  # its work can be resumed
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
