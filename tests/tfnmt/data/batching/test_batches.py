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
from tfnmt.data.preparation.storage import TextArray, TokenArray
from tfnmt.data.preparation.tokenizer import EOS

REPOSITORY = Path(tfnmt.__file__).resolve().parent.parent
Row = tuple[tuple[int, ...], ...]
ROWS = 120
DROPOUT = 0.3

NEW_PROCESS = """
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
"""Writes the shards of step 13 as bytes to standard output."""

with_and_without_dropout = pytest.mark.parametrize("dropout", [0.0, DROPOUT])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return prepared text with sentences of 1 to 11 words, up to one word more in the target."""
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
    """Return three pairs: 5 6 -> 7, 8 -> 9 10 11, and an empty source -> 4. Id 2 is EOS."""
    source = TokenArray(np.array([5, 6, 2, 8, 2, 2], np.uint16), np.array([0, 3, 5, 6]))
    target = TokenArray(np.array([7, 2, 9, 10, 11, 2, 4, 2], np.uint16), np.array([0, 2, 6, 8]))
    text = TextArray(np.zeros(3, np.uint8), np.arange(4))
    return Prepared(prepared.folder, prepared.tokenizer, source, target, text, text)


def make_batches(prepared: Prepared, dropout: float = 0.0, seed: int = 7) -> Batches:
    data = {"batch_tokens": 200, "max_length": 64, "bpe_dropout": dropout}
    return Batches(make_plan(build_config({"data": data, "training": {"seed": seed}}), prepared))


def first_shards(batches: Batches, first: int, replicas: int, count: int) -> list[Batch]:
    """Return the first shards of the stream that starts at a step."""
    with closing(batches.since(first, replicas)) as stream:
        return list(islice(stream, count))


def sources_of(parts: Iterable[Batch]) -> Counter[tuple[int, ...]]:
    """Count the source sentences by their ids."""
    rows = (tuple(row[row != 0].tolist()) for part in parts for row in part.source)
    return Counter(row for row in rows if row)


def assert_same(parts: list[Batch], expected: list[Batch]) -> None:
    assert len(parts) == len(expected)
    for part, expected_part in zip(parts, expected, strict=True):
        for side, expected_side in zip(part, expected_part, strict=True):
            np.testing.assert_array_equal(side, expected_side)


def rows_of(*batches: Batch) -> Counter[Row]:
    """Count the rows (source, target_in, target_out), without rows of padding."""
    rows = (
        tuple(tuple(side.tolist()) for side in row)
        for batch in batches
        for row in zip(*batch, strict=True)
    )
    return Counter(row for row in rows if any(map(any, row)))


def test_gather_shifts_targets_by_bos_and_pads_with_0(three: Prepared) -> None:
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


def test_gather_adds_no_padding_to_a_full_batch(three: Prepared) -> None:
    batch = gather(Pairs(three.source, three.target, np.array([1])), length=4)
    assert batch.target_in.tolist() == [[1, 9, 10, 11]]
    assert batch.target_out.tolist() == [[9, 10, 11, 2]]


def test_gather_without_rows_gives_one_row_of_padding(three: Prepared) -> None:
    for side in gather(Pairs(three.source, three.target, np.array([], np.int64)), length=3):
        assert side.tolist() == [[0, 0, 0]]
        assert side.dtype == np.int32


def test_gathered_ids_are_int32(prepared: Prepared) -> None:
    assert all(
        side.dtype == np.int32
        for side in gather(Pairs(prepared.source, prepared.target, np.arange(7)), 30)
    )


def test_batch_contains_the_sentences_of_its_rows(prepared: Prepared) -> None:
    rows = np.array([119, 0, 57])
    batch = gather(Pairs(prepared.source, prepared.target, rows), length=40)
    for place, row in enumerate(rows):
        for side, sentence in ((0, prepared.source[row]), (2, prepared.target[row])):
            padding = [0] * (40 - len(sentence))
            assert batch[side][place].tolist() == [*sentence.tolist(), *padding]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_shards_of_a_step_form_its_batch(prepared: Prepared, replicas: int) -> None:
    batches = make_batches(prepared)
    for step in range(batches.plan.batches_per_epoch):
        planned = batches.plan.batch(step)
        parts = batches.shards(step, replicas)
        assert len(parts) == replicas
        whole = gather(*planned)
        assert rows_of(*parts) == rows_of(whole)
        assert all(side.shape[1] == planned.length for part in parts for side in part)


@pytest.mark.parametrize("replicas", [2, 4])
def test_shards_with_bpe_dropout_form_the_batch_of_one_replica(
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
def test_shards_of_a_step_differ_by_at_most_one_row(
    prepared: Prepared, replicas: int, dropout: float
) -> None:
    batches = make_batches(prepared, dropout)
    for step in range(batches.plan.batches_per_epoch):
        sizes = [len(part.source) for part in batches.shards(step, replicas)]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) >= len(batches.plan.batch(step).pairs.rows)


def test_replicas_without_rows_get_one_row_of_padding(three: Prepared) -> None:
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
def test_resumed_stream_equals_the_uninterrupted_stream(
    prepared: Prepared, replicas: int, dropout: float
) -> None:
    """Test 20 positions in three epochs, including the end of an epoch."""
    batches = make_batches(prepared, dropout)
    epoch = batches.plan.batches_per_epoch
    whole = first_shards(batches, 0, replicas, (3 * epoch + 2) * replicas)
    positions = random.Random(replicas).sample(range(3 * epoch), 18)
    for first in (epoch - 1, epoch, *positions):
        resumed = first_shards(make_batches(prepared, dropout), first, replicas, 2 * replicas)
        assert_same(resumed, whole[first * replicas : (first + 2) * replicas])


@with_and_without_dropout
def test_stream_yields_the_shards_of_successive_steps(prepared: Prepared, dropout: float) -> None:
    batches = make_batches(prepared, dropout)
    expected = [part for step in range(5, 35) for part in batches.shards(step, 3)]
    assert_same(first_shards(batches, 5, 3, 90), expected)


@pytest.mark.parametrize("read", [0, 1, 7])
def test_closed_stream_leaves_no_threads(prepared: Prepared, read: int) -> None:
    before = set(threading.enumerate())
    stream = make_batches(prepared, DROPOUT).since(3, 2)
    for _ in islice(stream, read):
        assert set(threading.enumerate()) > before
    stream.close()
    assert set(threading.enumerate()) == before


def test_stream_raises_errors_of_background_threads(prepared: Prepared) -> None:
    batches = make_batches(prepared)
    object.__setattr__(batches.plan, "batch", None)
    with closing(batches.since(0, 1)) as stream, pytest.raises(TypeError):
        next(stream)


@with_and_without_dropout
def test_new_process_computes_the_same_shards(prepared: Prepared, dropout: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEW_PROCESS, prepared.folder, str(dropout)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=True,
    )
    parts = make_batches(prepared, dropout).shards(13, 2)
    expected = b"".join(side.tobytes() for part in parts for side in part)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(expected).digest()


def test_shards_of_an_epoch_contain_the_corpus_once(prepared: Prepared) -> None:
    batches = make_batches(prepared)
    parts = first_shards(batches, 0, 2, 2 * batches.plan.batches_per_epoch)
    expected = Counter(tuple(prepared.source[row].tolist()) for row in range(ROWS))
    assert sources_of(parts) == expected


def test_epoch_with_bpe_dropout_decodes_to_the_corpus(prepared: Prepared) -> None:
    batches = make_batches(prepared, DROPOUT)
    parts = first_shards(batches, 0, 1, batches.plan.batches_per_epoch)
    tokenizer, count = prepared.tokenizer, Counter[tuple[str, str]]()
    for part in parts:
        sides = (
            tokenizer.decode([row[(row != 0) & (row != EOS)].tolist() for row in side])
            for side in (part.source, part.target_out)
        )
        count.update(zip(*sides, strict=True))
    lines = (prepared.source_lines, prepared.target_lines)
    assert count == Counter(zip(*(some.between(0, ROWS) for some in lines), strict=True))


def test_bpe_dropout_segments_each_epoch_differently(prepared: Prepared) -> None:
    batches = make_batches(prepared, DROPOUT)
    epoch = batches.plan.batches_per_epoch
    without_dropout = make_batches(prepared)
    unsampled = sources_of(
        first_shards(without_dropout, 0, 1, without_dropout.plan.batches_per_epoch)
    )
    first, second = (
        sources_of(first_shards(batches, number * epoch, 1, epoch)) for number in (0, 1)
    )
    assert sum(first.values()) == sum(second.values()) == sum(unsampled.values()) == ROWS
    for one, other in ((first, second), (first, unsampled), (second, unsampled)):
        assert (one & other).total() < ROWS / 2


def test_bpe_dropout_depends_on_the_seed(prepared: Prepared) -> None:
    sampled = [sources_of(make_batches(prepared, DROPOUT, seed).shards(0, 1)) for seed in (1, 2, 1)]
    assert sampled[0] == sampled[2]
    assert sampled[0] != sampled[1]


@pytest.fixture(scope="module")
def identical_pairs(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return 20 pairs that all have the same sentence on both sides."""
    folder = tmp_path_factory.mktemp("identical_pairs")
    for name in ("my.en", "my.de"):
        (folder / name).write_text("word words wordy sword swords worded\n" * 20)
    files = [str(folder / "my.en"), str(folder / "my.de")]
    data = {"corpus": None, "train": files, "val": files}
    keys = {"data": data, "tokenizer": {"vocab_size": 280}, "cleaning": {"leakage": False}}
    config = build_config(keys)
    return prepare(config, open_corpus(config.data, 1, folder), folder)


def test_bpe_dropout_segments_the_sides_of_a_pair_independently(identical_pairs: Prepared) -> None:
    parts = first_shards(make_batches(identical_pairs, DROPOUT), 0, 1, 20)
    rows = [row for part in parts for row in zip(part.source, part.target_out, strict=True)]
    assert np.mean([np.array_equal(source, target) for source, target in rows]) < 0.5


def test_bpe_dropout_segments_each_step_differently(identical_pairs: Prepared) -> None:
    batches = make_batches(identical_pairs, DROPOUT)
    sampled = {part.source.tobytes() for step in range(40) for part in batches.shards(step, 1)}
    assert len(sampled) == 40


def test_batch_with_bpe_dropout_has_the_padded_length_of_its_longest_sentence(
    prepared: Prepared,
) -> None:
    batches = make_batches(prepared, 0.9)
    for step in range(batches.plan.batches_per_epoch):
        (batch,) = batches.shards(step, 1)
        length = batch.source.shape[1]
        assert np.all((batch.source == EOS).sum(axis=1) == 1)
        assert np.all((batch.target_out == EOS).sum(axis=1) == 1)
        longest = max(int((side != 0).sum(axis=1).max()) for side in batch)
        assert length == padded_lengths(np.array([longest]))[0]
