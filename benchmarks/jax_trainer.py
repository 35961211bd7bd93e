"""Training steps of several runs at once, with Keras' JAX backend.

Layers, batches, dropout and loss are those of tfnmt. JAX computes the gradients, and XLA compiles
the step of all runs together. The runs have the same shape, and may differ in seed,
dropout, learning rate, label smoothing and SimCut. One
small model alone would leave most of a GPU idle.

Letters: R runs, B batch, S source length, T target length, D d_model, V vocabulary size.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "jax"  # before the first import of keras

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax

from tfnmt.config import Config, flatten
from tfnmt.data.batching.batches import Batch, gather
from tfnmt.data.batching.plan import Plan
from tfnmt.errors import UsageError
from tfnmt.model.layers import Dropout, Tensor
from tfnmt.model.transformer import Transformer

VARIED_KEYS = (
    "training.seed",
    "training.learning_rate_scale",
    "training.label_smoothing",
    "training.simcut",
    "training.simcut_share",
    "model.dropout",
)
"""The keys in which the runs may differ."""

FIXED_KEYS: dict[str, Any] = {
    "training.clip_norm": None,
    "training.ema_decay": None,
    "training.r_drop": None,
    "training.init_from": None,
    "training.freeze": [],
    "model.attention_dropout": 0,
    "model.ffn_dropout": 0,
    "data.bpe_dropout": 0,
    "data.direction_temperature": 1,
}
"""The keys that must have these values."""

Shape = tuple[int, int]


class Varied(NamedTuple):
    """The settings of a run that may differ from other runs; [R] for all runs."""

    dropout: Tensor
    learning_rate_scale: Tensor
    label_smoothing: Tensor
    simcut: Tensor
    simcut_share: Tensor


class State(NamedTuple):
    """The variables that a step changes, with an axis R."""

    weights: list[Tensor]
    optimizer: Any


class TracedDropoutRate:
    """A dropout rate that XLA gets as an argument; it is above 0."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __mul__(self, other: float) -> Tensor:
        return self.value * other

    def __rsub__(self, other: float) -> Tensor:
        return other - self.value


class JaxTrainer:
    """Trains R runs, with one compiled step per shape of a batch."""

    def __init__(self, configs: Sequence[Config], vocab_size: int) -> None:
        """Create the models and their optimizers.

        Args:
            configs: The configuration of each run.
            vocab_size: V.

        Raises:
            UsageError: The configurations differ in a key that is not in VARIED_KEYS, or set one
                that this trainer does not support.
        """
        _check(configs)
        self.config = configs[0]
        training = self.config.training
        keras.config.set_dtype_policy(training.precision)
        self.transformer = Transformer(self.config.model, vocab_size)
        self.dropouts = [
            layer
            for layer in self.transformer._flatten_layers()
            if isinstance(layer, Dropout) and layer.rate
        ]
        self.cutoffs = [Dropout(0.0, name=f"{side}_cutoff") for side in ("source", "target")]
        for layer in self.cutoffs:
            layer.build(None)
        self.varied = Varied(
            *(
                jnp.array([flatten(config)[key] or 0.0 for config in configs], jnp.float32)
                for key in ("model.dropout", *(f"training.{name}" for name in Varied._fields[1:]))
            )
        )
        self.seeds = jnp.array([config.training.seed for config in configs], jnp.uint32)
        self.adam = optax.scale_by_adam(
            training.adam_beta_1, training.adam_beta_2, training.adam_epsilon
        )
        weights = [_random_weights(config, vocab_size) for config in configs]
        stacked = [jnp.stack(each) for each in zip(*weights, strict=True)]
        self.state = State(stacked, jax.vmap(self.adam.init)(stacked))
        self.steps = 0
        step = jax.vmap(self._train_step, in_axes=(0, 0, 0, 0, None))
        self._step = jax.jit(step, donate_argnums=0)
        self._compiled: dict[Shape, Any] = {}

    def compile(self, shapes: Iterable[Shape]) -> None:
        """Compile the step of each shape (B, T), in parallel."""
        lowered = {
            shape: self._step.lower(
                self.state, self._example(shape), self.varied, self.seeds, jnp.uint32(1)
            )
            for shape in shapes
        }
        with ThreadPoolExecutor() as pool:
            compiled = pool.map(lambda each: each.compile(), lowered.values())
            self._compiled = dict(zip(lowered, compiled, strict=True))

    def train(self, batch: Batch) -> Tensor:
        """Train a step on a batch [R, B, T]; return the mean losses before the update, [R]."""
        self.steps += 1
        step = self._compiled[batch.source.shape[1:]]
        self.state, losses = step(
            self.state, batch, self.varied, self.seeds, jnp.uint32(self.steps)
        )
        return losses

    def _example(self, shape: Shape) -> Batch:
        ids = np.zeros((len(self.seeds), *shape), np.int32)
        return Batch(ids, ids, ids)

    def _train_step(
        self, state: State, batch: Batch, varied: Varied, seed: Tensor, step: Tensor
    ) -> tuple[State, Tensor]:
        """Make the step of one run."""
        dropout_seed = jnp.stack([seed, step])
        loss, gradients = jax.value_and_grad(self._loss)(state.weights, batch, varied, dropout_seed)
        updates, optimizer = self.adam.update(gradients, state.optimizer)
        step = step.astype(jnp.float32)
        warmup = self.config.training.warmup_steps
        learning_rate = varied.learning_rate_scale * self.config.model.d_model**-0.5
        learning_rate *= jnp.minimum(step**-0.5, step * warmup**-1.5)
        weights = [
            weight - learning_rate * update
            for weight, update in zip(state.weights, updates, strict=True)
        ]
        return State(weights, optimizer), loss

    def _loss(self, weights: list[Tensor], batch: Batch, varied: Varied, seed: Tensor) -> Tensor:
        """Return the loss per target token, as tfnmt/training/loss.py."""
        for layer in self.dropouts:
            layer.rate = TracedDropoutRate(varied.dropout)  # type: ignore[assignment]
        for layer in self.cutoffs:
            layer.rate = TracedDropoutRate(varied.simcut_share)  # type: ignore[assignment]
        has_simcut = self.config.training.simcut is not None
        source, target_in, target_out = batch
        with scope_of(self.transformer, weights):
            kept = [None, None]
            if has_simcut:
                kept = [
                    self._kept(layer, ids, seed)
                    for layer, ids in zip(self.cutoffs, (source, target_in), strict=True)
                ]
                source, target_in = (jnp.tile(ids, (2, 1)) for ids in (source, target_in))
            memory, mask = self.transformer.encode(source, seed, kept[0])
            hidden = self.transformer.decode(target_in, memory, mask, seed, kept[1])
            table = jnp.asarray(self.transformer.output_embedding.table)
        logits = hidden.astype(jnp.float32) @ table.T  # [B, T, V]; [2B, T, V] with SimCut
        log_probs = jax.nn.log_softmax(logits)
        intact, rows = log_probs[: len(target_out)], logits[: len(target_out)]
        labels = target_out[..., None]
        reference = jnp.take_along_axis(rows, labels, axis=-1)[..., 0]
        loss = -jnp.take_along_axis(intact, labels, axis=-1)[..., 0]  # [B, T]
        loss += varied.label_smoothing * (reference - rows.mean(axis=-1))
        if has_simcut:
            cut = log_probs[len(target_out) :]
            loss += varied.simcut * jnp.sum(jnp.exp(intact) * (intact - cut), axis=-1)
        is_token = target_out != 0
        return jnp.sum(is_token * loss) / jnp.sum(is_token)

    def _kept(self, cutoff: Dropout, ids: Tensor, seed: Tensor) -> Tensor:
        """Return 0 at the tokens that SimCut cuts off, all in the second pass, [2B, T]."""
        kept = cutoff.kept(ids.shape, self.transformer.compute_dtype, seed)
        return jnp.concatenate([jnp.ones_like(kept), kept])

    def load_weights(self, weights: list[Tensor], run: int) -> Transformer:
        """Set the weights of the Transformer to those of a run, and return it."""
        for variable, values in zip(self.transformer.trainable_variables, weights, strict=True):
            variable.assign(values[run])
        return self.transformer


def scope_of(transformer: Transformer, weights: list[Tensor]) -> keras.StatelessScope:
    """Return a context in which a Transformer has other weights."""
    return keras.StatelessScope(list(zip(transformer.trainable_variables, weights, strict=True)))


def epoch_shapes(plan: Plan) -> list[Shape]:
    """Return the shape (B, T) of each batch of the first epoch, in its order.

    Lengths are rounded up, and batches of one length have one number of rows, so that XLA compiles
    few shapes.
    """
    shapes = [
        (len(planned.pairs.rows), _round_up(planned.length, 4 if planned.length <= 32 else 16))
        for planned in map(plan.batch, _steps(plan, 0))
    ]
    rows: dict[int, int] = {}
    for number, length in shapes:
        rows[length] = max(rows.get(length, 0), number)
    return [(rows[length], length) for _, length in shapes]


def batches(plans: Sequence[Plan], shapes: Sequence[Shape]) -> Iterator[Batch]:
    """Yield the batches of all runs [R, B, T], endlessly, padded to their shapes.

    The batches of a step have the same lengths in all runs, in the order of the first plan.
    """
    shape_of = dict(zip(_lengths(plans[0], 0), shapes, strict=True))
    epoch = 0
    while True:
        order = _lengths(plans[0], epoch)
        pools = [_by_length(plan, epoch) for plan in plans]
        for length in order:
            padded = [_pad(pool[length].pop(), shape_of[length]) for pool in pools]
            yield Batch(*(np.stack(each) for each in zip(*padded, strict=True)))
        epoch += 1


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _steps(plan: Plan, epoch: int) -> range:
    return range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch)


def _lengths(plan: Plan, epoch: int) -> list[int]:
    return [plan.batch(step).length for step in _steps(plan, epoch)]


def _by_length(plan: Plan, epoch: int) -> dict[int, list[Any]]:
    pool: dict[int, list[Any]] = {}
    for planned in map(plan.batch, _steps(plan, epoch)):
        pool.setdefault(planned.length, []).append(planned)
    return pool


def _pad(planned: Any, shape: Shape) -> Batch:
    """Gather a batch, padded with 0 to a shape."""
    batch = gather(planned.pairs, planned.length)
    missing = [(0, after - before) for before, after in zip(batch.source.shape, shape, strict=True)]
    return Batch(*(np.pad(side, missing) for side in batch))


def _random_weights(config: Config, vocab_size: int) -> list[Tensor]:
    keras.utils.set_random_seed(config.training.seed)
    transformer = Transformer(config.model, vocab_size)
    return [variable.value for variable in transformer.trainable_variables]


def _check(configs: Sequence[Config]) -> None:
    trees = [flatten(config) for config in configs]
    first = trees[0]
    problems = [
        f"{key}: {tree[key]} in run {number}, and {first[key]} in run 1; use one value"
        for number, tree in enumerate(trees[1:], start=2)
        for key in first
        if tree[key] != first[key] and key not in VARIED_KEYS
    ]
    problems += [
        f"{key}={first[key]}: not supported here; use {json.dumps(value)}"
        for key, value in FIXED_KEYS.items()
        if first[key] != value
    ]
    problems += [
        f"{key}: set it in all runs or in none"
        for key in ("training.simcut", "model.dropout")
        if len({bool(tree[key]) for tree in trees}) > 1
    ]
    if problems:
        raise UsageError(*problems)
