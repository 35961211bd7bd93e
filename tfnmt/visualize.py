"""Draws what there is to see of a Transformer, as PNG or SVG.

    python -m tfnmt.visualize positions [--model=RUN]
    python -m tfnmt.visualize schedule [--model=RUN ...]
    python -m tfnmt.visualize attention --model=RUN "a sentence" [--target="its translation"]
    python -m tfnmt.visualize curves --model=RUN [--model=ANOTHER ...]
    python -m tfnmt.visualize batches --model=RUN (or --dataset=PRESET)

positions: the positional encoding. schedule: the learning rate, of the paper's and other sizes and
warm-ups, or of runs. attention: what the heads of a layer look at while the model reads a sentence
and its translation, its own unless --target gives one; layers and heads count from 1. curves: loss
and validation BLEU, with evaluations of the validation text beside them. batches: lengths of
sentences, and what padding takes. The picture is <what>.png unless --output names it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import define_data, not_utf_8, read_data, run
from tfnmt.config import Config, build_config, merge, parse_overrides, preset_path, read_tree
from tfnmt.data.corpora.catalog import data_folder, open_corpus, split_name
from tfnmt.errors import UsageError, nearest
from tfnmt.loading.models import find_folder, find_run
from tfnmt.progress import say
from tfnmt.runs.run import Run
from tfnmt.runtime.files import write_atomically
from tfnmt.runtime.startup import expect_few_rows, import_tensorflow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tfnmt.decoding.inspector import Look

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
"""Kinds of attention, and what their pictures say."""

PAPER_SIZE, PAPER_WARMUP = 512, 4000
SIZES, WARMUPS = (256, 512, 1024), (2000, 4000, 8000)
"""What the schedule is drawn for, where no run is given: one varies, the other is the paper's."""

UPDATES = 20_000
POSITIONS, POSITIONS_SIZE = 100, 64
"""Drawn where no run is given."""

FLAGS = flags.FlagValues()
flags.DEFINE_multi_string(
    "model", [], "a run; curves and schedule take several", flag_values=FLAGS
)  # fmt: skip
for _name, _text in (
    ("dataset", "a preset of configs/ in place of a run"),
    ("output", "the file to draw to, .png or .svg"),
    ("target", "of attention: the translation that is read (default: the model's own)"),
):
    flags.DEFINE_string(_name, None, _text, flag_values=FLAGS)
flags.DEFINE_multi_string(
    "set", [], "with --dataset: a key of the configuration, as in model.d_model=128",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum("kind", "cross", [*KINDS], "of attention", flag_values=FLAGS)
flags.DEFINE_integer("layer", None, "of attention (default: the last)", 1, flag_values=FLAGS)
flags.DEFINE_integer("head", None, "of attention (default: all of them)", 1, flag_values=FLAGS)
define_data(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Draws one picture."""
    what = positional[0] if positional else None
    if what not in PICTURES:
        hint = nearest(what or "", PICTURES)
        raise UsageError(
            f"{what or 'PICTURE'}: name one of {', '.join(PICTURES)}; {hint}see --help"
        )
    _check(values, what, positional[1:])
    output = Path(values.output or f"{what}.png")
    figure = PICTURES[what](values, *positional[1:])

    from tfnmt.plots.style import to_png, to_svg

    draw = to_svg if output.suffix.lower() == ".svg" else to_png
    write_atomically(output, draw(figure))
    say(f"drawn: {output}")


def _check(values: Any, what: str, texts: list[str]) -> None:
    """What makes no sense is said before anything is imported."""
    problems = []
    if values.output and Path(values.output).suffix.lower() not in (".png", ".svg"):
        problems.append(f"--output={values.output}: neither .png nor .svg; name it so")
    if what == "attention" and (len(texts) != 1 or not texts[0].strip()):
        problems.append("attention: give one text, in quotes; see --help")
    problems += not_utf_8([*texts, values.target or ""])
    if what != "attention":
        problems += [f"{text}: not expected; only attention takes a text" for text in texts]
        given = [name for name in ("kind", "layer", "head", "target") if values[name].present]
        problems += [f"--{name}: goes with attention" for name in given]
    if values.dataset and what not in ("positions", "schedule", "batches"):
        problems.append(f"--dataset: {what} is of a run; give --model")
    if values.dataset and values.model:
        problems.append("--model and --dataset: give one of them")
    if values.set and not values.dataset:
        problems.append("--set: goes with --dataset; a run has its own configuration")
    if what in NEED_MODEL and not (values.model or (what == "batches" and values.dataset)):
        problems.append(f"--model: missing; {what} is of a run")
    if len(values.model) > 1 and what not in ("curves", "schedule"):
        problems.append(f"--model: {what} is of one run; draw the others by themselves")
    if problems:
        raise UsageError(*problems)


def _configs(values: Any) -> dict[str, Config]:
    """The configurations of the runs, or of the preset, by name."""
    if values.dataset:
        preset = read_tree(preset_path(values.dataset))
        return {values.dataset: build_config(merge(preset, parse_overrides(values.set)))}
    folders = {model: find_folder(model).resolve() for model in values.model}
    names = [folder.name for folder in folders.values()]
    return {
        folder.name if names.count(folder.name) == 1 else model: Run(folder).config()
        for model, folder in folders.items()
    }


def _positions(values: Any) -> "Figure":
    """As long as training sentences may be, and as wide as the model is."""
    length, d_model = POSITIONS, POSITIONS_SIZE
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

    def rates(d_model: int, warmup_steps: int, scale: float = 1.0) -> np.ndarray:
        return np.array(NoamSchedule(d_model, warmup_steps, scale)(np.arange(UPDATES)))

    if not configs:
        sizes = {f"d_model {size:,}": rates(size, PAPER_WARMUP) for size in SIZES}
        warmups = {f"{steps:,} updates": rates(PAPER_SIZE, steps) for steps in WARMUPS}
        return draw_schedule(
            {
                f"Sizes, with a warm-up of {PAPER_WARMUP:,} updates": sizes,
                f"Warm-ups, with d_model {PAPER_SIZE}": warmups,
            }
        )
    runs = {}
    for name, config in configs.items():
        size, training = config.model.d_model, config.training
        warmup, scale = training.warmup_steps, training.learning_rate_scale
        label = f"{name}: d_model {size}, warm-up {warmup:,}, scale {scale:g}"
        runs[label] = rates(size, warmup, scale)
    return draw_schedule({"Learning rate": runs})


def _attention(values: Any, text: str) -> "Figure":
    model = find_run(find_folder(values.model[0]))
    layer, heads = _choose(values, model.config)
    expect_few_rows()
    translator = model.load_translator()

    from tfnmt.decoding.inspector import SHOWN_PIECES, Inspector
    from tfnmt.plots.attention import draw_attention

    target = values.target
    if target is None:
        target = translator.translate([text])["translation"].numpy()[0].decode()
        say(f"the model's translation: {target}")
    inspector = Inspector(translator.transformer, translator.codec, translator.decoding)
    look = inspector.look(text, target)
    if SHOWN_PIECES in (len(look.source), len(look.target)):
        say(f"no more than the first {SHOWN_PIECES} pieces are drawn")
    queries, keys = _sides(look, values.kind)
    weights = getattr(look, values.kind)[layer - 1]
    title = f"{KINDS[values.kind]}, layer {layer}"
    if values.head is not None:
        title = f"{title}, head {values.head}"
    return draw_attention(weights[heads], queries, keys, title)


def _choose(values: Any, config: Config) -> tuple[int, slice]:
    """The layer, counted from 1, and the heads; refuses those that there are not."""
    model = config.model
    layers = model.num_encoder_layers if values.kind == "encoder" else model.num_decoder_layers
    layer = values.layer or layers
    if layer > layers:
        raise UsageError(f"--layer={layer}: the model has {layers} of that kind; count from 1")
    if values.head is None:
        return layer, slice(None)
    if values.head > model.num_heads:
        raise UsageError(f"--head={values.head}: a layer has {model.num_heads}; count from 1")
    return layer, slice(values.head - 1, values.head)


def _sides(look: "Look", kind: str) -> tuple[list[str], list[str]]:
    """The pieces that look, and those that they look at."""
    if kind == "encoder":
        return look.source, look.source
    return look.target, look.target if kind == "decoder" else look.source


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
        raise UsageError("data.batch_tokens: auto is known once a run has begun; --set a number")
    run = Run(find_folder(values.model[0])) if values.model else None
    _, prepared = read_data(values, config, run)

    from tfnmt.data.batching.plan import make_plan
    from tfnmt.plots.batches import draw_batches

    lengths = {
        config.data.source: prepared.source.lengths,
        config.data.target: prepared.target.lengths,
    }
    return draw_batches(make_plan(config, prepared), lengths)


PICTURES: dict[str, Callable[..., "Figure"]] = {
    "positions": _positions,
    "schedule": _schedule,
    "attention": _attention,
    "curves": _curves,
    "batches": _batches,
}

NEED_MODEL = ("attention", "curves", "batches")


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
