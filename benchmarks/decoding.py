"""How fast search is, beside other systems.

    python -m benchmarks.decoding [--lanes=1] [--peer='COMMAND'] [--turns=3]

Random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256, 8,000 pieces; 16 source tokens, beam 4,
20 steps; 1, 16 and 64 sentences together, ids to ids: "tfnmt plain" in the graph that TensorFlow
Serving runs, "tfnmt compiled" by XLA, with the seconds that compiling for such a batch takes. A
peer is any command that prints JSON lines with "system", "batch_size" and "ms"; all take turns. One
JSON line a system and batch size: medians of the turns, tokens of the best hypotheses a second.

--lanes translates so many batches side by side, as `tfnmt.translate` does with a file; a batch then
takes its share of the time. Another such command can be a peer of this one.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from absl import flags

from benchmarks.peers import measure
from tfnmt.cli import run
from tfnmt.config import ModelConfig
from tfnmt.data.preparation.tokenizer import EOS, UNK
from tfnmt.errors import UsageError
from tfnmt.model.layers import Tensor
from tfnmt.runtime.startup import expect_few_rows, import_tensorflow

Find = Callable[[Tensor], Tensor]

PLAIN = "tfnmt plain"
COMPILED = "tfnmt compiled"
VOCAB_SIZE = 8000
SOURCE_LENGTH = 16
STEPS = 20
BEAMS = 4
BATCHES = (1, 16, 64)
CALLS = 15
"""Of each lane; the median is a turn."""

FLAGS = flags.FlagValues()
flags.DEFINE_multi_string("peer", [], "a command to take turns with", flag_values=FLAGS)
flags.DEFINE_integer("lanes", 1, "batches side by side", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "turns of each system", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Takes turns and prints."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    expect_few_rows()
    import_tensorflow()
    lanes = f", {values.lanes} lanes" if values.lanes > 1 else ""
    plain, compiled = PLAIN + lanes, COMPILED + lanes
    searches = dict(zip((plain, compiled), _searches(), strict=True))
    compiling = {batch: _seconds(searches[compiled], batch) for batch in BATCHES}
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(values.turns):
        for system, search in searches.items():
            for batch in BATCHES:
                taken = _milliseconds(search, batch, values.lanes)
                times.setdefault((system, batch), []).append(taken)
        for system, batch, milliseconds in _peers(values.peer):
            times.setdefault((system, batch), []).append(milliseconds)
    medians = {key: statistics.median(turns) for key, turns in times.items()}
    for (system, batch), milliseconds in medians.items():
        line = {
            "system": system,
            "task": "decode",
            "batch_size": batch,
            "beam_size": BEAMS,
            "ms": round(milliseconds, 1),
            "tokens_per_s": round(1e3 * batch * STEPS / milliseconds),
            "ours_to_theirs": round(milliseconds / medians[plain, batch], 2),
            "turns": values.turns,
        }
        if system == compiled:
            line["compile_s"] = round(compiling[batch], 1)
        print(json.dumps(line), flush=True)


def _peers(commands: list[str]) -> Iterator[tuple[str, int, float]]:
    """System, batch size and milliseconds."""
    for command in commands:
        for line in measure(command, "batch_size", "ms"):
            if line["batch_size"] in BATCHES:
                yield line["system"], line["batch_size"], float(line["ms"])


def _searches() -> tuple[Find, Find]:
    """Plain and compiled: sources [B, S] -> translations of exactly so many steps [B, T]."""
    import tensorflow as tf

    from tfnmt.config import DecodingConfig
    from tfnmt.decoding.compiled import compiled_search
    from tfnmt.decoding.searcher import Searcher, in_halves
    from tfnmt.model.transformer import Transformer

    transformer = Transformer(ModelConfig(d_model=128, d_ff=256), VOCAB_SIZE)
    decoding = DecodingConfig(beam_size=BEAMS, length_penalty=0.6, max_length=STEPS)
    searcher = Searcher(transformer, decoding)
    plain = in_halves(searcher.beam, [tf.TensorSpec([None, None], tf.int32)])
    compiled = compiled_search(searcher)
    return (
        lambda source: plain(source).tokens[:, 0],
        lambda source: compiled(source).tokens[:, 0],
    )


def _sources(batch: int) -> Tensor:
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    return tf.constant(random.integers(UNK + 1, VOCAB_SIZE, (batch, SOURCE_LENGTH)), tf.int32)


def _seconds(search: Find, batch: int) -> float:
    """What the first call takes, which compiles."""
    begun = time.perf_counter()
    search(_sources(batch))
    return time.perf_counter() - begun


def _milliseconds(search: Find, batch: int, lanes: int) -> float:
    """What a batch takes; the first calls, which make kernels, do not count."""
    import tensorflow as tf

    source = _sources(batch)
    if not tf.reduce_all(search(source) != EOS):
        raise UsageError("a hypothesis has ended early: these weights and sources do not serve")
    times = []
    with ThreadPoolExecutor(lanes) as pool:
        for _ in range(CALLS):
            begun = time.perf_counter()
            for found in [pool.submit(search, source) for _ in range(lanes)]:
                found.result().numpy()
            times.append(1e3 * (time.perf_counter() - begun) / lanes)
    return statistics.median(times)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
