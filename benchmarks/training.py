"""How fast training is, beside other systems and beside what the processor can do.

    python -m benchmarks.training [--peer='COMMAND'] [--size=base] [--breakdown]
        [--set training.precision=mixed_bfloat16]

A training as the command runs it: Multi30k, the plan of batches, the tf.data pipeline and `fit`,
without validation and checkpoints. The shapes are 4+4 layers, d_model 128, 4 heads, d_ff 256, 8,000
pieces, dropout 0.3, batches of 4,096 slots; --size=base has the paper's and a table of 37,000. A
peer is any command that prints a JSON line with "system" and "target_tokens_per_s"; all take turns.

One JSON line a system: medians of the turns, real target tokens a second. Ours also tells how much
of the rate of plain products of 4096x512x2048 in float32, one a lane side by side, measured here,
the products of a step reach; --breakdown tells where the rest goes.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from benchmarks.peers import measure
from tfnmt.cli import define_data_dir, run
from tfnmt.config import Config, ModelConfig, build_config, merge, parse_overrides
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError
from tfnmt.model.layers import Tensor
from tfnmt.progress import say
from tfnmt.runtime.startup import LANES, import_tensorflow, share_processors

RATE = "target_tokens_per_s"

SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "reference": (
        {"num_encoder_layers": 4, "num_decoder_layers": 4, "d_model": 128, "num_heads": 4,
         "d_ff": 256, "dropout": 0.3}, 8000,
    ),
    "base": (
        {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 512, "num_heads": 8,
         "d_ff": 2048, "dropout": 0.1}, 37_000,
    ),
}  # fmt: skip
"""The model's shape, and the rows of its table; the text always has 8,000 pieces."""

PLAIN = (4096, 512, 2048)
"""Rows, inner and columns of the product that all are compared with."""

BACKWARD = 2
"""A product's gradients by either factor cost what it costs."""

WARM_UP = {"reference": 60, "base": 2}
"""Updates before the first turn: kernels are made for each shape of a batch when it first comes."""

FLAGS = flags.FlagValues()
define_data_dir(FLAGS)
flags.DEFINE_multi_string(
    "peer", [], "a command that trains and prints its rate", flag_values=FLAGS
)
flags.DEFINE_enum("size", "reference", list(SHAPES), "the model's shape", flag_values=FLAGS)
flags.DEFINE_multi_string("set", [], "a key of the configuration", flag_values=FLAGS)
flags.DEFINE_integer("steps", 40, "updates a turn", 1, flag_values=FLAGS)
flags.DEFINE_integer("turns", 3, "turns a system", 1, flag_values=FLAGS)
flags.DEFINE_bool("breakdown", False, "where the time of a step goes", flag_values=FLAGS)


class Product(NamedTuple):
    """`times` products [rows, inner] x [inner, columns] that a step's forward pass takes."""

    part: str
    times: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Of the forward pass."""
        return 2 * self.times * self.rows * self.inner * self.columns


class Measured(NamedTuple):
    """A turn of ours."""

    rate: float  # real target tokens a second
    seconds: float  # of a step, the mean
    gflops: float  # of a step, products alone


def main(values: Any, positional: list[str]) -> None:
    """Takes turns and prints."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as cache:
        ours = Ours(configure(values.size, values.set), SHAPES[values.size][1], values, Path(cache))
        turns: list[Measured] = []
        plain: list[float] = []
        peers: dict[str, list[float]] = {}
        ours.train(WARM_UP[values.size])
        for turn in range(1, values.turns + 1):
            turns.append(ours.train(values.steps))
            plain.append(1e-9 * _plain_rate())
            say(f"turn {turn}: tfnmt {turns[-1].rate:,.0f} target tokens/s")
            for command in values.peer:
                line = measure(command, RATE)[-1]
                peers.setdefault(line["system"], []).append(float(line[RATE]))
                say(f"turn {turn}: {line['system']} {line[RATE]:,.0f} target tokens/s")
        _print(values, ours, turns, plain, peers)
        if values.breakdown:
            ours.break_down()


def configure(size: str, settings: list[str]) -> Config:
    """The experiment at the shapes of a size, with keys changed."""
    tree = {
        "data": {"corpus": "multi30k", "max_length": 64, "batch_tokens": 4096},
        "tokenizer": {"vocab_size": 8000},
        "model": SHAPES[size][0],
        "training": {"warmup_steps": 2000},
    }
    return build_config(merge(tree, parse_overrides(settings)))


def _print(
    values: Any, ours: "Ours", turns: list[Measured], plain: list[float], peers: Any
) -> None:
    rate = statistics.median(turn.rate for turn in turns)
    products = statistics.median(turn.gflops / turn.seconds for turn in turns)
    line = {
        "system": "tfnmt",
        "task": "train",
        "target_tokens_per_s": round(rate),
        "size": values.size,
        "precision": ours.config.training.precision,
        "ms_per_step": round(1e3 * statistics.median(turn.seconds for turn in turns), 1),
        "products_gflops_per_s": round(products, 1),
        "plain_product_gflops_per_s": round(statistics.median(plain), 1),
        "share_of_plain_product": round(products / statistics.median(plain), 3),
        "steps": values.steps,
        "turns": values.turns,
    }
    print(json.dumps(line), flush=True)
    for system, rates in peers.items():
        theirs = statistics.median(rates)
        line = {"system": system, "task": "train", "target_tokens_per_s": round(theirs)}
        print(json.dumps(line | {"ours_to_theirs": round(rate / theirs, 2)}), flush=True)


class Ours:
    """A training that goes on from turn to turn."""

    def __init__(self, config: Config, vocab_size: int, values: Any, cache: Path) -> None:
        self.config = config
        self.vocab_size = vocab_size
        corpus = open_corpus(config.data, 1, data_folder(values.data_dir))
        prepared = prepare(config, corpus, cache)
        self.batches = Batches(make_plan(config, prepared))
        share_processors()
        import_tensorflow()
        from tfnmt.training.distribution import make_strategy
        from tfnmt.training.trainer import make_trainer

        self.strategy = make_strategy()
        self.trainer = make_trainer(config, vocab_size, self.strategy)
        self.step = 0

    def train(self, steps: int) -> Measured:
        """So many updates by `fit`; the first one, which may trace, is not counted."""
        from tfnmt.training.distribution import distribute_batches

        clock = _clock()
        self.trainer.fit(
            distribute_batches(self.strategy, self.batches, self.step),
            steps_per_epoch=steps + 1, shuffle=False, verbose=0, callbacks=[clock],
        )  # fmt: skip
        counted = range(self.step + 1, self.step + 1 + steps)
        self.step = counted.stop
        gflops = [
            1e-9 * (1 + BACKWARD) * sum(product.flops for product in self.products(step))
            for step in counted
        ]
        seconds = clock.times[-1] - clock.times[0]
        return Measured(sum(clock.tokens[1:]) / seconds, seconds / steps, statistics.mean(gflops))

    def products(self, step: int) -> list[Product]:
        """The products of a step's forward pass.

        Padding within the layers counts, for it is computed; the output reads real tokens alone.
        """
        (batch,) = self.batches.shards(step, replicas=1)
        rows, length = batch.source.shape
        slots, tokens = batch.source.size, int((batch.target_out != 0).sum())
        return [
            *_layer_products(self.config.model, rows, length, slots),
            Product("output", 1, tokens, self.config.model.d_model, self.vocab_size),
        ]

    def break_down(self) -> None:
        """Prints what each part of the middle one of some steps takes when it runs alone."""
        steps = sorted(range(9), key=lambda step: self.batches.plan.batch(step).length)
        step = steps[4]
        (batch,) = self.batches.shards(step, replicas=1)
        parts = Parts(self.trainer, batch)
        plain = _plain_rate()
        products = self.products(step)
        own = {part: _own_shapes(products, part) for part in ("layers", "attention", "output")}
        layers, dropped = parts.layers(None), parts.layers(parts.seed)
        times = {
            "products, at the plain rate": (1 + BACKWARD) * sum(p.flops for p in products) / plain,
        }
        times["products, more for their shapes"] = sum(own.values()) - sum(times.values())
        times |= {
            "dropout": dropped - layers,
            "layers without products and dropout": layers - own["layers"] - own["attention"],
            "softmax and loss": parts.output() - own["output"],
            "update": parts.update(),
        }
        whole = parts.whole()
        times["the rest of a step"] = whole - sum(times.values())
        for part, seconds in {**times, "a step": whole}.items():
            share = round(seconds / whole, 3)
            line = {"task": "train_breakdown", "part": part, "ms": round(1e3 * seconds, 1)}
            print(json.dumps(line | {"share": share}), flush=True)


def _layer_products(model: ModelConfig, rows: int, length: int, slots: int) -> list[Product]:
    """Those of both stacks: the projections, and the attention of each head."""
    width, heads = model.d_model, model.num_heads
    layers = model.num_encoder_layers + model.num_decoder_layers
    attentions = layers + model.num_decoder_layers
    columns = 2 * model.num_decoder_layers * width
    return [
        Product("layers", layers, slots, width, 3 * width),  # queries, keys, values
        Product("layers", attentions, slots, width, width),  # outputs
        Product("layers", model.num_decoder_layers, slots, width, width),  # cross queries
        Product("layers", 1, slots, width, columns),  # all keys and values of the memory
        Product("layers", layers, slots, width, model.d_ff),
        Product("layers", layers, slots, model.d_ff, width),
        Product("attention", attentions * rows * heads, length, width // heads, length),
        Product("attention", attentions * rows * heads, length, length, width // heads),
    ]


class Parts:
    """The parts of a step on one batch, each timed alone, the lanes side by side; seconds."""

    def __init__(self, trainer: Any, batch: Any) -> None:
        import tensorflow as tf

        self.trainer = trainer
        self.data = tf.nest.map_structure(
            tf.constant, ((batch.source, batch.target_in), batch.target_out)
        )
        self.lanes = [
            tf.nest.map_structure(lambda ids, n=lane: ids[n::LANES], self.data)
            for lane in range(LANES)
        ]
        self.seed = tf.constant([1, 2])

    def whole(self) -> float:
        """All of it; the trainer has lanes of its own."""
        return _seconds(self.trainer.train_step, [(self.data,)])

    def layers(self, seed: Tensor | None) -> float:
        """From ids to hidden states and back."""
        import tensorflow as tf

        transformer = self.trainer.transformer
        weights = [weight.value for weight in transformer.trainable_variables]

        def gradients(data: Any) -> Any:
            (source, target_in), _ = data
            with tf.GradientTape() as tape:
                hidden = transformer.decode(target_in, *transformer.encode(source, seed), seed)
            # Any gradient by the hidden states will do.
            by_weights = tape.gradient(hidden, weights, output_gradients=hidden)
            return [tf.convert_to_tensor(gradient) for gradient in by_weights]

        return _seconds(gradients, [(data,) for data in self.lanes])

    def output(self) -> float:
        """From hidden states to the loss and back."""
        import tensorflow as tf

        table = self.trainer.transformer.output_embedding.table.value

        def gradients(hidden: Tensor, target_out: Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(hidden)
                loss = self.trainer._loss(hidden, target_out).loss
            return [tf.convert_to_tensor(g) for g in tape.gradient(loss, [hidden, table])]

        width = table.shape[1]
        return _seconds(
            gradients,
            [
                (tf.random.normal((*target_out.shape, width)), target_out)
                for _, target_out in self.lanes
            ],
        )

    def update(self) -> float:
        """The optimizer's, of which there is one for all lanes."""
        import tensorflow as tf

        weights = self.trainer.transformer.trainable_variables
        gradients = tuple(tf.zeros(weight.shape) for weight in weights)
        apply = self.trainer.optimizer.apply_if
        return _seconds(lambda *given: apply(True, list(given)), [gradients])


def _own_shapes(products: list[Product], part: str) -> float:
    """Seconds that the products of a part take, with their gradients, a share of them a lane."""
    import tensorflow as tf

    total = 0.0
    for _, number, rows, inner, columns in (each for each in products if each.part == part):
        if part == "attention":
            share = number // LANES
            left, right = tf.ones((share, rows, inner)), tf.ones((share, inner, columns))
            out = tf.ones((share, rows, columns))
            times = 1
        else:
            share = rows // LANES
            left, right = tf.ones((share, inner)), tf.ones((inner, columns))
            out = tf.ones((share, columns))
            times = number
        forward = _seconds(tf.matmul, [(left, right)] * LANES)
        by_left = _seconds(_by_left, [(out, right)] * LANES)
        by_right = _seconds(_by_right, [(left, out)] * LANES)
        total += times * (forward + by_left + by_right)
    return total


def _by_left(out: Tensor, right: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.matmul(out, right, transpose_b=True)


def _by_right(left: Tensor, out: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.matmul(left, out, transpose_a=True)


def _plain_rate() -> float:
    """Operations a second of all lanes, each with a plain product of its own."""
    import tensorflow as tf

    rows, inner, columns = PLAIN
    product = (tf.ones((rows, inner)), tf.ones((inner, columns)))
    return LANES * Product("", 1, *PLAIN).flops / _seconds(tf.matmul, [product] * LANES)


def _seconds(function: Callable[..., Any], lanes: list[tuple[Any, ...]], turns: int = 7) -> float:
    """The median time that a graph takes which calls a function with what each lane has.

    Two turns before are not counted. In one graph, as a training has its lanes: beside one another
    in threads, two graphs would share the names of what they keep for a while.
    """
    import tensorflow as tf

    @tf.function(autograph=False)
    def side_by_side(lanes: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*values) for values in lanes]

    times = []
    for _ in range(turns + 2):
        begun = time.perf_counter()
        side_by_side(lanes)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[2:])


def _clock() -> Any:
    """A callback that notes when each step of `fit` ended, and its tokens."""
    import keras

    class Clock(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []
            self.tokens: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.times.append(time.perf_counter())
            self.tokens.append(logs["tokens"])

    return Clock()


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
