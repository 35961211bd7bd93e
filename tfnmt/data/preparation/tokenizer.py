"""The joint SentencePiece BPE model: training it, and encoding with it outside the graph."""

import io
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
import sentencepiece

from tfnmt.config import TokenizerConfig
from tfnmt.data.preparation.merges import WORDS, Merger, Skips
from tfnmt.errors import UsageError, UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Special ids: padding, begin and end of a sentence (ours to add), and unknown (never needed)."""

SPACE = "\u2581"


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig) -> bytes:
    """The SentencePiece model of some text, as the content of a `.model` file.

    Byte pieces stand in for characters that the text does not have, so every string can be encoded
    and only runs of spaces change on the way. Raises a UserError where the text is too small for
    the vocabulary.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=config.vocab_size,
            normalization_rule_name=config.normalization,
            character_coverage=1.0,
            byte_fallback=True,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _complaint(config.vocab_size, str(error)) from error
    return model.getvalue()


class Tokenizer:
    """Pieces and ids of a trained model, in plain Python."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._word = lru_cache(maxsize=WORDS)(self._encode_word)

    @property
    def vocab_size(self) -> int:
        """The number of pieces, special ones counted."""
        return int(self._processor.vocab_size())

    @property
    def dtype(self) -> type[np.integer]:
        """The smallest type that holds every id."""
        return np.uint16 if self.vocab_size <= 2**16 else np.int32

    def pieces(self) -> list[str]:
        """Every piece in the order of its id; a leading ▁ stands for a space."""
        return [self._processor.id_to_piece(number) for number in range(self.vocab_size)]

    def encode(self, lines: list[str]) -> list[list[int]]:
        """The ids of each line, without bos and eos."""
        encoded: list[list[int]] = self._processor.encode(lines)
        return encoded

    def encode_flat(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the lines end to end, an eos after each, and each line's number of ids.

        No piece spans a space, so the ids of a line are those of its words, and most words have
        come before: that is several times faster than to look for merges in every line.
        """
        eos = self._bytes([EOS])
        encoded = [b"".join(map(self._word, self._words_of(line))) + eos for line in lines]
        lengths = np.fromiter(map(len, encoded), np.int64) // len(eos)
        return np.frombuffer(b"".join(encoded), self.dtype), lengths

    def draw(self, lines: list[str], dropout: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """As `encode_flat`, with merges skipped at random (BPE-dropout; Provilkov et al., 2020).

        What is drawn is a function of the seed, in any process. SentencePiece can skip merges too,
        but its generator is salted with a random number of the process.
        """
        skips = Skips(dropout, seed)
        ids, lengths = [], []
        for line in lines:
            drawn = [i for word in self._words_of(line) for i in self._merger.draw(word, skips)]
            ids += [*drawn, EOS]
            lengths.append(len(drawn) + 1)
        return np.array(ids, self.dtype), np.array(lengths)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids."""
        decoded: list[str] = self._processor.decode(ids)
        return decoded

    def _words_of(self, line: str) -> list[str]:
        """The words of a line; the whole, where the line has SentencePiece's own mark of a space,
        which may stand beside one.
        """
        return [line] if SPACE in line else line.split(" ")

    @cached_property
    def _merger(self) -> Merger:
        return Merger(self._processor, first_piece=UNK + 1)

    def _encode_word(self, word: str) -> bytes:
        return self._bytes(self._processor.encode(word))

    def _bytes(self, ids: list[int]) -> bytes:
        return np.array(ids, self.dtype).tobytes()


def _complaint(vocab_size: int, complaint: str) -> UserError:
    """SentencePiece's complaint about the vocabulary, by the key's name and with what would fit."""
    for pattern, bound in (
        (r"<= (\d+)", "at most"),
        (r"required_chars\. \d+ vs (\d+)", "at least"),
    ):
        found = re.search(pattern, complaint)
        if found:
            return UsageError(
                f"tokenizer.vocab_size: {vocab_size:,} pieces do not fit this text, {bound} "
                f"{found[1]} do; --set tokenizer.vocab_size={found[1]}"
            )
    return UserError(f"tokenizer: {' '.join(complaint.split())}; is there text to learn from?")
