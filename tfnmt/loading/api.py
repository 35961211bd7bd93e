"""The Python API: load a model, then translate, score or align text.

    translator = tfnmt.load("tatoeba-en-de-fr-es")
    print(translator.translate(["Where can I buy a ticket?"], target="de")[0].text)

`load` and the types of the results are also names of the package `tfnmt`.
"""

import os
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tfnmt.decoding.lines import (
    WINDOW,
    Hypothesis,
    Signatures,
    Translation,
    force_decode_pairs,
    found_translations,
    length_batches,
    nbest_translations,
    read_windows,
    sentence_splitter,
    translate_lines,
    whole_line,
)
from tfnmt.decoding.scorer import Scored, Scorer
from tfnmt.decoding.signatures import with_target
from tfnmt.decoding.warnings import ForcedDecoding
from tfnmt.errors import UsageError, UserError
from tfnmt.loading.directions import bound_language, find_target, only_source
from tfnmt.loading.models import ExportModel, LiteRTExport, RunModel, find_model
from tfnmt.runtime.startup import configure_threads


class TextTranslator:
    """A loaded model, text in and text out.

    Every method takes the languages of the text: `target` is needed if the model translates to
    several, and `source` is used to split sentences and to warn of an untrained direction.

    Attributes:
        model: The run or the export.
    """

    def __init__(self, model: RunModel | ExportModel, signatures: Signatures) -> None:
        """Create a translator.

        Args:
            model: The run or the export.
            signatures: Its graphs, from `model.load()`.
        """
        self.model = model
        self._signatures = signatures

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions that the model was trained on, such as `en-de`."""
        return tuple(self.model.config.data.all_directions)

    def translate(
        self,
        texts: Iterable[str],
        *,
        target: str | None = None,
        source: str | None = None,
        nbest: int = 1,
        split_sentences: bool | None = None,
    ) -> list[Translation]:
        """Translate texts.

        Args:
            texts: The texts, each one a sentence or a paragraph.
            target: The language to translate to.
            source: The language of the texts.
            nbest: The maximum number of hypotheses of each text.
            split_sentences: Whether to translate sentence by sentence. The default is that of the
                model, and false for n-best lists.

        Returns:
            A translation per text, with the properties `text` and `score`, and with `hypotheses`,
            the best first.

        Raises:
            UsageError: The model does not translate to this language, or its beam is smaller than
                `nbest`.
            TypeError: The texts are not strings.
        """
        decoding = self.model.config.decoding
        if not 1 <= nbest <= decoding.beam_size:
            raise UsageError(f"nbest={nbest}: must be between 1 and {decoding.beam_size}, the beam")
        if split_sentences is None:
            split_sentences = decoding.split_sentences and nbest == 1
        elif split_sentences and nbest > 1:
            raise UsageError("nbest: not with split_sentences; omit one of them")
        graphs = self._graphs(target, source)
        if nbest > 1:
            translator = nbest_translations(graphs, nbest)
        else:
            translator = found_translations(graphs, graphs["search"])
        language = source or only_source(self.model)
        split = sentence_splitter(language) if split_sentences else whole_line
        return list(translate_lines(translator, read_windows(_texts(texts)), split))

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        target: str | None = None,
        source: str | None = None,
    ) -> list[Scored]:
        """Score given translations.

        Args:
            pairs: (text, translation) pairs.
            target: The language of the translations.
            source: The language of the texts.

        Returns:
            The log probability of each translation, and its score.

        Raises:
            UserError: The model is a SavedModel, which has no tokenizer to score with.
            TypeError: The pairs are not pairs of strings.
        """
        return list(self.scorer(target, source).score(_pairs(pairs)))

    def scorer(self, target: str | None = None, source: str | None = None) -> Scorer:
        """Return a Scorer, for more pairs than fit into memory, or for token ids."""
        model = check_scoring(self.model)
        graphs = self._graphs(target, source)
        return Scorer(graphs, model.tokenizer_model(), model.config.decoding)

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        target: str | None = None,
        source: str | None = None,
    ) -> list[ForcedDecoding]:
        """Align given translations with their texts.

        Args:
            pairs: (text, translation) pairs.
            target: The language of the translations.
            source: The language of the texts.

        Returns:
            For each pair, the tokens of both sides, the log probability of each target token, and
            the attention weights [T, S] of the last decoder layer, the mean of its heads.

        Raises:
            TypeError: The pairs are not pairs of strings.
        """
        graphs = self._graphs(target, source)
        return [each for window in _windows(_pairs(pairs)) for each in _align(graphs, window)]

    def _graphs(self, target: str | None, source: str | None) -> Signatures:
        """Return the graphs with the target language fixed."""
        language = bound_language(self.model, find_target(self.model, source, target))
        return with_target(self._signatures, language)


def load(model: str | os.PathLike[str] | None = None) -> TextTranslator:
    """Load a model.

    A LiteRT export needs no TensorFlow. Runs and SavedModels
    import TensorFlow first, which takes seconds.

    Args:
        model: The name of a model of tfnmt, a run folder, an export, or a bundle: its file, its
            URL, or the unpacked folder. None selects the newest finished run in ./runs, or else the
            default model.

    Raises:
        UserError: There is no such model, or a file of it is missing or damaged.

    Example:
        >>> translator = tfnmt.load("tatoeba-en-de-fr-es")
        >>> translator.translate(["Where can I buy a ticket?"], target="de")[0].text
        'Wo kann ich eine Fahrkarte kaufen?'
    """
    found = find_model(None if model is None else os.fspath(model), {})
    configure_threads()
    return TextTranslator(found, found.load())


def check_scoring(model: RunModel | ExportModel) -> RunModel | LiteRTExport:
    """Return a model that can score translations.

    Raises:
        UserError: The model is a SavedModel, whose tokenizer is inside its graph.
    """
    if not isinstance(model, RunModel | LiteRTExport):
        raise UserError(
            f"{model.name}: a SavedModel; scoring needs the run that it was made from, or a LiteRT "
            "export"
        )
    return model


def _texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list. A single string would be a sequence of characters."""
    if isinstance(texts, str):
        raise TypeError("texts: a string; pass a list of strings")
    texts = list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}]: {reprlib.repr(text)} is not a string; pass strings")
    return texts


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs. A string of two characters would be a pair, too."""
    for number, pair in enumerate(pairs):
        match pair:
            case (str(), str()):
                yield pair
            case _:
                raise TypeError(
                    f"pairs[{number}]: {reprlib.repr(pair)} is not a pair of strings; pass "
                    "(text, translation)"
                )


def _windows(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    pairs = iter(pairs)
    while window := list(islice(pairs, WINDOW)):
        yield window


def _align(graphs: Signatures, pairs: Sequence[tuple[str, str]]) -> list[ForcedDecoding]:
    """Force-decode pairs in batches of similar length, and return them in order."""
    aligned: dict[int, ForcedDecoding] = {}
    for rows in length_batches([max(map(len, pair)) for pair in pairs]):
        sources = [pairs[row][0] for row in rows]
        translations = [Hypothesis(pairs[row][1], 0.0) for row in rows]
        aligned |= zip(rows, force_decode_pairs(graphs, sources, translations), strict=True)
    return [aligned[row] for row in range(len(pairs))]
