import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tfnmt.data.corpora.discovery import find_languages, find_texts
from tfnmt.data.corpora.formats import CSV, TMX, TSV, Aligned, JSONLines
from tfnmt.errors import UsageError, UserError

EN_DE = ("en", "de")


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def order(first: str, second: str, source: str, target: str) -> tuple[str, ...]:
    """Return the names of two aligned files, the source file first."""
    (text,) = find_texts([first, second], source, target)
    return tuple(path.name for path in text.paths)


# --- Two aligned files ----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_aligned_files_are_swapped_according_to_their_suffixes(
    tmp_path: Path, compression: str
) -> None:
    en, de = tmp_path / f"a.en{compression}", tmp_path / f"b.de{compression}"
    assert find_texts([en, de], "en", "de") == (Aligned(en, de, EN_DE),)
    assert find_texts([en, de], "de", "en") == (Aligned(de, en, ("de", "en")),)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a.en", "b.fr-FR"),
        ("a.EN", "b.txt"),
        ("a.tok", "b.fr_FR"),
        ("a.eng", "b.fra"),
        ("a.en.txt", "b.fr.txt"),
        ("train.tok.en.aa", "train.tok.fr.aa"),
        ("news.fr-en.en", "news.fr-en.fr"),
        ("a.en", "b.src"),
    ],
)
def test_one_matching_suffix_decides_the_order(source: str, target: str) -> None:
    for names in [(source, target), (target, source)]:
        assert order(*names, "en", "fr") == (source, target)


def test_suffix_with_a_region_decides_between_two_regions() -> None:
    assert order("a.pt-PT", "a.pt-BR", "pt_BR", "pt_PT") == ("a.pt-BR", "a.pt-PT")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("my.src", "my.tgt"),
        ("my.txt", "my2.txt"),
        ("part1", "part2"),
        ("part.1", "part.2"),
        ("src.aa", "tgt.aa"),
        ("my.l1", "my.l2"),
        ("my.tok", "my.bpe"),
        ("notes.to.txt", "notes.from.txt"),
        ("my.is", "my.txt"),
        ("my.ceb", "my.haw"),
    ],
)
def test_suffixes_that_are_no_languages_keep_the_order(first: str, second: str) -> None:
    assert order(first, second, "en", "de") == (first, second)
    assert order(second, first, "en", "de") == (second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("my.en", "my.fr"),
        ("my.fr", "my.en"),
        ("my.fr", "my.es"),
        ("a.en", "b.en"),
        ("my.fr.gz", "my.de"),
        ("my.en.txt", "my.fr.txt"),
        ("my.eng", "my.fra"),
    ],
)
def test_files_in_other_languages_are_refused(first: str, second: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_texts(["my.tsv", first, second], "en", "de")
    assert str(caught.value).startswith(f"{first}, {second}: ")
    assert "en and de" in str(caught.value)


@pytest.mark.parametrize("languages", [("digits", "reversed"), ("src", "tgt"), ("en", "tgt")])
def test_languages_without_codes_accept_every_suffix(languages: tuple[str, str]) -> None:
    assert order("my.en", "my.de", *languages) == ("my.en", "my.de")


def test_regions_of_one_language_are_not_exchanged() -> None:
    with pytest.raises(UsageError, match=r"a\.pt-BR, b\.pt-AO: "):
        find_texts(["a.pt-BR", "b.pt-AO"], "pt_BR", "pt_PT")


@pytest.mark.parametrize(
    ("names", "languages"),
    [
        (["a.en", "b.de"], ("en", "de")),
        (["a.x.en.gz", "b.de"], ("en", "de")),
        (["a.de", "b.en.gz", "c.fr", "d.es"], ("de", "en")),
        (["a.en.txt", "b.de.txt"], ("en", "de")),
        (["a.fr-FR", "b.en"], ("fr_FR", "en")),
        (["a.src", "b.tgt"], ("src", "tgt")),
        (["a.txt", "b.txt"], None),
        (["a.1", "b.2"], None),
        (["a.tsv", "b.en", "b.de"], None),
        (["a.tmx.gz"], None),
        (["a", "b"], None),
        ([], None),
    ],
)
def test_find_languages_returns_the_suffixes_of_aligned_files(
    names: list[str], languages: tuple[str, str] | None
) -> None:
    assert find_languages(names, None, None) == languages


@pytest.mark.parametrize(
    ("names", "source", "target", "languages"),
    [
        (["a.en", "a.de"], "en", None, ("en", "de")),
        (["a.en", "a.de"], "de", None, ("de", "en")),
        (["a.en", "a.de"], None, "en", ("de", "en")),
        (["a.en", "a.de"], None, "de", ("en", "de")),
        (["a.de", "a.en-GB"], "en", None, ("en", "de")),
        (["a.pt-BR", "a.pt-PT"], "pt_PT", None, ("pt_PT", "pt_BR")),
        (["a.tsv"], "en", "de", ("en", "de")),
        (["a.tsv"], "en", None, None),
    ],
)
def test_find_languages_completes_a_given_language(
    names: list[str], source: str | None, target: str | None, languages: tuple[str, str] | None
) -> None:
    assert find_languages(names, source, target) == languages


def test_given_language_that_no_file_has_is_refused() -> None:
    languages = find_languages(["s.en", "s.de"], "fr", None)
    assert languages is not None
    with pytest.raises(UsageError, match=r"s\.en, s\.de: .* fr and "):
        find_texts(["s.en", "s.de"], *languages)


# --- Finding texts --------------------------------------------------------------------------------


def test_find_texts_keeps_the_order_of_the_names(tmp_path: Path) -> None:
    names = ["a.tsv", "b.en", "b.de", "c.csv.gz", "d.jsonl", "e.NDJSON", "f.TMX", "g.de", "h.en"]
    a, b_en, b_de, c, d, e, f, g, h = (tmp_path / name for name in names)
    assert find_texts([a, b_en, b_de, c, d, e, f, g, h], "en", "de") == (
        TSV(a, "en", "de"),
        Aligned(b_en, b_de, EN_DE),
        CSV(c, "en", "de"),
        JSONLines(d, "en", "de"),
        JSONLines(e, "en", "de"),
        TMX(f, "en", "de"),
        Aligned(h, g, EN_DE),
    )


@pytest.mark.parametrize(
    "names", [["a.en"], ["a.en", "b.tsv"], ["a.en", "folder"], ["a.en", "a.de", "b.tmx", "c.en"]]
)
def test_aligned_file_without_a_second_one_is_an_error(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    alone = tmp_path / ("c.en" if "c.en" in names else "a.en")
    for find in (find_texts, find_languages):
        with pytest.raises(UsageError) as caught:
            find([tmp_path / name for name in names], "en", "de")
        assert str(caught.value).startswith(f"{alone}: ")
        assert "; name two aligned files, or a .tsv" in str(caught.value)


def test_symbolic_link_is_read_by_its_own_name(tmp_path: Path) -> None:
    blob = write(tmp_path / "blobs" / "4f2a", "one\teins\n")
    link = tmp_path / "my.tsv"
    link.symlink_to(blob)
    assert find_texts([link], "en", "de") == (TSV(link, "en", "de"),)


def test_pipe_is_refused(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fifo = tmp_path / "my.en"
    os.mkfifo(fifo)
    try:
        for name in (f"/dev/fd/{reading}", fifo, "/dev/null"):
            for names in ([name, "my.de"], ["my.de", name]):
                with pytest.raises(UsageError, match=f"^{name}: .*; write it to a file"):
                    find_texts(names, "en", "de")
    finally:
        os.close(reading)
        os.close(writing)


def test_empty_name_is_not_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "my.tsv", "one\teins\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="an empty file name"):
        find_texts([""], "en", "de")
    assert find_texts(["."], "en", "de") == (TSV(Path("my.tsv"), "en", "de"),)


def test_name_that_is_too_long_is_an_error_of_the_file(tmp_path: Path) -> None:
    name = tmp_path / f"{'a' * 300}.tsv"
    (text,) = find_texts([name], "en", "de")
    with pytest.raises(UserError, match=r"a\.tsv: File name too long; "):
        list(text.pairs())


# --- Folders --------------------------------------------------------------------------------------


def test_folder_contains_all_its_texts(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    texts = ["z.tsv", "b.en", "b.de.gz", "a.csv.gz", "c.x.jsonl", "D.TMX", "e.EN", "e.DE"]
    texts += ["f.en-GB", "f.de-AT"]
    hidden = [".hidden.tsv", ".hidden.en", ".hidden.de"]
    unpaired = ["alone.en", "alone.fr", "other.de", "children", "childrde"]
    for name in [*texts, *hidden, *unpaired, "README.md", "LICENSE", "inner/x.tsv"]:
        write(folder / name)
    (folder / "folder.tsv").mkdir()
    assert set(find_texts([folder, tmp_path / "last.tmx"], "en", "de")) == {
        TMX(folder / "D.TMX", "en", "de"),
        CSV(folder / "a.csv.gz", "en", "de"),
        Aligned(folder / "b.en", folder / "b.de.gz", EN_DE),
        JSONLines(folder / "c.x.jsonl", "en", "de"),
        Aligned(folder / "e.EN", folder / "e.DE", EN_DE),
        Aligned(folder / "f.en-GB", folder / "f.de-AT", EN_DE),
        TSV(folder / "z.tsv", "en", "de"),
        TMX(tmp_path / "last.tmx", "en", "de"),
    }
    french = Aligned(folder / "alone.fr", folder / "alone.en", ("fr", "en"))
    assert french in find_texts([folder], "fr", "en")


def test_folder_prefers_uncompressed_files_and_exact_languages(tmp_path: Path) -> None:
    for name in ["a.tsv", "a.tsv.gz", "b.de", "b.de.gz", "b.en.gz", "b.en", "b.en-GB", "b.de-AT"]:
        write(tmp_path / name)
    assert find_texts([tmp_path], "en", "de") == (
        TSV(tmp_path / "a.tsv", "en", "de"),
        Aligned(tmp_path / "b.en", tmp_path / "b.de", EN_DE),
    )


def test_texts_of_a_folder_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ["c.tsv", "b.en", "b.de", "a.csv"]:
        write(tmp_path / name)
    paths = [text.paths[0].name for text in find_texts([tmp_path], "en", "de")]
    assert paths == ["a.csv", "b.en", "c.tsv"]


def test_files_of_a_folder_that_are_not_read_are_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ["a.en", "a.de", "alone.en", "other.DE", "README.md", "inner/x.en", "x.tsv"]:
        write(tmp_path / name)
    find_texts([tmp_path], "en", "de")
    line = capsys.readouterr().err
    assert line.startswith(f"tfnmt: {tmp_path}: ")
    assert line.count("\n") == 1
    skipped = ["alone.en (no translation)", "other.DE (no translation)", "inner (a folder)"]
    assert ", ".join([*skipped, "README.md;"]) in line
    assert "x.tsv" not in line


def test_many_files_that_are_not_read_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ["a.tsv", *(f"{number}.en" for number in range(10))]:
        write(tmp_path / name)
    find_texts([tmp_path], "en", "de")
    assert "4.en (no translation), 5 more;" in capsys.readouterr().err


def test_folder_that_is_read_completely_logs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ["a.en", "a.de", ".hidden", "b.tsv"]:
        write(tmp_path / name)
    find_texts([tmp_path], "en", "de")
    assert capsys.readouterr().err == ""


def test_folder_without_text_error_names_the_formats(tmp_path: Path) -> None:
    write(tmp_path / "alone.en", "word\n")
    with pytest.raises(UserError) as caught:
        find_texts([tmp_path], "en", "de")
    for part in [f"{tmp_path}: ", "alone.en (no translation)", "; ", ".tsv", ".csv", ".jsonl"]:
        assert part in str(caught.value)
    for part in [".tmx", "train.en", "train.de"]:
        assert part in str(caught.value)


def test_unreadable_folder_is_an_error() -> None:
    user = os.geteuid()
    with TemporaryDirectory() as parent:  # in tmp_path, all users except root are locked out
        folder = Path(parent) / "closed"
        folder.mkdir()
        folder.chmod(0)
        Path(parent).chmod(0o755)
        try:
            if user == 0:
                os.seteuid(65534)
            with pytest.raises(UserError, match=f"^{folder}: Permission denied; "):
                find_texts([folder], "en", "de")
        finally:
            os.seteuid(user)
            folder.chmod(0o700)
