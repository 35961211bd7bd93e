"""A translation job: everything that decides the output line of an input line.

A job is a small value that any process can load: the command `translate`, or a worker that
translates one shard of a file after another.
"""

import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tfnmt.config import SamplingConfig
from tfnmt.data.corpora.text_files import decode_lines
from tfnmt.errors import UserError
from tfnmt.loading.models import ExportModel, RunModel
from tfnmt.progress import LineNotes, ReplacementNotes
from tfnmt.runtime.executors import Process
from tfnmt.runtime.shards import Shard, write_part
from tfnmt.runtime.startup import PARALLEL_STREAMS, configure_threads

if TYPE_CHECKING:
    from tfnmt.decoding.lines import BatchTranslator, Translation


class Translate(Protocol):
    """Translates windows of lines; see `tfnmt.decoding.lines.translate_lines`."""

    def __call__(
        self, windows: Iterable[list[str]], first_line: int, min_batches: int = PARALLEL_STREAMS
    ) -> Iterator["Translation"]:
        """Yield a translation per line."""


class TranslationNotes:
    """Notes about lines, reported at the end."""

    def __init__(self, max_source_length: int) -> None:
        self.replaced = ReplacementNotes()
        self.truncated = LineNotes(
            f"longer than {max_source_length} tokens (decoding.max_source_length), truncated",
            "--split_sentences translates sentence by sentence",
        )

    def merge(self, other: "TranslationNotes") -> None:
        """Add the notes about other lines of the same file."""
        self.replaced.merge(other.replaced)
        self.truncated.merge(other.truncated)

    def close(self, place: str = "") -> None:
        """Report the notes on stderr."""
        self.truncated.close(place)
        self.replaced.close(place)


@dataclass(frozen=True)
class TranslationJob:
    """The model, the kind of translation, and the form of the output."""

    model: RunModel | ExportModel
    target: str | None  # the language that the graphs take, if they take one
    language: str  # of the text, to split it into sentences
    splits: bool  # whether lines are split into sentences
    nbest: int | None = None
    json: bool = False
    scores: bool = False
    sampling: SamplingConfig | None = None  # None searches for the best translation
    seed: int = 1
    prefix: str = ""

    def load(self) -> Translate:
        """Load the model.

        Raises:
            UserError: The model is damaged, or an earlier version exported it.
        """
        translator = self._batch_translator()
        from tfnmt.decoding.lines import sentence_splitter, translate_lines, whole_line

        split = sentence_splitter(self.language) if self.splits else whole_line

        def translate(
            windows: Iterable[list[str]], first_line: int, min_batches: int = PARALLEL_STREAMS
        ) -> Iterator["Translation"]:
            return translate_lines(translator, windows, split, first_line, min_batches)

        return translate

    def notes(self) -> TranslationNotes:
        """Return empty notes."""
        return TranslationNotes(self.model.config.decoding.max_source_length)

    def format_all(
        self, translations: Iterable["Translation"], notes: TranslationNotes, first_line: int
    ) -> Generator[str, None, None]:
        """Yield the output lines, and note the lines that were truncated.

        Args:
            translations: The translation of each line.
            notes: Receives the line numbers.
            first_line: The number of lines in front of the first one.
        """
        for number, translation in enumerate(translations, start=first_line + 1):
            if translation.truncated:
                notes.truncated.add(number)
            yield self._format(translation)

    def _batch_translator(self) -> "BatchTranslator":
        """Load the model and return the kind of translator that the job selects."""
        if isinstance(self.model, ExportModel):
            graphs = self.model.load()
            if (self.json or self.nbest) and "align_tokens" not in graphs:
                raise UserError(
                    f"{self.model.name}: made by an earlier version, without token ids; export the "
                    "run again, or omit --json and --nbest"
                )
        else:
            graphs = self.model.load(self.prefix, self.sampling)

        from tfnmt.decoding.lines import (
            found_translations,
            nbest_translations,
            sampled_translations,
            with_log_probs,
        )
        from tfnmt.decoding.signatures import with_target

        graphs = with_target(graphs, self.target)
        if self.nbest:
            return nbest_translations(graphs, self.nbest)
        translator = found_translations(graphs, graphs["search"])
        if self.sampling is not None:
            longest = self.model.config.decoding.max_translation_length
            translator = sampled_translations(graphs, graphs["sample"], longest, self.seed)
        return with_log_probs(translator, graphs) if self.json else translator

    def _format(self, translation: "Translation") -> str:
        """Return the output line of a translation."""
        if self.json or self.nbest:
            return json.dumps(_json_line(translation), ensure_ascii=False)
        best = translation.best
        return f"{best.score:.4f}\t{best.text}" if self.scores else best.text


def _json_line(translation: "Translation") -> dict[str, object]:
    return {
        "source": translation.source,
        "translations": [
            {
                "text": text,
                "score": round(score, 4),
                "tokens": tokens,
                "token_log_probs": [round(log_prob, 4) for log_prob in log_probs],
            }
            for text, score, tokens, log_probs in translation.hypotheses
        ],
        "truncated": translation.truncated,
        "warnings": translation.warnings,
    }


@dataclass(frozen=True)
class TranslationWork:
    """The translation of shards, whose results are notes."""

    job: TranslationJob

    def load(self) -> Process:
        """Load the model."""
        configure_threads()
        return partial(_translate_shard, self.job, self.job.load())


def _translate_shard(
    job: TranslationJob, translate: Translate, shard: Shard, attempt: int
) -> Generator[int, None, TranslationNotes]:
    from tfnmt.decoding.lines import read_windows

    notes, first = job.notes(), shard.first_line
    text = decode_lines(shard.read(), str(shard.origin), "replace", first + 1)
    windows = read_windows(notes.replaced.check(text, first + 1))
    # One batch at least, on every machine: the batches do not depend on its number of CPUs.
    translations = translate(windows, first, min_batches=1)
    with closing(job.format_all(translations, notes, first)) as lines:
        yield from write_part(shard.part, attempt, lines, shard.lines)
    return notes
