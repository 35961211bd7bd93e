"""Interpreters of a LiteRT file.

A graph reads one sentence of any length. When the length changes, LiteRT derives the shapes of all
tensors again, which takes about half a millisecond.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, LifoQueue
from threading import Semaphore
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tfnmt.errors import UserError

Arrays = dict[str, np.ndarray]

Graphs = dict[str, Any]
"""The graphs of one interpreter by name. Two of them must not run at the same time."""


class Interpreters:
    """Interpreters of one file, each with one thread. They share its memory-mapped weights.

    An interpreter takes memory, so it is opened when all others are busy.

    Attributes:
        names: The names of the graphs.
    """

    def __init__(self, path: Path, count: int) -> None:
        """Open a file.

        Args:
            path: The `.tflite` file.
            count: The largest number of interpreters, which run in parallel.

        Raises:
            UserError: The file is damaged or is no LiteRT file.
        """
        self._path = path
        self._idle: LifoQueue[Graphs] = LifoQueue()
        self._unopened = Semaphore(count)
        with self._borrow() as graphs:
            self.names = set(graphs)

    def run(self, name: str, **inputs: np.ndarray) -> Arrays:
        """Run a graph on one sentence.

        Args:
            name: The name of the graph.
            **inputs: The inputs of the graph.

        Returns:
            The outputs without their batch dimension.

        Raises:
            UserError: The interpreter failed, for example because memory is exhausted.
        """
        with self._borrow() as graphs:
            try:
                outputs = graphs[name](**inputs)
            except (RuntimeError, ValueError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UserError(f"{self._path}: cannot be run ({reason}); free memory") from error
        return {key: value[0] for key, value in outputs.items()}

    @contextmanager
    def _borrow(self) -> Iterator[Graphs]:
        graphs = self._idle_or_new()
        try:
            yield graphs
        finally:
            self._idle.put(graphs)

    def _idle_or_new(self) -> Graphs:
        with suppress(Empty):
            return self._idle.get_nowait()
        if self._unopened.acquire(blocking=False):
            return self._open()
        return self._idle.get()

    def _open(self) -> Graphs:
        try:
            interpreter = Interpreter(str(self._path), num_threads=1)
            interpreter.allocate_tensors()  # otherwise the first sentence pays for it
            names = interpreter.get_signature_list()
            return {name: interpreter.get_signature_runner(name) for name in names}
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"{self._path}: damaged, or no LiteRT file; export the run again"
            ) from error
