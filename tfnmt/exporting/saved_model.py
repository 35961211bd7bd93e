"""Writing a SavedModel: text to text, for TensorFlow Serving or any TensorFlow with text ops."""

import json
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfnmt.decoding.signatures import signatures
from tfnmt.decoding.translator import Translator
from tfnmt.exporting.models import CARD
from tfnmt.run import written_aside


class ServedTranslator(tf.Module):
    """What the SavedModel holds: a Translator's weights, tokenizer and graphs.

    The Keras model itself stays out: saving it would trace its `call` with inputs of its own guess.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        self.weights = [variable.value for variable in translator.transformer.variables]
        self.pieces = translator.codec.pieces
        self.graphs = signatures(
            translator
        )  # `signatures` is a name that TensorFlow keeps for itself


def export_translator(translator: Translator, card: dict[str, Any], folder: Path) -> Path:
    """Writes the next version below `folder`, complete at once; returns its folder.

    The server polls for new versions: one is written aside and renamed.
    """
    path = folder / str(max(versions(folder), default=0) + 1)
    module = ServedTranslator(translator)
    with written_aside(path) as aside:
        aside.mkdir()
        try:
            tf.saved_model.save(module, str(aside), signatures=module.graphs)
        except tf.errors.OpError as error:
            raise OSError(error.message) from error
        (aside / CARD).parent.mkdir()
        (aside / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return path


def versions(folder: Path) -> list[int]:
    """The numbers of the versions below a folder."""
    if not folder.is_dir():
        return []
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
