"""Translating segments: sentences out, translations in, marks and protected text back in place."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from tfnmt.documents.glossary import Glossary, Match, contains_words
from tfnmt.documents.projection import ModelText, project, restore
from tfnmt.documents.protection import (
    ATTEMPTS,
    Protected,
    choose_stand_ins,
    find_protected,
    is_complete,
)
from tfnmt.documents.segments import Piece, Segment, Translator, divide, joined, merged
from tfnmt.documents.sentences import Span, split_sentences

BATCH = 64
"""Sentences that are translated together, between two reports of progress."""

MAX_SENTENCE = 600
"""Characters after which a sentence is divided at a space: models truncate long sentences."""

MAX_NOTICES = 100

UNWANTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]| {2,}")
"""Parts of a translation that would break a line, or that XML forbids, and repeated spaces."""

Progress = Callable[[int, int], None]
"""Receives the number of finished sentences and that of all sentences. It may raise."""


@dataclass
class Options:
    """The language of the text, and the terms to use.

    Attributes:
        language: Code of the source language, to split sentences.
        glossary: Required translations of terms.
        protect: Whether URLs, placeholders and the like come back unchanged.
    """

    language: str = "en"
    glossary: Glossary | None = None
    protect: bool = True


@dataclass
class Notices:
    """Sentences in which something could not be done as requested."""

    texts: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, text: str) -> None:
        """Count a notice, and keep its text if there are not too many."""
        self.count += 1
        if len(self.texts) < MAX_NOTICES:
            self.texts.append(text)


@dataclass(eq=False)
class _Sentence:
    """A sentence of a segment, or a part of one."""

    pieces: Sequence[Piece]
    protected: Sequence[Protected] = ()
    result: Sequence[Piece] | None = None

    @property
    def final(self) -> Sequence[Piece]:
        """The translation, or the text that needs none."""
        return self.pieces if self.result is None else self.result


def translate_segments(
    segments: Sequence[Segment],
    translator: Translator,
    options: Options,
    progress: Progress | None = None,
) -> Notices:
    """Set the translation of each segment.

    Args:
        segments: The segments of a document.
        translator: Translates and aligns sentences.
        options: The language of the text, and the terms to use.
        progress: Is called after each batch.

    Returns:
        A notice for each protected part that was translated around, and for each term of the
        glossary that is not in the translation.
    """
    notices = Notices()
    parts = [_split(segment, options) for segment in segments]
    sentences = [part for each in parts for part in each if _has_words(part)]
    done = 0
    if progress:
        progress(done, len(sentences))
    remaining = iter(sentences)
    while batch := list(islice(remaining, BATCH)):
        _Batch(translator, options, notices).translate(batch)
        done += len(batch)
        if progress:
            progress(done, len(sentences))
    for segment, each in zip(segments, parts, strict=True):
        segment.translation = merged(piece for part in each for piece in part.final)
    return notices


def count_sentences(segments: Sequence[Segment], options: Options) -> int:
    """Return the number of sentences that a model has to translate."""
    return sum(_has_words(part) for segment in segments for part in _split(segment, options))


def _split(segment: Segment, options: Options) -> list[_Sentence]:
    """Return the sentences of a segment and the white space between them."""
    text = segment.text
    protected = find_protected(segment.pieces, options.protect)
    spans = _join_divided(_divide_long(text, split_sentences(text, options.language)), protected)
    positions = [0, *chain.from_iterable(spans), len(text), len(text) + 1]
    parts = [_Sentence(part) for part in divide(segment.pieces, positions)]
    for sentence, inside in zip(parts[1:-1:2], _by_sentence(spans, protected), strict=True):
        sentence.protected = inside
    return parts


def _by_sentence(
    spans: Sequence[Span], protected: Sequence[Protected]
) -> Iterator[list[Protected]]:
    """Yield the protected parts of each sentence, with their positions in the sentence."""
    number = 0
    for start, end in spans:
        inside: list[Protected] = []
        while number < len(protected) and protected[number].span.start < end:
            span, piece = protected[number]
            if span.start >= start:
                inside.append(Protected(Span(span.start - start, span.end - start), piece))
            number += 1
        yield inside


def _divide_long(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Divide sentences of more than MAX_SENTENCE characters at a space."""
    for start, end in spans:
        while end - start > MAX_SENTENCE:
            middle = text.rfind(" ", start + 1, start + MAX_SENTENCE)
            if middle < 0:
                break
            yield Span(start, middle)
            start = middle + 1
        yield Span(start, end)


def _join_divided(spans: Iterable[Span], protected: Sequence[Protected]) -> list[Span]:
    """Join sentences whose boundary is inside a protected part."""
    joined_spans: list[Span] = []
    remaining = iter([each.span for each in protected])
    inner = next(remaining, None)
    for span in spans:
        while inner and joined_spans and inner.end <= joined_spans[-1].end:
            inner = next(remaining, None)
        if inner and joined_spans and inner.start < joined_spans[-1].end:
            span = Span(joined_spans.pop().start, span.end)
        joined_spans.append(span)
    return joined_spans


def _has_words(sentence: _Sentence) -> bool:
    """Return whether the sentence has letters to translate, outside of its protected parts."""
    if sentence.result is not None:
        return False
    text = joined(sentence.pieces)
    end = 0
    for (start, after), _ in [*sentence.protected, (Span(len(text), len(text)), None)]:
        if any(map(str.isalpha, text[end:start])):
            return True
        end = after
    return False


class _Batch:
    """Translates sentences together."""

    def __init__(self, translator: Translator, options: Options, notices: Notices) -> None:
        self._translator = translator
        self._options = options
        self._notices = notices
        # A stand-in in a translation must not be taken for a term of the glossary.
        self._excluded = options.glossary.words if options.glossary else frozenset()

    def translate(self, sentences: Sequence[_Sentence]) -> None:
        """Set the results of the sentences."""
        for attempt in range(ATTEMPTS):
            sentences = self._attempt(sentences, attempt)
        self._translate_around(sentences)

    def _attempt(self, sentences: Sequence[_Sentence], attempt: int) -> list[_Sentence]:
        """Translate with stand-ins; return the sentences in which one was lost."""
        sources = [self._model_text(sentence, attempt) for sentence in sentences]
        texts = [source.text for source in sources if source]
        translations = iter(self._translator.translate(texts) if texts else ())
        left: list[_Sentence] = []
        finished: list[tuple[_Sentence, ModelText, str]] = []
        for sentence, source in zip(sentences, sources, strict=True):
            translation = UNWANTED.sub(" ", next(translations)) if source else ""
            if source and is_complete(translation, list(source.originals)):
                finished.append((sentence, source, translation))
            else:
                left.append(sentence)
        self._finish(finished)
        return left

    def _finish(self, finished: Sequence[tuple[_Sentence, ModelText, str]]) -> None:
        """Put marks, objects, protected parts and terms into translations."""
        terms = [self._missing_terms(source, text) for _, source, text in finished]
        aligned = [
            bool(missing) or source.needs_alignment
            for missing, (_, source, _) in zip(terms, finished, strict=True)
        ]
        pairs = [
            (source.text, text)
            for (_, source, text), needed in zip(finished, aligned, strict=True)
            if needed
        ]
        alignments = iter(self._translator.align(pairs) if pairs else ())
        for (sentence, source, text), missing, needed in zip(finished, terms, aligned, strict=True):
            if not needed:
                sentence.result = restore(source, text)
                continue
            sentence.result, left = project(source, text, next(alignments), missing)
            for match in left:
                self._notices.add(
                    f"glossary: {match.term}: not translated as {match.translation} in: "
                    f"{joined(sentence.pieces)}"
                )

    def _missing_terms(self, source: ModelText, translation: str) -> list[Match]:
        """Return the terms of the source whose required translation is missing."""
        if not self._options.glossary:
            return []
        return [
            match
            for match in self._options.glossary.find(source.text)
            if not contains_words(translation, match.translation)
        ]

    def _model_text(self, sentence: _Sentence, attempt: int) -> ModelText | None:
        """Return the text that the model reads; None if there are too few stand-ins."""
        text = joined(sentence.pieces)
        words = choose_stand_ins(text, sentence.protected, attempt, self._excluded)
        if words is None:
            return None
        replacements = [
            Piece(word, original.marks)
            for (_, original), word in zip(sentence.protected, words, strict=True)
        ]
        between, inside = _divide_at(sentence, replacements)
        pieces = list(between[0])
        for replacement, after in zip(inside, between[1:], strict=True):
            pieces += [*replacement, *after]
        originals = [original for _, original in sentence.protected]
        return ModelText(pieces, dict(zip(words, originals, strict=True)))

    def _translate_around(self, sentences: Sequence[_Sentence]) -> None:
        """Translate the text between protected parts in parts."""
        options = replace(self._options, protect=False)
        all_parts: list[list[_Sentence]] = []
        for sentence in sentences:
            text = joined(sentence.pieces)
            between, fixed = _divide_at(sentence, [piece for _, piece in sentence.protected])
            parts = _split(Segment(between[0]), options)
            for replacement, after, (_, piece) in zip(
                fixed, between[1:], sentence.protected, strict=True
            ):
                parts.append(_Sentence(replacement, result=replacement))
                parts += _split(Segment(after), options)
                self._notices.add(
                    f"{piece.text}: lost by the model; translated in parts: {text[:MAX_SENTENCE]}"
                )
            all_parts.append(parts)
        self._attempt([part for parts in all_parts for part in parts if _has_words(part)], 0)
        for sentence, parts in zip(sentences, all_parts, strict=True):
            sentence.result = [piece for part in parts for piece in part.final]


def _divide_at(
    sentence: _Sentence, replacements: Sequence[Piece]
) -> tuple[list[list[Piece]], list[list[Piece]]]:
    """Return the pieces between the protected parts, and the replaced protected parts."""
    spans = [span for span, _ in sentence.protected]
    length = len(joined(sentence.pieces))
    parts = divide(sentence.pieces, [0, *chain.from_iterable(spans), length + 1])
    inside = [
        list(_replaced(part, replacement))
        for part, replacement in zip(parts[1::2], replacements, strict=True)
    ]
    return parts[::2], inside


def _replaced(pieces: Sequence[Piece], replacement: Piece) -> Iterator[Piece]:
    """Yield a protected part as one piece, with the objects and marks that are inside."""
    first = True
    for piece in pieces:
        if not piece.text:
            yield piece
        else:
            yield replacement if first else Piece("", piece.marks)
            first = False
