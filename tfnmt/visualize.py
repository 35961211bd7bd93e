"""Plot the parts of a Transformer and of its training, as PNG or SVG.

    python -m tfnmt.visualize positions [--model=RUN]
    python -m tfnmt.visualize schedule [--model=RUN ...]
    python -m tfnmt.visualize attention --model=RUN "a sentence" [--target="its translation"]
    python -m tfnmt.visualize curves --model=RUN [--model=ANOTHER ...]
    python -m tfnmt.visualize batches --model=RUN (or --dataset=PRESET)

positions: the positional encoding. schedule: the learning rate, for several model sizes and
warm-ups, or for the given runs. attention: the attention weights of the heads of one layer, for a
sentence and its translation; without --target, the model translates the sentence. Layers and heads
count from 1. curves: loss and validation BLEU, with evaluations on the validation set. batches:
sentence lengths and the share of padding. The file is PLOT.png unless --output names another.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import define_direction, non_utf8_problems, run_command
from tfnmt.config import Config, build_config, merge, parse_overrides, preset_path, read_tree
from tfnmt.data.corpora.catalog import data_folder, open_corpus, split_name
from tfnmt.errors import UsageError, did_you_mean
from tfnmt.experiment import define_data, read_data
from tfnmt.loading.directions import bound_language, find_direction
from tfnmt.loading.models import find_folder, find_run
from tfnmt.progress import log
from tfnmt.runs.run import Run
from tfnmt.runtime.files import check_outputs, write_atomically
from tfnmt.runtime.startup import configure_for_single_sentences, import_tensorflow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfnmt.decoding.inspector import AttentionMaps

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
"""Kinds of attention, and their names in plot titles."""

PAPER_D_MODEL, PAPER_WARMUP_STEPS = 512, 4000
D_MODELS, WARMUP_STEPS = (256, 512, 1024), (2000, 4000, 8000)
"""The schedules to plot without a run: one value varies, the other is the paper's."""

SCHEDULE_STEPS = 20_000
ENCODING_LENGTH, ENCODING_D_MODEL = 100, 64
"""The positional encoding to plot without a run."""

FLAGS = flags.FlagValues()
flags.DEFINE_multi_string(
    "model", [], "a run; curves and schedule accept several", flag_values=FLAGS
)
for _name, _text in (
    ("dataset", "a preset of configs/, instead of a run"),
    ("output", "the output file, .png or .svg"),
    ("target", "attention: the translation (default: the model's own)"),
):
    flags.DEFINE_string(_name, None, _text, flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set",
    [],
    "with --dataset: a configuration key, for example model.d_model=128",
    flag_values=FLAGS,
)
flags.DEFINE_enum("kind", "cross", [*KINDS], "attention: the kind", flag_values=FLAGS)
flags.DEFINE_integer(
    "layer", None, "attention: the layer (default: the last)", 1, flag_values=FLAGS
)
flags.DEFINE_integer("head", None, "attention: the head (default: all)", 1, flag_values=FLAGS)
define_data(FLAGS)
define_direction(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Write one plot."""
    plot = positional[0] if positional else ""
    if plot not in PLOTS:
        problem = "not a plot" if plot else "missing"
        hint = did_you_mean(plot, PLOTS)
        raise UsageError(f"{plot or 'PLOT'}: {problem}; {hint}choose one of {', '.join(PLOTS)}")
    _check(values, plot, positional[1:])
    output = Path(values.output or f"{plot}.png")
    check_outputs({"--output": str(output)}, {})
    figure = PLOTS[plot](values, *positional[1:])

    from tfnmt.plots.style import to_png, to_svg

    render = to_svg if output.suffix.lower() == ".svg" else to_png
    write_atomically(output, render(figure))
    log(f"plot written to {output}")


def _check(values: Any, plot: str, texts: list[str]) -> None:
    """Reject contradictory arguments before TensorFlow is imported."""
    problems = []
    if values.output and Path(values.output).suffix.lower() not in (".png", ".svg"):
        problems.append(f"--output={values.output}: not a .png or .svg file; change the extension")
    if plot == "attention" and (len(texts) != 1 or not texts[0].strip()):
        problems.append("attention: needs exactly one text; put it in quotes")
    problems += non_utf8_problems([*texts, values.target or ""])
    if plot != "attention":
        problems += [f"{text}: unexpected argument; only attention takes a text" for text in texts]
        given = [name for name in ATTENTION_FLAGS if values[name].present]
        problems += [f"--{name}: only for attention; remove it" for name in given]
    used = DATA_FLAGS.get(plot, ())
    given = [name for name in DATA_FLAGS["batches"] if values[name].present and name not in used]
    problems += [f"--{name}: not used for {plot}; remove it" for name in given]
    if values.dataset and plot not in ("positions", "schedule", "batches"):
        problems.append(f"--dataset: not supported for {plot}; give a run with --model")
    if values.dataset and values.model:
        problems.append("--model, --dataset: give only one of them")
    if values.set and not values.dataset:
        problems.append("--set: only with --dataset; remove it, a run has its own configuration")
    if plot in NEEDS_RUN and not (values.model or (plot == "batches" and values.dataset)):
        problems.append(f"--model: missing; {plot} needs a run")
    if len(values.model) > 1 and plot not in ("curves", "schedule"):
        problems.append(f"--model: {plot} takes only one run; plot the others separately")
    if problems:
        raise UsageError(*problems)


def _configs(values: Any) -> dict[str, Config]:
    """Return the configurations of the runs, or of the preset, by name."""
    if values.dataset:
        preset = read_tree(preset_path(values.dataset))
        return {values.dataset: build_config(merge(preset, parse_overrides(values.set)))}
    folders = {model: Path(os.path.realpath(find_folder(model))) for model in values.model}
    names = [folder.name for folder in folders.values()]
    return {
        folder.name if names.count(folder.name) == 1 else model: Run(folder).config()
        for model, folder in folders.items()
    }


def _positions(values: Any) -> "Figure":
    """Plot as many positions as a training sentence may have, and d_model dimensions."""
    length, d_model = ENCODING_LENGTH, ENCODING_D_MODEL
    for config in _configs(values).values():
        length, d_model = config.data.max_length, config.model.d_model
    import_tensorflow()
    import numpy as np

    from tfnmt.model.embedding import sinusoids
    from tfnmt.plots.positions import draw_positions

    return draw_positions(np.array(sinusoids(np.arange(length), d_model)))


def _schedule(values: Any) -> "Figure":
    configs = _configs(values)
    import_tensorflow()
    import numpy as np

    from tfnmt.plots.schedule import draw_schedule
    from tfnmt.training.schedule import NoamSchedule

    def learning_rates(d_model: int, warmup_steps: int, scale: float = 1.0) -> np.ndarray:
        return np.array(NoamSchedule(d_model, warmup_steps, scale)(np.arange(SCHEDULE_STEPS)))

    if not configs:
        sizes = {f"d_model {size:,}": learning_rates(size, PAPER_WARMUP_STEPS) for size in D_MODELS}
        warmups = {
            f"warm-up {steps:,}": learning_rates(PAPER_D_MODEL, steps) for steps in WARMUP_STEPS
        }
        return draw_schedule(
            {
                f"Model sizes, with a warm-up of {PAPER_WARMUP_STEPS:,} steps": sizes,
                f"Warm-up steps, with d_model {PAPER_D_MODEL}": warmups,
            }
        )
    runs = {}
    for name, config in configs.items():
        size, training = config.model.d_model, config.training
        warmup, scale = training.warmup_steps, training.learning_rate_scale
        label = f"{name}: d_model {size}, warm-up {warmup:,}, scale {scale:g}"
        runs[label] = learning_rates(size, warmup, scale)
    return draw_schedule({"Learning rate": runs})


def _attention(values: Any, text: str) -> "Figure":
    model = find_run(find_folder(values.model[0]))
    language = bound_language(model, find_direction(model, values.direction)[1])
    layer, heads = _layer_and_heads(values, model.config)
    configure_for_single_sentences()
    translator = model.load_translator()

    from tfnmt.decoding.inspector import MAX_ATTENTION_TOKENS, Inspector
    from tfnmt.decoding.signatures import with_target
    from tfnmt.decoding.translator import signatures
    from tfnmt.plots.attention import draw_attention

    target = values.target
    if target is None:
        translate = with_target(signatures(translator), language)["serving_default"]
        target = translate(text=[text])["translation"].numpy()[0].decode()
        log(f"the model's translation: {target}")
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    maps = inspector.attention_maps(text, target, language)
    if MAX_ATTENTION_TOKENS in (len(maps.source), len(maps.target)):
        log(f"at most the first {MAX_ATTENTION_TOKENS} tokens of each text are shown")
    queries, keys = _queries_and_keys(maps, values.kind)
    weights = getattr(maps, values.kind)[layer - 1]
    title = f"{KINDS[values.kind]}, layer {layer}"
    if values.head is not None:
        title = f"{title}, head {values.head}"
    return draw_attention(weights[heads], queries, keys, title)


def _layer_and_heads(values: Any, config: Config) -> tuple[int, slice]:
    """Return the chosen layer, counted from 1, and the chosen heads."""
    model = config.model
    layers = model.num_encoder_layers if values.kind == "encoder" else model.num_decoder_layers
    layer = values.layer or layers
    if layer > layers:
        stack = "encoder" if values.kind == "encoder" else "decoder"
        raise UsageError(
            f"--layer={layer}: larger than the number of {stack} layers ({layers}); count from 1"
        )
    if values.head is None:
        return layer, slice(None)
    if values.head > model.num_heads:
        raise UsageError(
            f"--head={values.head}: larger than the number of heads ({model.num_heads}); "
            "count from 1"
        )
    return layer, slice(values.head - 1, values.head)


def _queries_and_keys(maps: "AttentionMaps", kind: str) -> tuple[list[str], list[str]]:
    """Return the tokens of the queries and those of the keys."""
    if kind == "encoder":
        return maps.source, maps.source
    return maps.target, maps.target if kind == "decoder" else maps.source


def _curves(values: Any) -> "Figure":
    runs = [Run(find_folder(model)) for model in values.model]
    configs = [each.config() for each in runs]
    data_dir = data_folder(values.data_dir)
    import_tensorflow("tensorboard")
    from tfnmt.plots.curves import draw_curves, read_curves

    splits = []
    for config in configs:
        corpus = open_corpus(config.data, config.training.seed, data_dir)
        splits.append(split_name(config.data, corpus, "val"))
    return draw_curves([read_curves(*each) for each in zip(runs, splits, strict=True)])


def _batches(values: Any) -> "Figure":
    (config,) = _configs(values).values()
    if config.data.batch_tokens == "auto":
        raise UsageError(
            "data.batch_tokens=auto: known only after a run has started; --set a number"
        )
    run = Run(find_folder(values.model[0])) if values.model else None
    _, prepared = read_data(values, config, run)

    from tfnmt.data.batching.plan import make_plan
    from tfnmt.plots.batches import draw_batches

    lengths = {
        config.data.source: prepared.source.lengths,
        config.data.target: prepared.target.lengths,
    }
    return draw_batches(make_plan(config, prepared), lengths)


PLOTS: dict[str, Callable[..., "Figure"]] = {
    "positions": _positions,
    "schedule": _schedule,
    "attention": _attention,
    "curves": _curves,
    "batches": _batches,
}

NEEDS_RUN = ("attention", "curves", "batches")

ATTENTION_FLAGS = ("kind", "layer", "head", "target", "direction")
"""The flags of `attention`."""

DATA_FLAGS = {
    "batches": ("cache_dir", "checksums", "data_dir", "mirror"),
    "curves": ("data_dir",),
}
"""The flags of `define_data` that a plot uses."""


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
