"""Encoding the text of a prepared corpus as ids, on all cores."""

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfnmt.data.preparation.storage import FlatWriter, TextArray, open_text
from tfnmt.data.preparation.tokenizer import Tokenizer
from tfnmt.errors import UserError
from tfnmt.progress import progress_bar
from tfnmt.runs.checkpoints import TOKENIZER
from tfnmt.runtime.processes import SPAWN, end_with_parent
from tfnmt.runtime.startup import CPU_COUNT

CHUNK = 20_000
"""Pairs that are processed together."""

SIDES = ("source", "target")


def text_path(folder: Path, side: str) -> Path:
    """Return the file with the text of a side, one sentence per line."""
    return folder / f"train.{side}.txt"


def ids_path(folder: Path, side: str) -> Path:
    """Return the file with the ids of a side."""
    return folder / f"train.{side}.ids"


class Chunk(NamedTuple):
    """Rows that are encoded together."""

    direction: str
    side: str
    first: int
    end: int


def chunks_of(directions: Mapping[str, range], size: int) -> Iterator[Chunk]:
    """Yield the chunks of all rows: those of the source, then those of the target."""
    for side in SIDES:
        for direction, rows in directions.items():
            for start in range(rows.start, rows.stop, size):
                yield Chunk(direction, side, start, min(start + size, rows.stop))


def encode(folder: Path, directions: Mapping[str, range]) -> dict[str, dict[str, int]]:
    """Write the ids of both sides, using all cores.

    Args:
        folder: The folder with the text and the tokenizer.
        directions: The rows of each direction.

    Returns:
        The number of ids of each side, by direction.

    Raises:
        UserError: A process was killed.
    """
    chunks = list(chunks_of(directions, CHUNK))
    tokens = {direction: dict.fromkeys(SIDES, 0) for direction in directions}
    with (
        _encoders(folder, chunks) as mapped,
        FlatWriter(ids_path(folder, "source")) as source,
        FlatWriter(ids_path(folder, "target")) as target,
    ):
        writers = dict(zip(SIDES, (source, target), strict=True))
        results = mapped(encode_chunk, chunks)
        encoded = progress_bar(results, "encoding", "pairs", len(chunks), CHUNK)
        for chunk, (ids, lengths) in zip(chunks, encoded, strict=True):
            writers[chunk.side].write(ids.tobytes(), lengths)
            tokens[chunk.direction][chunk.side] += len(ids)
    return tokens


class _Encoder:
    """State of an encoding process."""

    tokenizer: Tokenizer
    lines: dict[str, TextArray]


def start_encoder(folder: Path) -> None:
    """Load the tokenizer and open the text, before `encode_chunk`."""
    _Encoder.tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    _Encoder.lines = {side: open_text(text_path(folder, side)) for side in SIDES}


def _start_worker(folder: Path) -> None:
    """Start an encoder in a worker process."""
    end_with_parent()
    start_encoder(folder)


def encode_chunk(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated ids of some rows, and the number of ids of each row."""
    lines = _Encoder.lines[chunk.side].between(chunk.first, chunk.end)
    tokenizer, target = _Encoder.tokenizer, chunk.direction.split("-")[1]
    prefix = tokenizer.source_prefix(target) if chunk.side == "source" else []
    return tokenizer.encode_flat(lines, prefix)


@contextmanager
def _encoders(folder: Path, chunks: Sequence[Chunk]) -> Iterator[Callable[..., Iterable[Any]]]:
    """Provide a `map` over one process per CPU, or in this process if there is little to do."""
    if max(chunk.end for chunk in chunks) <= CHUNK:
        start_encoder(folder)
        yield map
        return
    workers = min(CPU_COUNT, len(chunks))
    with ProcessPoolExecutor(workers, SPAWN, _start_worker, (folder,)) as pool:

        def mapped(function: Callable[[Chunk], Any], rows: Iterable[Chunk]) -> Iterable[Any]:
            with _interrupts_blocked():
                return pool.map(function, rows)

        try:
            yield mapped
        except BrokenProcessPool as error:
            raise UserError(
                "an encoding process was killed, probably because memory ran out; provide more "
                "memory, or use one CPU (taskset --cpu-list 0)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, the other chunks are not needed


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C. Processes that start in the meantime inherit it and never receive Ctrl-C.

    Otherwise each of them would print a traceback. They end with this process.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
