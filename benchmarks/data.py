"""Measure the preparation and the input pipeline of a corpus of WMT size.

    python -m benchmarks.data [--pairs=4500000] [--data_dir=data] [--work_dir=D]
        [--max_words=43] [--task=prepare --task=start --task=pipeline] [--workers=2]

Makes English-German pairs by concatenating sentences of tatoeba, multi30k and newstest2013. By
default, they have about 25 words per side. Prepares them with the tfnmt commands, and reads batches
as training does. With --workers, workers of Ray prepare them again. Prints one JSON line per
measurement. peak_resident_mb is the memory of a command and all its child processes,
largest_process_mb that of the largest one.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from tfnmt.cli import define_data_dir, run_command
from tfnmt.config import Config, build_config
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import log, progress_bar
from tfnmt.runtime.files import atomic_path

LANGUAGES = ("en", "de")
SOURCES = ("tatoeba/de-en/train", "multi30k/train", "wmt14/de-en/newstest2013")
MIN_WORDS = 5
"""English words of the shortest pair. The number of words is uniform up to --max_words."""

VOCABULARY = 37_000
BPE_DROPOUTS = (0.0, 0.1)
TURNS = 5
BATCHES = 200
"""Batches to read per turn."""

STEPS = 20
"""Training steps to measure. As many come first and are not counted."""

FLAGS = flags.FlagValues()
flags.DEFINE_integer("pairs", 4_500_000, "pairs to prepare", 1, flag_values=FLAGS)
flags.DEFINE_integer("max_words", 43, "words of the longest pair", MIN_WORDS, flag_values=FLAGS)
flags.DEFINE_multi_enum(
    "task",
    ["prepare", "start", "pipeline"],
    ["prepare", "start", "pipeline"],
    "what to measure; start and pipeline use the corpus of prepare",
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "workers", 0, "also prepare with this many workers of Ray", 0, flag_values=FLAGS
)
flags.DEFINE_string("work_dir", None, "folder that keeps the corpus", flag_values=FLAGS)
define_data_dir(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Make the corpus, then measure."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(values.work_dir or temporary) / f"{values.pairs}-pairs-{values.max_words}"
        if not text.is_dir():
            with atomic_path(text) as temporary_path:
                _make_corpus(
                    temporary_path, values.pairs, values.max_words, data_folder(values.data_dir)
                )
        # With an existing cache, the commands would have nothing to prepare.
        experiment = Experiment(text, Path(temporary) / "cache")
        if "prepare" in values.task:
            _measure_prepare(experiment, values.pairs, "local")
        if "start" in values.task:
            _measure_start(experiment)
        if "pipeline" in values.task:
            _measure_pipeline(experiment)
        if values.workers:
            other = experiment._replace(cache=Path(temporary) / "other")
            _measure_prepare(other, values.pairs, "ray", f"--workers={values.workers}")


def _make_corpus(folder: Path, count: int, max_words: int, data_dir: Path) -> None:
    """Write big.en and big.de for training, and dev.en and dev.de for validation."""
    sentences = []
    for stem in SOURCES:
        sides = [list(read_lines(data_dir / f"{stem}.{language}")) for language in LANGUAGES]
        sentences += list(zip(*sides, strict=True))
    folder.mkdir()
    for stem, number in (("dev", 100), ("big", count)):
        with (
            (folder / f"{stem}.en").open("w", encoding="utf-8") as english,
            (folder / f"{stem}.de").open("w", encoding="utf-8") as german,
        ):
            pairs = _pairs(sentences, number, max_words)
            for pair in progress_bar(pairs, f"making {stem}", "pairs", number):
                english.write(f"{pair[0]}\n")
                german.write(f"{pair[1]}\n")


def _pairs(
    sentences: list[tuple[str, str]], count: int, max_words: int
) -> Iterator[tuple[str, str]]:
    """Yield pairs, each of which concatenates random sentences."""
    generator = random.Random(count)
    for _ in range(count):
        goal, words, chosen = generator.randint(MIN_WORDS, max_words), 0, []
        while words < goal:
            chosen.append(sentences[int(generator.random() * len(sentences))])
            words += chosen[-1][0].count(" ") + 1
        yield " ".join(one for one, _ in chosen), " ".join(other for _, other in chosen)


class Experiment(NamedTuple):
    """The folders of the corpus and of its cache."""

    text: Path
    cache: Path

    def files(self, stem: str) -> tuple[str, str]:
        """Return the English and the German file of a split."""
        return f"{self.text}/{stem}.en", f"{self.text}/{stem}.de"

    def flags(self) -> list[str]:
        """Return the flags for the tfnmt commands, with the vocabulary size of the paper."""
        return [
            f"--train={','.join(self.files('big'))}",
            f"--val={','.join(self.files('dev'))}",
            f"--cache_dir={self.cache}",
            f"--set=tokenizer.vocab_size={VOCABULARY}",
        ]

    def config(self, **data: Any) -> Config:
        """Return the same configuration, for this process."""
        text = {"corpus": None, "train": self.files("big"), "val": self.files("dev")}
        return build_config({"data": text | data, "tokenizer": {"vocab_size": VOCABULARY}})


def _measure_prepare(experiment: Experiment, pairs: int, executor: str, *arguments: str) -> None:
    command = [*experiment.flags(), f"--executor={executor}", *arguments]
    found = _watch("tfnmt.prepare", command, until=None)
    _print(
        "prepare",
        executor=executor,
        pairs=pairs,
        pairs_per_second=round(pairs / found.seconds),
        **found.fields(),
    )


def _measure_start(experiment: Experiment) -> None:
    """Measure from the start of `train` to its last log line before the first batch."""
    with tempfile.TemporaryDirectory() as run_dir:
        small = [f"--run_dir={run_dir}/run", "--set=training.max_steps=1", "--set=model.d_model=64"]
        found = _watch("tfnmt.train", experiment.flags() + small, until="batches per epoch")
    _print("start", **found.fields())


class Watched(NamedTuple):
    """Time and peak memory of a command."""

    seconds: float
    megabytes: int  # of all processes together
    largest_megabytes: int  # of one process

    def fields(self) -> dict[str, float]:
        """Return the fields of a JSON line."""
        return {
            "seconds": round(self.seconds, 1),
            "peak_resident_mb": self.megabytes,
            "largest_process_mb": self.largest_megabytes,
        }


def _watch(module: str, arguments: list[str], until: str | None) -> Watched:
    """Run a command until it logs a text, or to its end."""
    start = time.perf_counter()
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as p:
        peaks = [(0, 0)]
        ended = threading.Event()
        watcher = threading.Thread(target=_watch_memory, args=(p.pid, peaks, ended))
        watcher.start()
        assert p.stderr is not None
        try:
            for line in p.stderr:
                log(line.strip())
                if until is not None and until in line:
                    break
            else:
                if p.wait():
                    raise UserError(f"{module}: exit status {p.returncode}; see the log above")
            seconds = time.perf_counter() - start
        finally:
            ended.set()
            watcher.join()
            p.kill()
    return Watched(seconds, *(max(peak) for peak in zip(*peaks, strict=True)))


def _watch_memory(pid: int, peaks: list[tuple[int, int]], ended: threading.Event) -> None:
    """Append the memory of all processes, and of the largest one, in MB, until `ended` is set."""
    while not ended.wait(0.2):
        sizes = [_status(process, "VmRSS") // 1024 for process in _process_tree(pid)]
        peaks.append((sum(sizes), max(sizes)))


def _process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    processes = [pid]
    for process in processes:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                processes += map(int, children.read_text().split())
            except OSError:
                continue  # the process has ended in the meantime
    return processes


def _status(pid: int | str, field: str) -> int:
    """Return a field of /proc/PID/status in kB, 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def _measure_pipeline(experiment: Experiment) -> None:
    """Measure target tokens per second of the input pipeline of `fit`, and of training with it."""
    call = f"speeds({str(experiment.text)!r}, {str(experiment.cache)!r})"
    command = [sys.executable, "-c", f"from benchmarks.data import speeds; {call}"]
    measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    trained = measured["training"]
    for bpe_dropout in BPE_DROPOUTS:
        batches = _open_batches(experiment, experiment.config(bpe_dropout=bpe_dropout))
        for _ in islice(batches.since(0, replicas=1), BATCHES):
            pass
        speed = measured[f"{bpe_dropout}"]
        _print(
            "pipeline",
            bpe_dropout=bpe_dropout,
            tokens_per_second=round(speed),
            training_tokens_per_second=round(trained),
            ratio=round(speed / trained, 1),
            anonymous_mb=_status("self", "RssAnon") // 1024,
        )


def _open_batches(experiment: Experiment, config: Config) -> Batches:
    corpus = open_corpus(config.data, config.training.seed, experiment.text)
    prepared = prepare(config, corpus, experiment.cache)
    return Batches(make_plan(config, prepared))


def speeds(text: str, cache: str) -> None:
    """Print the speeds of pipeline and training as JSON.

    Runs in a separate process, so that the memory of TensorFlow is not measured.
    """
    from tfnmt.runtime.startup import import_tensorflow

    import_tensorflow()
    experiment = Experiment(Path(text), Path(cache))
    found = {}
    for bpe_dropout in BPE_DROPOUTS:
        batches = _open_batches(experiment, experiment.config(bpe_dropout=bpe_dropout))
        turns = [_reading_speed(batches, turn * BATCHES) for turn in range(TURNS)]
        found[f"{bpe_dropout}"] = statistics.median(turns)
    found["training"] = _training_speed(experiment)
    print(json.dumps(found))


def _reading_speed(batches: Batches, first: int) -> float:
    stream = _stream(batches, first)
    next(stream)
    start = time.perf_counter()
    tokens = sum(int((next(stream)[1].numpy() != 0).sum()) for _ in range(BATCHES))
    return tokens / (time.perf_counter() - start)


def _training_speed(experiment: Experiment) -> float:
    """Return the target tokens per second of a small model with this vocabulary."""
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.trainer import Trainer

    small = {"model": {"d_model": 128, "d_ff": 256}}
    config = build_config(experiment.config().model_dump() | small)
    trainer = Trainer(Transformer(config.model, VOCABULARY), config.training)
    trainer.make_train_function()
    stream = _stream(_open_batches(experiment, config), 0)
    timed = [_timed_step(trainer.train_function, stream) for _ in range(2 * STEPS)][STEPS:]
    return sum(tokens for tokens, _ in timed) / sum(seconds for _, seconds in timed)


def _stream(batches: Batches, first: int) -> Any:
    """Return an iterator over tensors, as `fit` gets them."""
    import tensorflow as tf

    from tfnmt.training.distribution import distribute_batches

    return iter(distribute_batches(tf.distribute.get_strategy(), batches, first))


def _timed_step(train_step: Callable[[Any], Any], stream: Any) -> tuple[float, float]:
    """Train a step; return its target tokens and its seconds."""
    start = time.perf_counter()
    tokens = float(train_step(stream)["tokens"])
    return tokens, time.perf_counter() - start


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"data.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run_command(main, FLAGS, __doc__)
