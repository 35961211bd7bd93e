"""LiteRT.js: LiteRT as WebAssembly. npm downloads it once, and it stays in the cache."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tfnmt.data.corpora.archives import read_members
from tfnmt.errors import UserError
from tfnmt.litert.files import checksum
from tfnmt.progress import log
from tfnmt.runs.run import cache_folder
from tfnmt.runtime.files import atomic_path, file_lock

PACKAGE = "@litertjs/core@2.5.3"

WASM = "wasm"
"""The folder of these files in the package."""

_SHA256 = """
68efb69f770e3f76aff36a377de629ca496c131b86ac0f0f4b592a1543a898eb  litert_wasm_internal.js
7280cf4471774867e385e6c3cd53e2b45e2975b80fea338fff4ef359b0865614  litert_wasm_internal.wasm
4d8f894b7883654fd6e8439730aa41e79ceaab7d19184fc4f1f0b0f1a2a2c8a5  litert_wasm_compat_internal.js
5255c8ad06eabdbd2522cdebf6b22fc10faf74625c23a49b9e072570cd1fa41c  litert_wasm_compat_internal.wasm
"""

CHECKSUMS = {name: value for value, name in map(str.split, _SHA256.strip().splitlines())}
"""SHA-256 checksums of the files of two builds; `compat` is for browsers without relaxed SIMD."""

CACHED = cache_folder() / "litertjs" / PACKAGE.rpartition("@")[2]

TIMEOUT = 600  # seconds


def find_litertjs(folder: Path | None) -> Path:
    """Return a folder with the files of LiteRT.js.

    Args:
        folder: The unpacked package. None downloads it, unless it is in the cache.

    Raises:
        UserError: A file is missing or of another version, or the package cannot be downloaded.
    """
    if folder is None:
        files, place, fix = _downloaded(), str(CACHED), "remove this folder"
    else:
        files = folder / WASM if (folder / WASM).is_dir() else folder
        place, fix = f"--litertjs={folder}", f"unpack {PACKAGE} and give its folder"
    for name, expected in CHECKSUMS.items():
        if not (files / name).is_file() or checksum(files / name) != expected:
            raise UserError(f"{place}: {name}: missing, damaged or of another version; {fix}")
    return files


def _downloaded() -> Path:
    """Return the folder in the cache, after a download if it does not exist."""
    if not CACHED.is_dir():
        lock = CACHED.with_name(f".{CACHED.name}.lock")
        with file_lock(lock, f"{CACHED}: another process is downloading LiteRT.js"):
            if not CACHED.is_dir():
                with atomic_path(CACHED) as temporary:
                    _download(temporary)
    return CACHED


def _download(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            f"LiteRT.js: npm is not installed; install it, or unpack {PACKAGE} and pass "
            "--litertjs=FOLDER"
        )
    log(f"downloading {PACKAGE} with npm once")
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", PACKAGE, "--loglevel=error", f"--pack-destination={scratch}"]
        try:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=TIMEOUT)
        except (subprocess.SubprocessError, OSError) as error:
            raise UserError(
                f"LiteRT.js: npm cannot download {PACKAGE} ({_reason(error)}); unpack it yourself, "
                "and pass --litertjs=FOLDER"
            ) from error
        (archive,) = Path(scratch).glob("*.tgz")
        for name, content in read_members(
            archive, [f"package/{WASM}/{name}" for name in CHECKSUMS]
        ):
            (folder / Path(name).name).write_bytes(content.read())


def _reason(error: Exception) -> str:
    lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").split("\n")
    return next((line for line in lines if line.strip()), str(error))
