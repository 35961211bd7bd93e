"""Text to ids and back with SentencePiece, as the graphs of a SavedModel do it."""

from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece

from tfnmt.errors import UserError

PAD, BOS, EOS = 0, 1, 2
"""The ids of padding, BOS and EOS in every tokenizer of tfnmt."""


FIRST_CONTROL = 4
"""The id of the first language token. The language tokens follow one another."""


class Encoded(NamedTuple):
    """The ids of a text."""

    ids: np.ndarray  # [n] with EOS
    truncated: bool  # whether the text was longer than the limit


class Codec:
    """Encodes and decodes single texts."""

    def __init__(self, path: Path) -> None:
        """Read a SentencePiece model.

        Raises:
            UserError: The file is no SentencePiece model of tfnmt.
        """
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            # Given to the constructor, an empty model would be no model, and fail later.
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise UserError(f"{path}: no SentencePiece model; export the run again") from error
        processor = self._processor
        if (processor.pad_id(), processor.bos_id(), processor.eos_id()) != (PAD, BOS, EOS):
            raise UserError(f"{path}: made by another program; export the run again")
        controls = takewhile(processor.is_control, count(FIRST_CONTROL))
        self.languages = {processor.id_to_piece(i)[2:-1]: i for i in controls}

    def encode(self, text: bytes, max_length: int, target: bytes | None = None) -> Encoded:
        """Encode a text to at most `max_length` ids.

        Bytes that are not UTF-8 count as U+FFFD.

        Args:
            text: The text.
            max_length: The limit in tokens, which include EOS and a language token.
            target: The language whose token the ids begin with, or None.

        Raises:
            UserError: The tokenizer has no token for this language.
        """
        begin = [] if target is None else [self._language_token(target)]
        ids = self._processor.encode(text.decode(errors="replace"))
        room = max_length - len(begin) - 1
        kept = [*begin, *ids[:room], EOS] if ids else [EOS]
        return Encoded(np.array(kept, np.int32), len(ids) > room)

    def _language_token(self, target: bytes) -> int:
        language = target.decode(errors="replace")
        if language not in self.languages:
            raise UserError(
                f"target={language}: unknown; the model translates to {', '.join(self.languages)}"
            )
        return self.languages[language]

    def decode(self, ids: np.ndarray) -> bytes:
        """Decode ids [n] without BOS, EOS and padding."""
        text: str = self._processor.decode([i for i in ids.tolist() if i > EOS])
        return text.encode(errors="replace")

    def names(self, ids: np.ndarray) -> list[bytes]:
        """Return the tokens of ids [n] as strings."""
        return [self._processor.id_to_piece(i).encode() for i in ids.tolist()]
