"""Show what a Transformer computes, from text to loss or to a translation.

    python -m tfnmt.trace --model=RUN "a sentence" --target="ein Satz"    loss of a translation
    python -m tfnmt.trace --model=RUN "a sentence"                       search for a translation
    python -m tfnmt.trace --tiny [--trained] ["dog run" --target="dog run"]

Several texts make a batch; give one --target for each, or none. The trace shows every tensor with
its name in the code, its shape and its section in the paper. --tiny uses a model that copies two
words and is so small that its tensors are shown whole. Without a text, it traces a batch of two
sentences. --html=FILE writes the trace as an interactive page: step through the beam search, switch
off a mask, change a logit.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import define_direction, non_utf8_problems, run_command
from tfnmt.config import DecodingConfig, TrainingConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer
from tfnmt.errors import UsageError
from tfnmt.loading.directions import find_direction
from tfnmt.loading.models import RunModel, find_folder, find_run
from tfnmt.progress import log, progress_bar
from tfnmt.runtime.files import check_outputs, write_atomically, write_lines
from tfnmt.runtime.startup import configure_for_single_sentences, import_tensorflow
from tfnmt.tracing import tiny

if TYPE_CHECKING:
    from tfnmt.tracing.trace import Trace
    from tfnmt.tracing.traced_model import TracedModel

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_bool(
    "tiny", False, "a model that copies two words, instead of a run", flag_values=FLAGS
)
flags.DEFINE_bool(
    "trained", False, "with --tiny: train the model first, which takes seconds", flag_values=FLAGS
)
flags.DEFINE_multi_string("target", [], "translation of the text, one per text", flag_values=FLAGS)
flags.DEFINE_string(
    "nudge",
    None,
    "ROW,POSITION,TOKEN,AMOUNT: add AMOUNT to a logit and show the change of the loss",
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "beam_size",
    None,
    "beam width; 1 is greedy (default: the run's, 2 with --tiny)",
    1,
    flag_values=FLAGS,
)
flags.DEFINE_string("html", None, "file for an interactive page", flag_values=FLAGS)
define_direction(FLAGS)

MAX_TEXTS = 8
MAX_TOKENS = 64
"""Maximum number of tokens of a text, EOS included. The output for longer ones is unreadable."""

SMOOTHING = 0.1
"""Label smoothing of the traced loss with --tiny. A run has its own."""

TINY_DECODING = {"beam_size": 2, "max_extra_length": 3}
TINY_TRAINING = TrainingConfig(warmup_steps=50, learning_rate_scale=0.5, label_smoothing=0.005)
"""With this smoothing and five tokens, the loss is minimal if the correct one has p = 0.996."""
TRAINED = (
    f"tiny model, trained with label smoothing {TINY_TRAINING.label_smoothing}; "
    f"the traced loss has smoothing {SMOOTHING}"
)
UNTRAINED = "tiny model, untrained"

STEPS = 250
SEED = 1

Ids = tuple[list[list[int]], list[list[int]]]
"""Ids of sources and of targets, EOS included."""


def main(values: Any, positional: list[str]) -> None:
    """Trace the given texts, or the default batch of the tiny model."""
    _check(values, positional)
    changes = {} if values.beam_size is None else {"beam_size": values.beam_size}
    if values.tiny:
        check_outputs({"--html": values.html}, {})
        ids = _tiny_ids(positional, values.target)
        configure_for_single_sentences()
        import_tensorflow()
        traced_model = _tiny_model(values.trained, changes)
        trace = _make_trace(TRAINED if values.trained else UNTRAINED, traced_model, ids, SMOOTHING)
    else:
        model = find_run(find_folder(values.model), changes)
        _, language = find_direction(model, values.direction)
        check_outputs({"--html": values.html}, {"--model": model.files})
        tokenizer = Tokenizer(model.run.tokenizer_model())
        prefix = tokenizer.source_prefix(language)
        ids = _run_ids(model, tokenizer, prefix, (positional, values.target))
        configure_for_single_sentences()
        traced_model = _run_model(model, tokenizer)
        smoothing = model.config.training.label_smoothing
        trace = _make_trace(model.name, traced_model, ids, smoothing)
    _show(values, trace)


def _check(values: Any, positional: list[str]) -> None:
    """Reject contradictory flags and unusable texts."""
    problems = []
    if bool(values.model) == values.tiny:
        problems.append("--model, --tiny: give exactly one of them")
    if values.direction and values.tiny:
        problems.append("--direction: only for --model; remove it")
    if values.trained and not values.tiny:
        problems.append("--trained: only for --tiny; remove it, because a run is already trained")
    if values.model and not positional:
        problems.append("--model: no text to trace; add a sentence in quotes")
    if len(positional) > MAX_TEXTS:
        problems.append(f"{len(positional)} texts: the limit is {MAX_TEXTS}; give fewer")
    if values.target and len(values.target) != len(positional):
        problems.append(
            f"--target: {len(values.target)} given for {len(positional)} texts; "
            "give one per text, or none"
        )
    if not all(text.strip() for text in [*positional, *values.target]):
        problems.append("text or --target: empty; give at least one word")
    problems += non_utf8_problems([*positional, *values.target])
    if values.beam_size is not None and values.target and not values.html:
        problems.append("--beam_size: the loss needs no search; omit it, or give --html as well")
    if values.nudge and positional and not values.target:
        problems.append("--nudge: needs a loss; give --target as well")
    if problems:
        raise UsageError(*problems)


def _tiny_ids(texts: list[str], targets: list[str]) -> Ids:
    if not texts:
        return tiny.SOURCES, tiny.TARGETS
    return _with_eos("text", map(tiny.encode, texts), MAX_TOKENS), _with_eos(
        "--target", map(tiny.encode, targets), MAX_TOKENS
    )


def _run_ids(
    model: RunModel, tokenizer: Tokenizer, prefix: list[int], texts: tuple[list[str], list[str]]
) -> Ids:
    """Return the ids of sources, which begin with a prefix, and of targets."""
    limit = min(MAX_TOKENS, model.config.decoding.max_source_length)
    sources, targets = map(tokenizer.encode, texts)
    return (
        _with_eos("text", (prefix + ids for ids in sources), limit),
        _with_eos("--target", iter(targets), MAX_TOKENS),
    )


def _with_eos(name: str, encoded: Iterator[list[int]], limit: int) -> list[list[int]]:
    ids = [[*tokens, EOS] for tokens in encoded]
    longest = max(map(len, ids), default=0)
    if longest > limit:
        raise UsageError(f"{name}: {longest} tokens, and the limit is {limit}; shorten the text")
    return ids


def _tiny_model(trained: bool, changes: dict[str, Any]) -> "TracedModel":
    import keras

    from tfnmt.tracing.traced_model import tiny_model

    keras.utils.set_random_seed(SEED)
    model = tiny_model(DecodingConfig(**{**TINY_DECODING, **changes}))
    if trained:
        _train(model)
    return model


def _train(model: "TracedModel") -> None:
    """Train the tiny model on all of its sentences."""
    import tensorflow as tf

    from tfnmt.tracing.traced_model import make_batch
    from tfnmt.training.trainer import Trainer

    trainer = Trainer(model.transformer, TINY_TRAINING)
    step = tf.function(trainer.train_step, autograph=False)
    batch = make_batch(tiny.TRAINING_SENTENCES, tiny.TRAINING_SENTENCES)
    for _ in progress_bar(range(STEPS), "training", "steps"):
        step(((batch.source, batch.target_in), batch.target_out))


def _run_model(model: RunModel, tokenizer: Tokenizer) -> "TracedModel":
    translator = model.load_translator()

    from tfnmt.tracing.traced_model import traced_translator

    return traced_translator(translator, tokenizer)


def _make_trace(title: str, model: "TracedModel", ids: Ids, smoothing: float) -> "Trace":
    from tfnmt.tracing.trace import make_trace
    from tfnmt.training.loss import smoothed_cross_entropy

    return make_trace(title, model, ids, smoothed_cross_entropy, smoothing)


def _show(values: Any, trace: "Trace") -> None:
    from tfnmt.tracing.text import loss_lines, nudge_lines, search_lines

    if values.nudge:
        place, amount = _parse_nudge(values.nudge, trace)
        write_lines(nudge_lines(trace.losses, place, amount, trace.model.vocabulary), None)
    elif values.html is None:
        write_lines(loss_lines(trace) if trace.has_targets else search_lines(trace), None)
    if values.html is not None:
        from tfnmt.tracing.page import render

        write_atomically(Path(values.html), render(trace).encode())
        log(f"page written to {values.html}")


def _parse_nudge(text: str, trace: "Trace") -> tuple[tuple[int, int, int], float]:
    """Parse `0,1,dog,0.5`: row, position and token of a logit, and the amount to add to it."""
    vocabulary = trace.model.vocabulary
    row, _, rest = text.partition(",")
    position, _, rest = rest.partition(",")
    token, _, amount = rest.rpartition(",")
    try:
        number = vocabulary.index(token) if token in vocabulary else int(token)
        place = int(row), int(position), number
        trace.losses.logits[place]
        if not trace.losses.real[place[:2]] or min(place) < 0 or not math.isfinite(float(amount)):
            raise ValueError
        return place, float(amount)
    except (ValueError, IndexError) as error:
        rows, positions, size = trace.losses.logits.shape
        raise UsageError(
            f"--nudge={text}: not a logit of a real token and a number; give "
            f"ROW,POSITION,TOKEN,AMOUNT with a row below {rows}, a position below {positions}, and "
            f"a token or an id below {size}"
        ) from error


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
