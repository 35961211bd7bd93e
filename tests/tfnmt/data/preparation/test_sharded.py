"""A corpus that is prepared in shards: the same files as in one process."""

import json
import random
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from tfnmt.config import Config, Tree, build_config, merge
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation import sharded
from tfnmt.data.preparation.prepared import prepare
from tfnmt.data.preparation.sharded import HASHES, Bucket, Shards
from tfnmt.errors import UserError
from tfnmt.runtime.executors import LocalExecutor

WORDS = ["dog", "cat", "bird", "sees", "hears", "the", "a", "home", "Katze", "Hund", "дом", "café"]
BAD = ["", "  ", "dom\x07", "a\ufffd", "x" * 3000, "caf\udce9", "a\u2028b", "tab\there", "a !"]


def side(seed: int, rows: int) -> list[str]:
    """Return lines with duplicates, broken text and empty ones."""
    numbers = random.Random(seed)
    lines = [" ".join(numbers.choices(WORDS, k=numbers.randint(2, 5))) for _ in range(rows)]
    for _ in range(rows // 10):
        lines[numbers.randrange(rows)] = numbers.choice(BAD)
    return lines


def write_text(folder: Path, rows: int) -> Tree:
    """Write a corpus in which a third of the pairs occur twice; return the section `data`."""
    source, target = side(1, rows), side(2, rows)
    repeated = random.Random(3).choices(range(rows), k=rows // 2)
    for name, lines in (("en", source), ("de", target)):
        lines = [*lines, *(lines[row] for row in repeated)]
        train = "".join(f"{line}\n" for line in lines)
        (folder / f"my.{name}").write_bytes(train.encode("utf-8", "surrogateescape"))
    good = [(a, b) for a, b in zip(source, target, strict=True) if a not in BAD and b not in BAD]
    for column, name in enumerate(("en", "de")):
        lines = [pair[column] for pair in good[5:12]]
        (folder / f"val.{name}").write_text("".join(f"{line}\n" for line in lines))
    names = [[str(folder / f"{split}.{name}") for name in ("en", "de")] for split in ("my", "val")]
    return {"corpus": None, "train": names[0], "val": names[1]}


def make_config(folder: Path, changes: Tree, rows: int = 400) -> Config:
    tree = {
        "data": write_text(folder, rows),
        "tokenizer": {"vocab_size": 320},
        "cleaning": {
            "max_characters": 1000,
            "broken": True,
            "duplicates": True,
        },
    }
    return build_config(merge(tree, changes))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_same_files(config: Config, folder: Path, shard_pairs: int) -> None:
    """Check that the folder is the same with and without shards."""
    corpus = open_corpus(config.data, 1, folder)
    whole = prepare(config, corpus, folder / "whole")
    shards = Shards(lambda: nullcontext(LocalExecutor()), shard_pairs)
    split = prepare(config, corpus, folder / "split", shards=shards)
    assert whole.folder.name == split.folder.name
    expected, found = files(whole.folder), files(split.folder)
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if expected[name] != found[name]] == []


@pytest.mark.parametrize("shard_pairs", [7, 100, 10_000])
@pytest.mark.parametrize("bucket_rows", [50, 2**23])
def test_corpus_in_shards_is_the_same(
    shard_pairs: int, bucket_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharded, "BUCKET_ROWS", bucket_rows)
    config = make_config(tmp_path, {})
    assert_same_files(config, tmp_path, shard_pairs)
    (report,) = (tmp_path / "split").rglob("report.json")
    removed = json.loads(report.read_text())["removed"]
    assert removed["duplicates"] > 50
    assert all(removed[rule] for rule in ("empty", "broken", "max_characters", "leakage"))


@pytest.mark.parametrize(
    "changes",
    [
        {"cleaning": {"duplicates": False}},
        {"cleaning": {"leakage": False}},
        {"data": {"val": None}},
        {"data": {"max_pairs": 150}},
    ],
)
def test_corpus_in_shards_is_the_same_with_other_settings(changes: Tree, tmp_path: Path) -> None:
    assert_same_files(make_config(tmp_path, changes), tmp_path, 64)


def test_corpus_of_several_directions_is_the_same(tmp_path: Path) -> None:
    data = {"directions": ["en-de", "de-en"]}
    assert_same_files(make_config(tmp_path, {"data": data}), tmp_path, 64)


def test_no_remaining_pair_is_the_same_error(tmp_path: Path) -> None:
    config = make_config(tmp_path, {"cleaning": {"max_characters": 1}})
    corpus = open_corpus(config.data, 1, tmp_path)
    shards = Shards(lambda: nullcontext(LocalExecutor()), 64)
    with pytest.raises(UserError, match="cleaning removed all 600 training pairs"):
        prepare(config, corpus, tmp_path / "cache", shards=shards)
    assert not list((tmp_path / "cache" / "prepared").glob("*/"))


def test_each_hash_is_in_one_bucket() -> None:
    numbers = np.random.default_rng(1).integers(0, 2**64 - 1, 1000, np.uint64, endpoint=True)
    numbers[:2] = 0, 2**64 - 1
    hashes = np.zeros(1000, HASHES)
    hashes["high"] = np.sort(numbers)
    for count in (1, 2, 3, 7, 64):
        parts = [Bucket(Path(), number, count).range_in(hashes) for number in range(count)]
        assert np.concatenate(parts).tolist() == hashes.tolist()
        assert min(map(len, parts)) > 1000 / count / 3
