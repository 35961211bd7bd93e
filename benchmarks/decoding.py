"""Measure the speed of beam search, compared with baselines.

    python -m benchmarks.decoding [--parallel_streams=1] [--baseline='COMMAND'] [--turns=3]

The model has random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256 and 8,000 tokens. Sources
have 16 tokens, the beam is 4, and each search takes 20 steps, from ids to ids, in batches of 1, 16
and 64 sentences. "tfnmt without XLA" is the graph that TensorFlow Serving runs. "tfnmt with XLA" is
compiled; compile_s is the time of the compilation for that batch size.

A baseline is any command that prints JSON lines with "system", "batch_size" and "ms". All systems
take turns. Prints one JSON line per system and batch size, with medians over the turns and with
tokens of the best hypotheses per second. speedup_of_tfnmt is the speed of "tfnmt without XLA"
divided by the speed of the system.

--parallel_streams runs that many batches in parallel, as `tfnmt.translate` does for a file. The
time of a batch is then divided by that number. This command with other flags can be a baseline,
too.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from absl import flags

from benchmarks.baseline_command import run_baseline
from tfnmt.cli import run_command
from tfnmt.config import ModelConfig
from tfnmt.data.preparation.tokenizer import EOS, UNK
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import configure_for_single_sentences, import_tensorflow

if TYPE_CHECKING:
    from tfnmt.model.layers import Tensor

Search = Callable[["Tensor"], "Tensor"]

WITHOUT_XLA = "tfnmt without XLA"
WITH_XLA = "tfnmt with XLA"
VOCAB_SIZE = 8000
SOURCE_LENGTH = 16
STEPS = 20
BEAM_SIZE = 4
BATCH_SIZES = (1, 16, 64)
CALLS = 15
"""Measured calls per turn and stream. The median is the result of the turn."""

FLAGS = flags.FlagValues()
flags.DEFINE_multi_string("baseline", [], "command that measures another system", flag_values=FLAGS)
flags.DEFINE_integer("parallel_streams", 1, "batches in parallel", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "measurements per system", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Measure all systems in turn and print the results."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    configure_for_single_sentences()
    import_tensorflow()
    streams = values.parallel_streams
    suffix = f", {streams} parallel streams" if streams > 1 else ""
    without_xla, with_xla = WITHOUT_XLA + suffix, WITH_XLA + suffix
    searches = dict(zip((without_xla, with_xla), _make_searches(), strict=True))
    compile_seconds = {
        batch_size: _first_call_seconds(searches[with_xla], batch_size)
        for batch_size in BATCH_SIZES
    }
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(values.turns):
        for system, search in searches.items():
            for batch_size in BATCH_SIZES:
                milliseconds = _milliseconds(search, batch_size, streams)
                times.setdefault((system, batch_size), []).append(milliseconds)
        for system, batch_size, milliseconds in _run_baselines(values.baseline):
            times.setdefault((system, batch_size), []).append(milliseconds)
    medians = {key: statistics.median(turns) for key, turns in times.items()}
    for (system, batch_size), milliseconds in medians.items():
        line = {
            "system": system,
            "task": "decode",
            "batch_size": batch_size,
            "beam_size": BEAM_SIZE,
            "ms": round(milliseconds, 1),
            "tokens_per_s": round(1e3 * batch_size * STEPS / milliseconds),
            "speedup_of_tfnmt": round(milliseconds / medians[without_xla, batch_size], 2),
            "turns": values.turns,
        }
        if system == with_xla:
            line["compile_s"] = round(compile_seconds[batch_size], 1)
        print(json.dumps(line), flush=True)


def _run_baselines(commands: list[str]) -> Iterator[tuple[str, int, float]]:
    """Yield system, batch size and milliseconds."""
    for command in commands:
        for line in run_baseline(command, "batch_size", "ms"):
            if line["batch_size"] in BATCH_SIZES:
                yield line["system"], line["batch_size"], float(line["ms"])


def _make_searches() -> tuple[Search, Search]:
    """Return the searches without and with XLA: [B, S] -> [B, T], with exactly STEPS steps."""
    import tensorflow as tf

    from tfnmt.config import DecodingConfig
    from tfnmt.decoding.compiled import compiled_search
    from tfnmt.decoding.searcher import Searcher, split_batches
    from tfnmt.model.transformer import Transformer

    transformer = Transformer(ModelConfig(d_model=128, d_ff=256), VOCAB_SIZE)
    decoding = DecodingConfig(beam_size=BEAM_SIZE, length_penalty=0.6, max_length=STEPS)
    searcher = Searcher(transformer, decoding)
    without_xla = split_batches(searcher.beam, [tf.TensorSpec([None, None], tf.int32)])
    with_xla = compiled_search(searcher)
    return (
        lambda source: without_xla(source).tokens[:, 0],
        lambda source: with_xla(source).tokens[:, 0],
    )


def _make_sources(batch_size: int) -> "Tensor":
    import numpy as np
    import tensorflow as tf

    generator = np.random.default_rng(0)
    return tf.constant(
        generator.integers(UNK + 1, VOCAB_SIZE, (batch_size, SOURCE_LENGTH)), tf.int32
    )


def _first_call_seconds(search: Search, batch_size: int) -> float:
    """Return the time of the first call, which compiles."""
    start = time.perf_counter()
    search(_make_sources(batch_size))
    return time.perf_counter() - start


def _milliseconds(search: Search, batch_size: int, streams: int) -> float:
    """Return the median time of a batch. The first call, which creates kernels, is not counted."""
    import tensorflow as tf

    source = _make_sources(batch_size)
    if not tf.reduce_all(search(source) != EOS):
        raise UsageError(
            f"a hypothesis ended before step {STEPS}; change the random weights or sources"
        )
    times = []
    with ThreadPoolExecutor(streams) as pool:
        for _ in range(CALLS):
            start = time.perf_counter()
            for found in [pool.submit(search, source) for _ in range(streams)]:
                found.result().numpy()
            times.append(1e3 * (time.perf_counter() - start) / streams)
    return statistics.median(times)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
