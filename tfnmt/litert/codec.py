"""Text to ids and back with SentencePiece, as the graphs of a SavedModel do it."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece

PAD = 0
"""The id of padding in every tokenizer of tfnmt."""


class Encoded(NamedTuple):
    """The ids of a text."""

    ids: np.ndarray  # [n] with EOS
    truncated: bool  # whether the text was longer than the limit


class Codec:
    """Encodes and decodes single texts.

    Attributes:
        eos: The id of EOS.
    """

    def __init__(self, path: Path) -> None:
        """Read a SentencePiece model."""
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        self.eos = int(self._processor.eos_id())
        self._special = {
            self._processor.pad_id(),
            self._processor.bos_id(),
            self._processor.eos_id(),
        }

    def encode(self, text: bytes, max_length: int) -> Encoded:
        """Encode a text to at most `max_length` ids, EOS included.

        Bytes that are not UTF-8 count as U+FFFD.
        """
        ids = self._processor.encode(text.decode(errors="replace"))
        kept = [*ids[: max_length - 1], self.eos]
        return Encoded(np.array(kept, np.int32), len(ids) > max_length - 1)

    def decode(self, ids: np.ndarray) -> bytes:
        """Decode ids [n] without BOS, EOS and padding."""
        text: str = self._processor.decode([i for i in ids.tolist() if i not in self._special])
        return text.encode(errors="replace")

    def names(self, ids: np.ndarray) -> list[bytes]:
        """Return the tokens of ids [n] as strings."""
        return [self._processor.id_to_piece(i).encode() for i in ids.tolist()]
