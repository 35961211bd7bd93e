from collections.abc import Callable, Iterator

import pytest

from tfnmt.data.corpora.toy.digits import SIZES, copy_pairs, reverse_pairs

Generate = Callable[[str], Iterator[tuple[str, str]]]

both = pytest.mark.parametrize("generate", [copy_pairs, reverse_pairs])


def test_copying_repeats_the_digits() -> None:
    assert all(source == target for source, target in copy_pairs("val"))


def test_reversing_turns_the_digits_round() -> None:
    pairs = list(reverse_pairs("val"))
    assert all(source.split() == target.split()[::-1] for source, target in pairs)
    assert any(source != target for source, target in pairs)


@both
def test_a_line_is_3_to_12_digits(generate: Generate) -> None:
    lengths = set()
    for source, _ in generate("val"):
        digits = source.split(" ")
        assert all(len(digit) == 1 and digit in "0123456789" for digit in digits)
        lengths.add(len(digits))
    assert lengths == set(range(3, 13))


@both
def test_the_splits_have_their_sizes_and_share_no_line(generate: Generate) -> None:
    splits = {split: [source for source, _ in generate(split)] for split in SIZES}
    assert {split: len(lines) for split, lines in splits.items()} == SIZES
    assert SIZES == {"train": 50_000, "val": 500, "test": 500}
    lines = [line for split in splits.values() for line in split]
    assert len(set(lines)) == len(lines)


@both
def test_a_split_is_always_the_same(generate: Generate) -> None:
    assert list(generate("test")) == list(generate("test"))
