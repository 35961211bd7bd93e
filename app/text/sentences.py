"""Join translated sentences, with the white space unchanged, and pair sentences."""

from collections.abc import Sequence
from heapq import nlargest
from itertools import islice, pairwise
from typing import NamedTuple

from app.engines.engine import Alternative, Direction, Pair, Sentence, Translation
from tfnmt.documents.sentences import Span, split_line, split_lines


class SplitText(NamedTuple):
    """A text, the positions of its sentences and their direction."""

    text: str
    spans: list[Span]
    direction: Direction

    def sentences(self) -> list[Sentence]:
        """Return the sentences."""
        return [Sentence(span.of(self.text), self.direction) for span in self.spans]


class Combination(NamedTuple):
    """One choice of translations for the sentences up to a point, as a linked list.

    Combinations share their beginnings, so extending one copies nothing.
    """

    score: float
    text: str = ""
    previous: "Combination | None" = None

    def texts(self) -> list[str]:
        """Return the chosen translations in the order of the sentences."""
        chosen, combination = [], self
        while combination.previous is not None:
            chosen.append(combination.text)
            combination = combination.previous
        return chosen[::-1]


def join_translations(
    text: str, spans: Sequence[Span], translations: Sequence[Translation]
) -> Translation:
    """Replace the sentences of a text by their translations.

    Args:
        text: The source text.
        spans: Its sentences.
        translations: The translation of each sentence.

    Returns:
        The translation of the text. The score of several sentences is their mean. Its alternatives
        are the next best combinations of one translation per sentence.
    """
    if not spans:
        return Translation(text, 0.0, False)
    count = max(len(translation.alternatives) for translation in translations) + 1
    combinations = [Combination(0.0)]
    for translation in translations:
        choices = (Alternative(translation.text, translation.score), *translation.alternatives)
        extended = (
            Combination(combination.score + score, choice, combination)
            for combination in combinations
            for choice, score in choices
        )
        combinations = nlargest(count, extended, key=lambda combination: combination.score)
    best, *others = (
        Alternative(_replace(text, spans, combination.texts()), combination.score / len(spans))
        for combination in combinations
    )
    truncated = any(translation.truncated for translation in translations)
    return Translation(best.text, best.score, truncated, tuple(others))


def _replace(text: str, spans: Sequence[Span], parts: Sequence[str]) -> str:
    """Return the text with the spans replaced by other parts."""
    gaps = [Span(0, spans[0].start), *(Span(a.end, b.start) for a, b in pairwise(spans))]
    joined = "".join(gap.of(text) + part for gap, part in zip(gaps, parts, strict=True))
    return joined + text[spans[-1].end :]


def pair_sentences(
    pair: Pair, source: str, target: str, limit: int | None = None
) -> list[tuple[Span, Span]]:
    """Pair each sentence of a text with its translation.

    If the numbers of sentences of a line differ, the whole lines are a pair. If the numbers of
    lines differ, the whole texts are.

    Args:
        pair: The text and its translation.
        source: Language of the text.
        target: Language of the translation.
        limit: Number of pairs of lines after which to stop; None pairs the whole texts.
    """
    text, translation, _ = pair
    source_lines, target_lines = split_lines(text), split_lines(translation)
    if not source_lines or not target_lines:
        return []
    if len(source_lines) != len(target_lines):
        return [(_enclosing(source_lines), _enclosing(target_lines))]
    spans: list[tuple[Span, Span]] = []
    for source_line, target_line in islice(zip(source_lines, target_lines, strict=True), limit):
        sources = list(split_line(text, source_line, source))
        targets = list(split_line(translation, target_line, target))
        if len(sources) == len(targets):
            spans += zip(sources, targets, strict=True)
        else:
            spans.append((source_line, target_line))
    return spans


def _enclosing(spans: Sequence[Span]) -> Span:
    return Span(spans[0].start, spans[-1].end)
