"""A LiteRT model: the signatures of an export, computed without TensorFlow.

The search is in the file. This module only converts text to ids and back, gives each search a
cache length, and joins the results of a batch.

Letters: B texts, K hypotheses per text, S and T the longest source and target of the batch.
"""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.errors import UserError
from tfnmt.litert.codec import PAD, Codec, Encoded
from tfnmt.litert.files import EXTRA_LENGTH, GRAPHS, TOKENIZER, check_files, read_card
from tfnmt.litert.interpreters import Arrays, Interpreters

Texts = Sequence[bytes] | np.ndarray

Signature = Callable[..., Arrays]
"""Maps texts [B], and further inputs, to arrays with B rows."""

MISSING_SCORE = -1e9
"""Score of the missing entries of an n-best list. All lists of a batch have the same length."""

GRAPH_NAMES = {"search", "greedy", "align", "attention"}
"""The graphs of a file. Those of earlier versions had other names."""

MAX_ATTENTION_TOKENS = 64
"""The limit of the signature `attention`, as in tfnmt/decoding/inspector.py."""


def check_graphs(path: Path, names: Set[str]) -> None:
    """Raise a UserError if a LiteRT file has not all graphs, by their names."""
    if not names >= GRAPH_NAMES:
        raise UserError(
            f"{path}: does not contain the graphs of this version of tfnmt; export the run again"
        )


class LiteRTModel:
    """One version of a LiteRT export.

    Example:
        model = LiteRTModel(Path("export/litert/demo/1"), interpreters=2)
        model.signatures["serving_default"](text=[b"How are you?"])["translation"]
    """

    def __init__(self, folder: Path, interpreters: int) -> None:
        """Load a model.

        Args:
            folder: The folder with the graphs, the tokenizer and the card.
            interpreters: The number of sentences that are translated in parallel.

        Raises:
            UserError: A file is missing or damaged, or it is of another version of tfnmt.
        """
        self.card = read_card(folder)
        limits = self.card["limits"]
        self._max_source: int = limits["max_source_length"]
        self._max_target: int = limits["max_translation_length"]
        self._longest = max(self._max_source, self._max_target)
        check_files(folder, self.card)
        self._codec = Codec(folder / TOKENIZER)
        self._interpreters = Interpreters(folder / GRAPHS, interpreters)
        check_graphs(folder / GRAPHS, self._interpreters.names)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of a SavedModel export by name, with the same inputs and outputs."""
        return {
            "serving_default": self._translate,
            "greedy": self._greedy,
            "nbest": self._nbest,
            "align": self._align,
            "align_tokens": self._align_tokens,
            "attention": self._attention,
            "tokenize": self._tokenize,
            "search": self._search_tokens,
            "detokenize": self._detokenize,
            "info": self._info,
        }

    def _info(self, text: Texts) -> Arrays:
        return {"card": _strings([json.dumps(self.card, ensure_ascii=False).encode()] * len(text))}

    # --- Translation ------------------------------------------------------------------------------

    def _translate(self, text: Texts, target: Texts | None = None) -> Arrays:
        source = self._tokenize(text, target)
        found = self._search_tokens(source["tokens"])
        return self._outputs(found, source["truncated"])

    def _greedy(self, text: Texts, target: Texts | None = None) -> Arrays:
        source = self._tokenize(text, target)
        found = _best(self._search_rows("greedy", source["tokens"]))
        return self._outputs(found, source["truncated"])

    def _tokenize(self, text: Texts, target: Texts | None = None) -> Arrays:
        encoded = self._encode(text, self._max_source, target)
        truncated = np.array([each.truncated for each in encoded], bool)
        return {"tokens": pad([each.ids for each in encoded]), "truncated": truncated}

    def _encode(self, text: Texts, max_length: int, target: Texts | None) -> list[Encoded]:
        """Encode sources [B], to translate to languages [B] if the model has several.

        Raises:
            UserError: A language is missing or unknown, or the model has only one.
        """
        count = len(text) if self._codec.languages else 0
        if count != (0 if target is None else len(target)):
            raise UserError(
                f"target: must have {count} languages; the model translates to "
                f"{', '.join(self._codec.languages) or 'one language'}"
            )
        languages = [None] * len(text) if target is None else target
        return [
            self._codec.encode(each, max_length, language)
            for each, language in zip(text, languages, strict=True)
        ]

    def _search_tokens(self, tokens: np.ndarray) -> Arrays:
        return _best(self._search_rows("search", tokens, count=1))

    def _detokenize(self, tokens: np.ndarray) -> Arrays:
        return {"translation": _strings([self._codec.decode(row) for row in tokens])}

    def _outputs(self, found: Arrays, truncated: np.ndarray) -> Arrays:
        text = self._detokenize(found["tokens"])
        return {**text, "score": found["score"], "truncated": truncated}

    def _nbest(self, text: Texts, target: Texts | None = None) -> Arrays:
        source = self._tokenize(text, target)
        beams = self.card["limits"]["beam_size"]
        found = self._search_rows("search", source["tokens"], count=beams)
        lists = [self._distinct(each) for each in found]
        missing = (b"", MISSING_SCORE, np.zeros(0, np.int32))
        entries = [entry for each in lists for entry in each + [missing] * (beams - len(each))]
        tokens = pad([ids for _, _, ids in entries])
        return {
            "translations": _strings([text for text, _, _ in entries]).reshape(-1, beams),
            "scores": np.array([score for _, score, _ in entries], np.float32).reshape(-1, beams),
            "tokens": tokens.reshape(-1, beams, tokens.shape[1]),
            "truncated": source["truncated"],
        }

    def _distinct(self, found: Arrays) -> list[tuple[bytes, float, np.ndarray]]:
        """Return text, score and ids of the hypotheses, each text once with its best score."""
        distinct: dict[bytes, tuple[bytes, float, np.ndarray]] = {}
        for row, score in zip(found["tokens"], found["scores"], strict=True):
            if score > MISSING_SCORE:  # LiteRT may return the lowest number for -inf
                text = self._codec.decode(row)
                distinct.setdefault(text, (text, float(score), row[row != PAD]))
        return list(distinct.values())

    def _search_rows(self, kind: str, tokens: np.ndarray, **inputs: int) -> list[Arrays]:
        """Search for each row of [B, S], sorted by length, so that lengths seldom change."""
        rows = _rows(tokens)
        by_length = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        found = {number: self._search(kind, rows[number], **inputs) for number in by_length}
        return [found[number] for number in range(len(rows))]

    def _search(self, kind: str, source: np.ndarray, **inputs: int) -> Arrays:
        """Return tokens [K, T] and scores [K] for one source [n].

        The first search has a small cache length, which makes it fast. If a longer translation may
        be better, another search has the cache length of the longest allowed one.
        """
        if len(source) < 2:  # EOS only
            return {"tokens": np.zeros((1, 1), np.int32), "scores": np.zeros(1, np.float32)}
        scalars = {name: np.array(value, np.int32) for name, value in inputs.items()}
        run = partial(self._interpreters.run, kind, source=source[None], **scalars)
        cache_length = min(len(source) + self.card[EXTRA_LENGTH], self._max_target)
        found = run(room=np.zeros(cache_length, np.int32))
        if not found["complete"]:
            found = run(room=np.zeros(int(found["limit"]), np.int32))
        return found

    # --- Force-decoding ---------------------------------------------------------------------------

    def _align(self, text: Texts, translation: Texts, target: Texts | None = None) -> Arrays:
        pairs = self._encode_pairs(text, translation, target, self._longest)
        return self._force_decode("align", *pairs)

    def _align_tokens(self, tokens: np.ndarray, target: np.ndarray) -> Arrays:
        return self._force_decode("align", _rows(tokens), _rows(target))

    def _attention(self, text: Texts, translation: Texts, target: Texts | None = None) -> Arrays:
        longest = min(MAX_ATTENTION_TOKENS, self._longest)
        pairs = self._encode_pairs(text, translation, target, longest)
        return self._force_decode("attention", *pairs)

    def _encode_pairs(
        self, text: Texts, translation: Texts, target: Texts | None, longest: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the ids of texts and translations, each truncated to `longest`."""
        max_source = min(self._max_source, longest)
        return (
            [each.ids for each in self._encode(text, max_source, target)],
            [self._codec.encode(each, longest).ids for each in translation],
        )

    def _force_decode(
        self, kind: str, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
    ) -> Arrays:
        """Return the outputs of `align` or `attention` for ids."""
        for side, rows in ("source", sources), ("target", targets):
            length = max(map(len, rows), default=0)
            if length > self._longest:
                raise UserError(
                    f"{length} {side} tokens: the model reads {self._longest}; shorten the text"
                )
        pairs = zip(sources, targets, strict=True)
        outputs = [
            self._interpreters.run(kind, source=pad([source]), target=pad([target]))
            for source, target in pairs
        ]
        tokens = {
            "source_tokens": _padded_strings([self._codec.names(ids) for ids in sources]),
            "target_tokens": _padded_strings([self._codec.names(ids) for ids in targets]),
        }
        return tokens | _join(sources, targets, outputs)


# --- Batches --------------------------------------------------------------------------------------

AXES = {
    "token_log_probs": ("target",),
    "attention": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""The last axes of each output: one entry per token of the source or of the target."""


def pad(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return ids [B, T], padded, with at least one column."""
    padded = np.full((len(rows), max(map(len, rows), default=0) or 1), PAD, np.int32)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


def _rows(tokens: np.ndarray) -> list[np.ndarray]:
    """Return the ids of each row of [B, T] without padding."""
    return [row[row != PAD] for row in tokens]


def _best(found: Sequence[Arrays]) -> Arrays:
    """Return the best hypothesis of each row: tokens [B, T] and score [B]."""
    best = [each["tokens"][0] for each in found]
    return {
        "tokens": pad([row[row != PAD] for row in best]),
        "score": np.array([each["scores"][0] for each in found], np.float32),
    }


def _join(
    sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], outputs: Sequence[Arrays]
) -> Arrays:
    """Join the outputs of several rows to a batch, padded with 0, and add the lengths."""
    lengths = {
        "source": np.array([len(ids) for ids in sources], np.int32),
        "target": np.array([len(ids) for ids in targets], np.int32),
    }
    joined: Arrays = {f"{side}_length": length for side, length in lengths.items()}
    for name in outputs[0] if outputs else ():
        axes = AXES[name]
        longest = [int(lengths[side].max()) for side in axes]
        leading = outputs[0][name].shape[: -len(axes)]
        joined[name] = np.zeros((len(outputs), *leading, *longest), np.float32)
        for row, each in enumerate(outputs):
            real: Any = (..., *(slice(int(lengths[side][row])) for side in axes))
            joined[name][row][real] = each[name][real]
    return joined


def _padded_strings(rows: Sequence[list[bytes]]) -> np.ndarray:
    longest = max(map(len, rows), default=0)
    return np.array([row + [b""] * (longest - len(row)) for row in rows], object)


def _strings(texts: Sequence[bytes]) -> np.ndarray:
    return np.array(texts, object)
