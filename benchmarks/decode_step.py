"""What a decoding step costs at the beginning of a sentence and far into it.

    python -m benchmarks.decode_step [--rows=64] [--turns=50]

Random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256, 8,000 pieces; a cache for 128 positions;
steps of both positions in turn, medians. One JSON line a position.
"""

import json
import statistics
import time
from typing import Any

from absl import flags

from tfnmt.config import ModelConfig
from tfnmt.flags import run
from tfnmt.quiet import import_tensorflow

POSITIONS = (10, 100)
ROOM = 128
SOURCE_LENGTH = 16

FLAGS = flags.FlagValues()
flags.DEFINE_integer("rows", 64, "rows decoded together", flag_values=FLAGS)
flags.DEFINE_integer("turns", 50, "steps timed a position", flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Times the steps and prints the medians."""
    del positional
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.model.transformer import Transformer

    transformer = Transformer(ModelConfig(d_model=128, d_ff=256), 8000)
    source = tf.random.uniform([values.rows, SOURCE_LENGTH], 4, 8000, tf.int32)
    memory, memory_mask = transformer.encode(source)
    cache, cross = transformer.start_cache(memory, ROOM)

    @tf.function(autograph=False)
    def step(position: Any) -> Any:
        tokens = source[:, 0]
        return transformer.decode_step(tokens, position, cache, cross, memory_mask)

    milliseconds: dict[int, list[float]] = {position: [] for position in POSITIONS}
    for position in POSITIONS:
        step(tf.constant(position))  # what is made once is not counted
    for _ in range(values.turns):
        for position in POSITIONS:
            begun = time.perf_counter()
            step(tf.constant(position))[0].numpy()
            milliseconds[position].append(1e3 * (time.perf_counter() - begun))
    for position, times in milliseconds.items():
        line = {"task": "decode_step", "position": position, "rows": values.rows}
        print(json.dumps(line | {"ms": round(statistics.median(times), 2), "turns": len(times)}))


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
