"""The web export: a folder of static files that translates in the browser."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from tfnmt.exporting.browser_graphs import browser_graphs
from tfnmt.exporting.code_listing import code_listing
from tfnmt.exporting.litertjs import CHECKSUMS
from tfnmt.litert.files import CARD, GRAPHS, TOKENIZER, check_files, read_card
from tfnmt.litert.model import check_graphs
from tfnmt.runtime.files import atomic_folder
from tfnmt.runtime.startup import silence_stderr

MODEL = "model"
"""The folder of the model in an export."""

SHAPES = "shapes.json"
"""The shapes of the graphs: see `tfnmt.exporting.browser_graphs.Shapes`."""

RUNTIME = "litert"
"""The folder of LiteRT.js in an export."""

CODE = "code.json"
"""The functions that the explorer shows."""

FILES = "files.js"
"""The list of the files of an export, for its service worker."""


def export_web(model: Path, litertjs: Path, folder: Path) -> int:
    """Write a web page that translates. The folder appears only when it is complete.

    Args:
        model: A version of a LiteRT export.
        litertjs: The folder of LiteRT.js, from `find_litertjs`.
        folder: The folder to write. It must be empty or not exist.

    Returns:
        The size in bytes that a browser loads.

    Raises:
        UserError: A file of the model is damaged, or of another version.
    """
    card = read_card(model)
    check_files(model, card)
    contents = _page() | _model(model, card) | _runtime(litertjs)
    contents[FILES] = _list(contents)
    with atomic_folder(folder) as temporary:
        for name, content in contents.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return sum(len(each) for name, each in contents.items() if "compat" not in name)


def _page() -> dict[str, bytes]:
    root = Path(str(package_files("tfnmt"))) / "web"
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    return files | {CODE: json.dumps(code_listing(), indent=1).encode()}


def _model(folder: Path, card: dict[str, Any]) -> dict[str, bytes]:
    limits = card["limits"]
    source, target = limits["max_source_length"], limits["max_translation_length"]
    longest = max(source, target)
    sizes = {"source": source, "target": longest, "room": target}
    with silence_stderr():  # LiteRT logs its kernels
        graphs, shapes = browser_graphs(folder / GRAPHS, sizes)
    check_graphs(folder / GRAPHS, shapes.keys())
    return {
        f"{MODEL}/{GRAPHS}.gz": _compress(graphs),
        f"{MODEL}/{TOKENIZER}": (folder / TOKENIZER).read_bytes(),
        f"{MODEL}/{CARD}": (folder / CARD).read_bytes(),
        f"{MODEL}/{SHAPES}": json.dumps(shapes, indent=1).encode(),
    }


def _runtime(litertjs: Path) -> dict[str, bytes]:
    """Return the files of LiteRT.js. Many servers do not compress them, so they are compressed."""
    contents = {}
    for name in CHECKSUMS:
        content = (litertjs / name).read_bytes()
        if name.endswith(".wasm"):
            name, content = f"{name}.gz", _compress(content)
        contents[f"{RUNTIME}/{name}"] = content
    return contents


def _list(contents: Mapping[str, bytes]) -> bytes:
    """Return a script with the checksum of each file, and one of all."""
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    text = json.dumps(checksums, indent=1, sort_keys=True)
    version = hashlib.sha256(text.encode()).hexdigest()
    return f'self.VERSION = "{version}";\nself.CHECKSUMS = {text};\n'.encode()


def _compress(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0)
