"""Interpreters of a LiteRT file, and the static shapes of its graphs.

A LiteRT graph has static shapes. The file therefore contains each graph for several sizes. A size
is the length of the source and the length of the target that the graph has room for, in tokens with
EOS. Graphs are named `<kind>_<source>_<target>`, for example `search_16_22`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, LifoQueue
from threading import Semaphore
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tfnmt.errors import UserError

Arrays = dict[str, np.ndarray]

KINDS = {"search", "greedy", "align", "attention"}
"""The kinds of graphs in a file."""

Graphs = dict[str, Any]
"""The graphs of one interpreter by name. Two of them must not run at the same time."""


class Size(NamedTuple):
    """The tokens that a graph has room for."""

    source: int
    target: int


class Interpreters:
    """Interpreters of one file, each with one thread. They share its memory-mapped weights.

    An interpreter takes memory, so it is opened when all others are busy.

    Attributes:
        sizes: The sizes of each kind of graph, the smallest first.
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
            self.sizes = _sizes(graphs)

    def run(self, kind: str, size: Size, **inputs: np.ndarray) -> Arrays:
        """Run the graph of a kind and a size on one sentence.

        Args:
            kind: `search`, `greedy`, `align` or `attention`.
            size: One of `sizes[kind]`.
            **inputs: Ids of at most that size, [n], which are padded; or scalars.

        Returns:
            The outputs without their batch dimension.

        Raises:
            UserError: The interpreter failed, for example because memory is exhausted.
        """
        with self._borrow() as graphs:
            try:
                graph = graphs[f"{kind}_{size.source}_{size.target}"]
                outputs = graph(**{name: _padded(ids, size, name) for name, ids in inputs.items()})
            except (RuntimeError, ValueError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UserError(f"{self._path}: cannot be run ({reason}); free memory") from error
        return {name: value[0] for name, value in outputs.items()}

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


def _sizes(names: Iterable[str]) -> dict[str, list[Size]]:
    sizes: dict[str, list[Size]] = {}
    for name in names:
        kind, *numbers = name.split("_")
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            sizes.setdefault(kind, []).append(Size(*map(int, numbers)))
    return {kind: sorted(found) for kind, found in sizes.items()}


def _padded(ids: np.ndarray, size: Size, name: str) -> np.ndarray:
    """Pad ids [n] to a batch of one sentence of the graph's length. Scalars stay unchanged."""
    if ids.ndim == 0:
        return ids
    padded = np.zeros((1, getattr(size, name)), np.int32)
    padded[0, : len(ids)] = ids
    return padded
