import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfnmt
from tfnmt.config import Config, TokenizerConfig, Tree, build_config, dump_config, merge
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.corpora.corpus import Corpus
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.preparation.prepared import Prepared, open_prepared, prepare, prepared_name
from tfnmt.data.preparation.tokenizer import EOS, Tokenizer, train_tokenizer
from tfnmt.errors import UserError

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
WORDS = ["dog", "cat", "bird", "sees", "hears", "follows", "the", "a", "home", "Katze", "Hund"]

KILLED_PROCESS = """
import os, resource, signal, sys
from pathlib import Path
from tfnmt.config import build_config, read_tree
from tfnmt.data.preparation import encoding, prepared
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.report import Report

config = build_config(read_tree(Path(sys.argv[1])))
cache = Path(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def encode(chunk, encode=encoding.encode_chunk):
    return die() if chunk.side == "target" else encode(chunk)

if sys.argv[3] == "text":
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
if sys.argv[3] == "tokenizer":
    prepared._train_tokenizer = die
if sys.argv[3] == "ids":
    encoding.encode_chunk = encode
if sys.argv[3] == "report":
    Report.write = die
prepared.prepare(config, open_corpus(config.data, 1, cache), cache)
"""
"""Prepares a corpus in a process that is killed at the moment in the third argument.

`text`: by the kernel, when a file reaches 40,000 bytes. `tokenizer`: before tokenizer training.
`ids`: after the ids of the source, before those of the target. `report`: before the report.
"""

PREPARING = """
import sys
from pathlib import Path
from tfnmt.config import build_config, read_tree
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation import encoding, prepared

if __name__ == "__main__":
    encoders = encoding._encoders

    def observed(*arguments):
        print("encoding", flush=True)
        return encoders(*arguments)

    encoding._encoders = observed
    config = build_config(read_tree(Path(sys.argv[1])))
    cache = Path(sys.argv[2])
    try:
        prepared.prepare(config, open_corpus(config.data, 1, cache), cache)
    except KeyboardInterrupt:
        sys.exit(print("interrupted", file=sys.stderr) or 130)
"""
"""Prepares a corpus, and prints a line when it starts the processes that encode it."""

CHANGES_OF_THE_IDS: dict[str, Tree] = {
    "vocab_size": {"tokenizer": {"vocab_size": 301}},
    "normalization": {"tokenizer": {"normalization": "nfkc"}},
    "direction": {"data": {"source": "de", "target": "en"}},
    "another language": {"data": {"target": "fr"}},
    "max_pairs": {"data": {"max_pairs": 199}},
    "a rule": {"cleaning": {"duplicates": True}},
    "a rule's limit": {"cleaning": {"max_characters": 10_000}},
    "no leakage": {"cleaning": {"leakage": False}},
}

OTHER_CHANGES: dict[str, Tree] = {
    "model": {"model": {"d_model": 64, "num_heads": 2, "dropout": 0.5, "norm_first": False}},
    "training": {"training": {"max_steps": 3, "warmup_steps": 7, "label_smoothing": 0.0}},
    "seed": {"training": {"seed": 2}},
    "decoding": {"decoding": {"beam_size": 1}},
    "batches": {"data": {"max_length": 64, "batch_tokens": 1000, "bpe_dropout": 0.1}},
}


@dataclass(frozen=True)
class ObservedCorpus:
    """A corpus that signals when it is read, and then waits."""

    corpus: Corpus
    reading: threading.Event
    may_continue: threading.Event
    splits: tuple[str, ...] = ("train", "val")
    held_out: tuple[str, ...] = ("val",)

    def pairs(self, split: str, errors: str = "strict") -> Iterator[Pair]:
        self.reading.set()
        assert self.may_continue.wait(60)
        return self.corpus.pairs(split, errors)

    def files(self, split: str) -> tuple[Path, ...]:
        return self.corpus.files(split)

    def fingerprint(self, split: str) -> list[Any]:
        return self.corpus.fingerprint(split)


def lines(seed: int, rows: int) -> list[str]:
    numbers = random.Random(seed)
    return [" ".join(numbers.choices(WORDS, k=numbers.randint(2, 9))) for _ in range(rows)]


def write(path: Path, text: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return str(path)


def custom_data(
    folder: Path, rows: int = 200, val: bool = True, keys: Tree | None = None
) -> Config:
    train = [write(folder / f"my.{side}", lines(side, rows)) for side in (1, 2)]
    dev = [write(folder / f"dev.{side}", lines(side, 5)) for side in (3, 4)]
    data = {"corpus": None, "train": train, "val": dev if val else None}
    return build_config(merge({"data": data, "tokenizer": {"vocab_size": 300}}, keys or {}))


def prepared_in(cache: Path, config: Config, tokenizer: bytes | None = None) -> Prepared:
    return prepare(config, open_corpus(config.data, config.training.seed, cache), cache, tokenizer)


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "prepared").glob("[!.]*"))


def unlocked_names(cache: Path) -> list[str]:
    """Return the names in the cache, except the empty file that is locked."""
    return [path.name for path in (cache / "prepared").iterdir() if path.suffix != ".lock"]


def run_killed_process(config: Config, folder: Path, at: str) -> int:
    """Prepare in a process that is killed; returns its exit code."""
    path = folder / "config.yaml"
    path.write_text(dump_config(config))
    done = subprocess.run(
        [sys.executable, "-c", KILLED_PROCESS, path, folder / "cache", at],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=False,
    )
    return done.returncode


def rejected(prepared: Prepared) -> list[list[str]]:
    with gzip.open(prepared.folder / "rejected.tsv.gz", "rt", encoding="utf-8", newline="\n") as f:
        return [line.rstrip("\n").split("\t") for line in f]


def times(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(cache.rglob("*"))}


def assert_same(one: Prepared, other: Prepared) -> None:
    assert one.tokenizer.model == other.tokenizer.model
    for name in ("source", "target"):
        np.testing.assert_array_equal(getattr(one, name).ids, getattr(other, name).ids)
        np.testing.assert_array_equal(getattr(one, name).splits, getattr(other, name).splits)


def uses_another_folder(tmp_path: Path, keys: Tree, val: bool = True) -> bool:
    for config in (custom_data(tmp_path, val=val), custom_data(tmp_path, val=val, keys=keys)):
        prepared_in(tmp_path, config)
    return len(folders(tmp_path)) == 2


def test_ids_are_those_of_the_tokenizer_with_eos(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, custom_data(tmp_path))
    for seed, sentences in ((1, prepared.source), (2, prepared.target)):
        encoded = prepared.tokenizer.encode(lines(seed, 200))
        assert [list(sentences[row]) for row in range(200)] == [[*ids, EOS] for ids in encoded]
        assert len(sentences) == 200


def test_ids_decode_to_the_text(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, custom_data(tmp_path))
    ids = [prepared.target[row][:-1].tolist() for row in range(200)]
    assert prepared.tokenizer.decode(ids) == lines(2, 200)


def test_lines_and_ids_have_the_same_rows(tmp_path: Path) -> None:
    config = custom_data(tmp_path)
    sources = lines(1, 200)
    sources[7] = ""
    write(tmp_path / "my.1", sources)
    prepared = prepared_in(tmp_path, config)
    assert len(prepared.source) == 199
    for text, sentences in (
        (prepared.source_lines, prepared.source),
        (prepared.target_lines, prepared.target),
    ):
        assert len(text) == len(sentences) == 199
        flat, lengths = prepared.tokenizer.encode_flat(text.between(0, 199))
        np.testing.assert_array_equal(flat, sentences.ids)
        assert lengths.tolist() == sentences.lengths.tolist()


def test_many_processes_give_the_same_ids_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text has more rows than a chunk, so chunks must be complete and in order."""
    config = custom_data(tmp_path, rows=20_500)
    many = prepared_in(tmp_path / "many", config)
    assert len(many.source) == len(many.target) == 20_500
    last = many.tokenizer.encode([lines(2, 20_500)[-1]])[0]
    assert many.target[20_499].tolist() == [*last, EOS]
    monkeypatch.setattr("tfnmt.data.preparation.encoding.CHUNK", 10**6)
    assert_same(many, prepared_in(tmp_path / "one", config))


def test_prepared_arrays_are_memory_mapped_and_read_only(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, custom_data(tmp_path))
    for sentences in (prepared.source, prepared.target):
        for array in (sentences.ids, sentences.splits):
            assert isinstance(array, np.memmap)
            assert not array.flags.writeable


def test_second_preparation_reads_the_cache(tmp_path: Path) -> None:
    config = custom_data(tmp_path)
    first = prepared_in(tmp_path / "cache", config)
    before = times(tmp_path / "cache")
    assert_same(first, prepared_in(tmp_path / "cache", config))
    assert times(tmp_path / "cache") == before


def test_empty_cache_gives_the_same_corpus(tmp_path: Path) -> None:
    config = custom_data(tmp_path)
    caches = [tmp_path / "one", tmp_path / "two"]
    assert_same(*(prepared_in(cache, config) for cache in caches))
    assert folders(caches[0]) == folders(caches[1])


@pytest.mark.parametrize("keys", CHANGES_OF_THE_IDS.values(), ids=CHANGES_OF_THE_IDS.keys())
def test_keys_that_change_the_ids_change_the_folder(tmp_path: Path, keys: Tree) -> None:
    assert uses_another_folder(tmp_path, keys)


@pytest.mark.parametrize("keys", OTHER_CHANGES.values(), ids=OTHER_CHANGES.keys())
def test_other_keys_do_not_change_the_folder(tmp_path: Path, keys: Tree) -> None:
    assert not uses_another_folder(tmp_path, keys)


@pytest.mark.parametrize(
    ("corpus", "source", "target", "key"),
    [
        ("copy", "digits", "copied", "af9038f00ab6be32"),
        ("reverse", "digits", "reversed", "288321914469dfec"),
        ("reverse", "reversed", "digits", "5301e16de1b96fe9"),
        ("toy", "en", "de", "8130006ba42b5968"),
        ("toy", "de", "en", "bd59e5341153aa64"),
    ],
)
def test_key_of_a_built_in_corpus_is_unchanged(
    tmp_path: Path, corpus: str, source: str, target: str, key: str
) -> None:
    """Another key would prepare the corpus again, and existing runs could not find it.

    In particular, the key must not depend on the source code of the generator.
    """
    config = build_config({"data": {"corpus": corpus, "source": source, "target": target}})
    assert (
        prepared_name(config, open_corpus(config.data, config.training.seed, tmp_path), None) == key
    )


def test_key_does_not_depend_on_the_source_code_of_generators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config({"data": {"corpus": "copy", "source": "digits", "target": "copied"}})

    def read(path: Path, *_: object) -> None:
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(Path, "open", read)  # read_bytes and read_text use it
    assert prepared_name(config, open_corpus(config.data, 1, tmp_path), None) == "af9038f00ab6be32"


def test_seed_changes_the_folder_if_rows_are_held_out(tmp_path: Path) -> None:
    assert uses_another_folder(tmp_path, {"training": {"seed": 2}}, val=False)


@pytest.mark.parametrize(("leakage", "number"), [(True, 2), (False, 1)])
def test_edited_validation_set_changes_the_folder_only_with_the_leakage_rule(
    tmp_path: Path, leakage: bool, number: int
) -> None:
    config = custom_data(tmp_path, keys={"cleaning": {"leakage": leakage}})
    prepared_in(tmp_path, config)
    write(tmp_path / "dev.3", ["another line"] * 5)
    prepared_in(tmp_path, config)
    assert len(folders(tmp_path)) == number


@pytest.mark.parametrize("file", ["my.1", "my.2"])
def test_edited_training_file_changes_the_folder(tmp_path: Path, file: str) -> None:
    config = custom_data(tmp_path)
    prepared_in(tmp_path, config)
    path = tmp_path / file
    path.write_text(path.read_text().replace("dog", "cow"))
    prepared = prepared_in(tmp_path, config)
    assert len(folders(tmp_path)) == 2
    text = {"my.1": prepared.source, "my.2": prepared.target}[file]
    assert prepared.tokenizer.decode([text[0][:-1].tolist()]) == [path.read_text().split("\n")[0]]


def test_max_pairs_limits_the_corpus(tmp_path: Path) -> None:
    config = custom_data(tmp_path, keys={"data": {"max_pairs": 120}})
    prepared = prepared_in(tmp_path, config)
    assert len(prepared.source) == len(prepared.target) == 120


def test_held_out_rows_are_not_in_the_training_pairs(tmp_path: Path) -> None:
    assert len(prepared_in(tmp_path, custom_data(tmp_path, val=False)).source) == 180


def test_mixed_spaces_are_logged_unless_normalized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [f"{line}{space}!" for line, space in zip(lines(2, 200), " \xa0" * 100, strict=True)]
    for normalization, found in ("identity", 1), ("nfkc", 0):
        keys = {"tokenizer": {"vocab_size": 330, "normalization": normalization}}
        config = custom_data(tmp_path, keys=keys)
        write(tmp_path / "my.2", targets)
        prepared = prepared_in(tmp_path, config)
        logged = capsys.readouterr().err
        assert logged.count(": mixed spaces before punctuation (100 U+0020, 100 U+00A0)") == found
    assert prepared.tokenizer.encode([targets[0]]) == prepared.tokenizer.encode(
        [targets[0].replace(" ", "\u202f")]
    )


def test_pairs_with_an_empty_side_are_removed_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = custom_data(tmp_path)
    sources, targets = lines(1, 200), lines(2, 200)
    sources[3], targets[5], targets[199] = "", " \t ", "\u3000"
    write(tmp_path / "my.1", sources)
    write(tmp_path / "my.2", targets)
    prepared = prepared_in(tmp_path, config)
    assert len(prepared.source) == len(prepared.target) == 197
    ids = [prepared.source[row][:-1].tolist() for row in range(197)]
    kept = [line for row, line in enumerate(sources) if row not in {3, 5, 199}]
    assert prepared.tokenizer.decode(ids) == kept
    captured = capsys.readouterr()
    assert "tfnmt: 197 of 200 pairs kept; removed: 3 empty\n" in captured.err
    assert captured.out == ""
    assert rejected(prepared) == [
        ["empty", sources[row], targets[row].replace("\t", " ")] for row in (3, 5, 199)
    ]
    report = json.loads((prepared.folder / "report.json").read_text(encoding="utf-8"))
    assert (report["read"], report["kept"]) == (200, 197)
    assert report["removed"] == {"empty": 3, "leakage": 0}
    assert report["tokens"] == {
        "source": len(prepared.source.ids),
        "target": len(prepared.target.ids),
    }


def test_every_pair_is_kept_or_rejected_once(tmp_path: Path) -> None:
    every = ("identical", "duplicates", "scripts")
    keys: Tree = {"cleaning": {"max_characters": 60, "max_ratio": 2, **dict.fromkeys(every, True)}}
    config = custom_data(tmp_path, rows=3000, keys=keys)
    sources, targets = lines(1, 3000), lines(2, 3000)
    targets[2000:2100] = sources[2000:2100]
    sources[2500:2600], targets[2500:2600] = sources[:100], targets[:100]
    sources[2700], targets[2800] = "", "\u0441\u043e\u0431\u0430\u043a\u0430 " * 4
    write(tmp_path / "my.1", sources)
    write(tmp_path / "my.2", targets)
    write(tmp_path / "dev.3", sources[40:45])
    write(tmp_path / "dev.4", targets[40:45])
    prepared = prepared_in(tmp_path, config)
    sides = (prepared.source_lines, prepared.target_lines)
    kept = zip(*(side.between(0, len(prepared.source)) for side in sides), strict=True)
    out = rejected(prepared)
    assert Counter([*kept, *((source, target) for _, source, target in out)]) == Counter(
        zip(sources, targets, strict=True)
    )
    report = json.loads((prepared.folder / "report.json").read_text(encoding="utf-8"))
    removed = {rule: number for rule, number in report["removed"].items() if number}
    assert removed == dict(Counter(rule for rule, _, _ in out))
    assert removed.keys() > {"empty", "max_ratio", "identical", "duplicates"}


def test_leakage_rule_removes_validation_pairs(tmp_path: Path) -> None:
    counts = {}
    for leakage in (True, False):
        config = custom_data(tmp_path, keys={"cleaning": {"leakage": leakage}})
        write(tmp_path / "dev.3", lines(1, 200)[40:45])
        write(tmp_path / "dev.4", lines(2, 200)[40:45])
        counts[leakage] = len(prepared_in(tmp_path, config).source)
    assert counts == {True: 195, False: 200}


def test_corpus_without_remaining_pairs_is_an_error(tmp_path: Path) -> None:
    config = custom_data(tmp_path)
    write(tmp_path / "my.2", [""] * 200)
    with pytest.raises(UserError, match=r"data\.train: .* 200 training pairs \(200 empty\)"):
        prepared_in(tmp_path, config)
    assert folders(tmp_path) == []


def test_missing_file_error_names_it(tmp_path: Path) -> None:
    config = custom_data(tmp_path)
    (tmp_path / "my.2").unlink()
    with pytest.raises(UserError, match=r"my\.2: No such file or directory; "):
        prepared_in(tmp_path, config)


@pytest.mark.parametrize("at", ["text", "tokenizer", "ids", "report"])
def test_killed_preparation_leaves_no_complete_folder(tmp_path: Path, at: str) -> None:
    config, cache = custom_data(tmp_path, rows=5000), tmp_path / "cache"
    number = signal.SIGXFSZ if at == "text" else signal.SIGKILL
    assert run_killed_process(config, tmp_path, at) == -number
    assert len(unlocked_names(cache)) == 1  # the temporary folder
    assert folders(cache) == []
    assert_same(prepared_in(cache, config), prepared_in(tmp_path / "fresh", config))
    assert len(folders(cache)) == 1


def test_full_disk_leaves_no_files(tmp_path: Path) -> None:
    config = custom_data(tmp_path, rows=5000)
    path, cache = tmp_path / "config.yaml", tmp_path / "cache"
    path.write_text(dump_config(config))
    done = subprocess.run(
        [sys.executable, "-c", KILLED_PROCESS.replace("SIG_DFL", "SIG_IGN"), path, cache, "text"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "UserError" in done.stderr.splitlines()[-1]
    assert "nothing was written" in done.stderr.splitlines()[-1]
    assert unlocked_names(cache) == []


def test_concurrent_preparations_read_the_corpus_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one waits with a log line, and then uses the folder without reading anything."""
    config, cache = custom_data(tmp_path), tmp_path / "cache"
    corpus = open_corpus(config.data, 1, tmp_path)
    second_waits, messages = threading.Event(), []

    def log(message: str) -> None:
        messages.append(message)
        second_waits.set()

    monkeypatch.setattr("tfnmt.runtime.files.log", log)
    first = ObservedCorpus(corpus, reading=threading.Event(), may_continue=second_waits)
    second = ObservedCorpus(corpus, reading=threading.Event(), may_continue=second_waits)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(prepare, config, first, cache)
        assert first.reading.wait(60)
        other = pool.submit(prepare, config, second, cache)
        assert_same(one.result(60), other.result(60))
    assert not second.reading.is_set()
    assert len(messages) == 1
    assert "another process is preparing this corpus" in messages[0]
    assert_same(one.result(), prepared_in(tmp_path / "fresh", config))
    assert len(folders(cache)) == 1


def test_given_tokenizer_is_used_unchanged(tmp_path: Path) -> None:
    """Its ids are used, and the cache distinguishes it from other tokenizers."""
    config = custom_data(tmp_path)
    trained = prepared_in(tmp_path, config)
    model = train_tokenizer(["rest sets", "test trees"] * 20, TokenizerConfig(vocab_size=280))
    given = prepared_in(tmp_path, config, model)
    assert given.tokenizer.model == model != trained.tokenizer.model
    first = given.source_lines.between(0, 1)
    assert list(given.source[0]) == [*Tokenizer(model).encode(first)[0], EOS]
    assert prepared_in(tmp_path, config).tokenizer.model == trained.tokenizer.model


# --- Damaged files, and interruptions -------------------------------------------------------------

VERIFIED = [
    "tokenizer.model",
    *(
        f"train.{side}.{kind}{splits}"
        for side in ("source", "target")
        for kind in ("ids", "txt")
        for splits in ("", ".splits.npy")
    ),
]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, change, empty, Path.unlink])
@pytest.mark.parametrize("name", VERIFIED)
def test_damaged_corpus_is_prepared_again(
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, cache = custom_data(tmp_path, keys={"data": {"bpe_dropout": 0.1}}), tmp_path / "cache"
    first = prepared_in(cache, config)
    content = (first.folder / name).read_bytes()
    damage(first.folder / name)
    capsys.readouterr()
    again = prepared_in(cache, config)
    assert (first.folder / name).read_bytes() == content
    assert again.identity == first.identity
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "again" in line)
    assert f"{first.folder / name}: " in line
    assert len(unlocked_names(cache)) == 1


def test_size_of_text_that_training_does_not_read_is_verified(tmp_path: Path) -> None:
    config, cache = custom_data(tmp_path), tmp_path / "cache"
    path = prepared_in(cache, config).folder / "train.source.txt"
    content = path.read_bytes()
    change(path)
    prepared_in(cache, config)
    assert path.read_bytes() != content
    truncate(path)
    prepared_in(cache, config)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"train.source.ids": 1}', b"[" * 10_000])
def test_corpus_with_damaged_checksums_is_prepared_again(tmp_path: Path, content: bytes) -> None:
    config, cache = custom_data(tmp_path), tmp_path / "cache"
    first = prepared_in(cache, config)
    (first.folder / "checksums.json").write_bytes(content)
    assert prepared_in(cache, config).identity == first.identity


def test_corpus_of_an_earlier_version_has_no_checksums(tmp_path: Path) -> None:
    """It is used unless its files contradict each other."""
    config, cache = custom_data(tmp_path), tmp_path / "cache"
    first = prepared_in(cache, config)
    (first.folder / "checksums.json").unlink()
    before = times(cache)
    assert prepared_in(cache, config).identity == first.identity
    assert times(cache) == before
    truncate(first.folder / "train.target.ids")
    assert prepared_in(cache, config).identity == first.identity
    assert (first.folder / "checksums.json").is_file()


def test_identity_depends_on_the_ids(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, custom_data(tmp_path))
    (prepared.folder / "checksums.json").unlink()
    change(prepared.folder / "train.source.ids")
    assert open_prepared(prepared.folder).identity != prepared.identity


def test_ctrl_c_while_encoding_is_one_exception_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C reaches the encoding processes too; only this process reports it."""
    config, cache = custom_data(tmp_path, rows=100_000), tmp_path / "cache"
    (tmp_path / "config.yaml").write_text(dump_config(config))
    command = [sys.executable, "-c", PREPARING, tmp_path / "config.yaml", cache]
    with subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "encoding\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 2:
            time.sleep(0.01)
        time.sleep(0.3)  # they import modules now
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=100)[1]
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert unlocked_names(cache) == []


# --- Several directions ---------------------------------------------------------------------------

DIRECTIONS = ("en-de", "de-en", "en-fr")


def several_directions(folder: Path, keys: Tree | None = None) -> Config:
    """Return three directions of two pairs of languages, with 200 and 100 pairs."""
    for name, language, seed, rows in (
        ("a", "en", 1, 200),
        ("a", "de", 2, 200),
        ("b", "en", 3, 100),
        ("b", "fr", 4, 100),
    ):
        write(folder / f"{name}.{language}", lines(seed, rows))
        write(folder / f"val_{name}.{language}", lines(seed, rows)[:7])
    names = ("a.en", "a.de", "b.en", "b.fr")
    data = {
        "corpus": None,
        "directions": DIRECTIONS,
        "train": [str(folder / name) for name in names],
        "val": [str(folder / f"val_{name}") for name in names],
    }
    return build_config(merge({"data": data, "tokenizer": {"vocab_size": 300}}, keys or {}))


def test_sources_begin_with_the_language_token_of_their_target(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, several_directions(tmp_path))
    tokens = prepared.tokenizer.language_tokens
    assert list(tokens) == ["de", "en", "fr"]
    assert prepared.directions is not None
    for direction, rows in prepared.directions.items():
        target = direction.split("-")[1]
        for row in rows:
            first, *rest = prepared.source[row].tolist()
            assert first == tokens[target]
            encoded = prepared.tokenizer.encode([prepared.source_lines[row]])[0]
            assert rest == [*encoded, EOS]
            assert prepared.target[row].tolist() == [
                *prepared.tokenizer.encode([prepared.target_lines[row]])[0],
                EOS,
            ]


def test_directions_share_their_text_without_held_out_pairs(tmp_path: Path) -> None:
    config = several_directions(tmp_path)
    prepared = prepared_in(tmp_path, config)
    assert prepared.directions == {
        "en-de": range(193),
        "de-en": range(193, 386),
        "en-fr": range(386, 479),
    }
    forwards = [(prepared.source_lines[row], prepared.target_lines[row]) for row in range(193)]
    backwards = [
        (prepared.target_lines[row], prepared.source_lines[row]) for row in range(193, 386)
    ]
    assert forwards == backwards
    corpus = open_corpus(config.data, 1, tmp_path)
    sides = (text.between(0, 479) for text in (prepared.source_lines, prepared.target_lines))
    text = zip(*sides, strict=True)
    assert set(text).isdisjoint(corpus.pairs("val"))


def test_each_direction_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = prepared_in(tmp_path, several_directions(tmp_path))
    assert "tfnmt: en-fr: 93 of 100 pairs kept; removed: 7 leakage\n" in capsys.readouterr().err
    kept = {}
    for direction in DIRECTIONS:
        report = json.loads((prepared.folder / direction / "report.json").read_text())
        assert (report["source"]["language"], report["target"]["language"]) == tuple(
            direction.split("-")
        )
        kept[direction] = report["kept"]
        assert (prepared.folder / direction / "rejected.tsv.gz").is_file()
    assert kept == {"en-de": 193, "de-en": 193, "en-fr": 93}
    assert [line for line in prepared.table.splitlines() if line in DIRECTIONS] == [*DIRECTIONS]


def test_the_order_of_directions_changes_the_folder(tmp_path: Path) -> None:
    prepared_in(tmp_path, several_directions(tmp_path))
    keys: Tree = {"data": {"directions": ("de-en", "en-de", "en-fr")}}
    prepared_in(tmp_path, several_directions(tmp_path, keys))
    assert len(folders(tmp_path)) == 2


def test_a_list_of_one_direction_has_the_folder_of_a_single_direction(tmp_path: Path) -> None:
    files = {key: [str(tmp_path / f"{key}.{side}") for side in ("en", "de")] for key in ("x", "y")}
    for key, names in files.items():
        for name in names:
            write(Path(name), lines(len(key), 50))
    data: Tree = {"corpus": None, "train": files["x"], "val": files["y"]}
    single, listed = (
        build_config({"data": data | more}) for more in ({}, {"directions": ["en-de"]})
    )
    names = {
        prepared_name(config, open_corpus(config.data, 1, tmp_path), None)
        for config in (single, listed)
    }
    assert len(names) == 1


def test_lost_row_numbers_of_directions_are_prepared_again(tmp_path: Path) -> None:
    config = several_directions(tmp_path)
    prepared = prepared_in(tmp_path, config)
    for content in (None, "{}\n"):
        (prepared.folder / "directions.json").unlink()
        if content is not None:
            (prepared.folder / "directions.json").write_text(content)
        with pytest.raises(UserError, match=r"directions\.json: "):
            open_prepared(prepared.folder)
        assert prepared_in(tmp_path, config).directions == prepared.directions


def test_tokenizer_without_language_tokens_is_refused(tmp_path: Path) -> None:
    model = train_tokenizer(lines(1, 200), TokenizerConfig(vocab_size=300))
    with pytest.raises(UserError, match=r"has no language tokens for de, en, fr; "):
        prepared_in(tmp_path, several_directions(tmp_path), model)


def test_tokenizer_of_several_directions_serves_a_single_one(tmp_path: Path) -> None:
    several = prepared_in(tmp_path, several_directions(tmp_path))
    keys: Tree = {
        "data": {
            "directions": None,
            "train": [str(tmp_path / name) for name in ("a.de", "a.en")],
            "val": [str(tmp_path / f"val_{name}") for name in ("a.de", "a.en")],
            "source": "de",
            "target": "en",
        }
    }
    config = several_directions(tmp_path, keys)
    single = prepared_in(tmp_path, config, several.tokenizer.model)
    assert single.directions is None
    assert single.source[0].tolist() == several.source[193].tolist()


def test_tokenizer_is_trained_once_on_the_text_of_a_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared_in(tmp_path, several_directions(tmp_path))
    assert " tokens on 286 pairs\n" in capsys.readouterr().err
