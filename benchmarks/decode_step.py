"""What a step of the decoder costs at the beginning of a sentence and far into it.

    python -m benchmarks.decode_step [--rows=16] [--turns=50]

Random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256, 8,000 pieces, beam 4; steps of both
positions in turn, medians. What the search adds to it, the product with the pieces and the choice
among them, is the same wherever a step is, and is not in it. One JSON line a position.
"""

import json
import statistics
import time
from typing import Any

from absl import flags

from tfnmt.cli import run
from tfnmt.config import ModelConfig
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import expect_few_rows, import_tensorflow

POSITIONS = (10, 100)
SOURCE_LENGTH = 16
BEAMS = 4

FLAGS = flags.FlagValues()
flags.DEFINE_integer("rows", 16, "sentences decoded together", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 50, "steps timed a position", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Times the steps and prints the medians."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    expect_few_rows()
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.model.transformer import Transformer

    transformer = Transformer(ModelConfig(d_model=128, d_ff=256), 8000)
    source = tf.random.uniform([values.rows, SOURCE_LENGTH], 4, 8000, tf.int32)
    cache, fixed = transformer.start_search(source, BEAMS)
    tokens, parents = source[:, :BEAMS], tf.zeros([values.rows, BEAMS], tf.int32)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(position: Any, cache: Any) -> Any:
        return transformer.decode_step(tokens, parents, position, cache, fixed)

    caches = {}
    for position in range(max(POSITIONS) + 1):
        if position in POSITIONS:
            caches[position] = cache
        _, cache = step(tf.constant(position), cache)
    milliseconds: dict[int, list[float]] = {position: [] for position in POSITIONS}
    for _ in range(values.turns):
        for position in POSITIONS:
            begun = time.perf_counter()
            step(tf.constant(position), caches[position])[0].numpy()
            milliseconds[position].append(1e3 * (time.perf_counter() - begun))
    for position, times in milliseconds.items():
        line = {"task": "decode_step", "position": position, "rows": values.rows}
        print(json.dumps(line | {"ms": round(statistics.median(times), 2), "turns": len(times)}))


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
