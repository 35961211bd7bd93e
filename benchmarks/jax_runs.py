"""Train several runs at once with Keras' JAX backend, on one GPU.

    python -m benchmarks.jax_runs --dataset=multi30k --output=runs --minutes=10
        --run="training.seed=1" --run="training.seed=2 model.dropout=0.2"

The runs have the settings of the preset, those of --set, and their own. They may differ in seed,
dropout, learning rate, label smoothing and SimCut. Training ends with `training.max_tokens`, which
each run counts, or after --minutes. At each validation, it prints a JSON line with the BLEU
of greedy search, and writes a run folder of each run for tfnmt.evaluate and tfnmt.translate. Both
use the average of the last checkpoints. The run folders cannot be resumed.

Needs an environment with jax and optax, and the packages that prepare a corpus.
"""

import json
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "jax"  # before the first import of keras

import jax
import jax.numpy as jnp
import numpy as np
import sacrebleu
from absl import flags

from benchmarks.jax_trainer import JaxTrainer, batches, epoch_shapes, scope_of
from tfnmt.cli import run_command
from tfnmt.config import Config, TrainingConfig, build_config, merge, parse_overrides
from tfnmt.data.batching.batches import Batch
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import split_name
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.tokenizer import BOS, EOS, Tokenizer
from tfnmt.errors import UsageError
from tfnmt.experiment import define_experiment, read_data, resolve_config
from tfnmt.model.layers import Tensor
from tfnmt.model.transformer import Transformer
from tfnmt.progress import log
from tfnmt.runs.checkpoints import WEIGHTS
from tfnmt.runs.run import Run

EXTRA_LENGTH = 10
"""Tokens by which a translation of the validation may be longer than the longest source."""

FLAGS = flags.FlagValues()
define_experiment(FLAGS)
flags.DEFINE_multi_string("run", [], "the own settings of a run: key=value ...", flag_values=FLAGS)
flags.DEFINE_string("output", None, "folder of the run folders", flag_values=FLAGS, required=True)


class Checkpoint(NamedTuple):
    """The state of all runs after a checkpoint."""

    weights: list[Tensor]  # the average of the last checkpoints, each with an axis R
    losses: list[float]  # of the last step
    tokens: int  # target tokens of a run
    minutes: float
    is_last: bool


def main(values: Any, positional: list[str]) -> None:
    """Prepare the corpus, compile, and train."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    config = resolve_config(values).of_run()
    configs = [_with(config, settings.split()) for settings in values.run or [""]]
    training = configs[0].training
    if training.max_tokens is None and training.max_minutes is None:
        raise UsageError("the end is missing: set training.max_tokens or --minutes")
    corpus, prepared = read_data(values, config)
    plans = [make_plan(each, prepared) for each in configs]
    trainer = JaxTrainer(configs, prepared.tokenizer.vocab_size)
    runs = [Run(Path(values.output) / str(number + 1)) for number in range(len(configs))]
    for run, each in zip(runs, configs, strict=True):
        if run.exists():
            raise UsageError(f"{run.path}: exists; choose another --output")
        run.create(each, prepared.tokenizer.model, prepared.identity, corpus.held_out)
    pairs = [*corpus.pairs(split_name(config.data, corpus, "val"))]
    validation = Validation(trainer.transformer, prepared.tokenizer, pairs)
    shapes = epoch_shapes(plans[0])
    start = time.perf_counter()
    trainer.compile(sorted(set(shapes)))
    log(f"compiled {len(set(shapes))} shapes in {time.perf_counter() - start:.0f} s")
    for checkpoint in train(trainer, batches(plans, shapes), training):
        if checkpoint.is_last or trainer.steps % training.validation_steps == 0:
            bleu = validation.bleu(checkpoint.weights)
            line = {"step": trainer.steps, **checkpoint._asdict(), "bleu": bleu}
            del line["weights"], line["is_last"]
            print(json.dumps(line), flush=True)
            for number, run in enumerate(runs):
                transformer = trainer.load_weights(checkpoint.weights, number)
                run.averaged.write(trainer.steps, partial(_save, transformer))


def train(
    trainer: JaxTrainer, stream: Iterator[Batch], training: TrainingConfig
) -> Iterator[Checkpoint]:
    """Train to the end; yields at every `checkpoint_steps`."""
    last: deque[list[Tensor]] = deque(maxlen=training.average_last)
    tokens, start = 0, time.perf_counter()
    max_tokens, max_minutes = training.max_tokens or math.inf, training.max_minutes or math.inf
    for batch in stream:
        losses = trainer.train(batch)
        tokens += int((batch.target_out != 0).sum())
        if trainer.steps % training.checkpoint_steps == 0:
            losses.block_until_ready()  # JAX computes in the background
            last.append([jnp.copy(weight) for weight in trainer.state.weights])
            average = [sum(each) / len(last) for each in zip(*last, strict=True)]
            minutes = (time.perf_counter() - start) / 60
            tokens_of_run = tokens // len(losses)
            is_last = minutes >= max_minutes or tokens_of_run >= max_tokens
            rounded = [round(float(loss), 3) for loss in losses]
            yield Checkpoint(average, rounded, tokens_of_run, round(minutes, 2), is_last)
            if is_last:
                return


class Validation:
    """Translates the validation set with greedy search, with all runs at once."""

    def __init__(self, transformer: Transformer, tokenizer: Tokenizer, pairs: list[Pair]) -> None:
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.references = [target for _, target in pairs]
        ids = tokenizer.encode([source for source, _ in pairs])
        longest = max(map(len, ids)) + 1
        self.source = np.zeros((len(ids), longest), np.int32)
        for row, sentence in zip(self.source, ids, strict=True):
            row[: len(sentence) + 1] = [*sentence, EOS]
        self._greedy = jax.jit(jax.vmap(self._translate))

    def bleu(self, weights: list[Tensor]) -> list[float]:
        """Return the BLEU of each run."""
        return [
            round(sacrebleu.corpus_bleu(self._decode(ids), [self.references]).score, 2)
            for ids in np.asarray(self._greedy(weights))
        ]

    def _decode(self, translations: np.ndarray) -> list[str]:
        """Decode ids [N, T] up to the first EOS."""
        rows = [row.tolist() for row in translations]
        return self.tokenizer.decode([row[: row.index(EOS)] if EOS in row else row for row in rows])

    def _translate(self, weights: list[Tensor]) -> Tensor:
        """Return the translations of one run, [N, T]."""
        rows, longest = self.source.shape
        length = longest + EXTRA_LENGTH

        def step(position: Tensor, target_in: Tensor) -> Tensor:
            with scope_of(self.transformer, weights):
                hidden = self.transformer.decode(target_in, memory, mask)
                logits = self.transformer.logits(hidden[:, position])  # [N, V]
            return target_in.at[:, position + 1].set(jnp.argmax(logits, axis=-1))

        with scope_of(self.transformer, weights):
            memory, mask = self.transformer.encode(self.source)
        start = jnp.zeros((rows, length + 1), jnp.int32).at[:, 0].set(BOS)
        return jax.lax.fori_loop(0, length, step, start)[:, 1:]


def _save(transformer: Transformer, folder: Path) -> None:
    transformer.save_weights(folder / WEIGHTS)


def _with(config: Config, settings: list[str]) -> Config:
    return build_config(merge(config.model_dump(), parse_overrides(settings, "--run")))


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
