"""The joint SentencePiece BPE model: training it, and encoding with it outside the graph."""

import io
import re
from collections.abc import Iterable

import sentencepiece

from tfnmt.config import TokenizerConfig
from tfnmt.errors import UsageError, UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Special ids: padding, begin and end of a sentence (ours to add), and unknown (never needed)."""


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
    """Pieces and ids of a trained model, in plain Python, on all cores."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        """The number of pieces, special ones counted."""
        return int(self._processor.vocab_size())

    def encode(self, lines: list[str]) -> list[list[int]]:
        """The ids of each line, without bos and eos."""
        encoded: list[list[int]] = self._processor.encode(lines, num_threads=-1)
        return encoded

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids."""
        decoded: list[str] = self._processor.decode(ids)
        return decoded


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
