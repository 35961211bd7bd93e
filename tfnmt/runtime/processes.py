"""Separate processes, which end with this one."""

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

SPAWN = get_context("spawn")
"""Starts processes. A fork would copy the locks and threads of this process, TensorFlow's too."""


def values_of_process(
    function: Callable[..., Iterator[Any]], *arguments: object
) -> tuple[list[Any], int]:
    """Return the values that a generator yields in a separate process, and its exit code.

    A process that is killed, for example because memory runs out, returns the values before that.

    Args:
        function: A generator function of a module.
        arguments: Its arguments.
    """
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_send_values, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()
    values = list(_received(receiver))
    process.join()
    assert process.exitcode is not None
    return values, process.exitcode


def _send_values(
    sender: Connection, function: Callable[..., Iterator[Any]], arguments: tuple[object, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent reports it
    end_with_parent()
    for value in function(*arguments):
        sender.send(value)


def _received(receiver: Connection) -> Iterator[Any]:
    with receiver:
        try:
            while True:
                yield receiver.recv()
        except EOFError:
            return


def end_with_parent() -> None:
    """Make this process end when its parent has ended, even by SIGKILL."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
