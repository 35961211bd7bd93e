"""Measure training speed, compared with baselines and with the matmul speed of the CPU.

    python -m benchmarks.training [--baseline='COMMAND'] [--size=base] [--breakdown]
        [--set training.precision=mixed_bfloat16]

Trains on Multi30k like the train command: the plan of batches, the tf.data pipeline and `fit`,
without validation and checkpoints. The model has 4+4 layers, d_model 128, 4 heads, d_ff 256, 8,000
tokens and dropout 0.3, with batches of 4,096 padded tokens. --size=base and --size=big use the
paper's models and a vocabulary of 37,000. --size=tiny is for trying the command. A baseline is any
command that prints a JSON line with "system" and "target_tokens_per_s". All systems take turns.

Prints one JSON line per system: medians over the turns, in target tokens per second without
padding. speedup_of_tfnmt is the speed of tfnmt divided by the speed of the system. peak_mb is the
memory of tensors, on the first GPU if there is one.

The line of tfnmt also has share_of_reference_matmul: the rate of the step's matrix products,
divided by the rate of a reference product. The reference is a float32 product of 4096x512x2048 in
each parallel stream, measured in the same turns. --breakdown prints the time of each part of a
step.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from benchmarks.baseline_command import run_baseline
from tfnmt.cli import define_data_dir, run_command
from tfnmt.config import Config, ModelConfig, build_config, merge, parse_overrides
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError
from tfnmt.progress import log
from tfnmt.runtime.startup import PARALLEL_STREAMS, configure_threads, import_tensorflow

if TYPE_CHECKING:
    from tfnmt.model.layers import Tensor

RATE = "target_tokens_per_s"

SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "tiny": (
        {
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "d_model": 16,
            "num_heads": 2,
            "d_ff": 32,
            "dropout": 0.1,
        },
        8000,
    ),
    "reference": (
        {
            "num_encoder_layers": 4,
            "num_decoder_layers": 4,
            "d_model": 128,
            "num_heads": 4,
            "d_ff": 256,
            "dropout": 0.3,
        },
        8000,
    ),
    "base": (
        {
            "num_encoder_layers": 6,
            "num_decoder_layers": 6,
            "d_model": 512,
            "num_heads": 8,
            "d_ff": 2048,
            "dropout": 0.1,
        },
        37_000,
    ),
    "big": (
        {
            "num_encoder_layers": 6,
            "num_decoder_layers": 6,
            "d_model": 1024,
            "num_heads": 16,
            "d_ff": 4096,
            "dropout": 0.3,
        },
        37_000,
    ),
}
"""Shape of the model, and rows of its embedding table. The tokenizer always has 8,000 tokens."""

REFERENCE_MATMUL = (4096, 512, 2048)
"""Rows, inner dimension and columns of the reference product."""

BACKWARD = 2
"""Cost of the gradients of a product by both factors, relative to the product itself."""

WARM_UP = {"tiny": 2, "reference": 60, "base": 2, "big": 2}
"""Steps before the first turn. oneDNN creates kernels at the first batch of each shape."""

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_multi_string("baseline", [], "command that measures another system", flag_values=FLAGS)
flags.DEFINE_enum("size", "reference", list(SHAPES), "shape of the model", flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "configuration key and value, as in tfnmt.train", flag_values=FLAGS
)
flags.DEFINE_integer("steps", 40, "steps per turn", 1, flag_values=FLAGS)
flags.DEFINE_integer(
    "warm_up", None, "steps before the first turn (default: by size)", 1, flag_values=FLAGS
)
flags.DEFINE_integer("turns", 3, "measurements per system", 1, flag_values=FLAGS)
flags.DEFINE_bool("breakdown", False, "print the time of each part of a step", flag_values=FLAGS)


class Product(NamedTuple):
    """`times` matrix products [rows, inner] x [inner, columns] of a step's forward pass."""

    part: str
    times: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Number of floating-point operations in the forward pass."""
        return 2 * self.times * self.rows * self.inner * self.columns


class TurnResult(NamedTuple):
    """Result of a turn of tfnmt."""

    tokens_per_s: float  # target tokens, without padding
    seconds: float  # mean time of a step
    gflops: float  # mean floating-point operations of a step's matrix products, in billions
    losses: list[float]  # of all steps, also of the one that is not counted


def main(values: Any, positional: list[str]) -> None:
    """Measure all systems in turn and print the results."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as cache:
        config, vocab_size = configure(values.size, values.set), SHAPES[values.size][1]
        tfnmt = TfnmtTraining(config, vocab_size, values, Path(cache))
        turns: list[TurnResult] = []
        reference: list[float] = []
        baselines: dict[str, list[float]] = {}
        tfnmt.train(values.warm_up or WARM_UP[values.size])
        for turn in range(1, values.turns + 1):
            turns.append(tfnmt.train(values.steps))
            reference.append(1e-9 * _reference_rate())
            log(f"turn {turn}: tfnmt {turns[-1].tokens_per_s:,.0f} target tokens/s")
            for command in values.baseline:
                line = run_baseline(command, RATE)[-1]
                baselines.setdefault(line["system"], []).append(float(line[RATE]))
                log(f"turn {turn}: {line['system']} {line[RATE]:,.0f} target tokens/s")
        _print(values, tfnmt, turns, reference, baselines)
        if values.breakdown:
            tfnmt.print_breakdown()


def configure(size: str, settings: list[str]) -> Config:
    """Return the configuration of a size, with `--set` changes."""
    tree = {
        "data": {"corpus": "multi30k", "max_length": 64, "batch_tokens": 4096},
        "tokenizer": {"vocab_size": 8000},
        "model": SHAPES[size][0],
        "training": {"warmup_steps": 2000},
    }
    return build_config(merge(tree, parse_overrides(settings)))


def _print(
    values: Any,
    tfnmt: "TfnmtTraining",
    turns: list[TurnResult],
    reference: list[float],
    baselines: dict[str, list[float]],
) -> None:
    rate = statistics.median(turn.tokens_per_s for turn in turns)
    matmuls = statistics.median(turn.gflops / turn.seconds for turn in turns)
    line = {
        "system": "tfnmt",
        "task": "train",
        "target_tokens_per_s": round(rate),
        "size": values.size,
        "devices": tfnmt.devices,
        "precision": tfnmt.config.training.precision,
        "ms_per_step": round(1e3 * statistics.median(turn.seconds for turn in turns), 1),
        "matmul_gflops_per_s": round(matmuls, 1),
        "reference_matmul_gflops_per_s": round(statistics.median(reference), 1),
        "share_of_reference_matmul": round(matmuls / statistics.median(reference), 3),
        "peak_mb": tfnmt.peak_mb(),
        "steps": values.steps,
        "turns": values.turns,
    }
    print(json.dumps(line), flush=True)
    for system, rates in baselines.items():
        median = statistics.median(rates)
        line = {"system": system, "task": "train", "target_tokens_per_s": round(median)}
        print(json.dumps(line | {"speedup_of_tfnmt": round(rate / median, 2)}), flush=True)


class TfnmtTraining:
    """A training run that continues from turn to turn."""

    def __init__(self, config: Config, vocab_size: int, values: Any, cache: Path) -> None:
        self.config = config
        self.vocab_size = vocab_size
        corpus = open_corpus(config.data, 1, data_folder(values.data_dir))
        prepared = prepare(config, corpus, cache)
        self.batches = Batches(make_plan(config, prepared))
        configure_threads()
        import_tensorflow()
        from tfnmt.training.distribution import make_strategy
        from tfnmt.training.trainer import make_trainer

        self.strategy = make_strategy()
        self.trainer = make_trainer(config, vocab_size, self.strategy)
        self.step = 0

    def train(self, steps: int) -> TurnResult:
        """Train with `fit`. One more step comes first and is not counted, because it may trace."""
        from tfnmt.training.distribution import distribute_batches

        clock = _clock()
        self.trainer.fit(
            distribute_batches(self.strategy, self.batches, self.step),
            steps_per_epoch=steps + 1,
            shuffle=False,
            verbose=0,
            callbacks=[clock],
        )
        counted = range(self.step + 1, self.step + 1 + steps)
        self.step = counted.stop
        gflops = [
            1e-9 * (1 + BACKWARD) * sum(product.flops for product in self.products(step))
            for step in counted
        ]
        seconds = clock.times[-1] - clock.times[0]
        tokens = sum(clock.tokens[1:])
        return TurnResult(tokens / seconds, seconds / steps, statistics.mean(gflops), clock.losses)

    @property
    def devices(self) -> str:
        """Number and kind of the devices, such as `2 GPU`."""
        from tfnmt.training.distribution import device_kind

        return f"{self.strategy.num_replicas_in_sync} {device_kind()}"

    def peak_mb(self) -> int:
        """Return the peak memory of tensors on the first device, in MB."""
        import tensorflow as tf

        from tfnmt.training.batch_size import training_device

        return round(tf.config.experimental.get_memory_info(training_device())["peak"] / 1e6)

    def products(self, step: int) -> list[Product]:
        """Return the matrix products of a step's forward pass.

        The layers compute padding, so it counts. The output projection leaves padding out.
        """
        (batch,) = self.batches.shards(step, replicas=1)
        rows, length = batch.source.shape
        padded_tokens, tokens = batch.source.size, int((batch.target_out != 0).sum())
        return [
            *_layer_products(self.config.model, rows, length, padded_tokens),
            Product("output", 1, tokens, self.config.model.d_model, self.vocab_size),
        ]

    def print_breakdown(self) -> None:
        """Print the time of each part of a step, measured alone.

        The step is the one of median length among nine.
        """
        steps = sorted(range(9), key=lambda step: self.batches.plan.batch(step).length)
        step = steps[4]
        (batch,) = self.batches.shards(step, replicas=1)
        parts = StepParts(self.trainer, batch)
        products = self.products(step)
        flops = (1 + BACKWARD) * sum(product.flops for product in products)
        matmuls_at_reference_rate = flops / _reference_rate()
        matmuls = {
            part: _matmul_seconds(products, part) for part in ("layers", "attention", "output")
        }
        layers, layers_with_dropout = parts.layers(None), parts.layers(parts.seed)
        times = {
            "matmuls, at the reference rate": matmuls_at_reference_rate,
            "matmuls, extra time for their shapes": (
                sum(matmuls.values()) - matmuls_at_reference_rate
            ),
            "dropout": layers_with_dropout - layers,
            "layers without matmuls and dropout": (
                layers - matmuls["layers"] - matmuls["attention"]
            ),
            "softmax and loss": parts.output() - matmuls["output"],
            "optimizer": parts.optimizer(),
        }
        whole = parts.whole()
        times["rest of the step"] = whole - sum(times.values())
        for part, seconds in {**times, "whole step": whole}.items():
            share = round(seconds / whole, 3)
            line = {"task": "train_breakdown", "part": part, "ms": round(1e3 * seconds, 1)}
            print(json.dumps(line | {"share": share}), flush=True)


def _layer_products(
    model: ModelConfig, rows: int, length: int, padded_tokens: int
) -> list[Product]:
    """Return the products of encoder and decoder: projections, and attention of each head."""
    width, heads = model.d_model, model.num_heads
    layers = model.num_encoder_layers + model.num_decoder_layers
    attentions = layers + model.num_decoder_layers
    columns = 2 * model.num_decoder_layers * width
    return [
        Product("layers", layers, padded_tokens, width, 3 * width),  # queries, keys, values
        Product("layers", attentions, padded_tokens, width, width),  # outputs
        Product("layers", model.num_decoder_layers, padded_tokens, width, width),  # cross queries
        Product("layers", 1, padded_tokens, width, columns),  # cross keys and values of all layers
        Product("layers", layers, padded_tokens, width, model.d_ff),
        Product("layers", layers, padded_tokens, model.d_ff, width),
        Product("attention", attentions * rows * heads, length, width // heads, length),
        Product("attention", attentions * rows * heads, length, length, width // heads),
    ]


class StepParts:
    """Times the parts of a step on one batch, each alone in all parallel streams, in seconds."""

    def __init__(self, trainer: Any, batch: Any) -> None:
        import tensorflow as tf

        self.trainer = trainer
        self.data = tf.nest.map_structure(
            tf.constant, ((batch.source, batch.target_in), batch.target_out)
        )
        self.streams = [
            tf.nest.map_structure(lambda ids, n=number: ids[n::PARALLEL_STREAMS], self.data)
            for number in range(PARALLEL_STREAMS)
        ]
        self.seed = tf.constant([1, 2])

    def whole(self) -> float:
        """Time the whole step. The trainer splits the batch into parallel streams itself."""
        return _seconds(self.trainer.train_step, [(self.data,)])

    def layers(self, seed: "Tensor | None") -> float:
        """Time the layers, from ids to hidden states, and their gradients."""
        import tensorflow as tf

        transformer = self.trainer.transformer
        weights = [weight.value for weight in transformer.trainable_variables]

        def gradients(data: Any) -> Any:
            (source, target_in), _ = data
            with tf.GradientTape() as tape:
                hidden = transformer.decode(target_in, *transformer.encode(source, seed), seed)
            # Any values serve as the gradient of the loss by the hidden states.
            by_weights = tape.gradient(hidden, weights, output_gradients=hidden)
            return [tf.convert_to_tensor(gradient) for gradient in by_weights]

        return _seconds(gradients, [(data,) for data in self.streams])

    def output(self) -> float:
        """Time output projection and loss, from hidden states to the loss, and their gradients."""
        import tensorflow as tf

        from tfnmt.training.loss import smoothed_cross_entropy

        trainer, table = self.trainer, self.trainer.transformer.output_embedding.table

        def gradients(hidden: "Tensor", target_out: "Tensor") -> Any:
            with tf.GradientTape() as tape:
                tape.watch(hidden)
                sums = smoothed_cross_entropy(
                    hidden,
                    table,
                    target_out,
                    trainer.config.label_smoothing,
                    trainer.consistency,
                )
            by_inputs = tape.gradient(sums.loss, [hidden, table.value])
            return [tf.convert_to_tensor(gradient) for gradient in by_inputs]

        width = table.shape[1]
        return _seconds(
            gradients,
            [
                (tf.random.normal((*target_out.shape, width)), target_out)
                for _, target_out in self.streams
            ],
        )

    def optimizer(self) -> float:
        """Time the optimizer, which runs once for all parallel streams."""
        import tensorflow as tf

        weights = self.trainer.transformer.trainable_variables
        gradients = tuple(tf.zeros(weight.shape) for weight in weights)
        apply = self.trainer.optimizer.apply_if
        return _seconds(lambda *given: apply(True, list(given)), [gradients])


def _matmul_seconds(products: list[Product], part: str) -> float:
    """Time the products of a part and their gradients, divided among the parallel streams."""
    import tensorflow as tf

    total = 0.0
    for _, number, rows, inner, columns in (each for each in products if each.part == part):
        if part == "attention":
            share = number // PARALLEL_STREAMS
            left, right = tf.ones((share, rows, inner)), tf.ones((share, inner, columns))
            out = tf.ones((share, rows, columns))
            times = 1
        else:
            share = rows // PARALLEL_STREAMS
            left, right = tf.ones((share, inner)), tf.ones((inner, columns))
            out = tf.ones((share, columns))
            times = number
        forward = _seconds(tf.matmul, [(left, right)] * PARALLEL_STREAMS)
        by_left = _seconds(_by_left, [(out, right)] * PARALLEL_STREAMS)
        by_right = _seconds(_by_right, [(left, out)] * PARALLEL_STREAMS)
        total += times * (forward + by_left + by_right)
    return total


def _by_left(out: "Tensor", right: "Tensor") -> "Tensor":
    import tensorflow as tf

    return tf.matmul(out, right, transpose_b=True)


def _by_right(left: "Tensor", out: "Tensor") -> "Tensor":
    import tensorflow as tf

    return tf.matmul(left, out, transpose_a=True)


def _reference_rate() -> float:
    """Return the operations per second of the reference product in all parallel streams."""
    import tensorflow as tf

    rows, inner, columns = REFERENCE_MATMUL
    product = (tf.ones((rows, inner)), tf.ones((inner, columns)))
    flops = PARALLEL_STREAMS * Product("", 1, *REFERENCE_MATMUL).flops
    return flops / _seconds(tf.matmul, [product] * PARALLEL_STREAMS)


def _seconds(
    function: Callable[..., Any], streams: list[tuple[Any, ...]], repeats: int = 7
) -> float:
    """Return the median time of a graph that calls a function once per parallel stream.

    All streams are in one graph, as in a training step. Two graphs in parallel threads would share
    the names of their temporary resources.

    Args:
        function: The function.
        streams: Its arguments in each stream.
        repeats: Number of measured calls. Two more come first and are not counted.
    """
    import tensorflow as tf

    @tf.function(autograph=False)
    def run_streams(streams: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*values) for values in streams]

    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        run_streams(streams)
        tf.test.experimental.sync_devices()  # a GPU computes after the call has returned
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def _clock() -> Any:
    """Return a callback that records end time, tokens and loss of each step of `fit`."""
    import keras

    class Clock(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []
            self.tokens: list[float] = []
            self.losses: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.times.append(time.perf_counter())
            self.tokens.append(logs["tokens"])
            self.losses.append(logs["loss"])

    return Clock()


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
