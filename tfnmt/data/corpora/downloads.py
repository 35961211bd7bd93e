"""Files from the web: brought once, gone on with after a break, checked before anything reads them.

In the folder of the downloads, beside the files:

<name>.partial        what has come so far of a file that is not whole yet
<name>.partial.json   which version of it on which server that is
checksums.json        the checksum of every file that was used, with its size and date then
.lock                 held by the process that downloads
"""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.structures import CaseInsensitiveDict
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from tfnmt.errors import UserError
from tfnmt.progress import say
from tfnmt.runtime.files import exclusive, write_atomically

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""The pause before the second attempt; each further one is twice as long."""
CHUNK = 1 << 16

NOTES = "checksums.json"


@dataclass(frozen=True)
class Download:
    """A file on the web."""

    url: str
    size: int
    """In bytes, about: for what is said beforehand; 0 where nobody knows."""
    checksum: str | None = None
    """`md5:...` or `sha256:...`, pinned only where it was read from a source that is cited."""
    name: str = ""
    """The file's name, where the last part of the URL is none."""

    @property
    def file_name(self) -> str:
        """The name that the file gets in the folder of the downloads."""
        return self.name or urlsplit(self.url).path.rpartition("/")[2]


def fetch(download: Download, folder: Path, mirror: str | None = None) -> Path:
    """The file in `folder`, downloaded if it is not there; `mirror` replaces all before its name.

    It has its name only when it is whole and has the right checksum: the pinned one, else the one
    that was noted when it was first used. A file that was put there by hand is noted too. One whose
    size and date are as noted is not read again, for some have gigabytes.
    """
    url = f"{mirror.rstrip('/')}/{download.file_name}" if mirror else download.url
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{url}: neither http nor https; give a URL that begins with one of them")
    path = folder / download.file_name
    with _held(folder):
        if path.exists():
            wrong = _what_is_wrong(path, path, download.checksum)
            if wrong:
                raise UserError(f"{path}: {wrong}; remove the file and run again")
            return path
        partial = _Partial(path, url)
        _receive_all(partial, download.size)
        wrong = _what_is_wrong(partial.path, path, download.checksum)
        if wrong:
            partial.remove()
            raise UserError(f"{url}: {wrong}; it was not kept, {partial.otherwise}")
        partial.path.rename(path)
        partial.remove()
    return path


@dataclass(frozen=True)
class _Partial:
    """What has come of a file so far, and which version on the server that is a part of."""

    whole: Path
    url: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.whole.with_name(f"{self.whole.name}.partial")

    @property
    def otherwise(self) -> str:
        """What the user can do when the server does not give the file."""
        return f"try --mirror=URL, or put the file there by hand: {self.whole}"

    def size(self) -> int:
        """How many bytes have come."""
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> str | None:
        """The ETag or the date of what has come; without one it cannot be gone on with."""
        try:
            note = json.loads(self._note_path.read_text())
        except (OSError, ValueError):
            return None
        return note["version"] if note["url"] == self.url else None

    def begin(self, version: str | None) -> None:
        """Empties it for another version; in this order, lest a kill leave two versions mixed."""
        self.path.write_bytes(b"")
        note = {"url": self.url, "version": version}
        write_atomically(self._note_path, json.dumps(note).encode())

    def remove(self) -> None:
        """Removes all of it that is still there."""
        self.path.unlink(missing_ok=True)
        self._note_path.unlink(missing_ok=True)

    @property
    def _note_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")


class _BrokenError(Exception):
    """The connection broke; another attempt may bring the rest."""

    def __init__(self, reason: str, size: int | None = None) -> None:
        super().__init__(reason)
        self.size = size


def _receive_all(partial: _Partial, size: int) -> None:
    """Receives what is missing of the file, in a few attempts; `size` is for messages."""
    say(f"downloading {partial.url}" + (f" (about {size / 1e6:,.1f} MB)" if size else ""))
    for attempt in range(ATTEMPTS):
        try:
            _receive(partial)
            return
        except _BrokenError as error:
            reason, size = str(error), error.size or size
        if attempt + 1 < ATTEMPTS:
            pause = PAUSE_SECONDS * 2**attempt
            say(f"{partial.url}: {reason}; trying again in {pause:.0f} s")
            time.sleep(pause)
    again = "goes on from there" if partial.version() else "begins again"
    of = f" of {size:,}" if size else ""
    raise UserError(
        f"{partial.url}: {partial.size():,}{of} bytes came ({reason}); "
        f"the same command {again}, or {partial.otherwise}"
    )


def _receive(partial: _Partial) -> None:
    """Receives what is missing of the file, in one attempt."""
    # Identity: Range counts the bytes that are sent, and the checksum is the file's own.
    headers = {"Accept-Encoding": "identity"}
    version, came = partial.version(), partial.size()
    if version and came:
        headers |= {"Range": f"bytes={came}-", "If-Range": version}
    with _requested(partial, headers) as response:
        status, part = response.status_code, response.headers.get("Content-Range", "")
        if status == 416 and part == f"bytes */{came}":
            return  # killed after the last byte
        if status == 416 or (status == 206 and not part.startswith(f"bytes {came}-")):
            partial.remove()
            raise _BrokenError("the server has another part than was asked for")
        if status not in (200, 206):
            raise UserError(
                f"{partial.url}: the server says {status} {response.reason}; {partial.otherwise}"
            )
        if response.headers.get("Content-Type", "").lower().startswith("text/html"):
            raise UserError(f"{partial.url}: a web page, not the file; {partial.otherwise}")
        if status == 200:
            partial.begin(_version(response.headers))
        _write(response, partial)


@contextmanager
def _requested(partial: _Partial, headers: dict[str, str]) -> Iterator[requests.Response]:
    """The server's answer, of which the body is still to be read."""
    timeout = (CONNECT_SECONDS, READ_SECONDS)
    try:
        response = requests.get(partial.url, headers=headers, stream=True, timeout=timeout)
    except requests.exceptions.SSLError as error:
        raise UserError(
            f"{partial.url}: no secure connection ({_root(error)}); {partial.otherwise}"
        ) from error
    except (requests.ConnectionError, requests.Timeout) as error:
        raise _BrokenError(_root(error)) from error
    except requests.RequestException as error:
        raise UserError(f"{partial.url}: {error}; {partial.otherwise}") from error
    with response:
        yield response


def _write(response: requests.Response, partial: _Partial) -> None:
    """Appends the body to what has come."""
    came = partial.size()
    length = response.headers.get("Content-Length")
    size = came + int(length) if length else None
    with (
        partial.path.open("ab") as file,
        tqdm(
            desc=partial.whole.name, unit="B", unit_scale=True, initial=came, total=size,
            leave=False, disable=None,
        ) as bar,
    ):  # fmt: skip
        try:
            # Not `iter_content`: it unpacks what a server calls `Content-Encoding: gzip`, and
            # some say that of a .tar.gz.
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                bar.update(len(chunk))
        except HTTPError as error:
            raise _BrokenError(_root(error), size) from error
    if size is not None and partial.size() < size:
        raise _BrokenError("the connection was closed", size)


def _version(headers: CaseInsensitiveDict[str]) -> str | None:
    """What tells this version of the file from others: If-Range takes no weak ETag."""
    etag = headers.get("ETag", "W/")
    return headers.get("Last-Modified") if etag.startswith("W/") else etag


def _what_is_wrong(file: Path, path: Path, pinned: str | None) -> str | None:
    """What is wrong with the file that lies, or is to lie, at `path`; notes it if nothing is."""
    notes_path = path.with_name(NOTES)
    notes = _read_notes(notes_path)
    noted = notes.get(path.name, {}).get("checksum")
    expected = pinned or noted
    state = {"size": file.stat().st_size, "mtime_ns": file.stat().st_mtime_ns}
    if expected and notes.get(path.name) == state | {"checksum": expected}:
        return None
    with file.open("rb") as content:
        if content.read(CHUNK).lstrip().lower().startswith((b"<!doctype html", b"<html")):
            return "a web page, not the file"
        content.seek(0)
        algorithm = expected.partition(":")[0] if expected else "sha256"
        found = f"{algorithm}:{hashlib.file_digest(content, algorithm).hexdigest()}"
    if expected and found != expected:
        whence = (
            "pinned (--nochecksums waives it)"
            if pinned
            else f"noted in {notes_path} (take it out if the file changed)"
        )
        return f"has {_short(found)}, but {_short(expected)} is {whence}"
    notes[path.name] = state | {"checksum": found}
    write_atomically(notes_path, json.dumps(notes, indent=1).encode() + b"\n")
    return None


def _read_notes(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); mend or remove it") from error


def _short(checksum: str) -> str:
    algorithm, _, digits = checksum.partition(":")
    return f"{algorithm}:{digits[:12]}"


def _root(error: BaseException | None) -> str:
    """What a network error came from: the outer ones print whole stacks of connection pools."""
    reason = str(error)
    while isinstance(error, requests.RequestException | HTTPError):
        error = error.__cause__ or error.__context__
        reason = str(getattr(error, "strerror", None) or error or reason)
    return reason


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keeps other downloads to the folder waiting; what the disk refuses is the user's error."""
    try:
        with exclusive(folder / ".lock", f"{folder}: another process downloads there"):
            yield
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; "
            "see to it and run again, what has come is kept"
        ) from error
