"""The files of a LiteRT export: its graphs, its tokenizer, and the model card with checksums."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tfnmt.errors import UserError

GRAPHS = "model.tflite"
TOKENIZER = "tokenizer.model"
CARD = "model_card.json"

LIMITS = ("max_source_length", "max_translation_length", "beam_size")
"""The limits on the card that a model must state."""

EXTRA_LENGTH = "extra_length"
"""The key on the card for the tokens that a translation may have more than its source in the first
search."""


def read_card(folder: Path) -> dict[str, Any]:
    """Return the model card of a LiteRT export.

    Raises:
        UserError: The card is missing or damaged.
    """
    path = folder / CARD
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        limits = [card["limits"][name] for name in LIMITS]
        if all(type(limit) is int and 0 < limit < 2**31 for limit in [*limits, card[EXTRA_LENGTH]]):
            checksums = [card["checksums"][name] for name in (GRAPHS, TOKENIZER)]
            if all(isinstance(each, str) for each in checksums):
                return card
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        pass
    raise UserError(f"{path}: missing, damaged, or of another version; export the run again")


def check_files(folder: Path, card: dict[str, Any]) -> None:
    """Raise a UserError if a file is missing or damaged. A damaged graph may end the process."""
    for name in (GRAPHS, TOKENIZER):
        path = folder / name
        try:
            found = checksum(path)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; export the run again") from error
        if found != card["checksums"][name]:
            raise UserError(f"{path}: damaged, or of another export; export the run again")


def checksum(path: Path) -> str:
    """Return the SHA-256 checksum of a file, as the card records it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
