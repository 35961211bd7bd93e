"""A trace as text for the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import numpy as np

from tfnmt.data.preparation.tokenizer import BOS
from tfnmt.tracing.beam import BeamStep, RowSearch, describe_fate
from tfnmt.tracing.forward import Losses
from tfnmt.tracing.mixing import describe_mixing
from tfnmt.tracing.steps import Step
from tfnmt.tracing.subject import Subject
from tfnmt.tracing.tensors import Names, clip, list_blocks, mask_lines, tensor_lines
from tfnmt.tracing.trace import Trace, describe_letters, describe_shapes

SHOWN_STEPS = 2
"""Steps of a search whose tensors are shown; the others have the same, with a longer past."""


def loss_lines(trace: Trace) -> Iterator[str]:
    """From text to loss."""
    batch, subject = trace.forward.batch, trace.subject
    yield from _title(trace.title, trace.forward.steps)
    yield from _heading("What goes in")
    for name, ids in batch._asdict().items():
        yield from _ids(name, ids, subject)
    names = _names(subject, batch.source, batch.target_in)
    yield from _steps(trace.forward.steps, names)
    yield from _loss(trace)
    yield from _parameters(trace)


def search_lines(trace: Trace) -> Iterator[str]:
    """From text to translation."""
    source, subject = trace.forward.batch.source, trace.subject
    first = trace.search.decoder[0] if trace.search.decoder else []
    yield from _title(trace.title, [*trace.search.encoder, *first])
    yield from _heading("What goes in")
    yield from _ids("source", source, subject)
    names = _names(subject, source)
    yield from _steps(trace.search.encoder, names)
    for position, steps in enumerate(trace.search.decoder[:SHOWN_STEPS]):
        yield from _heading(f"What the decoder does in step {position}, for all hypotheses at once")
        yield from _steps(steps, names)
    for row, search in enumerate(trace.search.rows):
        yield from _heading(f"Search, row {row} [section 6.1]")
        yield from row_lines(search, subject)
    yield from _parameters(trace)


def nudge_lines(
    losses: Losses, place: tuple[int, int, int], amount: float, pieces: Sequence[str]
) -> Iterator[str]:
    """How the loss moves where so much is added to the logit at a row, position and token."""
    row, position, token = place
    after = losses.nudged(row, position, token, amount)
    slope = losses.slopes[place]
    right = int(losses.target[row, position])
    yield from _heading(
        f"{amount:+g} on the logit of {pieces[token]}, row {row}, position {position}"
    )
    yield f"logit                {losses.logits[place]:9.4f} -> {after.logits[place]:9.4f}"
    for name, number in {pieces[token]: token, pieces[right]: right}.items():
        before, now = (np.exp(each.log_probs[row, position, number]) for each in (losses, after))
        yield f"p({clip(name)})".ljust(20) + f" {before:9.4f} -> {now:9.4f}"
    for name, values, moved in (
        ("cross entropy", losses.cross_entropy, after.cross_entropy),
        ("smoothed loss", losses.smoothed, after.smoothed),
    ):
        change = moved.sum() - values.sum()
        yield f"{name:<20} {values.sum():9.4f} -> {moved.sum():9.4f}   {change:+.4f}"
    by_slope = f"by it alone, {amount:+g} would be {slope * amount:+.4f}"
    yield f"slope p - q          {slope:9.4f}: {by_slope}"


# --- Tensors --------------------------------------------------------------------------------------


def _title(title: str, steps: list[Step]) -> Iterator[str]:
    yield title
    yield f"shapes: {describe_shapes(steps)}"
    yield from wrap(f"letters: {describe_letters(steps)}", 100, subsequent_indent=" " * 9)


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"=== {text} {'=' * max(0, 95 - len(text))}"


def _ids(name: str, ids: np.ndarray, subject: Subject) -> Iterator[str]:
    for row, numbers in enumerate(ids.tolist()):
        pieces = subject.names(numbers)
        widths = [max(len(piece), len(str(i))) for piece, i in zip(pieces, numbers, strict=True)]
        for start, cells in ((f"{name} row {row}", pieces), ("", map(str, numbers))):
            shown = "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
            yield f"{start:<18} {shown}".rstrip()


def _names(subject: Subject, source: np.ndarray, target: np.ndarray | None = None) -> Names:
    """What places are called: positions by their pieces, and the pieces themselves."""
    sides = {"S": source} if target is None else {"S": source, "T": target}
    names: Names = {
        axis: [subject.names(numbers) for numbers in ids.tolist()] for axis, ids in sides.items()
    }
    return {**names, "V": [subject.pieces] * len(source)}


def _steps(steps: Iterable[Step], names: Names) -> Iterator[str]:
    part = ""
    for step in steps:
        now = "/".join(step.place.split("/")[:2]) or step.side
        if now != part and step.place.startswith(("encoder/", "decoder/")):
            yield from _heading(now)
        part = now
        yield ""
        yield f"{step.place or step.side} · {step.function}"
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
    blocks = list_blocks(trace.subject.transformer)
    yield from _heading("Parameters")
    for block in blocks:
        yield f"{block.count:>12,}  {block.name:<44} {block.formula}"
    yield f"{sum(block.count for block in blocks):>12,}  in all"


# --- Loss -----------------------------------------------------------------------------------------


def _loss(trace: Trace) -> Iterator[str]:
    losses, names = trace.losses, trace.subject.pieces
    yield from _heading("Loss [section 5.4]")
    yield f"{'right token':<30}{'p':>9} {'-log p':>9} {'smoothed':>9}  likeliest"
    for row, position in np.argwhere(losses.real):
        right, shares = losses.target[row, position], np.exp(losses.log_probs[row, position])
        best = (f"{clip(names[i])} {shares[i]:.4f}" for i in np.argsort(-shares)[:3])
        where = f"row {row} position {position:<4}{clip(names[right], 12)}"
        costs = losses.cross_entropy[row, position], losses.smoothed[row, position]
        yield f"{where:<30}{shares[right]:9.4f} {_costs(*costs)}  {'  '.join(best)}"
    tokens = int(losses.real.sum())
    sums = losses.cross_entropy.sum(), losses.smoothed.sum()
    yield f"{'sum':<39} {_costs(*sums)}"
    yield f"{f'mean over {tokens} real tokens':<39} {_costs(*(each / tokens for each in sums))}"
    theirs = float(trace.sums.cross_entropy), float(trace.sums.loss)
    yield f"{'the sums of tfnmt.training.loss':<39} {_costs(*theirs)}"
    entropy = losses.entropy.sum()
    yield (
        f"with smoothing {losses.smoothing:g}: {sums[1]:.4f} = KL(q || p) {sums[1] - entropy:.4f} "
        f"+ H(q) {entropy:.4f}, and H(q) is the same for every model"
    )


def _costs(cross_entropy: float, smoothed: float) -> str:
    return f"{cross_entropy:9.4f} {smoothed:9.4f}"


def row_lines(search: RowSearch, subject: Subject) -> Iterator[str]:
    """The search of a sentence's translation: its steps, their tree, and the translation."""
    for step in search.steps:
        yield from _step(step, subject)
    yield ""
    yield "the tree: probability of each piece behind those before it"
    yield subject.pieces[BOS]
    yield from _tree(search.steps, 0, 0, "", subject)
    yield ""
    alpha = subject.decoding.length_penalty
    yield f"found      {' '.join(subject.names(search.tokens))}"
    yield f"score      {search.score:.4f} = log p / ((5 + {len(search.tokens)}) / 6)^{alpha:g}"
    yield f"text       {search.translation}"


def _step(step: BeamStep, subject: Subject) -> Iterator[str]:
    yield ""
    yield f"step {step.position}    {'from':>4} {'piece':<14} {'p':>8} {'log p so far':>13}"
    for candidate in step.candidates:
        piece = clip(subject.pieces[candidate.token], 14)
        yield (
            f"{'':10} {candidate.parent:>4} {piece:<14} {candidate.probability:8.4f} "
            f"{candidate.log_prob:13.4f}  {describe_fate(candidate, step)}"
        )
    for ended in step.finished:
        yield f"  finished {ended.score:9.4f}  {' '.join(subject.names(ended.tokens))}"
    verdict = "goes on" if step.goes_on else "stops"
    if np.isfinite(step.worst) and np.isfinite(step.bound):
        yield (
            f"  {verdict}: a live hypothesis can still come to {step.bound:.4f}, "
            f"and {step.worst:.4f} is to be beaten"
        )
    else:
        yield f"  {verdict}"


def _tree(
    steps: Sequence[BeamStep], depth: int, slot: int, indent: str, subject: Subject
) -> Iterator[str]:
    """What was tried behind a live hypothesis, and behind that."""
    if depth == len(steps):
        return
    tried = [each for each in steps[depth].candidates if each.parent == slot]
    for candidate in tried:
        last = candidate is tried[-1]
        piece = subject.pieces[candidate.token]
        note = "" if candidate.slot is not None else f"  {describe_fate(candidate, steps[depth])}"
        yield f"{indent}{'└─' if last else '├─'} {piece} {candidate.probability:.4f}{note}"
        if candidate.slot is not None:
            deeper = indent + ("   " if last else "│  ")
            yield from _tree(steps, depth + 1, candidate.slot, deeper, subject)
