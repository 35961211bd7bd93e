"""The stages of data diversification, and where their files are.

config.yaml                     the configuration
real/train.en, train.de         the training text, cleaned
real/val.en, val.de             the validation set
round-1/en-de-1/, en-de-1.yaml  the run of a teacher, and its configuration
round-1/en-de-1.beam.de         its translation of real/train.en
round-1/corpus-en-de/           the corpus of the next round's teachers, or of the student
student/, student.yaml          the run of the student, and its configuration
speed.json                      lines and seconds of the translations, for the forecast
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tfnmt.config import (
    Config,
    DiversificationConfig,
    Tree,
    build_config,
    merge,
    parse_overrides,
)
from tfnmt.diversification.stages import Languages, Merging, Part, Stage, Training, Translation
from tfnmt.errors import UsageError


class Layout(NamedTuple):
    """The names of the files of data diversification."""

    folder: Path
    languages: Languages  # source and target of the student

    @property
    def real_folder(self) -> Path:
        """The folder of the real text."""
        return self.folder / "real"

    def real(self, split: str) -> dict[str, Path]:
        """Return the files of a split of the real text, by language."""
        return {language: self.real_folder / f"{split}.{language}" for language in self.languages}

    def in_round(self, number: int, name: str) -> Path:
        """Return a path of a round."""
        return self.folder / f"round-{number}" / name

    def corpus(self, number: int, languages: Languages) -> dict[str, Path]:
        """Return the files of the corpus of a round for a direction, by language."""
        folder = self.in_round(number, f"corpus-{'-'.join(languages)}")
        return {language: folder / f"train.{language}" for language in languages}

    @property
    def speed(self) -> Path:
        """The speed of translating."""
        return self.folder / "speed.json"

    @property
    def student(self) -> Path:
        """The run of the student."""
        return self.folder / "student"


@dataclass(frozen=True)
class _Side:
    """One direction: its teachers translate one side of the real text."""

    languages: Languages
    decodings: Sequence[str]
    changes: Sequence[str]  # of the teachers' configuration
    key: str  # the configuration key of the changes


def make_stages(folder: Path, config: Config, flags: Sequence[str] = ()) -> list[Stage]:
    """Return all stages in their order.

    Args:
        folder: The folder of all files, an absolute path.
        config: The configuration. Its sections, changed by `diversification.forward_teacher`,
            `backward_teacher` and `student`, are those of the runs.
        flags: More flags of `train`.

    Raises:
        UsageError: The configuration of a run is invalid.
    """
    return list(_Plan(folder, config, tuple(flags)).stages())


class _Plan:
    """Makes the stages, whose later ones depend on the names of earlier ones."""

    def __init__(self, folder: Path, config: Config, flags: tuple[str, ...]) -> None:
        section, data = config.diversification, config.data
        self.config = config
        self.flags = flags
        self.section: DiversificationConfig = section
        languages = (data.source, data.target)
        self.layout = Layout(folder, languages)
        self.sides = [
            side
            for side in (
                _Side(languages, section.forward, section.forward_teacher, "forward_teacher"),
                _Side(
                    languages[::-1], section.backward, section.backward_teacher, "backward_teacher"
                ),
            )
            if side.decodings
        ]
        self.translations: list[Translation] = []
        self.first_teachers: dict[Languages, Training] = {}

    def stages(self) -> Iterator[Stage]:
        """Yield the stages of all rounds, then the student."""
        languages = self.layout.languages
        last = self.section.rounds
        for number in range(1, last + 1):
            for side in self.sides:
                yield from self._teachers(number, side)
            yield self._corpus(number, languages)
            if number < last and self.section.backward:
                yield self._corpus(number, languages[::-1])
        teacher = next(iter(self.first_teachers.values()))
        tree = self._tree(languages, last, self.config.training.seed, teacher)
        yield self._training(self.layout.student, tree, last, self.section.student, "student")

    def _teachers(self, number: int, side: _Side) -> Iterator[Stage]:
        """Yield the teachers of a direction in a round, each with its translations."""
        source, target = side.languages
        for teacher in range(self.section.teachers):
            name = f"{source}-{target}-{teacher + 1}"
            seed = self.config.training.seed + (number - 1) * self.section.teachers + teacher
            first = self.first_teachers.get(side.languages) if number > 1 else None
            tree = self._tree(side.languages, number - 1, seed, first)
            path = self.layout.in_round(number, name)
            training = self._training(path, tree, number - 1, side.changes, side.key)
            self.first_teachers.setdefault(side.languages, training)
            yield training
            for decoding in side.decodings:
                translation = Translation(
                    run_dir=path,
                    source=self.layout.real("train")[source],
                    output=self.layout.in_round(number, f"{name}.{decoding}.{target}"),
                    flags=self._decoding_flags(decoding, seed),
                )
                self.translations.append(translation)
                yield translation

    def _decoding_flags(self, decoding: str, seed: int) -> tuple[str, ...]:
        if decoding == "beam":
            return ()
        return ("--sample", f"--temperature={self.section.temperature}", f"--seed={seed}")

    def _corpus(self, number: int, languages: Languages) -> Merging:
        """Return the merging of the real text and all translations until now."""
        real = self.layout.real("train")
        parts = [Part(real, None)] * self.section.real_copies
        for translation in self.translations:
            synthetic = translation.output.suffix.removeprefix(".")
            parts.append(Part(real | {synthetic: translation.output}, synthetic))
        return Merging(self.layout.corpus(number, languages), tuple(parts), self.section.tag)

    def _tree(
        self, languages: Languages, number: int, seed: int, tokenizer_of: Training | None
    ) -> Tree:
        """Return the configuration of a run on the corpus of a round; 0 means the real text.

        The text is already clean, and its repeated pairs are intended.
        """
        train = self.layout.corpus(number, languages) if number else self.layout.real("train")
        data = {
            "corpus": None,
            "source": languages[0],
            "target": languages[1],
            "directions": None,
            "train": _names(train, languages),
            "val": _names(self.layout.real("val"), languages),
            "max_pairs": None,
        }
        tree = merge(
            self.config.of_run().model_dump(),
            {"data": data, "cleaning": {"duplicates": False}, "training": {"seed": seed}},
        )
        given = self.config.tokenizer.from_run or self.config.training.init_from
        if tokenizer_of is None or given:
            return tree
        vocab_size = tokenizer_of.config.tokenizer.vocab_size
        tokenizer = {"from_run": str(tokenizer_of.path), "vocab_size": vocab_size}
        return merge(tree, {"tokenizer": tokenizer})

    def _training(
        self, path: Path, tree: Tree, number: int, changes: Sequence[str], key: str
    ) -> Training:
        place = f"diversification.{key}"
        overrides = parse_overrides(changes, place)
        copies = self.section.real_copies + self._translations_until(number) if number else 1
        try:
            return Training(path, build_config(merge(tree, overrides)), copies, self.flags)
        except UsageError as error:
            raise UsageError(*(f"{place}: {problem}" for problem in error.problems)) from error

    def _translations_until(self, number: int) -> int:
        return number * self.section.teachers * sum(len(side.decodings) for side in self.sides)


def _names(files: Mapping[str, Path], languages: Languages) -> tuple[str, ...]:
    return tuple(str(files[language]) for language in languages)
