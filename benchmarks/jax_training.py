"""Measure training speed with Keras' JAX backend, as a baseline for benchmarks.training.

    python -m benchmarks.training --baseline='.venv-jax/bin/python -m benchmarks.jax_training'

Layers, batches, dropout and loss are those of tfnmt. JAX computes the gradients, XLA compiles the
step, and the optimizer is Keras' Adam. XLA takes seconds to compile a shape. To have few shapes,
each batch is padded to the number of rows that its length allows. The speed excludes compilation;
`compile_s` is the total time of all compilations.

Needs a separate environment with jax, keras and the packages that prepare a corpus.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "jax"  # before the first import of keras

import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import flags

from benchmarks.training import configure
from tfnmt.cli import define_data_dir, run_command
from tfnmt.config import Config
from tfnmt.data.batching.batches import Batch, Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log

Weights = list[Tensor]

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_integer("steps", 40, "measured steps", flag_values=FLAGS)


class State(NamedTuple):
    """The variables that a step changes."""

    weights: Weights
    optimizer: Weights


def main(values: Any, positional: list[str]) -> None:
    """Compile every shape, then train and print the speed."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = configure("reference", [])
    with tempfile.TemporaryDirectory() as cache:
        corpus = open_corpus(config.data, 1, data_folder(values.data_dir))
        prepared = prepare(config, corpus, Path(cache))
        batches = Batches(make_plan(config, prepared))
        trainer = JaxTrainer(config, prepared.tokenizer.vocab_size)
        start = time.perf_counter()
        shapes = {batch.source.shape: batch for batch in _epoch(batches, config)}
        for number, batch in enumerate(shapes.values()):
            trainer.train(batch)
            log(f"compiled {number + 1} of {len(shapes)} shapes")
        compile_seconds = time.perf_counter() - start
        timed = [_timed(trainer, batch) for batch in islice(_epoch(batches, config), values.steps)]
    tokens, seconds = zip(*timed, strict=True)
    line = {
        "system": f"tfnmt under Keras' JAX backend (JAX {jax.__version__})",
        "task": "train",
        "target_tokens_per_s": round(sum(tokens) / sum(seconds)),
        "ms_per_step": round(1e3 * statistics.median(seconds), 1),
        "shapes": len(shapes),
        "compile_s": round(compile_seconds, 1),
    }
    print(json.dumps(line), flush=True)


def _timed(trainer: "JaxTrainer", batch: Batch) -> tuple[int, float]:
    """Train a step; return its target tokens without padding, and its seconds."""
    start = time.perf_counter()
    trainer.train(batch)
    return int((batch.target_out != 0).sum()), time.perf_counter() - start


def _epoch(batches: Batches, config: Config) -> Iterator[Batch]:
    """Yield the batches of an epoch, padded with empty rows to one shape per length."""
    for step in range(batches.plan.batches_per_epoch):
        (batch,) = batches.shards(step, replicas=1)
        rows, length = batch.source.shape
        missing = config.data.padded_tokens // length - rows
        yield Batch(*(np.pad(side, ((0, missing), (0, 0))) for side in batch))


class JaxTrainer:
    """Trains the model, with one compiled step per shape of a batch."""

    def __init__(self, config: Config, vocab_size: int) -> None:
        keras.utils.set_random_seed(config.training.seed)
        self.transformer = Transformer(config.model, vocab_size)
        self.smoothing = config.training.label_smoothing
        self.optimizer = keras.optimizers.Adam(1e-4, beta_2=config.training.adam_beta_2)
        self.optimizer.build(self.transformer.trainable_variables)
        self.state = State(
            [weight.value for weight in self.transformer.trainable_variables],
            [variable.value for variable in self.optimizer.variables],
        )
        self.steps = 0
        self._step = jax.jit(self._train_step, donate_argnums=0)

    def train(self, batch: Batch) -> float:
        """Train a step; return the mean loss before the update."""
        self.steps += 1
        self.state, loss = self._step(self.state, batch, jnp.array([1, self.steps], jnp.uint32))
        return float(loss)

    def _train_step(self, state: State, batch: Batch, seed: Tensor) -> tuple[State, Tensor]:
        loss, gradients = jax.value_and_grad(self._loss)(state.weights, batch, seed)
        weights, optimizer = self.optimizer.stateless_apply(
            state.optimizer, gradients, state.weights
        )
        return State(weights, optimizer), loss

    def _loss(self, weights: Weights, batch: Batch, seed: Tensor) -> Tensor:
        """Return the label-smoothed cross entropy per target token, as tfnmt/training/loss.py."""
        variables = zip(self.transformer.trainable_variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=list(variables)):
            memory, mask = self.transformer.encode(batch.source, seed)
            hidden = self.transformer.decode(batch.target_in, memory, mask, seed)
            logits = self.transformer.logits(hidden)  # [B, T, V]
        is_token = batch.target_out != 0
        label_logits = jnp.take_along_axis(logits, batch.target_out[..., None], axis=-1)[..., 0]
        loss = jax.nn.logsumexp(logits, axis=-1) - label_logits
        loss += self.smoothing * (label_logits - logits.mean(axis=-1))
        return jnp.sum(is_token * loss) / jnp.sum(is_token)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
