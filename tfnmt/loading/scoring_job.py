"""A scoring job: everything that decides the scores of the translations in a line.

A job is a small value that any process can load: the command `score`, or a worker that scores one
shard of a file after another.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, StrictInt, ValidationError

from tfnmt.data.corpora.text_files import decode_lines, decompressed_name
from tfnmt.errors import UserError
from tfnmt.loading.models import LiteRTExport, RunModel
from tfnmt.progress import LineNotes, ReplacementNotes
from tfnmt.runtime.executors import Process
from tfnmt.runtime.shards import Shard, write_part
from tfnmt.runtime.startup import configure_threads

if TYPE_CHECKING:
    from tfnmt.decoding.scorer import Scored, Scorer

Lines = Iterable[tuple[int, str]]
"""Numbered lines."""


class Given(NamedTuple):
    """A translation to score, and the line that it is from."""

    line: int
    source: str
    text: str
    tokens: tuple[int, ...] = ()  # of a hypothesis in a .jsonl file


class Hypothesis(BaseModel):
    """A hypothesis in a line of `translate --json`; other fields are ignored."""

    text: str
    tokens: tuple[StrictInt, ...] | None = None


class JsonLine(BaseModel):
    """A line of `translate --json`; other fields are ignored."""

    source: str
    translations: list[Hypothesis]


class ScoringNotes:
    """Notes about lines, reported at the end."""

    def __init__(self) -> None:
        self.replaced = ReplacementNotes()
        self.changed = LineNotes(
            "the model reads another target than the file has, for example without repeated spaces",
            "the score is that of the text that it reads",
        )
        self.truncated = LineNotes(
            "source or target longer than the limit (decoding.max_source_length, max_length)",
            "only the part within the limit was scored",
        )

    def merge(self, other: "ScoringNotes") -> None:
        """Add the notes about other lines of the same file."""
        self.replaced.merge(other.replaced)
        self.changed.merge(other.changed)
        self.truncated.merge(other.truncated)

    def close(self, place: str = "") -> None:
        """Report the notes on stderr."""
        self.changed.close(place)
        self.replaced.close(place)
        self.truncated.close(place)


Score = Callable[[Path, Iterable[bytes], int, ScoringNotes], Iterator[str]]
"""(file, some of its lines, number of the first one, notes) -> output lines."""


@dataclass(frozen=True)
class ScoringJob:
    """The model and the language."""

    model: RunModel | LiteRTExport
    target: str  # language of the translations

    def load(self) -> Score:
        """Load the model.

        Raises:
            UserError: The model is damaged.
        """
        from tfnmt.loading.api import TextTranslator

        scorer = TextTranslator(self.model, self.model.load()).scorer(self.target)
        return partial(_score_lines, scorer)


def has_ids(path: Path) -> bool:
    """Return whether a file has token ids: whether `translate --json` wrote it."""
    return decompressed_name(path).suffix == ".jsonl"


def _score_lines(
    scorer: "Scorer", path: Path, lines: Iterable[bytes], first: int, notes: ScoringNotes
) -> Iterator[str]:
    """Yield an output line per translation."""
    score = _score_ids if has_ids(path) else _score_texts
    return score(scorer, path, lines, first, notes)


def _score_texts(
    scorer: "Scorer", path: Path, lines: Iterable[bytes], first: int, notes: ScoringNotes
) -> Iterator[str]:
    """Yield an output line per target."""
    from tfnmt.decoding.lines import single_line

    text = decode_lines(lines, str(path), "replace", first)
    numbered = enumerate(notes.replaced.check(text, first), start=first)
    given, again = tee(_read_pairs(path, numbered))
    scored = scorer.score((each.source, each.text) for each in again)
    for each, result in zip(given, scored, strict=True):
        if not result.truncated and result.text != single_line(each.text):
            notes.changed.add(each.line)
        yield _format(each.line, result, notes)


def _read_pairs(path: Path, lines: Lines) -> Iterator[Given]:
    for number, line in lines:
        source, tab, target = line.partition("\t")
        if not tab:
            raise UserError(f"{path}:{number}: no tab; write SOURCE TAB TARGET")
        if "\t" in target:
            raise UserError(f"{path}:{number}: more than one tab; write SOURCE TAB TARGET")
        yield Given(number, source, target)


def _score_ids(
    scorer: "Scorer", path: Path, lines: Iterable[bytes], first: int, notes: ScoringNotes
) -> Iterator[str]:
    """Yield an output line per hypothesis."""
    text = decode_lines(lines, str(path), first=first)
    given, again = tee(_read_json(path, enumerate(text, start=first), scorer.vocab_size))
    scored = scorer.score_ids((each.source, each.tokens) for each in again)
    for each, result in zip(given, scored, strict=True):
        if result.text != each.text:
            raise UserError(
                f"{path}:{each.line}: the token ids give another text; score them with "
                "the run that found them"
            )
        yield _format(each.line, result, notes)


def _read_json(path: Path, lines: Lines, vocab_size: int) -> Iterator[Given]:
    """Yield each hypothesis of each line."""
    for number, line in lines:
        try:
            parsed = JsonLine.model_validate_json(line)
        except ValidationError as error:
            detail = error.errors()[0]
            place = ".".join(map(str, detail["loc"])) or "line"
            raise UserError(
                f"{path}:{number}: {place}: {detail['msg']}; write the file with translate --json"
            ) from error
        for hypothesis in parsed.translations:
            if hypothesis.tokens is None:
                raise UserError(
                    f"{path}:{number}: no token ids, because the sentences of the line "
                    "were translated one by one; translate without --split_sentences"
                )
            if not _are_valid(hypothesis.tokens, vocab_size):
                raise UserError(
                    f"{path}:{number}: not token ids of this run; score them with the run "
                    "that found them"
                )
            yield Given(number, parsed.source, hypothesis.text, hypothesis.tokens)


def _format(line: int, scored: "Scored", notes: ScoringNotes) -> str:
    """Return an output line, and note a truncated input line."""
    if scored.truncated:
        notes.truncated.add(line)
    return f"{scored.log_prob:.4f}\t{scored.score:.4f}\t{scored.tokens}"


def _are_valid(ids: tuple[int, ...], vocab_size: int) -> bool:
    """Return whether a search may have found some ids: EOS is the last one, if there is one."""
    from tfnmt.data.preparation.tokenizer import EOS

    return all(EOS < each < vocab_size for each in ids[:-1]) and (
        not ids or EOS <= ids[-1] < vocab_size
    )


@dataclass(frozen=True)
class ScoringWork:
    """The scoring of shards, whose results are notes."""

    job: ScoringJob

    def load(self) -> Process:
        """Load the model."""
        configure_threads()
        return partial(_score_shard, self.job.load())


def _score_shard(score: Score, shard: Shard, attempt: int) -> Generator[int, None, ScoringNotes]:
    notes = ScoringNotes()
    lines = score(shard.origin, shard.read(), shard.first_line + 1, notes)
    # A line with token ids has any number of hypotheses.
    expected = None if has_ids(shard.origin) else shard.lines
    yield from write_part(shard.part, attempt, lines, expected)
    return notes
