"""Measure a decoder step early and late in a sentence.

    python -m benchmarks.decode_step [--rows=16] [--turns=50]

The model has random weights, 4+4 layers, d_model 128, 4 heads, d_ff 256 and 8,000 tokens. The beam
is 4. Steps of both positions alternate. Prints one JSON line per position, with the median time.

The rest of a search step is not included: computing the logits and selecting among them takes the
same time at every position.
"""

import json
import statistics
import time
from typing import Any

from absl import flags

from tfnmt.cli import run_command
from tfnmt.config import ModelConfig
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import configure_for_single_sentences, import_tensorflow

POSITIONS = (10, 100)
SOURCE_LENGTH = 16
BEAM_SIZE = 4

FLAGS = flags.FlagValues()
flags.DEFINE_integer("rows", 16, "sentences in a batch", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 50, "measured steps per position", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Time the steps and print the medians."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    configure_for_single_sentences()
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.model.transformer import Transformer

    transformer = Transformer(ModelConfig(d_model=128, d_ff=256), 8000)
    source = tf.random.uniform([values.rows, SOURCE_LENGTH], 4, 8000, tf.int32)
    cache, context = transformer.start_decoding(source, BEAM_SIZE)
    tokens, parents = source[:, :BEAM_SIZE], tf.zeros([values.rows, BEAM_SIZE], tf.int32)

    @tf.function(autograph=False, reduce_retracing=True)
    def step(position: Any, cache: Any) -> Any:
        return transformer.decode_step(tokens, parents, position, cache, context)

    caches = {}
    for position in range(max(POSITIONS) + 1):
        if position in POSITIONS:
            caches[position] = cache
        _, cache = step(tf.constant(position), cache)
    milliseconds: dict[int, list[float]] = {position: [] for position in POSITIONS}
    for _ in range(values.turns):
        for position in POSITIONS:
            start = time.perf_counter()
            step(tf.constant(position), caches[position])[0].numpy()
            milliseconds[position].append(1e3 * (time.perf_counter() - start))
    for position, times in milliseconds.items():
        line = {"task": "decode_step", "position": position, "rows": values.rows}
        print(json.dumps(line | {"ms": round(statistics.median(times), 2), "turns": len(times)}))


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
