"""How fast the same layers are trained under Keras' JAX backend: a peer of benchmarks.training.

    python -m benchmarks.training --peer='.venv-jax/bin/python -m benchmarks.jax_training'

The layers, batches, dropout and loss are those of tfnmt; JAX takes their gradients, XLA compiles
them, and Adam is Keras' own. XLA compiles a shape in seconds, so the shapes are made few: a batch
is filled up to the rows that its length allows. No compilation is in the rate; `compile_s` tells
what all of them took. Needs jax in an environment of its own, beside keras and the packages that
prepare a corpus.
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

from tfnmt.model.layers import Tensor

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import flags

from benchmarks.training import configure
from tfnmt.cli import define_data_dir, run
from tfnmt.config import Config
from tfnmt.data.batching.batches import Batch, Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError
from tfnmt.model.transformer import Transformer
from tfnmt.progress import say

Weights = list[Tensor]

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_integer("steps", 40, "updates that are timed", flag_values=FLAGS)


class State(NamedTuple):
    """What a step changes."""

    weights: Weights
    optimizer: Weights


def main(values: Any, positional: list[str]) -> None:
    """Compiles every shape, trains, prints."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = configure("reference", [])
    with tempfile.TemporaryDirectory() as cache:
        corpus = open_corpus(config.data, 1, data_folder(values.data_dir))
        prepared = prepare(config, corpus, Path(cache))
        batches = Batches(make_plan(config, prepared))
        trainer = JaxTrainer(config, prepared.tokenizer.vocab_size)
        begun = time.perf_counter()
        shapes = {batch.source.shape: batch for batch in _epoch(batches, config)}
        for number, batch in enumerate(shapes.values()):
            trainer.train(batch)
            say(f"compiled {number + 1} of {len(shapes)} shapes")
        compiled = time.perf_counter() - begun
        rates = [_rate(trainer, batch) for batch in islice(_epoch(batches, config), values.steps)]
    tokens, seconds = zip(*rates, strict=True)
    line = {
        "system": f"tfnmt under Keras' JAX backend (JAX {jax.__version__})",
        "task": "train",
        "target_tokens_per_s": round(sum(tokens) / sum(seconds)),
        "ms_per_step": round(1e3 * statistics.median(seconds), 1),
        "shapes": len(shapes),
        "compile_s": round(compiled, 1),
    }
    print(json.dumps(line), flush=True)


def _rate(trainer: "JaxTrainer", batch: Batch) -> tuple[int, float]:
    """Real target tokens, and the seconds of an update."""
    begun = time.perf_counter()
    trainer.train(batch)
    return int((batch.target_out != 0).sum()), time.perf_counter() - begun


def _epoch(batches: Batches, config: Config) -> Iterator[Batch]:
    """An epoch's batches, filled up with rows of padding: one shape a length."""
    for step in range(batches.plan.batches_per_epoch):
        (batch,) = batches.shards(step, replicas=1)
        rows, length = batch.source.shape
        missing = config.data.slots // length - rows
        yield Batch(*(np.pad(side, ((0, missing), (0, 0))) for side in batch))


class JaxTrainer:
    """One update of the weights, compiled once a shape."""

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
        self._update = jax.jit(self._make_update, donate_argnums=0)

    def train(self, batch: Batch) -> float:
        """An update; the mean loss before it."""
        self.steps += 1
        self.state, loss = self._update(self.state, batch, jnp.array([1, self.steps], jnp.uint32))
        return float(loss)

    def _make_update(self, state: State, batch: Batch, seed: Tensor) -> tuple[State, Tensor]:
        loss, gradients = jax.value_and_grad(self._loss)(state.weights, batch, seed)
        weights, optimizer = self.optimizer.stateless_apply(
            state.optimizer, gradients, state.weights
        )
        return State(weights, optimizer), loss

    def _loss(self, weights: Weights, batch: Batch, seed: Tensor) -> Tensor:
        """The mean label-smoothed cross entropy over real tokens, as in tfnmt/training/loss.py."""
        variables = zip(self.transformer.trainable_variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=list(variables)):
            memory, mask = self.transformer.encode(batch.source, seed)
            hidden = self.transformer.decode(batch.target_in, memory, mask, seed)
            logits = self.transformer.logits(hidden)  # [B, T, V]
        real = batch.target_out != 0
        right = jnp.take_along_axis(logits, batch.target_out[..., None], axis=-1)[..., 0]
        loss = jax.nn.logsumexp(logits, axis=-1) - right
        loss += self.smoothing * (right - logits.mean(axis=-1))
        return jnp.sum(real * loss) / jnp.sum(real)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
