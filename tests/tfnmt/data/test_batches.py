from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tfnmt.config import build_config
from tfnmt.data.batches import Batch, gather, shards
from tfnmt.data.corpora import open_corpus
from tfnmt.data.plan import Plan
from tfnmt.data.prepared import Prepared, Sentences, prepare

Row = tuple[tuple[int, ...], ...]
ROWS = 120


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Real text: row N is N words to be translated into one word more or less."""
    folder = tmp_path_factory.mktemp("text")
    for language, more in (("en", 1), ("de", 2)):
        lines = (f"{'word ' * (row % 9 + more * (row % 2))}{row}\n" for row in range(ROWS))
        (folder / f"my.{language}").write_text("".join(lines))
    files = [str(folder / "my.en"), str(folder / "my.de")]
    data = {"corpus": None, "train": files, "val": files}
    config = build_config({"data": data, "tokenizer": {"vocab_size": 280}})
    return prepare(config, open_corpus(config.data, 1, folder), folder)


@pytest.fixture
def three(prepared: Prepared) -> Prepared:
    """Three pairs: 5 6 -> 7, 8 -> 9 10 11, nothing -> 4; 2 is eos."""
    source = Sentences(np.array([5, 6, 2, 8, 2, 2], np.uint16), np.array([0, 3, 5, 6]))
    target = Sentences(np.array([7, 2, 9, 10, 11, 2, 4, 2], np.uint16), np.array([0, 2, 6, 8]))
    return Prepared(prepared.tokenizer, source, target)


def make_plan(prepared: Prepared, batch_tokens: int = 200) -> Plan:
    return Plan(prepared.source.lengths, prepared.target.lengths, batch_tokens, 64, seed=1)


def rows_of(*batches: Batch) -> Counter[Row]:
    """How often each (source, target_in, target_out) occurs, rows of padding left out."""
    rows = (
        tuple(tuple(side.tolist()) for side in row)
        for batch in batches
        for row in zip(*batch, strict=True)
    )
    return Counter(row for row in rows if any(map(any, row)))


def test_a_batch_is_shifted_by_bos_and_padded_with_0(three: Prepared) -> None:
    batch = gather(three, np.array([1, 0, 2]), length=5)
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
    batch = gather(three, np.array([1]), length=4)
    assert batch.target_in.tolist() == [[1, 9, 10, 11]]
    assert batch.target_out.tolist() == [[9, 10, 11, 2]]


def test_without_a_row_there_is_one_of_padding(three: Prepared) -> None:
    for side in gather(three, np.array([], np.int64), length=3):
        assert side.tolist() == [[0, 0, 0]]
        assert side.dtype == np.int32


def test_ids_are_int32(prepared: Prepared) -> None:
    assert all(side.dtype == np.int32 for side in gather(prepared, np.arange(7), length=30))


def test_a_batch_holds_the_sentences_of_its_rows(prepared: Prepared) -> None:
    rows = np.array([119, 0, 57])
    batch = gather(prepared, rows, length=40)
    for place, row in enumerate(rows):
        for side, sentence in ((0, prepared.source[row]), (2, prepared.target[row])):
            padding = [0] * (40 - len(sentence))
            assert batch[side][place].tolist() == [*sentence.tolist(), *padding]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_the_shards_of_a_step_are_its_batch(prepared: Prepared, replicas: int) -> None:
    plan = make_plan(prepared)
    stream = shards(prepared, plan, 0, replicas)
    for step in range(plan.batches_per_epoch):
        planned = plan.batch(step)
        parts = list(islice(stream, replicas))
        assert rows_of(*parts) == rows_of(gather(prepared, planned.rows, planned.length))
        assert all(side.shape[1] == planned.length for part in parts for side in part)


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_the_shards_of_a_step_are_of_like_size(prepared: Prepared, replicas: int) -> None:
    plan = make_plan(prepared)
    stream = shards(prepared, plan, 0, replicas)
    for step in range(plan.batches_per_epoch):
        sizes = [len(part.source) for part in islice(stream, replicas)]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) >= len(plan.batch(step).rows)


def test_replicas_without_a_row_get_one_of_padding(three: Prepared) -> None:
    plan = make_plan(three)
    assert plan.batches_per_epoch == 1
    parts = list(islice(shards(three, plan, 0, replicas=5), 5))
    length = plan.batch(0).length
    assert rows_of(*parts) == rows_of(gather(three, np.arange(3), length))
    assert [len(part.source) for part in parts] == [1] * 5
    assert sum(not side.any() for part in parts for side in part) == 2 * len(Batch._fields)


@pytest.mark.parametrize("replicas", [1, 2])
def test_shards_from_a_step_on_are_those_of_the_uninterrupted_stream(
    prepared: Prepared, replicas: int
) -> None:
    plan = make_plan(prepared)
    steps = 2 * plan.batches_per_epoch + 3
    whole = list(islice(shards(prepared, plan, 0, replicas), steps * replicas))
    for first in (1, plan.batches_per_epoch, steps - 2):
        resumed = islice(shards(prepared, make_plan(prepared), first, replicas), 2 * replicas)
        for part, expected in zip(resumed, whole[first * replicas :], strict=False):
            for side, expected_side in zip(part, expected, strict=True):
                np.testing.assert_array_equal(side, expected_side)


def test_an_epoch_of_shards_is_the_corpus(prepared: Prepared) -> None:
    plan = make_plan(prepared)
    stream = islice(shards(prepared, plan, 0, 2), 2 * plan.batches_per_epoch)
    found: Counter[tuple[int, ...]] = Counter()
    for part in stream:
        found.update(tuple(row[row != 0].tolist()) for row in part.source if row.any())
    assert found == Counter(tuple(prepared.source[row].tolist()) for row in range(ROWS))
