"""Damaging files and folders: random edits, and other entries in their places."""

import shutil
from pathlib import Path

from hypothesis import strategies as st

Edit = tuple[int, int, bytes]
"""A position modulo the length, the number of bytes removed there, and the bytes put there."""

EDITS = st.lists(
    st.tuples(st.integers(0, 2**16), st.sampled_from([0, 1, 2, 8, 2**20]), st.binary(max_size=16)),
    min_size=1,
    max_size=3,
)

KINDS = st.sampled_from(["edit", "file", "folder", "remove"])
"""The kinds of damage: edit a file, or replace an entry by a file, by a folder or by nothing."""


def edited(content: bytes, edits: list[Edit]) -> bytes:
    for position, removed, added in edits:
        start = position % (len(content) + 1)
        content = content[:start] + added + content[start + removed :]
    return content


def damage(path: Path, kind: str, edits: list[Edit]) -> None:
    """Edit, remove or replace a file or a folder."""
    if kind == "edit" and path.is_file():
        path.write_bytes(edited(path.read_bytes(), edits))
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir(parents=True)
    elif kind in ("file", "edit"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(edited(b"", edits))
