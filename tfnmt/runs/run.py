"""The run folder: its files, and the choice of the weights that represent the run.

config.yaml          the resolved configuration
tokenizer.model      the SentencePiece model
prepared             name and checksum of the prepared corpus, then the splits held out of it
checkpoints/<step>/  the last checkpoints, each a folder renamed into place when complete
best/<step>/         the checkpoint with the best validation BLEU
averaged/<step>/     the average of the last checkpoints, written when training ends
logs/                TensorBoard logs
validations.jsonl    step and BLEU of every validation, and BLEU of each direction if several
evaluations.jsonl    one line per evaluation
summary.json         the result of training; exists once training has finished
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfnmt.config import (
    CHANGEABLE_KEYS,
    Config,
    build_config,
    differing_keys,
    dump_config,
    flatten,
    read_tree,
)
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log
from tfnmt.runs.checkpoints import TOKENIZER, WEIGHTS, CheckpointFolder
from tfnmt.runtime.files import (
    append_line,
    exclusive,
    parse_json,
    remove,
    remove_leftovers,
    sync,
    write_atomically,
)


def base_folder() -> Path:
    """Return the root of the repository, or the working folder if tfnmt runs from a wheel."""
    return _repository() or Path.cwd()


def cache_folder() -> Path:
    """Return the folder of files that can be made again: `.cache` in a repository.

    If tfnmt runs from a wheel, it is the user's: `$XDG_CACHE_HOME/tfnmt` or `~/.cache/tfnmt`.
    """
    repository = _repository()
    if repository:
        return repository / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfnmt"


def _repository() -> Path | None:
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").is_file() else None


SECTIONS = [name for name in Config.model_fields if name != "diversification"]
"""The sections of config.yaml, which always has all of them."""


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.path / TOKENIZER

    def tokenizer_model(self) -> bytes:
        """Return the content of tokenizer.model.

        Raises:
            UserError: The file cannot be read.
        """
        try:
            return self.tokenizer_path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{self.tokenizer_path}: {error.strerror}; copy the complete run folder"
            ) from error

    @property
    def logs(self) -> Path:
        """The folder of the TensorBoard logs."""
        return self.path / "logs"

    @property
    def evaluations_path(self) -> Path:
        """The evaluations, one JSON object per line."""
        return self.path / "evaluations.jsonl"

    @property
    def summary_path(self) -> Path:
        """The result of training."""
        return self.path / "summary.json"

    @property
    def finished(self) -> bool:
        """Whether training has finished."""
        return os.path.isfile(self.summary_path)  # also in a folder that cannot be read

    @property
    def best(self) -> CheckpointFolder:
        """The checkpoint with the best validation BLEU."""
        return CheckpointFolder(self.path / "best", keep=1)

    @property
    def averaged(self) -> CheckpointFolder:
        """The averaged checkpoint."""
        return CheckpointFolder(self.path / "averaged", keep=1)

    def checkpoints(self, keep: int = 1) -> CheckpointFolder:
        """Return the folder of the last checkpoints. Writing keeps the newest `keep` of them."""
        return CheckpointFolder(self.path / "checkpoints", keep)

    def exists(self) -> bool:
        """Return whether this is a run folder.

        Raises:
            UserError: The folder cannot be read.
        """
        try:
            return self._config_path.is_file()
        except OSError as error:
            raise UserError(
                f"{self.path}: {error.strerror}; choose a run folder that you can read"
            ) from error

    def has_checkpoint(self) -> bool:
        """Return whether the run has weights: in `checkpoints/`, `best/` or `averaged/`."""
        return self.exists() and self._selected() is not None

    def check_free(self) -> None:
        """Raise a UserError if a new run would mix its files with others in the folder.

        An existing run is no error, and neither are the files that a killed `create` left.
        """
        if self.exists() and self.tokenizer_path.is_file():
            return
        own = {TOKENIZER, self._prepared_path.name, self.logs.name}
        try:
            names = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        except OSError as error:
            raise UserError(f"--run_dir={self.path}: {error.strerror}; choose another") from error
        if foreign := [name for name in names if name not in own and not name.startswith(".")]:
            raise UserError(
                f"--run_dir={self.path}: contains {foreign[0]} but is not a complete run "
                "(config.yaml or tokenizer.model is missing); choose a new or empty folder, or "
                "copy the complete run again"
            )

    def check_resumable(self) -> None:
        """Raise a UserError if the run has weights but lost its checkpoints.

        A new start would replace the weights that are left.
        """
        if self.has_checkpoint() and not self.checkpoints().all() and not self._ended_early():
            raise self.no_checkpoint_left()

    def _ended_early(self) -> bool:
        """Return whether training ended after a validation, but before its first checkpoint."""
        steps = self.validations()
        first_checkpoint = self.config().training.checkpoint_steps
        return bool(steps) and max(steps) <= first_checkpoint and not self.averaged.all()

    def no_checkpoint_left(self) -> UserError:
        """Return the error of a run that has weights but cannot be resumed."""
        return UserError(
            f"{self.path}: cannot be resumed, because checkpoints/ has no complete checkpoint; "
            "copy the complete run again, or start another --run_dir with training.init_from set "
            "to this run"
        )

    def create(
        self, config: Config, tokenizer_model: bytes, prepared: str, held_out: Sequence[str] = ()
    ) -> None:
        """Write the files of a new run; the configuration last, because it marks a run folder.

        Args:
            config: The configuration.
            tokenizer_model: The SentencePiece model.
            prepared: Name and checksum of the prepared corpus, which identify the training data.
            held_out: The splits whose pairs were removed from the training data.
        """
        write_atomically(self.tokenizer_path, tokenizer_model)
        lines = "".join(f"{line}\n" for line in (prepared, *held_out))
        write_atomically(self._prepared_path, lines.encode())
        write_atomically(self._config_path, dump_config(config).encode())

    def config(self) -> Config:
        """Return the configuration of the run.

        Raises:
            UserError: The folder is not a run, or its configuration is invalid.
        """
        if not self.exists():
            raise UserError(f"{self.path}: not a run (config.yaml is missing); choose a run folder")
        tree = read_tree(self._config_path)
        if missing := [name for name in SECTIONS if name not in tree]:
            problem = f"damaged ({missing[0]} is missing); copy the complete run again"
            raise UserError(f"{self._config_path}: {problem}")
        try:
            return build_config(tree)
        except UsageError as error:
            problems = (f"{self._config_path}: {problem}" for problem in error.problems)
            raise UserError(*problems) from error

    def check_config(self, config: Config, changeable: Collection[str] = CHANGEABLE_KEYS) -> None:
        """Raise a UserError for each key that differs and must not change in a run."""
        ours, given = flatten(self.config()), flatten(config)
        problems = [
            f"{self.path}: {_difference(key, ours[key], given[key])}"
            for key in differing_keys(config, self.config())
            if key not in changeable
        ]
        if problems:
            raise UserError(*problems)

    def accept_changes(self, config: Config) -> None:
        """Write a changed configuration. The run is then unfinished until its new limit."""
        if config != self.config():
            # First, because the run must never look finished with a configuration of later steps.
            remove(self.summary_path)
            sync(self.path)
            write_atomically(self._config_path, dump_config(config).encode())

    def was_trained_on(self, name: str) -> bool:
        """Return whether a prepared corpus has the name of the one that the run was started with.

        Raises:
            UserError: The run does not record it.
        """
        return self._prepared()[0].split()[0] == name

    def check_data(self, prepared: str, tokenizer_model: bytes) -> None:
        """Raise a UserError if the run was started with another prepared corpus or tokenizer.

        Args:
            prepared: Name and checksum of the prepared corpus. Runs of earlier versions recorded
                only its name.
            tokenizer_model: The content of its SentencePiece model file.
        """
        recorded = self._prepared()[0].split()
        if recorded != prepared.split()[: len(recorded)]:
            raise UserError(
                f"{self.path}: the training or validation data has changed since the run was "
                "started; resume with the original data, or set --run_dir for a new run"
            )
        if self.tokenizer_model() != tokenizer_model:
            raise UserError(
                f"{self.tokenizer_path}: damaged, or not the tokenizer of the prepared corpus; "
                "copy the complete run folder again"
            )

    def held_out(self) -> tuple[str, ...]:
        """Return the splits whose pairs were removed from the training data."""
        return tuple(self._prepared()[1:])

    def _prepared(self) -> list[str]:
        """Return name and checksum of the prepared corpus, followed by the held-out splits."""
        try:
            lines = self._prepared_path.read_text().splitlines()
        except FileNotFoundError as error:
            raise UserError(
                f"{self.path}: does not record its training data, like every bundle; use the run "
                "that the bundle was made from"
            ) from error
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self._prepared_path}: cannot be read; copy the complete run folder again"
            ) from error
        if not lines or not lines[0].split():
            raise UserError(f"{self._prepared_path}: empty; copy the complete run folder again")
        return lines

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other training processes, and remove incomplete files of killed ones.

        Raises:
            UserError: Another process trains this run, or the folder is not writable.
        """
        problem = "another process trains this run; wait for it, or choose another folder"
        with exclusive(self.path / ".lock", f"--run_dir={self.path}", problem):
            for folder in (self.path, *self.path.iterdir()):
                remove_leftovers(folder)
            yield

    def weights(self) -> Path:
        """Return the weight file of the averaged, else the best, else the newest checkpoint.

        An averaged checkpoint is ignored if training was resumed after it was written. Its name
        is the step of the newest checkpoint at that time.

        Raises:
            UserError: The folder is not a run, or has no weights yet.
        """
        self.config()
        selected = self._selected()
        if selected is None:
            raise UserError(f"{self.path}: the run has no checkpoint yet; train it first")
        return selected / WEIGHTS

    def _selected(self) -> Path | None:
        averaged, last = self.averaged.newest(), self.checkpoints().newest()
        if averaged and last and not self.finished and int(averaged.name) < int(last.name):
            averaged = None
        return averaged or self.best.newest() or last

    def append_validation(
        self, step: int, bleu: float, directions: Mapping[str, float] | None = None
    ) -> None:
        """Append a line to validations.jsonl, with BLEU of each direction if there are several."""
        scores: dict[str, Any] = {"step": step, "bleu": bleu}
        if directions:
            scores["directions"] = dict(directions)
        _append(self._validations_path, scores)

    def validations(self) -> dict[int, float]:
        """Return validation BLEU by step. A repeated step counts with its later value."""
        lines = _read(self._validations_path, _is_validation)
        return {line["step"]: line["bleu"] for line in lines}

    def append_evaluation(self, evaluation: dict[str, Any]) -> None:
        """Append a line to evaluations.jsonl."""
        _append(self.evaluations_path, evaluation)

    def evaluations(self) -> list[dict[str, Any]]:
        """Return all evaluations, the oldest first."""
        return _read(self.evaluations_path)

    @property
    def _validations_path(self) -> Path:
        return self.path / "validations.jsonl"

    @property
    def _prepared_path(self) -> Path:
        return self.path / "prepared"

    @property
    def _config_path(self) -> Path:
        return self.path / "config.yaml"


def newest_finished_run(folder: Path) -> Run | None:
    """Return the run in a folder whose training finished last, or None."""
    finished = [run for run in map(Run, folder.glob("*")) if run.finished]
    return max(finished, key=lambda run: run.summary_path.stat().st_mtime, default=None)


def _difference(key: str, ours: object, given: object) -> str:
    problem = f"{key}: missing;" if given is None else f"{key}={given}:"
    fix = "use that value to resume, or set --run_dir for a new run"
    return f"{problem} the run was started with {ours}; {fix}"


def _append(path: Path, scores: dict[str, Any]) -> None:
    """Append a line of JSON."""
    # File names that are not UTF-8 contain surrogates, which JSON can escape.
    line = f"{json.dumps(scores, ensure_ascii=False)}\n".encode(errors="backslashreplace")
    try:
        append_line(path, line)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the scores were not saved") from error


def _read(
    path: Path, is_valid: Callable[[dict[str, Any]], bool] = lambda line: True
) -> list[dict[str, Any]]:
    """Return the valid lines of a JSON Lines file. A missing file has none."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it readable, or remove it") from error
    objects = []
    for number, line in enumerate(lines, start=1):
        try:
            content = parse_json(line)
        except ValueError:
            content = None
        if isinstance(content, dict) and is_valid(content):
            objects.append(content)
        else:
            log(f"{path}: line {number} is incomplete or invalid; it is skipped")
    return objects


def _is_validation(line: dict[str, Any]) -> bool:
    return isinstance(line.get("step"), int) and isinstance(line.get("bleu"), int | float)
