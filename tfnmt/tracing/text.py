"""A trace as text for the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import numpy as np

from tfnmt.data.preparation.tokenizer import BOS
from tfnmt.tracing.beam import BeamStep, RowSearch, describe_outcome
from tfnmt.tracing.forward import Losses
from tfnmt.tracing.mixing import describe_mixing
from tfnmt.tracing.steps import Step
from tfnmt.tracing.tensors import Names, list_parameter_blocks, mask_lines, shorten, tensor_lines
from tfnmt.tracing.trace import Trace, describe_axes, describe_shapes
from tfnmt.tracing.traced_model import TracedModel

SHOWN_STEPS = 2
"""Number of search steps whose tensors are shown. Later ones differ only in a longer cache."""


def loss_lines(trace: Trace) -> Iterator[str]:
    """Yield the trace from text to loss."""
    batch, model = trace.forward.batch, trace.model
    yield from _title(trace.title, trace.forward.steps)
    yield from _heading("Input")
    for name, ids in batch._asdict().items():
        yield from _ids(name, ids, model)
    names = _names(model, batch.source, batch.target_in)
    yield from _steps(trace.forward.steps, names)
    yield from _loss(trace)
    yield from _parameters(trace)


def search_lines(trace: Trace) -> Iterator[str]:
    """Yield the trace from text to translation."""
    source, model = trace.forward.batch.source, trace.model
    first = trace.search.decoder[0] if trace.search.decoder else []
    yield from _title(trace.title, [*trace.search.encoder, *first])
    yield from _heading("Input")
    yield from _ids("source", source, model)
    names = _names(model, source)
    yield from _steps(trace.search.encoder, names)
    for position, steps in enumerate(trace.search.decoder[:SHOWN_STEPS]):
        yield from _heading(f"Decoder in step {position}, all hypotheses at once")
        yield from _steps(steps, names)
    for row, search in enumerate(trace.search.rows):
        yield from _heading(f"Search, row {row} [section 6.1]")
        yield from row_lines(search, model)
    yield from _parameters(trace)


def nudge_lines(
    losses: Losses, place: tuple[int, int, int], amount: float, vocabulary: Sequence[str]
) -> Iterator[str]:
    """Yield the effect of a change of one logit on the loss.

    Args:
        losses: The losses before the change.
        place: Row, position and token id of the logit.
        amount: The amount that is added to it.
        vocabulary: Tokens by id.
    """
    row, position, token = place
    after = losses.nudged(row, position, token, amount)
    gradient = losses.gradients[place]
    correct = int(losses.target[row, position])
    yield from _heading(
        f"{amount:+g} on the logit of {vocabulary[token]}, row {row}, position {position}"
    )
    yield f"logit                {losses.logits[place]:9.4f} -> {after.logits[place]:9.4f}"
    for name, number in {vocabulary[token]: token, vocabulary[correct]: correct}.items():
        before, now = (np.exp(each.log_probs[row, position, number]) for each in (losses, after))
        yield f"p({shorten(name)})".ljust(20) + f" {before:9.4f} -> {now:9.4f}"
    for name, values, changed in (
        ("cross entropy", losses.cross_entropy, after.cross_entropy),
        ("smoothed loss", losses.smoothed, after.smoothed),
    ):
        change = changed.sum() - values.sum()
        yield f"{name:<20} {values.sum():9.4f} -> {changed.sum():9.4f}   {change:+.4f}"
    estimate = f"a linear estimate of the change for {amount:+g} is {gradient * amount:+.4f}"
    yield f"gradient p - q       {gradient:9.4f}: {estimate}"


# --- Tensors --------------------------------------------------------------------------------------


def _title(title: str, steps: list[Step]) -> Iterator[str]:
    yield title
    yield f"shapes: {describe_shapes(steps)}"
    yield from wrap(f"axes: {describe_axes(steps)}", 100, subsequent_indent=" " * 6)


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"=== {text} {'=' * max(0, 95 - len(text))}"


def _ids(name: str, ids: np.ndarray, model: TracedModel) -> Iterator[str]:
    for row, numbers in enumerate(ids.tolist()):
        tokens = model.token_strings(numbers)
        widths = [max(len(token), len(str(i))) for token, i in zip(tokens, numbers, strict=True)]
        for start, cells in ((f"{name} row {row}", tokens), ("", map(str, numbers))):
            shown = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
            yield f"{start:<18} {shown}".rstrip()


def _names(model: TracedModel, source: np.ndarray, target: np.ndarray | None = None) -> Names:
    """Return the tokens at the positions of both sides, and those of the vocabulary."""
    sides = {"S": source} if target is None else {"S": source, "T": target}
    names: Names = {
        axis: [model.token_strings(numbers) for numbers in ids.tolist()]
        for axis, ids in sides.items()
    }
    return {**names, "V": [model.vocabulary] * len(source)}


def _steps(steps: Iterable[Step], names: Names) -> Iterator[str]:
    part = ""
    for step in steps:
        now = "/".join(step.path.split("/")[:2]) or step.stage
        if now != part and step.path.startswith(("encoder/", "decoder/")):
            yield from _heading(now)
        part = now
        yield ""
        yield f"{step.path or step.stage} · {step.function}"
        yield f"  {step.entry.title}: {step.entry.formula}   [{step.entry.section}]"
        for parameter in step.parameters:
            yield f"  {'with':<10} {parameter.shape!s:<15} {parameter.name}"
        if step.mask is not None:
            yield from (f"  {line}" for line in mask_lines(step.mask))
        for variable in step.variables:
            yield from (f"  {line}" for line in tensor_lines(variable, names))
        if step.mixing is not None:
            yield f"  positions {describe_mixing(step.function, step.mixing)}"


def _parameters(trace: Trace) -> Iterator[str]:
    blocks = list_parameter_blocks(trace.model.transformer)
    yield from _heading("Parameters")
    for block in blocks:
        yield f"{block.count:>12,}  {block.name:<44} {block.formula}"
    yield f"{sum(block.count for block in blocks):>12,}  total"


# --- Loss -----------------------------------------------------------------------------------------


def _loss(trace: Trace) -> Iterator[str]:
    losses, vocabulary = trace.losses, trace.model.vocabulary
    yield from _heading("Loss [section 5.4]")
    yield f"{'correct token':<30}{'p':>9} {'-log p':>9} {'smoothed':>9}  most probable"
    for row, position in np.argwhere(losses.real):
        correct, probs = losses.target[row, position], np.exp(losses.log_probs[row, position])
        best = (f"{shorten(vocabulary[i])} {probs[i]:.4f}" for i in np.argsort(-probs)[:3])
        where = f"row {row} position {position:<4}{shorten(vocabulary[correct], 12)}"
        costs = losses.cross_entropy[row, position], losses.smoothed[row, position]
        yield f"{where:<30}{probs[correct]:9.4f} {_costs(*costs)}  {'  '.join(best)}"
    tokens = int(losses.real.sum())
    sums = losses.cross_entropy.sum(), losses.smoothed.sum()
    yield f"{'sum':<39} {_costs(*sums)}"
    yield f"{f'mean over {tokens} target tokens':<39} {_costs(*(each / tokens for each in sums))}"
    training = float(trace.training_sums.cross_entropy), float(trace.training_sums.loss)
    yield f"{'sum computed by tfnmt.training.loss':<39} {_costs(*training)}"
    entropy = losses.entropy.sum()
    yield (
        f"with smoothing {losses.smoothing:g}: {sums[1]:.4f} = KL(q || p) {sums[1] - entropy:.4f} "
        f"+ H(q) {entropy:.4f}; H(q) is the same for every model"
    )


def _costs(cross_entropy: float, smoothed: float) -> str:
    return f"{cross_entropy:9.4f} {smoothed:9.4f}"


# --- Search ---------------------------------------------------------------------------------------


def row_lines(search: RowSearch, model: TracedModel) -> Iterator[str]:
    """Yield the search for one sentence: its steps, their tree, and the translation."""
    for step in search.steps:
        yield from _step(step, model)
    yield ""
    yield "search tree, with the probability of each token"
    yield model.vocabulary[BOS]
    yield from _tree(search.steps, 0, 0, "", model)
    yield ""
    alpha = model.decoding.length_penalty
    yield f"tokens     {' '.join(model.token_strings(search.tokens))}"
    yield f"score      {search.score:.4f} = log p / ((5 + {len(search.tokens)}) / 6)^{alpha:g}"
    yield f"text       {search.translation}"


def _step(step: BeamStep, model: TracedModel) -> Iterator[str]:
    yield ""
    yield f"step {step.position}    {'from':>4} {'token':<14} {'p':>8} {'log p so far':>13}"
    for candidate in step.candidates:
        token = shorten(model.vocabulary[candidate.token], 14)
        yield (
            f"{'':10} {candidate.parent:>4} {token:<14} {candidate.probability:8.4f} "
            f"{candidate.log_prob:13.4f}  {describe_outcome(candidate, step)}"
        )
    for finished in step.finished:
        yield f"  finished {finished.score:9.4f}  {' '.join(model.token_strings(finished.tokens))}"
    verdict = "continues" if step.continues else "stops"
    if np.isfinite(step.worst) and np.isfinite(step.bound):
        yield (
            f"  {verdict}: a live hypothesis can reach at most {step.bound:.4f} "
            f"and must exceed {step.worst:.4f}"
        )
    else:
        yield f"  {verdict}"


def _tree(
    steps: Sequence[BeamStep], depth: int, slot: int, indent: str, model: TracedModel
) -> Iterator[str]:
    """Yield the candidates that continue a live hypothesis, and recursively theirs."""
    if depth == len(steps):
        return
    candidates = [each for each in steps[depth].candidates if each.parent == slot]
    for candidate in candidates:
        last = candidate is candidates[-1]
        token = model.vocabulary[candidate.token]
        outcome = describe_outcome(candidate, steps[depth])
        note = "" if candidate.slot is not None else f"  {outcome}"
        yield f"{indent}{'└─' if last else '├─'} {token} {candidate.probability:.4f}{note}"
        if candidate.slot is not None:
            deeper = indent + ("   " if last else "│  ")
            yield from _tree(steps, depth + 1, candidate.slot, deeper, model)
