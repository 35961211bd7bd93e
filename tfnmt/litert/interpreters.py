"""Interpreters of a LiteRT file, and the static shapes of its graphs.

A LiteRT graph has static shapes. The file therefore contains each graph for several sizes. A size
is the length of the source and the length of the target that the graph has room for, in tokens with
EOS. Graphs are named `<kind>_<source>_<target>`, for example `search_16_22`.
"""

import atexit
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import Empty, LifoQueue
from threading import Lock, Semaphore
from typing import Any, NamedTuple

import ai_edge_litert
import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.cpu_options import CpuOptions
from ai_edge_litert.environment import Environment
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.options import Options

from tfnmt.errors import UserError

Arrays = dict[str, np.ndarray]

KINDS = {"search", "greedy", "align", "attention"}
"""The kinds of graphs in a file."""

OPTIONS = Options(
    hardware_accelerators=HardwareAccelerator.CPU,
    # XNNPACK packs weights for its kernels. With this cache, all graphs share the packed weights.
    cpu_options=CpuOptions(num_threads=1, xnnpack_weight_cache_path=":memory"),
)


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
            UserError: The file is damaged or is no LiteRT export.
        """
        self._path = path
        self._idle: LifoQueue[_Interpreter] = LifoQueue()
        self._unopened = Semaphore(count)
        with self._borrow() as interpreter:
            self.sizes = _sizes(interpreter.names)

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
        padded = {name: _padded(ids, size, name) for name, ids in inputs.items()}
        with self._borrow() as interpreter:
            try:
                outputs = interpreter.run(f"{kind}_{size.source}_{size.target}", padded)
            except (RuntimeError, ValueError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UserError(f"{self._path}: cannot be run ({reason}); free memory") from error
        return {name: value[0] for name, value in outputs.items()}

    @contextmanager
    def _borrow(self) -> "Iterator[_Interpreter]":
        interpreter = self._idle_or_new()
        try:
            yield interpreter
        finally:
            self._idle.put(interpreter)

    def _idle_or_new(self) -> "_Interpreter":
        with suppress(Empty):
            return self._idle.get_nowait()
        if self._unopened.acquire(blocking=False):
            return self._open()
        return self._idle.get()

    def _open(self) -> "_Interpreter":
        try:
            with _silence_stderr():
                return _Interpreter(self._path)
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"{self._path}: damaged, or no LiteRT file; export the run again"
            ) from error


class _Interpreter:
    """One interpreter of a file. It runs one graph at a time."""

    def __init__(self, path: Path) -> None:
        Interpreter(str(path))  # checks the file, which the next class does not
        self._model = CompiledModel.from_file(
            str(path), environment=_environment(), options=OPTIONS
        )
        self._buffers: dict[str, _Buffers] = {}
        self.names: list[str] = list(self._model.get_signature_list())

    def run(self, name: str, inputs: Arrays) -> Arrays:
        """Run a graph by its name."""
        if name not in self._buffers:
            with _silence_stderr():  # the first write logs
                self._buffers[name] = _Buffers(self._model, name)
                self._buffers[name].write(inputs)
        buffers = self._buffers[name]
        buffers.write(inputs)
        self._model.run_by_name(name, buffers.inputs, buffers.outputs)
        return buffers.read()


@cache
def _environment() -> Environment:
    """Return the environment of all interpreters. It lives until the process ends, as it logs."""
    folder = os.path.dirname(ai_edge_litert.__file__)
    # Without paths, it would load the plugins of every vendor.
    return Environment.create(
        runtime_path=folder, compiler_plugin_path=folder, dispatch_library_path=folder
    )


class _Buffers:
    """The memory of the inputs and outputs of a graph."""

    def __init__(self, model: CompiledModel, name: str) -> None:
        self._details = model.get_output_tensor_details(name)
        inputs = model.get_input_tensor_details(name)
        self.inputs = {key: model.create_input_buffer_by_name(name, key) for key in inputs}
        self.outputs = {key: model.create_output_buffer_by_name(name, key) for key in self._details}

    def write(self, inputs: Arrays) -> None:
        """Write inputs of the graph's size."""
        for name, value in inputs.items():
            self.inputs[name].write(value)

    def read(self) -> Arrays:
        """Return the outputs."""
        return {key: self._read(key, **details) for key, details in self._details.items()}

    def _read(self, key: str, shape: list[int], dtype: str, **_: Any) -> np.ndarray:
        values: np.ndarray = self.outputs[key].read(math.prod(shape), np.dtype(dtype))
        return values.reshape(shape)


_lock = Lock()


@contextmanager
def _silence_stderr() -> Iterator[None]:
    """Discard output to file descriptor 2. LiteRT logs there, and no option stops it."""
    with _lock:
        original = os.dup(2)
        try:
            _discard_stderr()
            yield
        finally:
            os.dup2(original, 2)
            os.close(original)


@atexit.register
def _discard_stderr() -> None:
    """Discard output to file descriptor 2 from now on. LiteRT also logs when the process ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


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
