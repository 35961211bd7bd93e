"""The run folder: what lies where, and which weights stand for the run.

config.yaml          the resolved configuration
tokenizer.model      the SentencePiece model
prepared             the name of the prepared corpus, and the splits that were kept out of it
checkpoints/<step>/  the last checkpoints, each a folder renamed into place when complete
best/<step>/         the checkpoint with the best validation BLEU
averaged/<step>/     the mean of the last checkpoints, written when training ends
logs/                TensorBoard
validations.jsonl    step and BLEU of every validation
evaluations.jsonl    one line per evaluation
summary.json         what the finished training came to; absent until then
"""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tfnmt.config import MAY_CHANGE, Config, build_config, differing_keys, dump_config, read_tree
from tfnmt.errors import UserError
from tfnmt.progress import say
from tfnmt.runs.checkpoints import WEIGHTS, Snapshots
from tfnmt.runtime.files import ASIDE, remove, write_atomically


def home() -> Path:
    """The clone when the package runs from one, else the working folder."""
    clone = Path(__file__).resolve().parent.parent
    return clone if (clone / "pyproject.toml").is_file() else Path.cwd()


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @property
    def tokenizer_path(self) -> Path:
        """The SentencePiece model."""
        return self.path / "tokenizer.model"

    def tokenizer_model(self) -> bytes:
        """What is in it."""
        try:
            return self.tokenizer_path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{self.tokenizer_path}: {error.strerror}; copy the folder of the run as a whole"
            ) from error

    @property
    def logs(self) -> Path:
        """TensorBoard's folder."""
        return self.path / "logs"

    @property
    def evaluations_path(self) -> Path:
        """The evaluations, one JSON object a line."""
        return self.path / "evaluations.jsonl"

    @property
    def summary_path(self) -> Path:
        """What the finished training came to."""
        return self.path / "summary.json"

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return self.summary_path.is_file()

    @property
    def best(self) -> Snapshots:
        """The checkpoint with the best validation BLEU."""
        return Snapshots(self.path / "best", keep=1)

    @property
    def averaged(self) -> Snapshots:
        """The mean of the last checkpoints."""
        return Snapshots(self.path / "averaged", keep=1)

    def checkpoints(self, keep: int = 1) -> Snapshots:
        """The last checkpoints."""
        return Snapshots(self.path / "checkpoints", keep)

    def exists(self) -> bool:
        """Whether a training was ever set up here."""
        return self._config_path.is_file()

    def begun(self) -> bool:
        """Whether there is something to go on from, or to lose by beginning anew."""
        return self.exists() and self._newest() is not None

    def create(
        self, config: Config, tokenizer_model: bytes, prepared: str, held_out: Sequence[str] = ()
    ) -> None:
        """Writes what a run starts with; the configuration last, for it marks the folder.

        `prepared` is the name of the prepared corpus, which tells training text apart, and
        `held_out` the splits that were kept out of it.
        """
        write_atomically(self.tokenizer_path, tokenizer_model)
        lines = "".join(f"{line}\n" for line in (prepared, *held_out))
        write_atomically(self._prepared_path, lines.encode())
        write_atomically(self._config_path, dump_config(config).encode())

    def config(self) -> Config:
        """The configuration that the run was started with."""
        if not self.exists():
            raise UserError(f"{self.path}: no run there (config.yaml is missing); name another")
        return build_config(read_tree(self._config_path))

    def check_same(self, config: Config) -> None:
        """Refuses to go on with another configuration than the run has, but for what may change."""
        keys = [key for key in differing_keys(config, self.config()) if key not in MAY_CHANGE]
        if keys:
            raise UserError(
                f"{self.path}: was started with another {', '.join(keys)}; "
                "use --run_dir for a new run, or the old values to go on"
            )

    def go_on_with(self, config: Config) -> None:
        """Takes over what may change, such as the end: the training is not finished until then."""
        if config != self.config():
            write_atomically(self._config_path, dump_config(config).encode())
            self.summary_path.unlink(missing_ok=True)

    def check_same_text(self, prepared: str) -> None:
        """Refuses to go on with other training text than the run began with."""
        if self._prepared()[0] != prepared:
            raise UserError(
                f"{self.path}: the training or validation text has changed since this run began; "
                "use --run_dir for a new run, or the old text to go on"
            )

    def held_out(self) -> tuple[str, ...]:
        """The splits that were kept out of its training text."""
        return tuple(self._prepared()[1:])

    def _prepared(self) -> list[str]:
        """The name of the prepared corpus, then the splits that were kept out of it."""
        try:
            return self._prepared_path.read_text().splitlines()
        except FileNotFoundError as error:
            raise UserError(
                f"{self.path}: does not tell what text it was trained on, as a bundle does not; "
                "name the run that it was packed from"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other trainings out, and clears away what a killed one had half written."""
        with self._lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{self.path}: another training is at work there; wait for it, or use --run_dir"
                ) from error
            for folder in (self.path, *self.path.iterdir()):
                for partial in folder.glob(ASIDE):
                    remove(partial)
            yield

    def _lock(self) -> IO[str]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return (self.path / ".lock").open("w")
        except OSError as error:
            raise UserError(
                f"--run_dir={self.path}: {error.strerror}; name a folder that can be written"
            ) from error

    def weights(self) -> Path:
        """The weights that stand for the run: averaged, else best, else the newest checkpoint.

        An average of before the training went on stands for it no more.
        """
        self.config()
        newest = self._newest()
        if newest is None:
            raise UserError(f"{self.path}: no model in this run yet; train it first")
        return newest / WEIGHTS

    def _newest(self) -> Path | None:
        averaged, last = self.averaged.newest(), self.checkpoints().newest()
        if averaged and last and not self.finished and _time(averaged) < _time(last):
            averaged = None
        return averaged or self.best.newest() or last

    def append_validation(self, step: int, bleu: float) -> None:
        """Adds a line to validations.jsonl."""
        _append(self._validations_path, {"step": step, "bleu": bleu})

    def validations(self) -> dict[int, float]:
        """Validation BLEU by step; of a step that was made twice, the later one."""
        return {line["step"]: line["bleu"] for line in _read(self._validations_path)}

    def append_evaluation(self, evaluation: dict[str, Any]) -> None:
        """Adds a line to evaluations.jsonl."""
        _append(self.evaluations_path, evaluation)

    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations so far, the oldest first."""
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


def newest_finished_run(folder: Path) -> Run:
    """The run in `folder` whose training ended last."""
    finished = [run for run in map(Run, folder.glob("*")) if run.finished]
    if not finished:
        raise UserError(f"--model: no finished run in {folder}; `make demo` trains one")
    return max(finished, key=lambda run: run.summary_path.stat().st_mtime)


def _time(folder: Path) -> int:
    return folder.stat().st_mtime_ns


def _append(path: Path, scores: dict[str, Any]) -> None:
    """Adds a line of JSON to a file, also after half a line, which a full disk leaves."""
    # For a name of a file that is not UTF-8 there is the escape that JSON has for it.
    line = f"{json.dumps(scores, ensure_ascii=False)}\n".encode(errors="backslashreplace")
    try:
        with path.open("ab+") as file:
            file.seek(max(0, file.tell() - 1))
            file.write(line if file.read() in (b"", b"\n") else b"\n" + line)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the scores are not kept there") from error


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file but for half ones; none where there is no file."""
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            say(f"{path}: line {number} is not whole, and passed over")
    return found
