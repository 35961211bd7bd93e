"""The joint SentencePiece BPE model: training it, and encoding with it outside the graph."""

import io
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import sentencepiece

from tfnmt.config import TokenizerConfig
from tfnmt.data.preparation.merges import WORDS, Merger, Skips
from tfnmt.errors import UsageError, UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Special ids: padding, BOS and EOS (added by tfnmt), and unknown (never needed)."""

SPACE = "\u2581"

MIN_RECOMMENDED_SIZE = 400
"""The 256 byte tokens, the special ones, and room for the characters of an alphabet."""

MAX_LINE_BYTES = 2**30
"""The highest limit of SentencePiece, which omits longer lines. Its default is 4,192."""

LANGUAGE_TOKEN = re.compile(r"<2(\w+)>")
"""The token of a target language, for example `<2de>` (Johnson et al., 2017)."""


def train_tokenizer(
    lines: Iterable[str], config: TokenizerConfig, languages: Sequence[str] = ()
) -> bytes:
    """Train a SentencePiece BPE model.

    Byte tokens replace characters that the text does not contain. So every string can be encoded,
    and only runs of spaces change.

    Args:
        lines: The text.
        config: Vocabulary size and normalization.
        languages: The target languages of a model with several; each gets a language token. These
            are control symbols, which no text is encoded to: `<2de>` in a text is ordinary text.

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
            control_symbols=[f"<2{language}>" for language in languages],
            max_sentence_length=MAX_LINE_BYTES,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _vocabulary_error(config.vocab_size, str(error)) from error
    return _without_line_limit(model.getvalue())


def _without_line_limit(model: bytes) -> bytes:
    """Remove the limit of lines from a model. Earlier runs, whose models have none, can resume."""
    # Translating needs no protobuf.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    content = ModelProto.FromString(model)
    content.trainer_spec.ClearField("max_sentence_length")
    return bytes(content.SerializeToString())


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

    @cached_property
    def language_tokens(self) -> dict[str, int]:
        """The id of each target language's token, in order; none for a single direction."""
        numbers = range(UNK + 1, self.vocab_size)
        controls = [n for n in numbers if self._processor.is_control(n)]
        names = [LANGUAGE_TOKEN.fullmatch(self._processor.id_to_piece(n)) for n in controls]
        return {name[1]: n for name, n in zip(names, controls, strict=True) if name}

    def source_prefix(self, target: str) -> list[int]:
        """Return the ids in front of every source that is translated to a language.

        Raises:
            UserError: There are language tokens, but none for this language.
        """
        known = self.language_tokens
        if known and target not in known:
            raise UserError(
                f"tokenizer.model: has no language token for {target}, only for "
                f"{', '.join(known)}; use one of them as the target language"
            )
        return [known[target]] if known else []

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Encode lines without BOS and EOS."""
        encoded: list[list[int]] = self._processor.encode(lines)
        return encoded

    def encode_flat(
        self, lines: list[str], prefix: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of lines, EOS after each, and the number of ids per line.

        No token spans a space, so a line is the sequence of its words, and most words are cached.
        This is several times faster than merging every line.

        Args:
            lines: The text.
            prefix: Ids in front of each line.
        """
        begin, eos = self._bytes(prefix), self._bytes([EOS])
        encoded = [begin + b"".join(map(self._word, self._words_of(line))) + eos for line in lines]
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

    def _bytes(self, ids: Sequence[int]) -> bytes:
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


def _usual_size(largest: int) -> int:
    """Return a vocabulary size for a text: of the largest one, most tokens would be rare."""
    return min(largest, max(MIN_RECOMMENDED_SIZE, largest // 5 // 100 * 100))


def _vocabulary_error(vocab_size: int, message: str) -> UserError:
    """Convert SentencePiece's message into an error that names the key and a size that fits."""
    for pattern, bound, recommend in (
        (r"<= (\d+)", "at most", _usual_size),
        (r"required_chars\. \d+ vs (\d+)", "at least", int),
    ):
        found = re.search(pattern, message)
        if found:
            limit = int(found[1])
            return UsageError(
                f"tokenizer.vocab_size={vocab_size}: does not fit this text, which allows {bound} "
                f"{limit}; use --set tokenizer.vocab_size={recommend(limit)}"
            )
    return UserError(
        f"tokenizer: {' '.join(message.split())}; check that the training text is not empty"
    )
