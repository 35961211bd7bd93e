"""Writing a SavedModel: text to text, for TensorFlow Serving or any TensorFlow with text ops."""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfnmt.decoding.signatures import signatures
from tfnmt.decoding.text import TEXT
from tfnmt.decoding.translator import Translator
from tfnmt.errors import UsageError
from tfnmt.exporting.models import CARD
from tfnmt.exporting.parity import certify
from tfnmt.exporting.replay import WARMUP
from tfnmt.exporting.warmup import check_warmup, write_warmup
from tfnmt.run import written_aside

PARITY = Path("assets.extra") / "parity.json"


class ServedTranslator(tf.Module):
    """What the SavedModel holds: a Translator's weights, tokenizer and graphs, and the model card.

    The Keras model itself stays out: saving it would trace its `call` with inputs of its own guess.
    """

    def __init__(self, translator: Translator, card: dict[str, Any]) -> None:
        super().__init__()
        self.weights = [variable.value for variable in translator.transformer.variables]
        self.pieces = translator.codec.pieces
        self.card = json.dumps(card, ensure_ascii=False)
        self.info = tf.function(self._info, input_signature=[TEXT], autograph=False)
        # Not `signatures`, a name that TensorFlow keeps for itself.
        self.graphs = {**signatures(translator), "info": self.info}

    def _info(self, text: Any) -> dict[str, Any]:
        """card [B]: the model card as JSON, which the server hides in assets.extra otherwise."""
        return {"card": tf.fill(tf.shape(text), self.card)}


def publish(
    translator: Translator,
    card: dict[str, Any],
    texts: Sequence[str],
    path: Path,
) -> dict[str, Any]:
    """Writes a version, complete at once, if it answers some texts as the Translator does.

    The server polls for new versions: one is written aside and renamed. Returns the certificate.
    """
    module = ServedTranslator(translator, card)
    with written_aside(path) as aside:
        aside.mkdir()
        _save(module, aside)
        by_length = sorted(texts, key=len)
        write_warmup(aside / WARMUP, *(by_length[len(texts) * share // 10] for share in (5, 9)))
        # From another place than it was written to: nothing in it may point to itself.
        moved = aside.rename(aside.with_name(f"{aside.name}.moved"))
        try:
            with ThreadPoolExecutor() as pool:  # what other processes do takes as long as ours
                replayed = pool.submit(check_warmup, moved)
                certificate = certify(module.graphs, texts, moved)
            certificate["warm_up_requests"] = replayed.result()
        finally:
            moved.rename(aside)
        _write_json(aside / PARITY, certificate)
    return certificate


def next_version(folder: Path) -> int:
    """The first number above those that are there."""
    return max(versions(folder), default=0) + 1


def versions(folder: Path) -> list[int]:
    """The numbers of the versions below a folder, rising."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def check_free(path: Path) -> None:
    """Raises where a version is there already: a server may be reading it."""
    if path.exists():
        raise UsageError(f"--version={path.name}: {path} is there already; choose another number")


def remove_old(folder: Path, keep: int) -> list[int]:
    """Removes all but the highest versions; returns their numbers."""
    old = versions(folder)[:-keep]
    for version in old:
        # Out of the server's sight at once, for it must not see half a version.
        aside = (folder / str(version)).rename(folder / f".{version}.removed")
        shutil.rmtree(aside)
    return old


def _save(module: ServedTranslator, folder: Path) -> None:
    try:
        tf.saved_model.save(module, str(folder), signatures=module.graphs)
    except tf.errors.OpError as error:
        raise OSError(error.message) from error
    (folder / CARD).parent.mkdir()
    (folder / CARD).write_text(module.card, encoding="utf-8")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
