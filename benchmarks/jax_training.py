"""Measure training speed with Keras' JAX backend, on a GPU or as a baseline on a CPU.

    python -m benchmarks.jax_training [--size=base] [--set data.batch_tokens=25000]
    python -m benchmarks.training --baseline='.venv-jax/bin/python -m benchmarks.jax_training'

Corpus and sizes are those of benchmarks.training. The speed excludes compilation; `compile_s` is
the time to compile all shapes of a batch, in parallel. peak_mb is the memory of a GPU.

Needs a separate environment with jax, keras, optax and the packages that prepare a corpus.
"""

import json
import os
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"  # before the first import of keras

import jax
from absl import flags

from benchmarks.jax_trainer import JaxTrainer, batches, epoch_shapes
from benchmarks.training import SHAPES, configure
from tfnmt.cli import define_data_dir, run_command
from tfnmt.data.batching.batches import Batch
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError
from tfnmt.progress import log

WARM_UP = 3
"""Steps before the first measured one."""

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_enum("size", "reference", list(SHAPES), "shape of the model", flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_integer("steps", 40, "measured steps", 1, flag_values=FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Compile every shape, then train and print the speed."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = configure(values.size, values.set)
    with tempfile.TemporaryDirectory() as cache:
        corpus = open_corpus(config.data, 1, data_folder(values.data_dir))
        plan = make_plan(config, prepare(config, corpus, Path(cache)))
        trainer = JaxTrainer([config], SHAPES[values.size][1])
        shapes = epoch_shapes(plan)
        start = time.perf_counter()
        trainer.compile(sorted(set(shapes)))
        compile_seconds = time.perf_counter() - start
        log(f"compiled {len(set(shapes))} shapes")
        steps = islice(batches([plan], shapes), WARM_UP + values.steps)
        timed = [_timed(trainer, batch) for batch in steps][WARM_UP:]
    tokens, seconds = zip(*timed, strict=True)
    device = jax.local_devices()[0]
    memory = device.memory_stats()
    line = {
        "system": f"tfnmt under Keras' JAX backend (JAX {jax.__version__})",
        "task": "train",
        "device": device.device_kind,
        "size": values.size,
        "precision": config.training.precision,
        "batch_tokens": config.data.batch_tokens,
        "target_tokens_per_s": round(sum(tokens) / sum(seconds)),
        "ms_per_step": round(1e3 * statistics.median(seconds), 1),
        "shapes": len(set(shapes)),
        "compile_s": round(compile_seconds, 1),
        "peak_mb": round(memory["peak_bytes_in_use"] / 1e6) if memory else None,
    }
    print(json.dumps(line), flush=True)


def _timed(trainer: JaxTrainer, batch: Batch) -> tuple[int, float]:
    """Train a step; return its target tokens without padding, and its seconds."""
    start = time.perf_counter()
    trainer.train(batch).block_until_ready()
    return int((batch.target_out != 0).sum()), time.perf_counter() - start


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
