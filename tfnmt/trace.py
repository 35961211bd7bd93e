"""Shows what a Transformer computes, from text to loss or to a translation.

    python -m tfnmt.trace --model=RUN "a sentence" --target="ein Satz"    to its loss
    python -m tfnmt.trace --model=RUN "a sentence"                       to its translation
    python -m tfnmt.trace --tiny [--trained] ["cat dog" --target="cat dog"]

Several texts make a batch, with a --target each. Every tensor has the name that the code gives it,
its shape and what it is in the paper. --tiny is a model of two words that copies them, so small
that its tensors are shown whole; without a text it takes a batch of two. --html=F writes all of it
as a page to play with: step the search, switch a mask off, nudge a logit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from tfnmt.cli import not_utf_8, run
from tfnmt.config import DecodingConfig, TrainingConfig
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer
from tfnmt.errors import UsageError
from tfnmt.loading.models import RunModel, find_folder, find_run
from tfnmt.progress import bar, say
from tfnmt.runtime.files import check_writable, write_atomically, write_lines
from tfnmt.runtime.startup import expect_few_rows, import_tensorflow
from tfnmt.tracing import tiny

if TYPE_CHECKING:
    from tfnmt.tracing.subject import Subject
    from tfnmt.tracing.trace import Trace

FLAGS = flags.FlagValues()
flags.DEFINE_string("model", None, "a run", flag_values=FLAGS)
flags.DEFINE_bool("tiny", False, "a model of two words, instead of a run", flag_values=FLAGS)
flags.DEFINE_bool(
    "trained", False, "train the tiny model first, for some seconds", flag_values=FLAGS
)
flags.DEFINE_multi_string("target", [], "the text's translation, one per text", flag_values=FLAGS)
flags.DEFINE_string(
    "nudge", None, "ROW,POSITION,TOKEN,AMOUNT: add so much to a logit, and see the loss move",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_integer(
    "beam_size", None, "beam width; 1 is greedy (default: the run's, 2 with --tiny)", 1,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string("html", None, "write a page to play with there", flag_values=FLAGS)

MAX_TEXTS = 8
MAX_PIECES = 64
"""Of a text, eos counted: pictures of more are not to be read."""

SMOOTHING = 0.1
"""With the tiny model; a run has its own."""

TINY_DECODING = {"beam_size": 2, "max_extra_length": 3}
LESSONS = TrainingConfig(warmup_steps=50, learning_rate_scale=0.5, label_smoothing=0.005)
"""With this smoothing, and five pieces, the loss is least where the right one has 0.996."""
TRAINED = (
    f"the tiny model, trained with smoothing {LESSONS.label_smoothing}; "
    f"its loss is shown with {SMOOTHING}"
)
UNTRAINED = "the tiny model, untrained"

UPDATES = 250
SEED = 1

Ids = tuple[list[list[int]], list[list[int]]]
"""Of sources and targets, each with its eos."""


def main(values: Any, positional: list[str]) -> None:
    """Follows the texts, or the tiny model's own."""
    _check(values, positional)
    if values.html is not None:
        check_writable(Path(values.html))
    changes = {} if values.beam_size is None else {"beam_size": values.beam_size}
    if values.tiny:
        ids = _tiny_ids(positional, values.target)
        expect_few_rows()
        import_tensorflow()
        subject = _tiny(values.trained, changes)
        trace = _follow(TRAINED if values.trained else UNTRAINED, subject, ids, SMOOTHING)
    else:
        model = find_run(find_folder(values.model), changes)
        tokenizer = Tokenizer(model.run.tokenizer_model())
        ids = _run_ids(model, tokenizer, positional, values.target)
        expect_few_rows()
        from_run = _of_run(model, tokenizer)
        trace = _follow(model.name, from_run, ids, model.config.training.label_smoothing)
    _show(values, trace)


def _check(values: Any, positional: list[str]) -> None:
    """What is contradictory is said at once."""
    problems = []
    if bool(values.model) == values.tiny:
        problems.append("--model and --tiny: give one of them")
    if values.trained and not values.tiny:
        problems.append("--trained: goes with --tiny; a run is trained")
    if values.model and not positional:
        problems.append("--model: give a text too")
    if len(positional) > MAX_TEXTS:
        problems.append(f"{len(positional)} texts: more than {MAX_TEXTS}; take fewer")
    if values.target and len(values.target) != len(positional):
        problems.append(f"--target: give one for each of the {len(positional)} texts, or none")
    if not all(text.strip() for text in [*positional, *values.target]):
        problems.append("a text is empty; there is nothing to follow")
    problems += not_utf_8([*positional, *values.target])
    if values.nudge and positional and not values.target:
        problems.append("--nudge: moves a loss; give the --target too")
    if problems:
        raise UsageError(*problems)


def _tiny_ids(texts: list[str], targets: list[str]) -> Ids:
    if not texts:
        return tiny.SOURCES, tiny.TARGETS
    return _with_eos("text", map(tiny.encode, texts), MAX_PIECES), _with_eos(
        "--target", map(tiny.encode, targets), MAX_PIECES
    )


def _run_ids(model: RunModel, tokenizer: Tokenizer, texts: list[str], targets: list[str]) -> Ids:
    limit = min(MAX_PIECES, model.config.decoding.max_source_length)
    return _with_eos("text", iter(tokenizer.encode(texts)), limit), _with_eos(
        "--target", iter(tokenizer.encode(targets)), MAX_PIECES
    )


def _with_eos(name: str, encoded: Iterator[list[int]], limit: int) -> list[list[int]]:
    ids = [[*pieces, EOS] for pieces in encoded]
    longest = max(map(len, ids), default=0)
    if longest > limit:
        raise UsageError(f"{name}: {longest} pieces are more than {limit}; take a shorter one")
    return ids


def _tiny(trained: bool, changes: dict[str, Any]) -> "Subject":
    import keras

    from tfnmt.tracing.subject import tiny_subject

    keras.utils.set_random_seed(SEED)
    subject = tiny_subject(DecodingConfig(**{**TINY_DECODING, **changes}))
    if trained:
        _train(subject)
    return subject


def _train(subject: "Subject") -> None:
    """Has the tiny model copy all that there is to copy."""
    import tensorflow as tf

    from tfnmt.tracing.subject import make_batch
    from tfnmt.training.trainer import Trainer

    trainer = Trainer(subject.transformer, LESSONS)
    step = tf.function(trainer.train_step, autograph=False)
    batch = make_batch(tiny.LESSONS, tiny.LESSONS)
    for _ in bar(range(UPDATES), "training", "updates"):
        step(((batch.source, batch.target_in), batch.target_out))


def _of_run(model: RunModel, tokenizer: Tokenizer) -> "Subject":
    translator = model.load_translator()

    from tfnmt.tracing.subject import of_translator

    return of_translator(translator, tokenizer)


def _follow(title: str, subject: "Subject", ids: Ids, smoothing: float) -> "Trace":
    from tfnmt.tracing.trace import follow
    from tfnmt.training.loss import smoothed_cross_entropy

    return follow(title, subject, ids, smoothed_cross_entropy, smoothing)


def _show(values: Any, trace: "Trace") -> None:
    from tfnmt.tracing.text import loss_lines, nudge_lines, search_lines

    if values.nudge:
        place, amount = _parse_nudge(values.nudge, trace)
        write_lines(nudge_lines(trace.losses, place, amount, trace.subject.pieces), None)
    elif values.html is None:
        write_lines(loss_lines(trace) if trace.given else search_lines(trace), None)
    if values.html is not None:
        from tfnmt.tracing.page import render

        write_atomically(Path(values.html), render(trace).encode())
        say(f"the page is in {values.html}")


def _parse_nudge(text: str, trace: "Trace") -> tuple[tuple[int, int, int], float]:
    """`0,1,dog,0.5`: row, position and token of a logit, and what to add to it."""
    pieces = trace.subject.pieces
    row, _, rest = text.partition(",")
    position, _, rest = rest.partition(",")
    token, _, amount = rest.rpartition(",")
    try:
        place = int(row), int(position), pieces.index(token) if token in pieces else int(token)
        trace.losses.logits[place]
        if not trace.losses.real[place[:2]] or min(place) < 0:
            raise ValueError
        return place, float(amount)
    except (ValueError, IndexError) as error:
        rows, positions, size = trace.losses.logits.shape
        raise UsageError(
            f"--nudge={text}: not ROW,POSITION,TOKEN,AMOUNT of a real token; there are {rows} rows "
            f"of up to {positions} positions, and a token is a piece or a number below {size}"
        ) from error


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
