"""Measure memory and time of training steps with standard and flash attention, by length.

    python -m benchmarks.attention [--length=64 --length=4096] [--set model.attention_dropout=0.1]

The model has the shapes of `benchmarks.training`. A batch has 8,192 padded tokens: two sentences of
4,096 tokens, one for each of two parallel streams, or 128 sentences of 64. Each case runs in its
own process, and standard and flash attention take turns.

Prints one JSON line per case. peak_mb is the peak of TensorFlow's memory for tensors during the
steps, and resident_mb the peak of the whole process. ms_per_step is the median over all steps after
the first one.
"""

import json
import resource
import statistics
import time
from multiprocessing import get_context
from typing import Any

import numpy as np
from absl import flags

from benchmarks.training import SHAPES, configure
from tfnmt.cli import run_command
from tfnmt.config import Config
from tfnmt.data.preparation.tokenizer import BOS, EOS
from tfnmt.errors import UsageError
from tfnmt.runtime.startup import configure_threads, import_tensorflow

KINDS = ("standard", "flash")

LENGTHS = (64, 256, 1024, 4096)

PADDED_TOKENS = 8192

FLAGS = flags.FlagValues()
flags.DEFINE_multi_integer("length", list(LENGTHS), "tokens per sentence", 1, flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_integer("steps", 3, "steps per turn", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 2, "measurements per case", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Measure every case in turn and print the results."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    for length in values.length:
        turns: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for _ in range(values.turns):
            for kind in KINDS:
                settings = [*values.set, f"model.attention={kind}", f"data.max_length={length}"]
                config = configure("reference", [*settings, f"data.batch_tokens={PADDED_TOKENS}"])
                with get_context("spawn").Pool(1) as pool:
                    turns[kind].append(pool.apply(measure, (config, length, values.steps)))
        for kind, results in turns.items():
            seconds = [each for result in results for each in result["seconds"]]
            line = {
                "task": "train_attention",
                "attention": kind,
                "tokens": length,
                "peak_mb": max(result["peak_mb"] for result in results),
                "resident_mb": max(result["resident_mb"] for result in results),
                "ms_per_step": round(1e3 * statistics.median(seconds), 1),
            }
            print(json.dumps(line), flush=True)


def measure(config: Config, length: int, steps: int) -> dict[str, Any]:
    """Return the peak memory of a case in MB, and the seconds of each step after the first."""
    configure_threads()
    import_tensorflow()
    import tensorflow as tf

    from tfnmt.training.trainer import make_trainer

    vocab_size = SHAPES["reference"][1]
    trainer = make_trainer(config, vocab_size, tf.distribute.get_strategy())
    trainer.make_train_function()
    shape = (PADDED_TOKENS // length, length)
    random = np.random.default_rng(1)
    source, target_in, target_out = random.integers(EOS, vocab_size, (3, *shape), np.int32)
    target_in[:, 0] = BOS
    ids = tf.TensorSpec((None, None), tf.int32)
    batches = iter(
        tf.data.Dataset.from_generator(
            lambda: iter([((source, target_in), target_out)]), output_signature=((ids, ids), ids)
        ).repeat()
    )
    seconds = []
    for _ in range(steps + 1):
        start = time.perf_counter()
        trainer.train_function(batches)["loss"].numpy()
        seconds.append(time.perf_counter() - start)
    peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    return {
        "peak_mb": round(peak / 1e6),
        "resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "seconds": seconds[1:],
    }


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
