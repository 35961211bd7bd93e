import hashlib
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import tfnmt
from tfnmt.config import build_config
from tfnmt.data.batching.batches import Batch, Batches, gather
from tfnmt.data.batching.plan import Pairs, make_plan, padded_lengths
from tfnmt.data.corpora.catalog import open_corpus
from tfnmt.data.preparation.prepared import Prepared, prepare
from tfnmt.data.preparation.storage import Lines, Sentences
from tfnmt.data.preparation.tokenizer import EOS

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
Row = tuple[tuple[int, ...], ...]
ROWS = 120
DROPOUT = 0.3

FRESH = """
import sys
from pathlib import Path
from tfnmt.config import build_config
from tfnmt.data.batching.batches import Batches
from tfnmt.data.batching.plan import make_plan
from tfnmt.data.preparation.prepared import open_prepared

data = {"batch_tokens": 200, "max_length": 64, "bpe_dropout": float(sys.argv[2])}
config = build_config({"data": data, "training": {"seed": 7}})
batches = Batches(make_plan(config, open_prepared(Path(sys.argv[1]))))
sys.stdout.buffer.write(b"".join(side.tobytes() for part in batches.shards(13, 2) for side in part))
"""
"""The shards of step 13, as bytes."""

with_and_without_dropout = pytest.mark.parametrize("dropout", [0.0, DROPOUT])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Real text: row N is N words to be translated into one word more or less."""
    folder = tmp_path_factory.mktemp("text")
    for language, more in (("en", 1), ("de", 2)):
        lines = (f"{'word ' * (row % 9 + more * (row % 2))}{row}\n" for row in range(ROWS))
        (folder / f"my.{language}").write_text("".join(lines))
    files = [str(folder / "my.en"), str(folder / "my.de")]
    data = {"corpus": None, "train": files, "val": files}
    keys = {"data": data, "tokenizer": {"vocab_size": 280}, "cleaning": {"leakage": False}}
    config = build_config(keys)
    return prepare(config, open_corpus(config.data, 1, folder), folder)


@pytest.fixture
def three(prepared: Prepared) -> Prepared:
    """Three pairs: 5 6 -> 7, 8 -> 9 10 11, nothing -> 4; 2 is eos."""
    source = Sentences(np.array([5, 6, 2, 8, 2, 2], np.uint16), np.array([0, 3, 5, 6]))
    target = Sentences(np.array([7, 2, 9, 10, 11, 2, 4, 2], np.uint16), np.array([0, 2, 6, 8]))
    text = Lines(np.zeros(3, np.uint8), np.arange(4))
    return Prepared(prepared.folder, prepared.tokenizer, source, target, text, text)


def make_batches(prepared: Prepared, dropout: float = 0.0, seed: int = 7) -> Batches:
    data = {"batch_tokens": 200, "max_length": 64, "bpe_dropout": dropout}
    return Batches(make_plan(build_config({"data": data, "training": {"seed": seed}}), prepared))


def some_of(batches: Batches, first: int, replicas: int, count: int) -> list[Batch]:
    """The first shards of the stream from a step on."""
    with closing(batches.since(first, replicas)) as stream:
        return list(islice(stream, count))


def sources_of(parts: Iterable[Batch]) -> Counter[tuple[int, ...]]:
    """How often each source sentence occurs."""
    rows = (tuple(row[row != 0].tolist()) for part in parts for row in part.source)
    return Counter(row for row in rows if row)


def assert_same(parts: list[Batch], expected: list[Batch]) -> None:
    assert len(parts) == len(expected)
    for part, expected_part in zip(parts, expected, strict=True):
        for side, expected_side in zip(part, expected_part, strict=True):
            np.testing.assert_array_equal(side, expected_side)


def rows_of(*batches: Batch) -> Counter[Row]:
    """How often each (source, target_in, target_out) occurs, rows of padding left out."""
    rows = (
        tuple(tuple(side.tolist()) for side in row)
        for batch in batches
        for row in zip(*batch, strict=True)
    )
    return Counter(row for row in rows if any(map(any, row)))


def test_a_batch_is_shifted_by_bos_and_padded_with_0(three: Prepared) -> None:
    batch = gather(Pairs(three.source, three.target, np.array([1, 0, 2])), length=5)
    assert batch.source.tolist() == [
        [8, 2, 0, 0, 0],
        [5, 6, 2, 0, 0],
        [2, 0, 0, 0, 0],
    ]
    assert batch.target_in.tolist() == [
        [1, 9, 10, 11, 0],
        [1, 7, 0, 0, 0],
        [1, 4, 0, 0, 0],
    ]
    assert batch.target_out.tolist() == [
        [9, 10, 11, 2, 0],
        [7, 2, 0, 0, 0],
        [4, 2, 0, 0, 0],
    ]


def test_a_batch_that_is_full_has_no_padding(three: Prepared) -> None:
    batch = gather(Pairs(three.source, three.target, np.array([1])), length=4)
    assert batch.target_in.tolist() == [[1, 9, 10, 11]]
    assert batch.target_out.tolist() == [[9, 10, 11, 2]]


def test_without_a_row_there_is_one_of_padding(three: Prepared) -> None:
    for side in gather(Pairs(three.source, three.target, np.array([], np.int64)), length=3):
        assert side.tolist() == [[0, 0, 0]]
        assert side.dtype == np.int32


def test_ids_are_int32(prepared: Prepared) -> None:
    assert all(
        side.dtype == np.int32
        for side in gather(Pairs(prepared.source, prepared.target, np.arange(7)), 30)
    )


def test_a_batch_holds_the_sentences_of_its_rows(prepared: Prepared) -> None:
    rows = np.array([119, 0, 57])
    batch = gather(Pairs(prepared.source, prepared.target, rows), length=40)
    for place, row in enumerate(rows):
        for side, sentence in ((0, prepared.source[row]), (2, prepared.target[row])):
            padding = [0] * (40 - len(sentence))
            assert batch[side][place].tolist() == [*sentence.tolist(), *padding]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_the_shards_of_a_step_are_its_batch(prepared: Prepared, replicas: int) -> None:
    batches = make_batches(prepared)
    for step in range(batches.plan.batches_per_epoch):
        planned = batches.plan.batch(step)
        parts = batches.shards(step, replicas)
        assert len(parts) == replicas
        whole = gather(*planned)
        assert rows_of(*parts) == rows_of(whole)
        assert all(side.shape[1] == planned.length for part in parts for side in part)


@pytest.mark.parametrize("replicas", [2, 4])
def test_with_dropout_too_the_shards_of_a_step_are_the_batch_of_one_replica(
    prepared: Prepared, replicas: int
) -> None:
    batches = make_batches(prepared, DROPOUT)
    for step in range(2 * batches.plan.batches_per_epoch):
        (whole,) = batches.shards(step, 1)
        parts = batches.shards(step, replicas)
        assert rows_of(*parts) == rows_of(whole)
        assert {side.shape[1] for part in parts for side in part} == {whole.source.shape[1]}


@with_and_without_dropout
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_the_shards_of_a_step_are_of_like_size(
    prepared: Prepared, replicas: int, dropout: float
) -> None:
    batches = make_batches(prepared, dropout)
    for step in range(batches.plan.batches_per_epoch):
        sizes = [len(part.source) for part in batches.shards(step, replicas)]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) >= len(batches.plan.batch(step).pairs.rows)


def test_replicas_without_a_row_get_one_of_padding(three: Prepared) -> None:
    batches = make_batches(three)
    assert batches.plan.batches_per_epoch == 1
    parts = batches.shards(0, replicas=5)
    length = batches.plan.batch(0).length
    assert rows_of(*parts) == rows_of(
        gather(Pairs(three.source, three.target, np.arange(3)), length)
    )
    assert [len(part.source) for part in parts] == [1] * 5
    assert sum(not side.any() for part in parts for side in part) == 2 * len(Batch._fields)


@with_and_without_dropout
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_the_first_batch_of_a_resumed_run_is_the_one_that_would_have_come(
    prepared: Prepared, replicas: int, dropout: float
) -> None:
    """20 positions in three epochs, the ends of epochs among them."""
    batches = make_batches(prepared, dropout)
    epoch = batches.plan.batches_per_epoch
    whole = some_of(batches, 0, replicas, (3 * epoch + 2) * replicas)
    positions = random.Random(replicas).sample(range(3 * epoch), 18)
    for first in (epoch - 1, epoch, *positions):
        resumed = some_of(make_batches(prepared, dropout), first, replicas, 2 * replicas)
        assert_same(resumed, whole[first * replicas : (first + 2) * replicas])


@with_and_without_dropout
def test_the_stream_is_the_shards_of_one_step_after_another(
    prepared: Prepared, dropout: float
) -> None:
    batches = make_batches(prepared, dropout)
    expected = [part for step in range(5, 35) for part in batches.shards(step, 3)]
    assert_same(some_of(batches, 5, 3, 90), expected)


@pytest.mark.parametrize("read", [0, 1, 7])
def test_a_stream_that_is_closed_leaves_no_thread_behind(prepared: Prepared, read: int) -> None:
    before = set(threading.enumerate())
    stream = make_batches(prepared, DROPOUT).since(3, 2)
    for _ in islice(stream, read):
        assert set(threading.enumerate()) > before
    stream.close()
    assert set(threading.enumerate()) == before


def test_a_fault_in_the_background_comes_out_of_the_stream(prepared: Prepared) -> None:
    batches = make_batches(prepared)
    object.__setattr__(batches.plan, "batch", None)
    with closing(batches.since(0, 1)) as stream, pytest.raises(TypeError):
        next(stream)


@with_and_without_dropout
def test_a_fresh_process_draws_the_same_step(prepared: Prepared, dropout: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH, prepared.folder, str(dropout)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=True,
    )
    parts = make_batches(prepared, dropout).shards(13, 2)
    expected = b"".join(side.tobytes() for part in parts for side in part)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(expected).digest()


def test_an_epoch_of_shards_is_the_corpus(prepared: Prepared) -> None:
    batches = make_batches(prepared)
    parts = some_of(batches, 0, 2, 2 * batches.plan.batches_per_epoch)
    expected = Counter(tuple(prepared.source[row].tolist()) for row in range(ROWS))
    assert sources_of(parts) == expected


def test_an_epoch_with_dropout_is_the_text_of_the_corpus(prepared: Prepared) -> None:
    batches = make_batches(prepared, DROPOUT)
    parts = some_of(batches, 0, 1, batches.plan.batches_per_epoch)
    tokenizer, count = prepared.tokenizer, Counter[tuple[str, str]]()
    for part in parts:
        sides = (
            tokenizer.decode([row[(row != 0) & (row != EOS)].tolist() for row in side])
            for side in (part.source, part.target_out)
        )
        count.update(zip(*sides, strict=True))
    lines = (prepared.source_lines, prepared.target_lines)
    assert count == Counter(zip(*(some.between(0, ROWS) for some in lines), strict=True))


def test_with_dropout_each_epoch_is_cut_anew(prepared: Prepared) -> None:
    batches = make_batches(prepared, DROPOUT)
    epoch = batches.plan.batches_per_epoch
    uncut = make_batches(prepared)
    plain = sources_of(some_of(uncut, 0, 1, uncut.plan.batches_per_epoch))
    first, second = (sources_of(some_of(batches, number * epoch, 1, epoch)) for number in (0, 1))
    assert sum(first.values()) == sum(second.values()) == sum(plain.values()) == ROWS
    for one, other in ((first, second), (first, plain), (second, plain)):
        assert (one & other).total() < ROWS / 2


def test_dropout_hangs_on_the_seed(prepared: Prepared) -> None:
    drawn = [sources_of(make_batches(prepared, DROPOUT, seed).shards(0, 1)) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]
    assert drawn[0] != drawn[1]


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """One sentence, on both sides of every pair."""
    folder = tmp_path_factory.mktemp("alike")
    for name in ("my.en", "my.de"):
        (folder / name).write_text("word words wordy sword swords worded\n" * 20)
    files = [str(folder / "my.en"), str(folder / "my.de")]
    data = {"corpus": None, "train": files, "val": files}
    keys = {"data": data, "tokenizer": {"vocab_size": 280}, "cleaning": {"leakage": False}}
    config = build_config(keys)
    return prepare(config, open_corpus(config.data, 1, folder), folder)


def test_both_sides_of_a_pair_are_not_cut_alike(alike: Prepared) -> None:
    parts = some_of(make_batches(alike, DROPOUT), 0, 1, 20)
    rows = [row for part in parts for row in zip(part.source, part.target_out, strict=True)]
    assert np.mean([np.array_equal(source, target) for source, target in rows]) < 0.5


def test_no_two_steps_are_cut_alike(alike: Prepared) -> None:
    batches = make_batches(alike, DROPOUT)
    drawn = {part.source.tobytes() for step in range(40) for part in batches.shards(step, 1)}
    assert len(drawn) == 40


def test_a_drawn_batch_holds_its_longest_sentence_in_a_bucket(prepared: Prepared) -> None:
    batches = make_batches(prepared, 0.9)
    for step in range(batches.plan.batches_per_epoch):
        (batch,) = batches.shards(step, 1)
        length = batch.source.shape[1]
        assert np.all((batch.source == EOS).sum(axis=1) == 1)
        assert np.all((batch.target_out == EOS).sum(axis=1) == 1)
        longest = max(int((side != 0).sum(axis=1).max()) for side in batch)
        assert length == padded_lengths(np.array([longest]))[0]
