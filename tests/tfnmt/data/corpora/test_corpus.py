import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from tfnmt.config import DataConfig
from tfnmt.data.corpora.catalog import open_corpus, split_name
from tfnmt.data.corpora.corpus import HELD_OUT, Corpus, check_files
from tfnmt.data.corpora.text_files import Pair
from tfnmt.data.corpora.toy import grammar
from tfnmt.data.corpora.toy.digits import copy_pairs, reverse_pairs
from tfnmt.errors import UsageError, UserError

Generate = Callable[[str], Iterator[Pair]]

NOWHERE = Path("/nowhere")
BUILT_IN = {"copy": copy_pairs, "reverse": reverse_pairs, "toy": grammar.pairs}
DIGITS = "4e96602ae0af0e026bd7809d16797a1a3c59e02ad7dfbcf941f7f13cf65e9c6d"
LANGUAGES = {"copy": ("digits", "copied"), "reverse": ("digits", "reversed"), "toy": ("en", "de")}


def named(corpus: str, source: str, target: str) -> DataConfig:
    return DataConfig(corpus=corpus, source=source, target=target)


def custom_data(folder: Path, rows: int, val: bool = False) -> DataConfig:
    for language, word in (("en", "row"), ("de", "Zeile")):
        lines = "".join(f"{word} {number}\n" for number in range(rows))
        (folder / f"my.{language}").write_text(lines)
        (folder / f"dev.{language}").write_text(f"{word} of val\n")
    files = {
        stem: (str(folder / f"{stem}.en"), str(folder / f"{stem}.de")) for stem in ("my", "dev")
    }
    return DataConfig(corpus=None, train=files["my"], val=files["dev"] if val else None)


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def held_out(data: DataConfig, seed: int) -> tuple[list[Pair], list[Pair]]:
    corpus = open_corpus(data, seed, NOWHERE)
    return list(corpus.pairs("train")), list(corpus.pairs("val"))


def problems(corpus: Corpus, split: str) -> Sequence[str]:
    with pytest.raises(UserError) as caught:
        list(corpus.pairs(split))
    return caught.value.problems


def test_corpus_in_one_folder_opens_in_every_direction(tmp_path: Path) -> None:
    texts = {"val.en": "dog\ncat\n", "val.de": "Hund\nKatze\n", "val.fr": "chien\nchat\n"}
    write(tmp_path / "multi30k", texts)
    for source in ("en", "de", "fr"):
        for target in {"en", "de", "fr"} - {source}:
            corpus = open_corpus(named("multi30k", source, target), 1, tmp_path)
            lines = (texts[f"val.{side}"].split() for side in (source, target))
            assert list(corpus.pairs("val")) == list(zip(*lines, strict=True))


def test_language_pairs_that_are_not_parallel_have_separate_folders(tmp_path: Path) -> None:
    write(tmp_path / "wmt14" / "de-en", {"train.de": "Hund\n", "train.en": "dog\n"})
    write(tmp_path / "wmt14" / "fr-en", {"train.fr": "chat\n", "train.en": "cat\n"})
    expected = {
        ("en", "de"): ("dog", "Hund"),
        ("de", "en"): ("Hund", "dog"),
        ("en", "fr"): ("cat", "chat"),
        ("fr", "en"): ("chat", "cat"),
    }
    for (source, target), pair in expected.items():
        corpus = open_corpus(named("wmt14", source, target), 1, tmp_path)
        assert list(corpus.pairs("train")) == [pair]


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    corpus = open_corpus(named("wmt14", "en", "de"), 1, tmp_path)
    folder = tmp_path / "wmt14" / "de-en"
    assert problems(corpus, "train") == (
        f"{folder / 'train.en'}: no such file; put the train text there",
        f"{folder / 'train.de'}: no such file; put the train text there",
    )
    write(folder, {"train.en": "dog\n"})
    assert len(problems(corpus, "train")) == 1
    assert problems(corpus, "train")[0].startswith(f"{folder / 'train.de'}: ")


def test_missing_file_is_named_once_if_both_splits_need_it(tmp_path: Path) -> None:
    data = custom_data(tmp_path, 20)
    corpus = open_corpus(data, 1, NOWHERE)
    for path in corpus.files("train"):
        path.unlink()
    with pytest.raises(UserError) as caught:
        check_files(corpus, "train", "val")
    assert len(caught.value.problems) == 2
    assert all("train text" in problem for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a" * 300, "File name too long"), ("my.en/x", "Not a directory"), ("a\0b", "null")],
)
def test_file_name_that_cannot_exist_is_reported(tmp_path: Path, name: str, reason: str) -> None:
    data = custom_data(tmp_path, 20)
    files = str(tmp_path / name), str(tmp_path / "my.de")
    for key in ("train", "val"):
        corpus = open_corpus(data.model_copy(update={key: files}), 1, NOWHERE)
        (problem,) = problems(corpus, key)
        assert problem.startswith(files[0].replace("\0", r"\x00") + ": ")
        assert reason in problem
        assert corpus.held_out in ((), ("val",))


def test_custom_data_has_no_test_split(tmp_path: Path) -> None:
    data = custom_data(tmp_path, 20)
    with pytest.raises(UsageError, match=r"--split=test: .*train, val$"):
        split_name(data, open_corpus(data, 1, NOWHERE), "test")


def test_custom_data_with_validation_files_uses_them(tmp_path: Path) -> None:
    train, val = held_out(custom_data(tmp_path, 3, val=True), seed=1)
    assert train == [(f"row {number}", f"Zeile {number}") for number in range(3)]
    assert val == [("row of val", "Zeile of val")]


@pytest.mark.parametrize(("rows", "count"), [(10, 1), (19, 1), (200, 20), (12_000, HELD_OUT)])
def test_custom_data_without_validation_files_holds_out_at_most_a_tenth(
    tmp_path: Path, rows: int, count: int
) -> None:
    train, val = held_out(custom_data(tmp_path, rows), seed=1)
    every = [(f"row {number}", f"Zeile {number}") for number in range(rows)]
    assert len(val) == count
    assert sorted(train + val) == sorted(every)
    rest = set(train)
    assert train == [pair for pair in every if pair in rest]


def test_rows_without_a_translation_are_not_held_out(tmp_path: Path) -> None:
    """TMX and CSV files contain such rows, for which BLEU is meaningless."""
    rows = "".join(f"word {row}\t{'' if row % 2 else f'Wort {row}'}\n" for row in range(100))
    (tmp_path / "my.tsv").write_text(f"en\tde\n{rows}")
    data = DataConfig(corpus=None, source="en", target="de", train=(str(tmp_path / "my.tsv"),))
    train, val = held_out(data, seed=1)
    assert len(val) == 5
    assert all(target for _, target in val)
    assert len(train) == 95


def test_held_out_rows_depend_only_on_the_seed(tmp_path: Path) -> None:
    data = custom_data(tmp_path, 200)
    assert held_out(data, seed=1) == held_out(data, seed=1)
    assert set(held_out(data, seed=1)[1]) != set(held_out(data, seed=2)[1])


def test_held_out_rows_are_spread_over_the_text(tmp_path: Path) -> None:
    numbers = [int(source.split()[1]) for source, _ in held_out(custom_data(tmp_path, 200), 1)[1]]
    assert min(numbers) < 50
    assert max(numbers) >= 150


def test_rows_that_are_not_utf_8_are_never_held_out(tmp_path: Path) -> None:
    """Cleaning removes them from the training text, but the validation set is not cleaned."""
    data = custom_data(tmp_path, 200)
    lines = (tmp_path / "my.de").read_bytes().splitlines(keepends=True)
    for row in range(0, 200, 2):
        lines[row] = b"\xff" + lines[row]
    (tmp_path / "my.de").write_bytes(b"".join(lines))
    corpus = open_corpus(data, 1, NOWHERE)
    numbers = [int(source.split()[1]) for source, _ in corpus.pairs("val")]
    assert len(numbers) == 10
    assert all(number % 2 == 1 for number in numbers)
    assert len(list(corpus.pairs("train", "surrogateescape"))) == 190
    assert problems(corpus, "train")[0].startswith(f"{tmp_path / 'my.de'}:1: not UTF-8")


def test_too_few_rows_to_hold_out_are_an_error(tmp_path: Path) -> None:
    corpus = open_corpus(custom_data(tmp_path, 9), 1, NOWHERE)
    for split in ("train", "val"):
        lines = problems(corpus, split)
        assert len(lines) == 1
        assert lines[0].startswith(f"{tmp_path / 'my.en'}: 9 pairs are too few")
        assert "--val" in lines[0]


@pytest.mark.parametrize(("corpus", "generate"), BUILT_IN.items())
def test_built_in_corpus_opens_in_both_directions(corpus: str, generate: Generate) -> None:
    source, target = LANGUAGES[corpus]
    forwards = open_corpus(named(corpus, source, target), 1, NOWHERE)
    backwards = open_corpus(named(corpus, target, source), 1, NOWHERE)
    for split in ("val", "test"):
        pairs = list(islice(generate(split), 20))
        assert list(islice(forwards.pairs(split), 20)) == pairs
        swapped = [(second, first) for first, second in pairs]
        assert list(islice(backwards.pairs(split), 20)) == swapped
    assert forwards.splits == ("train", "val", "test")
    assert forwards.files("train") == ()


@pytest.mark.parametrize(
    ("corpus", "checksums"),
    [
        ("copy", [DIGITS]),
        ("reverse", [DIGITS]),
        (
            "toy",
            [
                "4b716ebfb1040eca6f8c9ac5b597c6a5a38034aa43c9d524fbae51c07de262d3",
                "85b3ac735ab72a1f487b3421453ab0ad70e452210143ff1a1468224470e6687f",
            ],
        ),
    ],
)
def test_built_in_fingerprint_is_unchanged(corpus: str, checksums: list[str]) -> None:
    """Another fingerprint makes existing runs of a corpus impossible to resume.

    Change it only together with the generated text, of which other tests pin the checksums.
    """
    opened = open_corpus(named(corpus, *LANGUAGES[corpus]), 1, NOWHERE)
    for split in opened.splits:
        assert opened.fingerprint(split) == [([".py"], checksum) for checksum in checksums]


def test_file_fingerprint_has_suffixes_and_checksum_of_each_file(tmp_path: Path) -> None:
    data = custom_data(tmp_path, 20, val=True)
    (tmp_path / "my.de").rename(tmp_path / "my.x.y.de")
    renamed = data.model_copy(
        update={"train": (str(tmp_path / "my.en"), str(tmp_path / "my.x.y.de"))}
    )
    for val in (data.val, None):
        corpus = open_corpus(renamed.model_copy(update={"val": val}), 1, NOWHERE)
        assert corpus.fingerprint("train") == [
            ([".en"], hashlib.sha256((tmp_path / "my.en").read_bytes()).hexdigest()),
            ([".y", ".de"], hashlib.sha256((tmp_path / "my.x.y.de").read_bytes()).hexdigest()),
        ]
        assert (corpus.fingerprint("val") == corpus.fingerprint("train")) is (val is None)


def test_fingerprint_names_a_missing_file(tmp_path: Path) -> None:
    corpus = open_corpus(custom_data(tmp_path, 20), 1, NOWHERE)
    (tmp_path / "my.de").unlink()
    with pytest.raises(UserError, match=r"my\.de: No such file or directory; "):
        corpus.fingerprint("train")


def test_reverse_corpus_is_reversed() -> None:
    corpus = open_corpus(named("reverse", "digits", "reversed"), 1, NOWHERE)
    assert all(source == target[::-1] for source, target in corpus.pairs("test"))


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("digits", "reversed")])
def test_built_in_corpus_rejects_other_languages(source: str, target: str) -> None:
    with pytest.raises(UsageError, match=r"data\.corpus=copy: .*copied-digits, digits-copied"):
        open_corpus(named("copy", source, target), 1, NOWHERE)
