"""Downloads: fetched once, resumed after a break, and verified before use.

The download folder also contains:

<name>.partial        the received part of an incomplete file
<name>.partial.json   the server and the version of that part
checksums.json        the checksum of every file that was used, with its size and date
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
from tfnmt.progress import log
from tfnmt.runtime.files import file_lock, write_atomically

CONNECT_SECONDS = 10.0
READ_SECONDS = 30.0
ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""Pause before the second attempt. Each further pause is twice as long."""
CHUNK = 1 << 16

NOTES = "checksums.json"


@dataclass(frozen=True)
class Download:
    """A file on the web."""

    url: str
    size: int
    """Approximate size in bytes, for messages; 0 if unknown."""
    checksum: str | None = None
    """`md5:...` or `sha256:...`, pinned only if it comes from a cited source."""
    name: str = ""
    """The file name, if the last part of the URL is not one."""
    can_be_mirrored: bool = True
    """Whether the commands that download the file have the flag --mirror."""

    @property
    def file_name(self) -> str:
        """Return the name of the file in the download folder."""
        return self.name or urlsplit(self.url).path.rpartition("/")[2]


def fetch(download: Download, folder: Path, mirror: str | None = None) -> Path:
    """Return the downloaded file, and download it first if necessary.

    The file gets its name only when it is complete and has the right checksum: the pinned one, or
    the one recorded at its first use. A file that was put there by hand is recorded as well. A file
    with the recorded size and date is not read again, because some have gigabytes.

    Args:
        download: The file on the web.
        folder: The download folder.
        mirror: A URL that replaces everything before the file name.

    Raises:
        UserError: The server failed, or the file has another checksum.
    """
    url = f"{mirror.rstrip('/')}/{download.file_name}" if mirror else download.url
    path = folder / download.file_name
    if not path.exists() and urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{url}: neither http nor https; give a URL that begins with one of them")
    with _locked(folder):
        if path.exists():
            problem = _find_problem(path, path, download.checksum)
            if problem:
                raise UserError(f"{path}: {problem}; remove the file and run again")
            return path
        partial = _Partial(path, url, download.can_be_mirrored)
        _receive_all(partial, download.size)
        problem = _find_problem(partial.path, path, download.checksum)
        if problem:
            partial.remove()
            raise UserError(f"{url}: {problem}; it was deleted, {partial.alternatives}")
        partial.path.rename(path)
        partial.remove()
    return path


@dataclass(frozen=True)
class _Partial:
    """The received part of a file, and the version on the server that it belongs to."""

    destination: Path
    url: str
    can_be_mirrored: bool

    @property
    def path(self) -> Path:
        """Return the path of the part."""
        return self.destination.with_name(f"{self.destination.name}.partial")

    @property
    def alternatives(self) -> str:
        """Return what the user can do if the server does not provide the file."""
        mirror = "try --mirror=URL, or " if self.can_be_mirrored else ""
        return f"{mirror}put the file here by hand: {self.destination}"

    def size(self) -> int:
        """Return the number of bytes received."""
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> str | None:
        """Return the ETag or date of the part. Without one, the download cannot resume."""
        try:
            note = json.loads(self._note_path.read_text())
        except (OSError, ValueError):
            return None
        return note["version"] if note["url"] == self.url else None

    def start(self, version: str | None) -> None:
        """Empty the part for another version. The order keeps a kill from mixing two versions."""
        self.path.write_bytes(b"")
        note = {"url": self.url, "version": version}
        write_atomically(self._note_path, json.dumps(note).encode())

    def remove(self) -> None:
        """Remove the part and its note, if they exist."""
        self.path.unlink(missing_ok=True)
        self._note_path.unlink(missing_ok=True)

    @property
    def _note_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")


class _ConnectionBrokenError(Exception):
    """The connection broke. Another attempt may succeed."""

    def __init__(self, reason: str, size: int | None = None) -> None:
        super().__init__(reason)
        self.size = size


def _receive_all(partial: _Partial, size: int) -> None:
    """Receive the rest of the file in a few attempts; `size` is for messages."""
    log(f"downloading {partial.url}" + (f" (about {size / 1e6:,.1f} MB)" if size else ""))
    for attempt in range(ATTEMPTS):
        try:
            _receive(partial)
            return
        except _ConnectionBrokenError as error:
            reason, size = str(error), error.size or size
        if attempt + 1 < ATTEMPTS:
            pause = PAUSE_SECONDS * 2**attempt
            log(f"{partial.url}: {reason}; trying again in {pause:.0f} s")
            time.sleep(pause)
    again = "resumes from there" if partial.version() else "starts over"
    of = f" of {size:,}" if size else ""
    raise UserError(
        f"{partial.url}: only {partial.size():,}{of} bytes received ({reason}); "
        f"the same command {again}, or {partial.alternatives}"
    )


def _receive(partial: _Partial) -> None:
    """Receive the rest of the file in one attempt."""
    # Identity, because Range counts transferred bytes and the checksum is that of the file.
    headers = {"Accept-Encoding": "identity"}
    version, received = partial.version(), partial.size()
    if version and received:
        headers |= {"Range": f"bytes={received}-", "If-Range": version}
    with _requested(partial, headers) as response:
        status, part = response.status_code, response.headers.get("Content-Range", "")
        if status == 416 and part == f"bytes */{received}":
            return  # killed after the last byte
        if status == 416 or (status == 206 and not part.startswith(f"bytes {received}-")):
            partial.remove()
            raise _ConnectionBrokenError("the server sent another part than requested")
        if status not in (200, 206):
            raise UserError(
                f"{partial.url}: the server answered {status} {response.reason}; "
                f"{partial.alternatives}"
            )
        if response.headers.get("Content-Type", "").lower().startswith("text/html"):
            raise UserError(
                f"{partial.url}: received a web page instead of the file; {partial.alternatives}"
            )
        if status == 200:
            partial.start(_version(response.headers))
        _write(response, partial)


@contextmanager
def _requested(partial: _Partial, headers: dict[str, str]) -> Iterator[requests.Response]:
    """Send the request; yields the response, whose body is still unread."""
    timeout = (CONNECT_SECONDS, READ_SECONDS)
    try:
        response = requests.get(partial.url, headers=headers, stream=True, timeout=timeout)
    except requests.exceptions.SSLError as error:
        raise UserError(
            f"{partial.url}: no secure connection ({_root(error)}); {partial.alternatives}"
        ) from error
    except (requests.ConnectionError, requests.Timeout) as error:
        raise _ConnectionBrokenError(_root(error)) from error
    except requests.RequestException as error:
        raise UserError(f"{partial.url}: {error}; {partial.alternatives}") from error
    with response:
        if urlsplit(partial.url).scheme == "https" and any(
            urlsplit(answer.url).scheme != "https" for answer in (*response.history, response)
        ):
            raise UserError(
                f"{partial.url}: was redirected to an address without encryption; "
                f"{partial.alternatives}"
            )
        yield response


def _write(response: requests.Response, partial: _Partial) -> None:
    """Append the body to the part."""
    received = partial.size()
    length = response.headers.get("Content-Length")
    size = received + int(length) if length else None
    with (
        partial.path.open("ab") as file,
        tqdm(
            desc=partial.destination.name,
            unit="B",
            unit_scale=True,
            initial=received,
            total=size,
            leave=False,
            disable=None,
        ) as bar,
    ):
        try:
            # Not `iter_content`: it decompresses `Content-Encoding: gzip`, which some servers send
            # for a .tar.gz.
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                bar.update(len(chunk))
        except HTTPError as error:
            raise _ConnectionBrokenError(_root(error), size) from error
    if size is not None and partial.size() < size:
        raise _ConnectionBrokenError("the connection was closed", size)


def _version(headers: CaseInsensitiveDict[str]) -> str | None:
    """Return the identifier of this version of the file. If-Range accepts no weak ETag."""
    etag = headers.get("ETag", "W/")
    return headers.get("Last-Modified") if etag.startswith("W/") else etag


def _find_problem(file: Path, path: Path, pinned: str | None) -> str | None:
    """Return the problem of a file that is, or will be, at `path`. Record it if there is none."""
    notes_path = path.with_name(NOTES)
    notes = _read_notes(notes_path)
    noted = notes.get(path.name, {}).get("checksum")
    expected = pinned or noted
    state = {"size": file.stat().st_size, "mtime_ns": file.stat().st_mtime_ns}
    if expected and notes.get(path.name) == state | {"checksum": expected}:
        return None
    with file.open("rb") as content:
        if content.read(CHUNK).lstrip().lower().startswith((b"<!doctype html", b"<html")):
            return "a web page instead of the file"
        content.seek(0)
        algorithm = expected.partition(":")[0] if expected else "sha256"
        found = f"{algorithm}:{hashlib.file_digest(content, algorithm).hexdigest()}"
    if expected and found != expected:
        where = (
            "pinned (--nochecksums disables the check)"
            if pinned
            else f"recorded in {notes_path} (remove the entry if the file changed)"
        )
        return f"checksum {_short(found)}, but {_short(expected)} is {where}"
    notes[path.name] = state | {"checksum": found}
    write_atomically(notes_path, json.dumps(notes, indent=1).encode() + b"\n")
    return None


def _read_notes(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); fix or remove it") from error


def _short(checksum: str) -> str:
    algorithm, _, digits = checksum.partition(":")
    return f"{algorithm}:{digits[:12]}"


def _root(error: BaseException | None) -> str:
    """Return the cause of a network error. Outer errors print stacks of connection pools."""
    reason = str(error)
    while isinstance(error, requests.RequestException | HTTPError):
        error = error.__cause__ or error.__context__
        reason = str(getattr(error, "strerror", None) or error or reason)
    return reason


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make other downloads to the folder wait. Convert disk errors into a UserError."""
    try:
        with file_lock(folder / ".lock", f"{folder}: another process is downloading"):
            yield
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror or error}; "
            "fix this and run again, the received part is kept"
        ) from error
