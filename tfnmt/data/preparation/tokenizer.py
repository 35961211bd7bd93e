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
"""Special ids: padding, BOS and EOS (added by tfnmt), and unknown (never needed)."""

SPACE = "\u2581"


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig) -> bytes:
    """Train a SentencePiece BPE model.

    Byte tokens replace characters that the text does not contain. So every string can be encoded,
    and only runs of spaces change.

    Args:
        lines: The text.
        config: Vocabulary size and normalization.

    Returns:
        The content of a `.model` file.

    Raises:
        UserError: The text is too small for the vocabulary.
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
        raise _vocabulary_error(config.vocab_size, str(error)) from error
    return model.getvalue()


class Tokenizer:
    """Encodes and decodes with a trained model, outside the graph."""

    def __init__(self, model: bytes) -> None:
        """Load a model.

        Args:
            model: The content of a `.model` file.

        Raises:
            UserError: The content is damaged, or another program made it.
        """
        self.model = model
        self._processor = _processor(model)
        self._word = lru_cache(maxsize=WORDS)(self._encode_word)

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens, special ones included."""
        return int(self._processor.vocab_size())

    @property
    def dtype(self) -> type[np.integer]:
        """Return the smallest type that holds every id."""
        return np.uint16 if self.vocab_size <= 2**16 else np.int32

    def tokens(self) -> list[str]:
        """Return all tokens in the order of their ids. A leading ▁ stands for a space."""
        return [self._processor.id_to_piece(number) for number in range(self.vocab_size)]

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Encode lines without BOS and EOS."""
        encoded: list[list[int]] = self._processor.encode(lines)
        return encoded

    def encode_flat(self, lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of lines, EOS after each, and the number of ids per line.

        No token spans a space, so a line is the sequence of its words, and most words are cached.
        This is several times faster than merging every line.
        """
        eos = self._bytes([EOS])
        encoded = [b"".join(map(self._word, self._words_of(line))) + eos for line in lines]
        lengths = np.fromiter(map(len, encoded), np.int64) // len(eos)
        return np.frombuffer(b"".join(encoded), self.dtype), lengths

    def sample(self, lines: list[str], dropout: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Encode as `encode_flat`, with randomly skipped merges (BPE-dropout).

        The result is a function of the seed in every process. SentencePiece can skip merges too,
        but its generator is salted with a random number of the process.

        Args:
            lines: The text.
            dropout: The probability of skipping a merge.
            seed: The random seed.
        """
        skips = Skips(dropout, seed)
        ids, lengths = [], []
        for line in lines:
            sampled = [i for word in self._words_of(line) for i in self._merger.sample(word, skips)]
            ids += [*sampled, EOS]
            lengths.append(len(sampled) + 1)
        return np.array(ids, self.dtype), np.array(lengths)

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Decode lists of ids."""
        decoded: list[str] = self._processor.decode(ids)
        return decoded

    def _words_of(self, line: str) -> list[str]:
        """Return the words of a line, or the whole line if it contains ▁.

        SentencePiece marks spaces with ▁, so that character may be adjacent to a space.
        """
        return [line] if SPACE in line else line.split(" ")

    @cached_property
    def _merger(self) -> Merger:
        return Merger(self._processor, first_token=UNK + 1)

    def _encode_word(self, word: str) -> bytes:
        return self._bytes(self._processor.encode(word))

    def _bytes(self, ids: list[int]) -> bytes:
        return np.array(ids, self.dtype).tobytes()


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    # An empty model would be read as no model, and fail later.
    try:
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(
            "tokenizer.model: not a SentencePiece model, or damaged; copy the complete run again"
        ) from error
    special = processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()
    if special != (PAD, BOS, EOS, UNK):
        raise UserError(
            "tokenizer.model: made by another program than tfnmt; copy the complete run again"
        )
    return processor


def _vocabulary_error(vocab_size: int, message: str) -> UserError:
    """Convert SentencePiece's message into an error that names the key and a size that fits."""
    for pattern, bound in (
        (r"<= (\d+)", "at most"),
        (r"required_chars\. \d+ vs (\d+)", "at least"),
    ):
        found = re.search(pattern, message)
        if found:
            return UsageError(
                f"tokenizer.vocab_size={vocab_size}: does not fit this text, which allows {bound} "
                f"{found[1]}; use --set tokenizer.vocab_size={found[1]}"
            )
    return UserError(
        f"tokenizer: {' '.join(message.split())}; check that the training text is not empty"
    )
