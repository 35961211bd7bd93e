"""A LiteRT model: the signatures of an export, computed without TensorFlow.

The search is in the file. This module only converts text to ids and back, selects the graph of the
smallest size for each sentence, and joins the results of a batch.

Letters: B texts, K hypotheses per text, S and T the longest source and target of the batch.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfnmt.errors import UserError
from tfnmt.litert.codec import Codec, Encoded
from tfnmt.litert.interpreters import Arrays, Interpreters, Size

GRAPHS = "model.tflite"
TOKENIZER = "tokenizer.model"
CARD = "model_card.json"

Texts = Sequence[bytes] | np.ndarray

Signature = Callable[..., Arrays]
"""Maps texts [B], and further inputs, to arrays with B rows."""

MISSING_SCORE = -1e9
"""Score of the missing entries of an n-best list. All lists of a batch have the same length."""


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
            UserError: A file is missing or damaged, or the files do not belong together.
        """
        self.card = read_card(folder)
        limits = self.card["limits"]
        self._max_source: int = limits["max_source_length"]
        self._max_target: int = limits["max_translation_length"]
        self._codec = Codec(folder / TOKENIZER)
        self._interpreters = Interpreters(folder / GRAPHS, interpreters)
        self._check(folder)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of a SavedModel export that take text, under the same names."""
        return {
            "serving_default": self._translate,
            "greedy": self._greedy,
            "nbest": self._nbest,
            "align": self._align,
            "attention": self._attention,
        }

    def _check(self, folder: Path) -> None:
        largest = max(size.source for size in self._interpreters.sizes["search"])
        if largest < self._max_source:
            raise UserError(
                f"{folder / CARD}: does not fit {GRAPHS}, which reads {largest} tokens; "
                "export the run again"
            )

    # --- Translation ------------------------------------------------------------------------------

    def _translate(self, text: Texts) -> Arrays:
        return self._best(text, "search", count=1)

    def _greedy(self, text: Texts) -> Arrays:
        return self._best(text, "greedy")

    def _best(self, text: Texts, kind: str, **inputs: int) -> Arrays:
        """Return translation, score and truncated, [B] each."""
        encoded = [self._encode(each) for each in text]
        found = [self._search(kind, each, **inputs) for each in encoded]
        return {
            "translation": _strings([self._codec.decode(each["tokens"][0]) for each in found]),
            "score": np.array([each["scores"][0] for each in found], np.float32),
            "truncated": np.array([each.truncated for each in encoded], bool),
        }

    def _nbest(self, text: Texts) -> Arrays:
        """Return translations and scores [B, K], best first and no text twice, and truncated."""
        encoded = [self._encode(each) for each in text]
        beams = self.card["limits"]["beam_size"]
        lists = [self._distinct(self._search("search", each, count=beams)) for each in encoded]
        padded = [each + [(b"", MISSING_SCORE)] * (beams - len(each)) for each in lists]
        return {
            "translations": np.array([[t for t, _ in each] for each in padded], object),
            "scores": np.array([[score for _, score in each] for each in padded], np.float32),
            "truncated": np.array([each.truncated for each in encoded], bool),
        }

    def _distinct(self, found: Arrays) -> list[tuple[bytes, float]]:
        """Return the texts and scores of the hypotheses, each text once with its best score."""
        scores: dict[bytes, float] = {}
        for tokens, score in zip(found["tokens"], found["scores"], strict=True):
            if score > -np.inf:
                scores.setdefault(self._codec.decode(tokens), float(score))
        return list(scores.items())

    def _search(self, kind: str, source: Encoded, **inputs: int) -> Arrays:
        """Return tokens [K, T] and scores [K] for one source.

        The smallest graph has little room for the translation, which makes it fast. If a longer
        translation may be better, a graph with room for the longest allowed one searches again.
        """
        length = len(source.ids)
        if length < 2:  # EOS only
            return {"tokens": np.zeros((1, 1), np.int32), "scores": np.zeros(1, np.float32)}
        scalars = {name: np.array(value, np.int32) for name, value in inputs.items()}
        fitting = [size for size in self._interpreters.sizes[kind] if size.source >= length]
        found = self._run(kind, fitting[0], source=source.ids, **scalars)
        if not found["complete"]:
            roomy = next(size for size in fitting if size.target >= found["limit"])
            found = self._run(kind, roomy, source=source.ids, **scalars)
        return found

    # --- Force-decoding ---------------------------------------------------------------------------

    def _align(self, text: Texts, translation: Texts) -> Arrays:
        """Return the outputs of the signature `align`."""
        return self._force_decode("align", text, translation)

    def _attention(self, text: Texts, translation: Texts) -> Arrays:
        """Return the outputs of the signature `attention`."""
        return self._force_decode("attention", text, translation)

    def _force_decode(self, kind: str, text: Texts, translation: Texts) -> Arrays:
        largest = self._interpreters.sizes[kind][-1]
        rows = []
        for source_text, target_text in zip(text, translation, strict=True):
            source = self._codec.encode(source_text, min(self._max_source, largest.source)).ids
            target = self._codec.encode(target_text, largest.target).ids
            rows.append((source, target, self._forced(kind, source, target)))
        return _join(rows, self._codec.names)

    def _forced(self, kind: str, source: np.ndarray, target: np.ndarray) -> Arrays:
        size = next(
            size
            for size in self._interpreters.sizes[kind]
            if size.source >= len(source) and size.target >= len(target)
        )
        return self._run(kind, size, source=source, target=target)

    def _encode(self, text: bytes) -> Encoded:
        return self._codec.encode(text, self._max_source)

    def _run(self, kind: str, size: Size, **inputs: np.ndarray) -> Arrays:
        return self._interpreters.run(kind, size, **inputs)


def read_card(folder: Path) -> dict[str, Any]:
    """Return the model card of a LiteRT export.

    Raises:
        UserError: The card is missing or damaged.
    """
    path = folder / CARD
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {"max_source_length", "max_translation_length", "beam_size"} <= card["limits"].keys():
            return card
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise UserError(f"{path}: missing or damaged; export the run again")


# --- Batches --------------------------------------------------------------------------------------

Row = tuple[np.ndarray, np.ndarray, Arrays]
"""Source ids, target ids, and the outputs of force-decoding them."""

AXES = {
    "token_log_probs": ("target",),
    "attention": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "cross": ("target", "source"),
}
"""The last axes of each output: one entry per token of the source or of the target."""


def _join(rows: Sequence[Row], names: Callable[[np.ndarray], list[bytes]]) -> Arrays:
    """Join rows to a batch. Tokens are padded with '', all other outputs with 0."""
    sources, targets, outputs = zip(*rows, strict=True)
    lengths = {
        "source": np.array([len(ids) for ids in sources], np.int32),
        "target": np.array([len(ids) for ids in targets], np.int32),
    }
    joined: Arrays = {
        "source_tokens": _padded_strings([names(ids) for ids in sources]),
        "target_tokens": _padded_strings([names(ids) for ids in targets]),
        "source_length": lengths["source"],
        "target_length": lengths["target"],
    }
    for name in outputs[0]:
        axes = AXES[name]
        longest = [int(lengths[side].max()) for side in axes]
        leading = outputs[0][name].shape[: -len(axes)]
        joined[name] = np.zeros((len(rows), *leading, *longest), np.float32)
        for row, each in enumerate(outputs):
            real = (..., *(slice(int(lengths[side][row])) for side in axes))
            joined[name][row][real] = each[name][real]
    return joined


def _padded_strings(rows: Sequence[list[bytes]]) -> np.ndarray:
    longest = max(map(len, rows))
    return np.array([row + [b""] * (longest - len(row)) for row in rows], object)


def _strings(texts: Sequence[bytes]) -> np.ndarray:
    return np.array(texts, object)
