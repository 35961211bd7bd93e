"""Every corpus of the catalog, assembled from small archives with the layout of the real ones."""

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zlib import crc32

import pytest

from tests.archives import make_tar, make_zip
from tfnmt.config import DataConfig
from tfnmt.data.corpora import assembly, catalog
from tfnmt.data.corpora.assembly import Origin
from tfnmt.data.corpora.catalog import (
    CORPORA,
    data_folder,
    download_missing,
    listing,
    open_corpus,
    split_name,
)
from tfnmt.data.corpora.corpus import BuiltIn, Corpus
from tfnmt.data.corpora.downloads import Download
from tfnmt.data.corpora.published import Published
from tfnmt.errors import UsageError, UserError
from tfnmt.runs.run import base_folder

# --- A mirror -------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Serves archives by name."""

    server: "Mirror"

    def do_GET(self) -> None:
        name = self.path.removeprefix("/mirror/")
        self.server.requests.append(name)
        content = self.server.archives.get(name)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *arguments: object) -> None:
        pass


class Mirror(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.archives: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mirror"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy_and_a_large_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(assembly.shutil, "disk_usage", lambda _: DiskUsage(10**12))


@dataclass
class DiskUsage:
    free: int


# --- Archives -------------------------------------------------------------------------------------


def tgz(members: dict[str, str | bytes]) -> bytes:
    return make_tar(members, "gz")


def gz(text: str) -> bytes:
    return gzip.compress(text.encode())


def sgm(*sentences: str) -> str:
    """Return a test set in the format of WMT and IWSLT."""
    rows = "".join(f'<seg id="{n}"> {text} </seg>\n' for n, text in enumerate(sentences, 1))
    return f'<refset setid="x" srclang="any"><doc docid="1">\n<title>no</title>\n{rows}</doc>\n'


def tagged(*sentences: str) -> str:
    """Return talks in the format of IWSLT."""
    head = "<url>http://x</url>\n<keywords>no</keywords>\n<talkid>1</talkid>\n"
    title = "<title>{}</title>\n<description>{}</description>\n".format(*sentences[:2])
    return head + title + "".join(f" {sentence} \n" for sentence in sentences[2:])


def count(language: str, numbers: range) -> tuple[str, ...]:
    return tuple(f"{language}{number}" for number in numbers)


def text(*sentences: str) -> str:
    return "".join(f"{sentence}\n" for sentence in sentences)


MULTI30K = {
    f"{split}.{language}.gz": gz(f"{split} {language} 1\n{split} {language} 2")
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    for language in (("en", "de", "fr") if "2017" in split else ("en", "de", "fr", "cs"))
}

ENGLISH = [f"Tom has {number} dogs." for number in range(400)]
HELD_OUT = [sentence for sentence in ENGLISH if crc32(sentence.encode()) % 100 == 0]
KEPT = [sentence for sentence in ENGLISH if sentence not in HELD_OUT]


def anki(code: str) -> dict[str, bytes]:
    rows = text(*(f"{line}\t{line} ({code})\tCC-BY 2.0 (France) #1" for line in ENGLISH))
    return {f"{code}-eng.zip": make_zip({"_about.txt": "by\n", f"{code}.txt": rows})}


IWSLT14_TESTS = [
    "IWSLT14.TED.dev2010",
    "IWSLT14.TEDX.dev2012",
    "IWSLT14.TED.tst2010",
    "IWSLT14.TED.tst2011",
    "IWSLT14.TED.tst2012",
]


def iwslt14() -> dict[str, bytes]:
    members: dict[str, str | bytes] = {"de-en/README": "no"}
    for language in ("de", "en"):
        members[f"de-en/train.tags.de-en.{language}"] = tagged(*count(language, range(1, 51)))
        for name in IWSLT14_TESTS:
            members[f"de-en/{name}.de-en.{language}.xml"] = sgm(f"{name} {language}")
    return {"de-en.tgz": tgz(members)}


def iwslt17(pair: str) -> dict[str, bytes]:
    members = {f"{pair}/README": "no"}
    for language in pair.split("-"):
        members[f"{pair}/train.tags.{pair}.{language}"] = tagged(*count(language, range(1, 5)))
        for name in ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014", "tst2015"):
            members[f"{pair}/IWSLT17.TED.{name}.{pair}.{language}.xml"] = sgm(f"{name} {language}")
    return {f"{pair}.zip": make_zip(members)}


UMC005_MEMBERS = {
    "00README.txt": "no",
    "bible/train.en": "In the beginning\nbible",
    "bible/train.ur": "ابتدا\nبائبل",
    "bible/dev.en": "bible dev\n",
    "bible/dev.ur": "الف\n",
    "bible/test.en": "bible test\n",
    "bible/test.ur": "ب\n",
    "quran/train.en": "The Opening\n",
    "quran/train.ur": "الفاتحہ\n",
    "quran/dev.en": "quran dev\n",
    "quran/dev.ur": "ج\n",
    "quran/test.en": "quran test\n",
    "quran/test.ur": "د\n",
}
UMC005 = {"umc005-corpus.zip": make_zip(UMC005_MEMBERS)}

WMT14 = {
    "training-parallel-europarl-v7.tgz": tgz(
        {
            "training/europarl-v7.cs-en.cs": "no\n",
            "training/europarl-v7.cs-en.en": "no\n",
            "training/europarl-v7.de-en.de": "europarl de\nSitzungsperiode \u2028 heute\n",
            "training/europarl-v7.de-en.en": "europarl de-en en\nsession\n",
            "training/europarl-v7.fr-en.en": "europarl fr-en en\n",
            "training/europarl-v7.fr-en.fr": "europarl fr\n",
        }
    ),
    "training-parallel-commoncrawl.tgz": tgz(
        {
            "commoncrawl.de-en.annotation": "no\n",
            "commoncrawl.de-en.de": "crawl de\n",
            "commoncrawl.de-en.en": "crawl de-en en\n",
            "commoncrawl.fr-en.annotation": "no\n",
            "commoncrawl.fr-en.en": "crawl fr-en en\n",
            "commoncrawl.fr-en.fr": "crawl fr\n",
        }
    ),
    "training-parallel-nc-v9.tgz": tgz(
        {
            "training/news-commentary-v9.de-en.de": "news de\r\n",
            "training/news-commentary-v9.de-en.en": "news de-en en\n",
            "training/news-commentary-v9.fr-en.en": "news fr-en en\n",
            "training/news-commentary-v9.fr-en.fr": "news fr\n",
        }
    ),
    "training-parallel-un.tgz": tgz(
        {
            "un/undoc.2000.es-en.es": "no\n",
            "un/undoc.2000.fr-en.en": "un en\n",
            "un/undoc.2000.fr-en.fr": "un fr\n",
        }
    ),
    "training-giga-fren.tar": make_tar(
        {
            "giga-fren.release2.fixed.en.gz": gz("giga en\n\n"),
            "giga-fren.release2.fixed.fr.gz": gz("giga fr\n\n"),
        },
    ),
    "dev.tgz": tgz(
        {
            "dev/newstest2013-src.de.sgm": "no\n",
            "dev/newstest2013.de": "2013 de\n",
            "dev/newstest2013.en": "2013 en\n",
            "dev/newstest2013.fr": "2013 fr\n",
        }
    ),
    "test-full.tgz": tgz(
        {
            "test-full/newstest2014-deen-ref.de.sgm": sgm("2014 de &amp; mehr"),
            "test-full/newstest2014-deen-ref.en.sgm": sgm("2014 deen en &amp; more"),
            "test-full/newstest2014-deen-src.de.sgm": sgm("no"),
            "test-full/newstest2014-deen-src.en.sgm": sgm("no"),
            "test-full/newstest2014-fren-ref.en.sgm": sgm("2014 fren en"),
            "test-full/newstest2014-fren-ref.fr.sgm": sgm("2014 fr"),
        }
    ),
}


@dataclass
class Case:
    """A language pair of a corpus, its archives, and the files assembled from them."""

    name: str
    pair: tuple[str, str]
    archives: dict[str, bytes]
    files: dict[str, str]
    requests: set[str]


def iwslt17_case(source: str) -> Case:
    pair = f"{source}-en"
    files = {}
    for language in (source, "en"):
        tests = (f"tst{year} {language}" for year in range(2010, 2016))
        files |= {
            f"iwslt17/{pair}/train.{language}": text(*count(language, range(1, 5))),
            f"iwslt17/{pair}/val.{language}": f"dev2010 {language}\n",
            f"iwslt17/{pair}/test.{language}": text(*tests),
        }
    return Case("iwslt17", (source, "en"), iwslt17(pair), files, {f"{pair}.zip"})


def multi30k_case(source: str, target: str) -> Case:
    sets = ["train", "val", "test_2016_flickr"]
    sets += [] if "cs" in (source, target) else ["test_2017_flickr", "test_2017_mscoco"]
    names = [(split, language) for split in sets for language in (source, target)]
    files = {
        f"multi30k/{split}.{language}": f"{split} {language} 1\n{split} {language} 2\n"
        for split, language in names
    }
    archives = {f"{split}.{language}.gz" for split, language in names}
    return Case("multi30k", (source, target), MULTI30K, files, archives)


def tatoeba_case(language: str, code: str) -> Case:
    folder = f"tatoeba/{language}-en"
    files = {}
    for split, sentences in (("train", KEPT), ("val", HELD_OUT)):
        files[f"{folder}/{split}.en"] = text(*sentences)
        files[f"{folder}/{split}.{language}"] = text(*(f"{line} ({code})" for line in sentences))
    return Case("tatoeba", (language, "en"), anki(code), files, {f"{code}-eng.zip"})


IWSLT14_VAL = ("23", "46")


def iwslt14_case() -> Case:
    files = {}
    for language in ("de", "en"):
        kept = (
            sentence
            for sentence in count(language, range(1, 51))
            if sentence[2:] not in IWSLT14_VAL
        )
        files |= {
            f"iwslt14/de-en/train.{language}": text(*kept),
            f"iwslt14/de-en/val.{language}": text(
                *(f"{language}{number}" for number in IWSLT14_VAL)
            ),
            f"iwslt14/de-en/test.{language}": text(
                *(f"{name} {language}" for name in IWSLT14_TESTS)
            ),
        }
    return Case("iwslt14", ("de", "en"), iwslt14(), files, {"de-en.tgz"})


UMC005_FILES = {
    "umc005/train.en": "In the beginning\nbible\nThe Opening\n",
    "umc005/train.ur": "ابتدا\nبائبل\nالفاتحہ\n",
    "umc005/val.en": "bible dev\nquran dev\n",
    "umc005/val.ur": "الف\nج\n",
    "umc005/test.en": "bible test\nquran test\n",
    "umc005/test.ur": "ب\nد\n",
}
WMT14_DE_FILES = {
    "wmt14/de-en/train.de": "europarl de\nSitzungsperiode \u2028 heute\ncrawl de\nnews de\n",
    "wmt14/de-en/train.en": "europarl de-en en\nsession\ncrawl de-en en\nnews de-en en\n",
    "wmt14/de-en/newstest2013.de": "2013 de\n",
    "wmt14/de-en/newstest2013.en": "2013 en\n",
    "wmt14/de-en/newstest2014.de": "2014 de & mehr\n",
    "wmt14/de-en/newstest2014.en": "2014 deen en & more\n",
}
WMT14_DE_ARCHIVES = {
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
    "test-full.tgz",
}
WMT14_FR_FILES = {
    "wmt14/fr-en/train.fr": "europarl fr\ncrawl fr\nnews fr\nun fr\ngiga fr\n\n",
    "wmt14/fr-en/train.en": "europarl fr-en en\ncrawl fr-en en\nnews fr-en en\nun en\ngiga en\n\n",
    "wmt14/fr-en/newstest2013.fr": "2013 fr\n",
    "wmt14/fr-en/newstest2013.en": "2013 en\n",
    "wmt14/fr-en/newstest2014.fr": "2014 fr\n",
    "wmt14/fr-en/newstest2014.en": "2014 fren en\n",
}

CASES = [
    *(multi30k_case(*pair) for pair in (("en", "de"), ("en", "fr"), ("en", "cs"), ("de", "cs"))),
    *(tatoeba_case(*codes) for codes in (("de", "deu"), ("ja", "jpn"), ("zh", "cmn"))),
    iwslt14_case(),
    iwslt17_case("de"),
    iwslt17_case("fr"),
    Case("umc005", ("en", "ur"), UMC005, UMC005_FILES, {"umc005-corpus.zip"}),
    Case("wmt14", ("de", "en"), WMT14, WMT14_DE_FILES, WMT14_DE_ARCHIVES),
    Case("wmt14", ("fr", "en"), WMT14, WMT14_FR_FILES, set(WMT14)),
]


# --- Downloading ----------------------------------------------------------------------------------


def data_config(name: str, source: str, target: str) -> DataConfig:
    return DataConfig(corpus=name, source=source, target=target)


def get(
    config: DataConfig, folder: Path, mirror: str, *splits: str, pinned: bool = False
) -> Corpus:
    """Download some splits of a corpus, or all of them if none is named.

    The catalog pins the checksums of the real archives, so `pinned` is off by default.
    """
    corpus = open_corpus(config, 1, folder)
    origin = Origin(mirror, pinned)
    download_missing(config, corpus, splits or corpus.splits, folder, origin)
    return corpus


def files_in(folder: Path) -> dict[str, str]:
    """Return the texts of a data folder, without archives and locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and path.parent.name != "archives"
    }


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {'-'.join(case.pair)}")
def test_corpus_is_assembled_from_its_archives(
    case: Case, backwards: bool, mirror: Mirror, tmp_path: Path
) -> None:
    source, target = case.pair[:: -1 if backwards else 1]
    mirror.archives = case.archives
    config = data_config(case.name, source, target)
    corpus = get(config, tmp_path, mirror.url)
    assert files_in(tmp_path) == case.files
    assert set(mirror.requests) == case.requests
    assert len(mirror.requests) == len(case.requests)  # each once
    assert corpus.held_out == tuple(split for split in corpus.splits if split != "train")

    for split in corpus.splits:
        (folder,) = {path.parent for path in corpus.files(split)}
        sides = [(folder / f"{split}.{language}").read_text() for language in (source, target)]
        assert list(corpus.pairs(split)) == list(
            zip(*(side.removesuffix("\n").split("\n") for side in sides), strict=True)
        )
    mirror.requests.clear()
    get(config, tmp_path, mirror.url)
    get(data_config(case.name, target, source), tmp_path, mirror.url)
    assert mirror.requests == []


def test_every_published_corpus_has_a_case() -> None:
    published_names = {name for name, entry in CORPORA.items() if isinstance(entry, Published)}
    assert {case.name for case in CASES} == published_names


@pytest.mark.parametrize("language", catalog.ANKI.split())
def test_tatoeba_is_assembled_for_every_language(
    language: str, mirror: Mirror, tmp_path: Path
) -> None:
    name, _, code = language.partition(":")
    mirror.archives = anki(code)
    get(data_config("tatoeba", name, "en"), tmp_path, mirror.url)
    assert files_in(tmp_path) == tatoeba_case(name, code).files


def test_only_the_needed_splits_are_downloaded(mirror: Mirror, tmp_path: Path) -> None:
    mirror.archives = WMT14
    corpus = get(data_config("wmt14", "en", "de"), tmp_path, mirror.url, "newstest2014")
    assert mirror.requests == ["test-full.tgz"]
    assert corpus.held_out == ("newstest2014",)


def test_third_language_downloads_only_its_own_files(mirror: Mirror, tmp_path: Path) -> None:
    mirror.archives = MULTI30K
    get(data_config("multi30k", "en", "de"), tmp_path, mirror.url, "train")
    get(data_config("multi30k", "en", "fr"), tmp_path, mirror.url, "train")
    assert mirror.requests == ["train.en.gz", "train.de.gz", "train.fr.gz"]


def test_existing_corpus_is_used_without_requests(mirror: Mirror, tmp_path: Path) -> None:
    for name, content in WMT14_DE_FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    before = files_in(tmp_path)
    corpus = get(data_config("wmt14", "de", "en"), tmp_path, mirror.url)
    assert mirror.requests == []
    assert files_in(tmp_path) == before
    assert next(corpus.pairs("newstest2013")) == ("2013 de", "2013 en")
    assert not (tmp_path / "archives").exists()


def download_error(
    name: str, pair: tuple[str, str], folder: Path, mirror: str, split: str, pinned: bool = False
) -> str:
    with pytest.raises(UserError) as caught:
        get(data_config(name, *pair), folder, mirror, split, pinned=pinned)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("name", "pair", "archives", "archive"),
    [
        ("multi30k", ("en", "de"), MULTI30K, "train.en.gz"),
        ("wmt14", ("de", "en"), WMT14, "training-parallel-europarl-v7.tgz"),
    ],
)
def test_archive_without_the_pinned_checksum_is_an_error(
    name: str,
    pair: tuple[str, str],
    archives: dict[str, bytes],
    archive: str,
    mirror: Mirror,
    tmp_path: Path,
) -> None:
    mirror.archives = archives
    message = download_error(name, pair, tmp_path, mirror.url, "train", pinned=True)
    assert message.startswith(f"{mirror.url}/{archive}: checksum ")
    assert "it was deleted" in message
    assert files_in(tmp_path) == {}


def test_archive_with_different_lengths_leaves_no_files(mirror: Mirror, tmp_path: Path) -> None:
    mirror.archives = MULTI30K | {"train.de.gz": gz("eins\n")}
    message = download_error("multi30k", ("en", "de"), tmp_path, mirror.url, "train")
    assert message.startswith("train.en.gz: 2 sentences in train.en, 1 in train.de; ")
    assert files_in(tmp_path) == {}


def test_mirror_without_the_archive_is_an_error(mirror: Mirror, tmp_path: Path) -> None:
    message = download_error("umc005", ("en", "ur"), tmp_path, mirror.url, "val")
    assert message.startswith(f"{mirror.url}/umc005-corpus.zip: the server answered 404 ")
    assert f"put the file here by hand: {tmp_path}/archives/umc005-corpus.zip" in message
    assert files_in(tmp_path) == {}


def test_full_disk_is_an_error_before_any_request(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly.shutil, "disk_usage", lambda _: DiskUsage(9 * 10**9))
    message = download_error("wmt14", ("de", "en"), tmp_path, mirror.url, "train")
    assert message.startswith(f"{tmp_path}: only 9.0 GB of about 9.9 GB are free; ")
    assert mirror.requests == []
    assert files_in(tmp_path) == {}


def test_size_and_license_are_logged_before_the_download(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download_error("wmt14", ("en", "de"), tmp_path, mirror.url, "train")
    log = capsys.readouterr().err.splitlines()
    assert log[0].startswith("tfnmt: wmt14 de-en train: downloading about 1.7 GB to ")
    assert log[1].startswith("tfnmt: license: research use")
    assert log[2].startswith(f"tfnmt: downloading {mirror.url}/")


@pytest.mark.parametrize("missing", ["train.de", "train.en"])
def test_split_with_a_missing_file_is_completed(
    mirror: Mirror, tmp_path: Path, missing: str
) -> None:
    mirror.archives = WMT14
    config = data_config("wmt14", "de", "en")
    get(config, tmp_path, mirror.url)
    before = files_in(tmp_path)
    (tmp_path / "wmt14" / "de-en" / missing).unlink()
    mirror.requests.clear()
    get(config, tmp_path, mirror.url)
    assert files_in(tmp_path) == before
    assert mirror.requests == []  # the archives still exist


def test_built_in_corpora_download_nothing(mirror: Mirror, tmp_path: Path) -> None:
    for name, entry in CORPORA.items():
        if isinstance(entry, BuiltIn):
            corpus = get(data_config(name, *entry.languages), tmp_path, mirror.url)
            assert corpus.splits == ("train", "val", "test")
    assert mirror.requests == []
    assert not list(tmp_path.iterdir())


# --- Declarations ---------------------------------------------------------------------------------


def all_downloads() -> list[Download]:
    return [
        download
        for entry in CORPORA.values()
        if isinstance(entry, Published)
        for direction in entry.directions()
        for split in entry.open(*direction, Path()).splits
        for download in entry.downloads(split, *direction).values()
    ]


def test_archives_with_different_urls_have_different_names() -> None:
    urls_of: dict[str, set[str]] = {}
    for download in all_downloads():
        assert download.url.startswith("https://")
        assert download.file_name
        urls_of.setdefault(download.file_name, set()).add(download.url)
    assert not [name for name, urls in urls_of.items() if len(urls) > 1]


def test_every_checksum_belongs_to_an_archive() -> None:
    used = {download.file_name for download in all_downloads()}
    for entry in CORPORA.values():
        if isinstance(entry, Published):
            for name, checksum in entry.checksums.items():
                algorithm, _, digits = checksum.partition(":")
                assert name in used
                assert (algorithm, len(digits)) in (("md5", 32), ("sha256", 64))
                assert int(digits, 16)
    pinned = {download.file_name for download in all_downloads() if download.checksum}
    assert len(pinned) == 18 + 4


MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
IWSLT17_URL = (
    "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts"
)
UMC005_URL = "https://ufal.mff.cuni.cz/umc/005-en-ur/download.php"


@pytest.mark.parametrize(
    ("name", "pair", "split", "url"),
    [
        ("multi30k", ("de", "fr"), "train", f"{MULTI30K_URL}/train.de.gz"),
        ("tatoeba", ("en", "ja"), "val", "https://www.manythings.org/anki/jpn-eng.zip"),
        ("iwslt17", ("en", "fr"), "test", f"{IWSLT17_URL}/fr/en/fr-en.zip"),
        ("wmt14", ("en", "fr"), "train", "https://www.statmt.org/wmt10/training-giga-fren.tar"),
        ("umc005", ("ur", "en"), "train", f"{UMC005_URL}?f=umc005-corpus.zip"),
    ],
)
def test_archive_urls_are_those_of_the_publishers(
    name: str, pair: tuple[str, str], split: str, url: str
) -> None:
    entry = CORPORA[name]
    assert isinstance(entry, Published)
    assert url in {download.url for download in entry.downloads(split, *pair).values()}


def test_tatoeba_languages_are_unique() -> None:
    codes = [item.split(":") for item in catalog.ANKI.split()]
    assert len({two for two, _ in codes}) == len({three for _, three in codes}) == len(codes)
    assert all(len(two) == 2 and len(three) == 3 for two, three in codes)


def test_every_published_corpus_has_a_validation_set_and_a_license() -> None:
    for name, entry in CORPORA.items():
        if isinstance(entry, Published):
            assert entry.folder == name
            assert entry.license
            assert "val" in {*entry.splits, *entry.aliases}
            assert set(entry.aliases.values()) <= set(entry.splits)


# --- Names ----------------------------------------------------------------------------------------


def test_listing_has_every_corpus_with_its_license() -> None:
    lines = listing().splitlines()
    assert [line.partition(":")[0] for line in lines[::2]] == list(CORPORA)
    for first, second, entry in zip(lines[::2], lines[1::2], CORPORA.values(), strict=True):
        assert f": {entry.pairs} pairs; " in first
        assert second.startswith("  ")
        if isinstance(entry, Published):
            assert second.endswith(f"; license: {entry.license}")
        else:
            assert second.startswith("  built in")
    described = dict(zip(CORPORA, zip(lines[::2], lines[1::2], strict=True), strict=True))
    assert described["wmt14"][0].endswith("; both directions of de-en, en-fr")
    assert "download about de-en 1.7 GB, fr-en 6.7 GB;" in described["wmt14"][1]
    assert "cs-en and 50 more" in described["tatoeba"][0]
    assert "download about de-en 20.0 MB;" in described["iwslt14"][1]  # once, not for each split


def usage_error(config: DataConfig) -> str:
    with pytest.raises(UsageError) as caught:
        open_corpus(config, 1, Path())
    return str(caught.value)


def test_data_folder_is_data_by_default() -> None:
    assert data_folder(None) == base_folder() / "data"
    assert data_folder("elsewhere") == Path("elsewhere")


def test_unknown_corpus_error_names_all_corpora() -> None:
    message = usage_error(data_config("multi30", "en", "de"))
    assert message.startswith("data.corpus=multi30: unknown corpus; did you mean multi30k? ")
    assert all(name in message for name in CORPORA)


@pytest.mark.parametrize(
    ("name", "pair", "known"),
    [
        ("wmt14", ("de", "fr"), "de-en, en-de, en-fr, fr-en"),
        ("umc005", ("de", "en"), "en-ur, ur-en"),
        ("tatoeba", ("de", "fr"), "af-en, ar-en"),
        ("tatoeba", ("xx", "en"), "af-en, ar-en"),
        ("copy", ("en", "de"), "copied-digits, digits-copied"),
    ],
)
def test_unknown_direction_error_names_all_directions(
    name: str, pair: tuple[str, str], known: str
) -> None:
    message = usage_error(data_config(name, *pair))
    assert message.startswith(
        f"data.corpus={name}: no direction {pair[0]}-{pair[1]}; choose one of {known}"
    )


@pytest.mark.parametrize(
    ("name", "pair", "split", "name_in_corpus"),
    [
        ("wmt14", ("en", "de"), "val", "newstest2013"),
        ("wmt14", ("en", "de"), "test", "newstest2014"),
        ("wmt14", ("en", "de"), "newstest2014", "newstest2014"),
        ("multi30k", ("en", "cs"), "test", "test_2016_flickr"),
        ("multi30k", ("en", "de"), "test_2017_mscoco", "test_2017_mscoco"),
        ("iwslt14", ("de", "en"), "test", "test"),
        ("toy", ("en", "de"), "val", "val"),
    ],
)
def test_split_name_returns_the_name_in_the_corpus(
    name: str, pair: tuple[str, str], split: str, name_in_corpus: str
) -> None:
    config = data_config(name, *pair)
    assert split_name(config, open_corpus(config, 1, Path()), split) == name_in_corpus


@pytest.mark.parametrize(
    ("name", "pair", "split", "known"),
    [
        ("wmt14", ("en", "de"), "dev", "train, newstest2013, newstest2014, val, test"),
        ("tatoeba", ("en", "de"), "test", "train, val"),
        ("multi30k", ("en", "cs"), "test_2017_flickr", "train, val, test_2016_flickr, test"),
        ("toy", ("en", "de"), "newstest2013", "train, val, test"),
    ],
)
def test_unknown_split_error_names_all_splits(
    name: str, pair: tuple[str, str], split: str, known: str
) -> None:
    config = data_config(name, *pair)
    with pytest.raises(UsageError) as caught:
        split_name(config, open_corpus(config, 1, Path()), split)
    assert str(caught.value).startswith(f"--split={split}: ")
    assert str(caught.value).endswith(known)
