"""The stages of data diversification: each is finished or not, and can be killed and repeated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from tfnmt.config import Config, dump_config
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.runs.run import Run
from tfnmt.runtime.files import atomic_folder, write_atomically
from tfnmt.runtime.resumable_file import ResumableFile

Languages = tuple[str, str]
"""The source and target language of a direction."""

RunCommand = Callable[[str, Sequence[str]], None]
"""Runs a command, such as `tfnmt.train`, with arguments."""


class Stage(Protocol):
    """A part of the work with a lasting result."""

    @property
    def name(self) -> str:
        """Return the name for log lines."""

    @property
    def finished(self) -> bool:
        """Return whether the result exists and is complete."""

    def run(self, run_command: RunCommand) -> None:
        """Make the result, or resume making it."""


@dataclass(frozen=True)
class Training:
    """A training run of a teacher or of the student."""

    path: Path
    config: Config
    copies: int  # the size of its corpus, relative to the real text
    flags: tuple[str, ...] = ()  # of the command

    @property
    def name(self) -> str:
        """Return the name for log lines."""
        return f"train {_short(self.path)}"

    @property
    def finished(self) -> bool:
        """Return whether training has ended."""
        return Run(self.path).finished

    def run(self, run_command: RunCommand) -> None:
        """Train until the end. An existing run resumes."""
        config = self.path.with_name(f"{self.path.name}.yaml")
        write_atomically(config, dump_config(self.config).encode())
        run_command("tfnmt.train", [f"--config={config}", f"--run_dir={self.path}", *self.flags])


@dataclass(frozen=True)
class Translation:
    """A translation of one side of the real text."""

    run_dir: Path
    source: Path
    output: Path
    flags: tuple[str, ...]  # how to decode

    @property
    def name(self) -> str:
        """Return the name for log lines."""
        return f"translate into {_short(self.output)}"

    @property
    def finished(self) -> bool:
        """Return whether all lines are translated."""
        return ResumableFile(self.output).finished

    @property
    def started(self) -> bool:
        """Return whether some lines are translated."""
        return ResumableFile(self.output).partial.exists()

    def run(self, run_command: RunCommand) -> None:
        """Translate all lines, or the remaining ones. Each pair of the text is one line."""
        files = [f"--model={self.run_dir}", f"--input={self.source}", f"--output={self.output}"]
        run_command("tfnmt.translate", [*files, "--resume", "--nosplit_sentences", *self.flags])


class Part(NamedTuple):
    """A part of a corpus: aligned files by language."""

    files: Mapping[str, Path]
    synthetic: str | None  # the language of the translations, if any


@dataclass(frozen=True)
class Merging:
    """The real text and translations as one corpus, which appears when it is complete."""

    files: Mapping[str, Path]  # by language, the source first
    parts: tuple[Part, ...]
    tag: str | None  # put before each synthetic source

    @property
    def folder(self) -> Path:
        """The folder of the corpus."""
        return next(iter(self.files.values())).parent

    @property
    def name(self) -> str:
        """Return the name for log lines."""
        return f"merge {_short(self.folder)}"

    @property
    def finished(self) -> bool:
        """Return whether the corpus is complete."""
        return self.folder.is_dir()

    def run(self, run_command: RunCommand) -> None:
        """Write the corpus. It needs no command."""
        del run_command
        with atomic_folder(self.folder) as temporary:
            for language, path in self.files.items():
                with (temporary / path.name).open("w", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in self._lines(language))

    def _lines(self, language: str) -> Iterator[str]:
        """Yield one side of all pairs."""
        return chain.from_iterable(self._part_lines(part, language) for part in self.parts)

    def _part_lines(self, part: Part, language: str) -> Iterator[str]:
        lines = read_lines(part.files[language])
        is_source = language == next(iter(self.files))
        if self.tag is not None and is_source and part.synthetic == language:
            return (f"{self.tag} {line}" for line in lines)
        return lines


def _short(path: Path) -> str:
    """Return the last two names of a path, such as round-1/en-de-1."""
    return "/".join(path.parts[-2:])
