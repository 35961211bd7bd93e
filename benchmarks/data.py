"""What preparing and reading a corpus of WMT's size costs.

    python -m benchmarks.data [--pairs=4500000] [--data_dir=data] [--work_dir=D]

Makes English-German pairs of 25 words a side on average by stringing sentences of tatoeba, multi30k
and newstest2013 together, prepares them with the commands themselves, and reads batches as training
does. One JSON line a measurement; memory is that of a command and its children together.
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

from tfnmt.cli import define_data_dir, run
from tfnmt.config import Config, build_config
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.corpora.catalog import data_folder, open_corpus
from tfnmt.data.corpora.text_files import read_lines
from tfnmt.data.preparation.prepared import prepare
from tfnmt.errors import UsageError, UserError
from tfnmt.progress import bar, say
from tfnmt.runtime.files import written_aside

LANGUAGES = ("en", "de")
SOURCES = ("tatoeba/de-en/train", "multi30k/train", "wmt14/de-en/newstest2013")
WORDS = (5, 43)
"""A pair is closed once its English side has this many words, drawn evenly: 25 on average."""

VOCABULARY = 37_000
TURNS = 5
BATCHES = 200
BPE_DROPOUTS = (0.0, 0.1)
TRAINED = 20

FLAGS = flags.FlagValues()
flags.DEFINE_integer("pairs", 4_500_000, "pairs to prepare", 1, flag_values=FLAGS)
flags.DEFINE_string("work_dir", None, "keeps the text there", flag_values=FLAGS)
define_data_dir(FLAGS)


def main(values: Any, positional: list[str]) -> None:
    """Makes the text, then measures."""
    if positional:
        raise UsageError(f"{positional[0]}: not expected; see --help")
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(values.work_dir or temporary) / f"{values.pairs}-pairs"
        if not text.is_dir():
            with written_aside(text) as aside:
                _make_text(aside, values.pairs, data_folder(values.data_dir))
        # The cache is a new one: to prepare what is there already costs nothing.
        work = Work(text, Path(temporary) / "cache")
        _measure_prepare(work, values.pairs)
        _measure_start(work)
        _measure_pipeline(work)


def _make_text(folder: Path, count: int, data_dir: Path) -> None:
    """Writes big.en and big.de, and a little to validate on."""
    parts = []
    for stem in SOURCES:
        sides = [list(read_lines(data_dir / f"{stem}.{language}")) for language in LANGUAGES]
        parts += list(zip(*sides, strict=True))
    folder.mkdir()
    for stem, number in (("dev", 100), ("big", count)):
        with (
            (folder / f"{stem}.en").open("w", encoding="utf-8") as english,
            (folder / f"{stem}.de").open("w", encoding="utf-8") as german,
        ):
            for pair in bar(_pairs(parts, number), f"making {stem}", "pairs", number):
                english.write(f"{pair[0]}\n")
                german.write(f"{pair[1]}\n")


def _pairs(parts: list[tuple[str, str]], count: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(count)
    for _ in range(count):
        goal, words, chosen = draw.randint(*WORDS), 0, []
        while words < goal:
            chosen.append(parts[int(draw.random() * len(parts))])
            words += chosen[-1][0].count(" ") + 1
        yield " ".join(one for one, _ in chosen), " ".join(other for _, other in chosen)


class Work(NamedTuple):
    """Where the text lies, and what is made of it."""

    text: Path
    cache: Path

    def files(self, stem: str) -> tuple[str, str]:
        """English and German."""
        return f"{self.text}/{stem}.en", f"{self.text}/{stem}.de"

    def flags(self) -> list[str]:
        """The experiment, as commands take it: the paper's vocabulary."""
        return [
            f"--train={','.join(self.files('big'))}", f"--val={','.join(self.files('dev'))}",
            f"--cache_dir={self.cache}", f"--set=tokenizer.vocab_size={VOCABULARY}",
        ]  # fmt: skip

    def config(self, **data: Any) -> Config:
        """The same experiment, in this process."""
        text = {"corpus": None, "train": self.files("big"), "val": self.files("dev")}
        return build_config({"data": text | data, "tokenizer": {"vocab_size": VOCABULARY}})


def _measure_prepare(work: Work, pairs: int) -> None:
    seconds, peak = _watch("tfnmt.prepare", work.flags(), until=None)
    _print("prepare", pairs=pairs, seconds=round(seconds, 1), peak_resident_mb=peak)


def _measure_start(work: Work) -> None:
    """From the call of `train` to the first batch: the line with the parameters comes before it."""
    with tempfile.TemporaryDirectory() as run_dir:
        small = [f"--run_dir={run_dir}/run", "--set=training.max_steps=1", "--set=model.d_model=64"]
        seconds, peak = _watch("tfnmt.train", work.flags() + small, until="batches a pass")
    _print("start", seconds=round(seconds, 1), peak_resident_mb=peak)


def _watch(module: str, arguments: list[str], until: str | None) -> tuple[float, int]:
    """Seconds until a command prints something (or ends), and its peak of resident memory, MB."""
    start = time.perf_counter()
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as p:
        peaks = [0]
        ended = threading.Event()
        watcher = threading.Thread(target=_sample, args=(p.pid, peaks, ended))
        watcher.start()
        assert p.stderr is not None
        try:
            for line in p.stderr:
                say(line.strip())
                if until is not None and until in line:
                    break
            else:
                if p.wait():
                    raise UserError(f"{module}: ended with exit code {p.returncode}, see above")
            seconds = time.perf_counter() - start
        finally:
            ended.set()
            watcher.join()
            p.kill()
    return seconds, peaks[0]


def _sample(pid: int, peaks: list[int], ended: threading.Event) -> None:
    while not ended.wait(0.2):
        peaks[0] = max(peaks[0], sum(_resident(process) for process in _family(pid)) // 1024)


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    family = [pid]
    for process in family:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                family += map(int, children.read_text().split())
            except OSError:
                continue  # it has ended meanwhile
    return family


def _resident(pid: int) -> int:
    return _status(pid, "VmRSS")


def _status(pid: int | str, field: str) -> int:
    """A line of /proc/PID/status, in kB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def _measure_pipeline(work: Work) -> None:
    """Target tokens a second of the batches alone, as `fit` gets them, and of training on them."""
    call = f"speeds({str(work.text)!r}, {str(work.cache)!r})"
    command = [sys.executable, "-c", f"from benchmarks.data import speeds; {call}"]
    measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    trained = measured["training"]
    for bpe_dropout in BPE_DROPOUTS:
        batches = _open_batches(work, work.config(bpe_dropout=bpe_dropout))
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


def _open_batches(work: Work, config: Config) -> Batches:
    corpus = open_corpus(config.data, config.training.seed, work.text)
    prepared = prepare(config, corpus, work.cache)
    return Batches(make_plan(config, prepared))


def speeds(text: str, cache: str) -> None:
    """Prints both kinds of speed; in a process of its own, for TensorFlow takes much memory."""
    from tfnmt.runtime.startup import import_tensorflow

    import_tensorflow()
    work = Work(Path(text), Path(cache))
    found = {}
    for bpe_dropout in BPE_DROPOUTS:
        batches = _open_batches(work, work.config(bpe_dropout=bpe_dropout))
        turns = [_reading_speed(batches, turn * BATCHES) for turn in range(TURNS)]
        found[f"{bpe_dropout}"] = statistics.median(turns)
    found["training"] = _training_speed(work)
    print(json.dumps(found))


def _reading_speed(batches: Batches, first: int) -> float:
    stream = _fed(batches, first)
    next(stream)
    start = time.perf_counter()
    tokens = sum(int((next(stream)[1].numpy() != 0).sum()) for _ in range(BATCHES))
    return tokens / (time.perf_counter() - start)


def _training_speed(work: Work) -> float:
    """Of a small model with this vocabulary, after some steps to warm up."""
    from tfnmt.model.transformer import Transformer
    from tfnmt.training.trainer import Trainer

    small = {"model": {"d_model": 128, "d_ff": 256}}
    config = build_config(work.config().model_dump() | small)
    trainer = Trainer(Transformer(config.model, VOCABULARY), config.training)
    trainer.make_train_function()
    stream = _fed(_open_batches(work, config), 0)
    timed = [_timed(trainer.train_function, stream) for _ in range(2 * TRAINED)][TRAINED:]
    return sum(tokens for tokens, _ in timed) / sum(seconds for _, seconds in timed)


def _fed(batches: Batches, first: int) -> Any:
    import tensorflow as tf

    from tfnmt.training.distribution import distribute_batches

    return iter(distribute_batches(tf.distribute.get_strategy(), batches, first))


def _timed(step: Callable[[Any], Any], stream: Any) -> tuple[float, float]:
    start = time.perf_counter()
    tokens = float(step(stream)["tokens"])
    return tokens, time.perf_counter() - start


def _print(task: str, **fields: Any) -> None:
    print(json.dumps({"task": f"data.{task}", **fields}), flush=True)


if __name__ == "__main__":
    run(main, FLAGS, __doc__)
