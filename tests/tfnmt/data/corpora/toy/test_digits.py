import hashlib
from collections.abc import Callable, Iterator

import pytest

from tfnmt.data.corpora.toy.digits import SIZES, copy_pairs, reverse_pairs

Generate = Callable[[str], Iterator[tuple[str, str]]]

both = pytest.mark.parametrize("generate", [copy_pairs, reverse_pairs])


def test_copy_pairs_repeat_the_digits() -> None:
    assert all(source == target for source, target in copy_pairs("val"))


def test_reverse_pairs_reverse_the_digits() -> None:
    pairs = list(reverse_pairs("val"))
    assert all(source.split() == target.split()[::-1] for source, target in pairs)
    assert any(source != target for source, target in pairs)


@both
def test_lines_have_3_to_12_digits(generate: Generate) -> None:
    lengths = set()
    for source, _ in generate("val"):
        digits = source.split(" ")
        assert all(len(digit) == 1 and digit in "0123456789" for digit in digits)
        lengths.add(len(digits))
    assert lengths == set(range(3, 13))


@both
def test_splits_have_their_sizes_and_share_no_line(generate: Generate) -> None:
    splits = {split: [source for source, _ in generate(split)] for split in SIZES}
    assert {split: len(lines) for split, lines in splits.items()} == SIZES
    assert SIZES == {"train": 50_000, "val": 500, "test": 500}
    lines = [line for split in splits.values() for line in split]
    assert len(set(lines)) == len(lines)


@both
def test_split_is_the_same_each_time(generate: Generate) -> None:
    assert list(generate("test")) == list(generate("test"))


@pytest.mark.parametrize(
    ("generate", "checksum"),
    [
        (copy_pairs, "5e08b54c875cd8934f9785a5e8384bc1ef2b168dc332797687dd5af897f28062"),
        (reverse_pairs, "9b94da37511e5563181f1e6ee88797fce82a1839db08b0bb34c240d3fbceb42b"),
    ],
)
def test_generated_text_is_unchanged(generate: Generate, checksum: str) -> None:
    """Other text needs another `revision` in the catalog, or caches and runs mix two texts."""
    text = "".join(
        f"{split}\t{source}\t{target}\n" for split in SIZES for source, target in generate(split)
    )
    assert hashlib.sha256(text.encode()).hexdigest() == checksum
