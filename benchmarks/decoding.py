"""Measure the speed of beam search, compared with baselines.

    python -m benchmarks.decoding [--size=base] [--parallel_streams=1] [--turns=3]
        [--baseline='python -m benchmarks.baselines.ct2_decoding']

The model has random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256 and 8,000 tokens.
--size=base and --size=big use the paper's models and 32,000 tokens; --size=tiny is for trying the
command. Sources have 16 tokens, the beam is 4, and each search takes 20 steps, from ids to ids, in
batches of 1, 16 and 64 sentences. "tfnmt" is the graph that TensorFlow Serving runs. "tfnmt LiteRT"
translates a batch sentence by sentence, in one thread per CPU core.

A baseline is any command that prints JSON lines with "system", "batch_size" and "ms". Give it the
same --size, --steps, --batch_sizes and --lengths_of. All systems take turns. Prints one JSON line
per system and batch size, with medians over the turns and with tokens of the best hypotheses per
second. speedup_of_tfnmt is the speed of the first system divided by the speed of the system.

--parallel_streams runs that many batches in parallel, as `tfnmt.translate` does for a file. The
time of a batch is then divided by that number. This command with other flags can be a baseline,
too.
"""

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from benchmarks.baseline_command import run_baseline
from benchmarks.decoding_task import BEAM_SIZE, Task, define_flags, median_ms
from tfnmt.cli import run_command
from tfnmt.data.preparation.tokenizer import EOS
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import CPU_COUNT, configure_for_single_sentences, import_tensorflow

if TYPE_CHECKING:
    from tfnmt.decoding.searcher import Searcher

Search = Callable[[list[np.ndarray]], np.ndarray]
"""Maps sources [n] to the tokens of their best hypotheses [B, T]."""

SYSTEMS = ("tfnmt", "tfnmt LiteRT float32", "tfnmt LiteRT int8")

FLAGS = flags.FlagValues()
define_flags(FLAGS)
flags.DEFINE_multi_string("baseline", [], "command that measures another system", flag_values=FLAGS)
flags.DEFINE_multi_enum("system", list(SYSTEMS), list(SYSTEMS), "to measure", flag_values=FLAGS)
flags.DEFINE_integer("parallel_streams", 1, "batches in parallel", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "measurements per system", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Measure all systems in turn and print the results."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    task = Task.from_flags(values)
    configure_for_single_sentences()
    import_tensorflow()
    streams = values.parallel_streams
    suffix = f", {streams} parallel streams" if streams > 1 else ""
    times: dict[tuple[str, int], list[float]] = {}
    with _open_searches(task, values.system, streams) as searches:
        for search in searches.values():
            for batch_size in task.batch_sizes:
                _check_steps(search, task, batch_size)
        for _ in range(values.turns):
            for system, search in searches.items():
                for batch_size in task.batch_sizes:
                    sources = task.sources(batch_size)
                    milliseconds = median_ms(partial(search, sources), streams)
                    times.setdefault((system + suffix, batch_size), []).append(milliseconds)
            for system, batch_size, milliseconds in _run_baselines(values.baseline, task):
                times.setdefault((system, batch_size), []).append(milliseconds)
    medians = {key: statistics.median(turns) for key, turns in times.items()}
    first_system, _ = next(iter(medians))
    from tfnmt.training.distribution import device_kind

    for (system, batch_size), milliseconds in medians.items():
        line = {
            "system": system,
            "task": "decode",
            "devices": f"1 {device_kind()}",
            "batch_size": batch_size,
            "beam_size": BEAM_SIZE,
            "ms": round(milliseconds, 1),
            "tokens_per_s": round(1e3 * batch_size * task.steps / milliseconds),
            "speedup_of_tfnmt": round(milliseconds / medians[first_system, batch_size], 2),
            "turns": values.turns,
        }
        print(json.dumps(line), flush=True)


def _run_baselines(commands: list[str], task: Task) -> Iterator[tuple[str, int, float]]:
    """Yield system, batch size and milliseconds."""
    for command in commands:
        for line in run_baseline(command, "batch_size", "ms"):
            if line["batch_size"] in task.batch_sizes:
                yield line["system"], line["batch_size"], float(line["ms"])


def _check_steps(search: Search, task: Task, batch_size: int) -> None:
    """Check that a search takes all steps."""
    found = search(task.sources(batch_size))
    if found.shape[1] != task.steps or (found == EOS).any():
        raise UsageError(
            f"a hypothesis ended before step {task.steps}; change the random weights or sources"
        )


@contextmanager
def _open_searches(task: Task, systems: list[str], streams: int) -> Iterator[dict[str, Search]]:
    searcher = task.make_searcher()
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(max(streams, CPU_COUNT)) as threads,
    ):
        searches = {}
        for system in systems:
            name, _, quantization = system.rpartition(" LiteRT ")
            if name:
                path = Path(folder) / quantization
                searches[system] = _litert_search(searcher, task, quantization, path, threads)
            else:
                searches[system] = _tensorflow_search(searcher)
        yield searches


def _tensorflow_search(searcher: "Searcher") -> Search:
    import tensorflow as tf

    from tfnmt.decoding.searcher import split_batches
    from tfnmt.litert.model import pad

    graph = split_batches(searcher.beam, [tf.TensorSpec([None, None], tf.int32)])

    def search(sources: list[np.ndarray]) -> np.ndarray:
        found: np.ndarray = graph(tf.constant(pad(sources))).tokens[:, 0].numpy()
        return found

    return search


def _litert_search(
    searcher: "Searcher", task: Task, quantization: str, path: Path, threads: ThreadPoolExecutor
) -> Search:
    from tfnmt.exporting.litert import convert, search_graph
    from tfnmt.litert.interpreters import Interpreters

    graphs = [("search", search_graph(searcher))]
    path.write_bytes(convert(searcher.transformer, graphs, quantization))
    interpreters = Interpreters(path, threads._max_workers)
    room, count = np.zeros(task.steps, np.int32), np.array(1, np.int32)

    def search_one(source: np.ndarray) -> np.ndarray:
        found = interpreters.run("search", source=source[None], room=room, count=count)
        return found["tokens"][0]

    def search(sources: list[np.ndarray]) -> np.ndarray:
        if len(sources) == 1:
            return search_one(sources[0])[None]
        return np.stack([*threads.map(search_one, sources)])

    return search


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
