import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tfnmt
from tfnmt.config import Config, Tree, build_config, dump_config, merge
from tfnmt.data.corpora import Corpus, open_corpus
from tfnmt.data.files import Pair
from tfnmt.data.prepared import Prepared, Sentences, prepare
from tfnmt.data.tokenizer import EOS
from tfnmt.errors import UserError

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
WORDS = ["dog", "cat", "bird", "sees", "hears", "follows", "the", "a", "home", "Katze", "Hund"]

KILLED = """
import resource, signal, sys
from pathlib import Path
from tfnmt.config import build_config, read_tree
from tfnmt.data.corpora import open_corpus
from tfnmt.data.prepared import prepare

config = build_config(read_tree(Path(sys.argv[1])))
cache = Path(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
prepare(config, open_corpus(config.data, 1, cache), cache)
"""
"""Killed by the kernel in the midst of writing the ids, which take more than 40,000 bytes."""

SEEN_BY_THE_CACHE: dict[str, Tree] = {
    "vocab_size": {"tokenizer": {"vocab_size": 301}},
    "normalization": {"tokenizer": {"normalization": "nfkc"}},
    "direction": {"data": {"source": "de", "target": "en"}},
    "another language": {"data": {"target": "fr"}},
    "max_pairs": {"data": {"max_pairs": 199}},
}

UNSEEN_BY_THE_CACHE: dict[str, Tree] = {
    "model": {"model": {"d_model": 64, "num_heads": 2, "dropout": 0.5, "norm_first": False}},
    "training": {"training": {"max_steps": 3, "warmup_steps": 7, "label_smoothing": 0.0}},
    "seed": {"training": {"seed": 2}},
    "decoding": {"decoding": {"beam_size": 1}},
    "batches": {"data": {"max_length": 64, "batch_tokens": 1000}},
}


@dataclass(frozen=True)
class Overtaken:
    """A corpus that another process has prepared by the time that it is read."""

    corpus: Corpus
    config: Config
    cache: Path
    splits: tuple[str, ...] = ("train", "val")

    def pairs(self, split: str) -> Iterator[Pair]:
        prepare(self.config, self.corpus, self.cache)
        return self.corpus.pairs(split)

    def files(self, split: str) -> tuple[Path, ...]:
        return self.corpus.files(split)


def lines(seed: int, rows: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(rows)]


def write(path: Path, text: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return str(path)


def own_text(folder: Path, rows: int = 200, val: bool = True, keys: Tree | None = None) -> Config:
    train = [write(folder / f"my.{side}", lines(side, rows)) for side in (1, 2)]
    dev = [write(folder / f"dev.{side}", lines(side, 5)) for side in (3, 4)]
    data = {"corpus": None, "train": train, "val": dev if val else None}
    return build_config(merge({"data": data, "tokenizer": {"vocab_size": 300}}, keys or {}))


def prepared_in(cache: Path, config: Config) -> Prepared:
    return prepare(config, open_corpus(config.data, config.training.seed, cache), cache)


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "prepared").glob("[!.]*"))


def times(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(cache.rglob("*"))}


def assert_same(one: Prepared, other: Prepared) -> None:
    assert one.tokenizer.model == other.tokenizer.model
    for name in ("source", "target"):
        np.testing.assert_array_equal(getattr(one, name).ids, getattr(other, name).ids)
        np.testing.assert_array_equal(getattr(one, name).splits, getattr(other, name).splits)


def changed_folder(tmp_path: Path, keys: Tree, val: bool = True) -> bool:
    for config in (own_text(tmp_path, val=val), own_text(tmp_path, val=val, keys=keys)):
        prepared_in(tmp_path, config)
    return len(folders(tmp_path)) == 2


def test_sentences_are_cut_out_of_flat_arrays() -> None:
    sentences = Sentences(np.array([5, 6, 2, 7, 2], np.uint16), np.array([0, 3, 5]))
    assert len(sentences) == 2
    assert sentences.lengths.tolist() == [3, 2]
    assert [sentences[row].tolist() for row in range(2)] == [[5, 6, 2], [7, 2]]


def test_the_ids_are_the_tokenizers_and_eos(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, own_text(tmp_path))
    for seed, sentences in ((1, prepared.source), (2, prepared.target)):
        encoded = prepared.tokenizer.encode(lines(seed, 200))
        assert [list(sentences[row]) for row in range(200)] == [[*ids, EOS] for ids in encoded]
        assert len(sentences) == 200


def test_the_text_comes_back(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, own_text(tmp_path))
    ids = [prepared.target[row][:-1].tolist() for row in range(200)]
    assert prepared.tokenizer.decode(ids) == lines(2, 200)


def test_more_lines_than_are_encoded_at_once_are_all_there(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, own_text(tmp_path, rows=20_500))
    assert len(prepared.source) == len(prepared.target) == 20_500
    last = prepared.tokenizer.encode([lines(2, 20_500)[-1]])[0]
    assert prepared.target[20_499].tolist() == [*last, EOS]


def test_the_arrays_are_memory_mapped(tmp_path: Path) -> None:
    prepared = prepared_in(tmp_path, own_text(tmp_path))
    for sentences in (prepared.source, prepared.target):
        for array in (sentences.ids, sentences.splits):
            assert isinstance(array, np.memmap)
            assert not array.flags.writeable


def test_the_second_time_the_cache_is_read(tmp_path: Path) -> None:
    config = own_text(tmp_path)
    first = prepared_in(tmp_path / "cache", config)
    before = times(tmp_path / "cache")
    assert_same(first, prepared_in(tmp_path / "cache", config))
    assert times(tmp_path / "cache") == before


def test_a_fresh_cache_gives_the_same(tmp_path: Path) -> None:
    config = own_text(tmp_path)
    caches = [tmp_path / "one", tmp_path / "two"]
    assert_same(*(prepared_in(cache, config) for cache in caches))
    assert folders(caches[0]) == folders(caches[1])


@pytest.mark.parametrize("keys", SEEN_BY_THE_CACHE.values(), ids=SEEN_BY_THE_CACHE.keys())
def test_what_the_ids_depend_on_makes_another_folder(tmp_path: Path, keys: Tree) -> None:
    assert changed_folder(tmp_path, keys)


@pytest.mark.parametrize("keys", UNSEEN_BY_THE_CACHE.values(), ids=UNSEEN_BY_THE_CACHE.keys())
def test_what_the_ids_do_not_depend_on_makes_none(tmp_path: Path, keys: Tree) -> None:
    assert not changed_folder(tmp_path, keys)


def test_the_seed_makes_another_folder_where_rows_are_held_out(tmp_path: Path) -> None:
    assert changed_folder(tmp_path, {"training": {"seed": 2}}, val=False)


@pytest.mark.parametrize("file", ["my.1", "my.2"])
def test_an_edited_file_makes_another_folder(tmp_path: Path, file: str) -> None:
    config = own_text(tmp_path)
    prepared_in(tmp_path, config)
    path = tmp_path / file
    path.write_text(path.read_text().replace("dog", "cow"))
    prepared = prepared_in(tmp_path, config)
    assert len(folders(tmp_path)) == 2
    text = {"my.1": prepared.source, "my.2": prepared.target}[file]
    assert prepared.tokenizer.decode([text[0][:-1].tolist()]) == [path.read_text().split("\n")[0]]


def test_only_so_many_pairs_are_taken(tmp_path: Path) -> None:
    config = own_text(tmp_path, keys={"data": {"max_pairs": 120}})
    prepared = prepared_in(tmp_path, config)
    assert len(prepared.source) == len(prepared.target) == 120


def test_held_out_rows_are_not_trained_on(tmp_path: Path) -> None:
    assert len(prepared_in(tmp_path, own_text(tmp_path, val=False)).source) == 180


def test_pairs_that_lack_a_side_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = own_text(tmp_path)
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
    assert "tfnmt: 3 of 200 pairs lack a side and are left out\n" in captured.err
    assert captured.out == ""


def test_without_any_pair_of_two_sides_there_is_nothing_to_learn(tmp_path: Path) -> None:
    config = own_text(tmp_path)
    write(tmp_path / "my.2", [""] * 200)
    with pytest.raises(UserError, match="no pair with two sides"):
        prepared_in(tmp_path, config)
    assert folders(tmp_path) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    config = own_text(tmp_path)
    (tmp_path / "my.2").unlink()
    with pytest.raises(UserError, match=r"my\.2: No such file or directory; "):
        prepared_in(tmp_path, config)


def test_killed_half_way_nothing_looks_complete(tmp_path: Path) -> None:
    config = own_text(tmp_path, rows=5000)
    path, cache = tmp_path / "config.yaml", tmp_path / "cache"
    path.write_text(dump_config(config))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, path, cache],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ
    assert len(list((cache / "prepared").iterdir())) == 1  # what was written so far
    assert folders(cache) == []
    assert_same(prepared_in(cache, config), prepared_in(tmp_path / "fresh", config))
    assert len(folders(cache)) == 1


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    config = own_text(tmp_path, rows=5000)
    path, cache = tmp_path / "config.yaml", tmp_path / "cache"
    path.write_text(dump_config(config))
    done = subprocess.run(
        [sys.executable, "-c", KILLED.replace("SIG_DFL", "SIG_IGN"), path, cache],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "UserError" in done.stderr.splitlines()[-1]
    assert "nothing was written" in done.stderr.splitlines()[-1]
    assert list((cache / "prepared").iterdir()) == []


def test_two_trainings_may_prepare_the_same_text_at_once(tmp_path: Path) -> None:
    config = own_text(tmp_path)
    corpus = open_corpus(config.data, 1, tmp_path)
    overtaken = prepare(config, Overtaken(corpus, config, tmp_path / "cache"), tmp_path / "cache")
    assert_same(overtaken, prepared_in(tmp_path / "fresh", config))
    assert len(folders(tmp_path / "cache")) == 1
