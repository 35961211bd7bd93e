"""System tests of the command `prepare`: its output, recovery from a kill, and its errors."""

import functools
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

PREPARE = [sys.executable, "-m", "tfnmt.prepare"]
ENVIRONMENT = os.environ | {"no_proxy": "*"}


def prepare(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PREPARE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )


def succeed(*arguments: object) -> subprocess.CompletedProcess[str]:
    done = prepare(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def only_folder(cache: Path) -> Path:
    """Return the only prepared corpus of a cache. Next to it there may only be its lock."""
    (folder,) = [path for path in (cache / "prepared").iterdir() if path.suffix != ".lock"]
    assert not folder.name.startswith(".")
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


NAMES = {
    "checksums.json",
    "train.source.txt",
    "train.source.txt.splits.npy",
    "train.source.ids",
    "train.source.ids.splits.npy",
    "train.target.txt",
    "train.target.txt.splits.npy",
    "train.target.ids",
    "train.target.ids.splits.npy",
    "tokenizer.model",
    "report.json",
    "report.txt",
    "report.html",
    "rejected.tsv.gz",
}
SMALL_VOCABULARY = "--set=tokenizer.vocab_size=300"


# --- Output ---------------------------------------------------------------------------------------


def test_list_names_every_corpus_and_license() -> None:
    done = succeed("--list")
    assert done.stderr == ""
    names = [line.partition(":")[0] for line in done.stdout.splitlines() if line[0] != " "]
    published = ["multi30k", "tatoeba", "iwslt14", "iwslt17", "umc005", "wmt14"]
    assert names == ["toy", "copy", "reverse", *published]
    assert done.stdout.count("license: ") == 6


def sentences(first: int, count: int) -> list[tuple[str, str]]:
    """Return pairs without markup of any format."""
    return [
        (f"We saw {number} dogs run home", f"Wir sahen {number} Hunde heim rennen")
        for number in range(first, first + count)
    ]


def lines(*text: str) -> str:
    return "".join(f"{line}\n" for line in text)


@pytest.fixture
def custom_data(tmp_path: Path) -> Path:
    """Write a TSV, a TMX and a folder of three more texts, with 20 pairs each."""
    (tmp_path / "my.tsv").write_text(lines(*("\t".join(pair) for pair in sentences(0, 20))))
    units = "".join(
        f'<tu><tuv xml:lang="de-DE"><seg>{de}</seg></tuv><tuv xml:lang="EN"><seg>{en}</seg></tuv>'
        "</tu>"
        for en, de in sentences(100, 20)
    )
    (tmp_path / "my.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')
    folder = tmp_path / "folder"
    folder.mkdir()
    english, german = zip(*sentences(200, 20), strict=True)
    (folder / "a.de").write_text(lines(*german))
    (folder / "a.en").write_text(lines(*english))
    rows = (json.dumps({"de": de, "en": en}) for en, de in sentences(300, 20))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines(*rows).encode()))
    (folder / "c.csv").write_text(
        lines("Target,Source", *(f'"{de}","{en}"' for en, de in sentences(400, 20)))
    )
    (folder / "README").write_text("no text\n")
    return tmp_path


def test_custom_data_in_many_formats_is_prepared_once(custom_data: Path) -> None:
    arguments = (
        f"--train={custom_data / 'my.tsv'},{custom_data / 'my.tmx'},{custom_data / 'folder'}",
        "--source=en",
        "--target=de",
        f"--val={custom_data / 'my.tsv'}",
        f"--cache_dir={custom_data / 'cache'}",
        SMALL_VOCABULARY,
    )
    first = succeed(*arguments)
    folder = only_folder(custom_data / "cache")
    assert set(read_files(folder)) == NAMES

    # The leakage rule removes the pairs of --val.
    pairs = [pair for start in (100, 200, 300, 400) for pair in sentences(start, 20)]
    english, german = zip(*pairs, strict=True)
    assert (folder / "train.source.txt").read_text() == lines(*english)
    assert (folder / "train.target.txt").read_text() == lines(*german)
    rejected = gzip.decompress((folder / "rejected.tsv.gz").read_bytes()).decode()
    assert rejected == lines(*(f"leakage\t{en}\t{de}" for en, de in sentences(0, 20)))
    report = json.loads((folder / "report.json").read_text())
    assert (report["read"], report["kept"]) == (100, 80)
    assert report["removed"] == {"empty": 0, "leakage": 20}

    assert first.stdout == (folder / "report.txt").read_text() + "\n"
    assert f"tfnmt: prepared corpus: {folder}; " in first.stderr
    assert "tfnmt: 80 of 100 pairs kept; removed: 20 leakage" in first.stderr

    times = {path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())}
    again = succeed(*arguments)
    assert again.stdout == first.stdout
    assert "tokenizer" not in again.stderr
    assert {path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())} == times
    assert only_folder(custom_data / "cache") == folder


def test_languages_are_the_suffixes_of_aligned_files_in_their_order(custom_data: Path) -> None:
    files = [custom_data / "folder" / "a.de", custom_data / "folder" / "a.en"]
    succeed(
        f"--train={files[0]},{files[1]}",
        f"--cache_dir={custom_data / 'cache'}",
        f"--val={files[0]},{files[1]}",
        "--set=cleaning.leakage=false",
        SMALL_VOCABULARY,
    )
    folder = only_folder(custom_data / "cache")
    for side, file in zip(("source", "target"), files, strict=True):
        assert (folder / f"train.{side}.txt").read_text() == file.read_text()


def test_cache_distinguishes_formats_of_files_with_the_same_bytes(custom_data: Path) -> None:
    text = lines("en,de", *(f"{en}\t,{de}\t" for en, de in sentences(0, 20)))
    for name in ("one.tsv", "one.csv"):
        (custom_data / name).write_text(text)
        succeed(
            f"--train={custom_data / name}",
            "--source=en",
            "--target=de",
            f"--val={custom_data}/my.tmx",
            f"--cache_dir={custom_data / 'cache'}",
            SMALL_VOCABULARY,
        )
    folders = [path for path in (custom_data / "cache" / "prepared").iterdir() if path.is_dir()]
    assert {(folder / "train.target.txt").read_text() for folder in folders} == {
        lines(*(f",{de}" for _, de in sentences(0, 20))),
        lines(*(f"{de}\t" for _, de in sentences(0, 20))),
    }


def test_broken_rule_removes_pairs_that_are_not_utf_8(tmp_path: Path) -> None:
    english, german = zip(*sentences(0, 40), strict=True)
    (tmp_path / "a.en").write_text(lines(*english))
    (tmp_path / "a.de").write_bytes(lines(*german).encode() + b"caf\xe9\n")
    with (tmp_path / "a.en").open("a") as file:
        file.write("coffee\n")
    (tmp_path / "val.de").write_bytes((tmp_path / "a.en").read_bytes())  # no pair of the training
    succeed(
        f"--train={tmp_path}/a.en,{tmp_path}/a.de",
        f"--val={tmp_path}/a.en,{tmp_path}/val.de",
        f"--cache_dir={tmp_path / 'cache'}",
        SMALL_VOCABULARY,
        "--set=cleaning.broken=true",
    )
    folder = only_folder(tmp_path / "cache")
    assert (folder / "train.target.txt").read_text() == lines(*german)
    rejected = gzip.decompress((folder / "rejected.tsv.gz").read_bytes()).decode()
    assert rejected == "broken\tcoffee\tcaf\\udce9\n"
    assert "caf\\udce9" in (folder / "report.html").read_text()


def test_published_corpus_is_downloaded_and_prepared(tmp_path: Path) -> None:
    server_folder = tmp_path / "server"
    server_folder.mkdir()
    with zipfile.ZipFile(server_folder / "umc005-corpus.zip", "w") as archive:
        for book, first in (("bible", 0), ("quran", 100)):
            for split, start in (("train", first), ("dev", first + 500), ("test", first + 700)):
                english, other = zip(*sentences(start, 20), strict=True)
                archive.writestr(f"{book}/{split}.en", lines(*english))
                archive.writestr(f"{book}/{split}.ur", lines(*other))
    (tmp_path / "umc005.yaml").write_text("data: {corpus: umc005, target: ur}\n")
    handler = functools.partial(Quiet, directory=str(server_folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            done = succeed(
                f"--config={tmp_path / 'umc005.yaml'}",
                f"--data_dir={tmp_path / 'data'}",
                f"--mirror=http://127.0.0.1:{server.server_port}/",
                f"--cache_dir={tmp_path / 'cache'}",
                SMALL_VOCABULARY,
            )
        finally:
            server.shutdown()
            thread.join()
    assert "tfnmt: license: CC BY-NC-SA: research only" in done.stderr
    assert "pairs kept                      40  100.00%" in done.stdout
    corpus = tmp_path / "data" / "umc005"
    texts = {
        f"{split}.{language}" for split in ("train", "val", "test") for language in ("en", "ur")
    }
    assert {path.name for path in corpus.iterdir()} == {".lock", *texts}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


# --- Concurrent and killed processes --------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return arguments for text that is encoded on all cores, with pairs that cleaning removes."""
    folder = tmp_path_factory.mktemp("large")
    numbers = random.Random(1)
    for language in ("en", "de"):
        rows = (f"{language} {numbers.randrange(999)} {row % 23_000}" for row in range(24_000))
        (folder / f"train.{language}").write_text(lines("", *rows))
    (folder / "val.tsv").write_text("a\tb\n")
    return [
        f"--train={folder}/train.en,{folder}/train.de",
        f"--val={folder}/val.tsv",
        SMALL_VOCABULARY,
        "--set=cleaning.duplicates=true",
    ]


@pytest.fixture(scope="module")
def uninterrupted(large: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare the text in two processes at once; returns the folder."""
    cache = tmp_path_factory.mktemp("uninterrupted")
    both = [
        subprocess.Popen(
            [*PREPARE, *large, f"--cache_dir={cache}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    messages = "".join(error for _, error in outputs)
    assert messages.count("training a tokenizer") == 1
    assert messages.count("waiting for it") == 1
    return only_folder(cache)


def test_concurrent_processes_prepare_one_folder(uninterrupted: Path) -> None:
    assert set(read_files(uninterrupted)) == NAMES
    assert json.loads((uninterrupted / "report.json").read_text())["removed"]["empty"] == 1


MOMENTS = (
    ".*.tmp",
    ".*.tmp/tokenizer.model",
    ".*.tmp/train.source.ids",
    "[!.]*",
)
"""Patterns of paths. The test kills the process as soon as such a path exists."""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the /proc of Linux")
def test_rerun_after_a_kill_completes_the_folder(
    large: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    prepared = tmp_path / "prepared"
    for moment in MOMENTS:
        # Files of previously killed processes still exist, so the path must be a new one.
        before = set(prepared.glob("*/*")) | set(prepared.glob("*"))

        def reached(moment: str = moment, before: set[Path] = before) -> bool:
            return not before.issuperset(prepared.glob(moment))

        process = subprocess.Popen(
            [*PREPARE, *large, f"--cache_dir={tmp_path}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(reached, moment)
            if moment.endswith("source.ids"):  # its worker processes have started
                wait_until(lambda group=process.pid: len(alive(group)) > 2, moment)
            process.kill()
            assert process.wait() == -signal.SIGKILL, moment
            wait_until(lambda group=process.pid: not alive(group), moment)
        finally:
            for left in alive(process.pid):
                os.kill(left, signal.SIGKILL)
            process.wait()
        complete = [path for path in prepared.iterdir() if not path.name.startswith(".")]
        if moment != MOMENTS[-1]:
            assert complete == []
    assert read_files(only_folder(tmp_path)) == read_files(uninterrupted)
    again = succeed(*large, f"--cache_dir={tmp_path}")
    assert "tokenizer" not in again.stderr


def wait_until(condition: Callable[[], bool], moment: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, moment
        time.sleep(0.002)


def alive(group: int) -> list[int]:
    """Return the running processes of a group, without zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state not in "ZX":
            found.append(int(path.parent.name))
    return found


# --- Errors ---------------------------------------------------------------------------------------

BOMB = """<?xml version="1.0"?>
<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>
<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>&c;</seg></tuv>
<tuv xml:lang="de"><seg>x</seg></tuv></tu></body></tmx>
"""


class BadCall(NamedTuple):
    """Arguments, and the error that they cause."""

    arguments: list[str]
    code: int
    message: str  # its beginning, with {} for the folder


ALIGNED = ["--train=a.en,a.de", "--val=a.en,a.de"]
LANGUAGES = ["--source=en", "--target=de"]
ONE_FILE = [*LANGUAGES, "--val=a.en,a.de"]

BAD_CALLS = {
    "different lengths": BadCall(
        ["--train=a.en,short.de", "--val=a.en,a.de"],
        1,
        "{}/a.en: 40 lines, but {}/short.de has 39; ",
    ),
    "different lengths without a validation set": BadCall(
        ["--train=a.en,short.de"], 1, "{}/a.en: 40 lines, but "
    ),
    "not UTF-8": BadCall(
        ["--train=a.en,latin.de", "--val=a.en,a.de"],
        1,
        "{}/latin.de:3: not UTF-8 (byte 4 of the line); ",
    ),
    "CSV without the columns": BadCall(
        ["--train=my.csv", *ONE_FILE], 1, "{}/my.csv:1: the columns are english, german; "
    ),
    "TMX bomb": BadCall(["--train=bomb.tmx", *ONE_FILE], 1, "{}/bomb.tmx: declares entities, "),
    "truncated gzip file": BadCall(
        ["--train=truncated.en.gz,a.de", *ONE_FILE],
        1,
        "{}/truncated.en.gz: the gzip data ends early; ",
    ),
    "no pair left": BadCall(
        [*ALIGNED, "--set=cleaning.max_characters=1"],
        1,
        "data.train: cleaning removed all 40 training pairs (40 max_characters); ",
    ),
    "unknown key": BadCall([*ALIGNED, "--set=cleaning.x=1"], 2, "cleaning.x: unknown key; "),
    "missing file": BadCall(["--train=b.en,a.de", "--val=a.en,a.de"], 1, "{}/b.en: no such file; "),
    "missing TSV": BadCall(["--train=b.tsv", *ONE_FILE], 1, "{}/b.tsv: no such file; "),
    "too few pairs to hold out": BadCall(
        ["--train=few.tsv", *LANGUAGES], 1, "{}/few.tsv: 2 pairs are too few to hold some out "
    ),
    "vocabulary too large": BadCall(
        ["--train=a.en,a.de", "--val=few.tsv", "--set=tokenizer.vocab_size=4000"],
        2,
        "tokenizer.vocab_size=4000: ",
    ),
    "cache that is a file": BadCall([*ALIGNED, "--cache_dir=few.tsv"], 1, "few.tsv/prepared/"),
    "unknown corpus": BadCall(
        ["--dataset=toy", "--set=data.corpus=toi"],
        2,
        "data.corpus=toi: unknown corpus; did you mean toy? ",
    ),
}


@pytest.mark.parametrize("bad", BAD_CALLS)
def test_errors_are_one_line_and_leave_no_files(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    english, german = zip(*sentences(0, 40), strict=True)
    Path("a.en").write_text(lines(*english))
    Path("a.de").write_text(lines(*german))
    Path("short.de").write_text(lines(*german[1:]))
    Path("latin.de").write_bytes(lines(*german[:2], "caf\xe9", *german[3:]).encode("latin-1"))
    Path("my.csv").write_text("english,german\na,b\n")
    Path("bomb.tmx").write_text(BOMB)
    Path("truncated.en.gz").write_bytes(gzip.compress(lines(*english).encode())[:-20])
    Path("few.tsv").write_text("a\tb\nc\td\n")
    arguments, code, message = BAD_CALLS[bad]
    done = prepare("--cache_dir=cache", *arguments)
    *log, problem = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert problem.startswith("tfnmt: " + message.replace("{}", str(tmp_path))), done.stderr
    assert done.stdout == ""
    harmless = (
        *("tfnmt: no --val: ", "tfnmt: training a tokenizer ", "tfnmt: configuration: "),
        *("tfnmt: 40 pairs, ", "tfnmt: size tiny: ", "tfnmt: about "),
    )
    assert all(line.startswith(harmless) for line in log), done.stderr
    assert {path.suffix for path in Path("cache").glob("prepared/*")} <= {".lock"}
    assert {path.name for path in Path("cache").glob("*")} <= {"prepared"}
